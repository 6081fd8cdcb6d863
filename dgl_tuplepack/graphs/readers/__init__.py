"""Readers: one file for each kind of source; `KINDS` in kinds.py lists them."""
