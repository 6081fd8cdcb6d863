"""Random networks for `tp.compile` (``python -m tests.fuzzing.programs``)."""
