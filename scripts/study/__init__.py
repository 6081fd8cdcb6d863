"""Modules of ``study_training.py``."""
