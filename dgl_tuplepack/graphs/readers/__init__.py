"""Readers: one module for each kind of source. `KINDS` in kinds.py lists the kinds."""
