"""Generated input for the command line and the readers (``python -m tests.fuzzing``), and networks for `tp.compile`
(``python -m tests.fuzzing.programs``).
"""
