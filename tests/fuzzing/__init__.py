"""Generated input for the command line and for the readers of all files: ``python -m tests.fuzzing --seconds 60``."""
