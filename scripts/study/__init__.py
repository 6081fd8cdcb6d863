"""Parts of ``study_training.py``."""
