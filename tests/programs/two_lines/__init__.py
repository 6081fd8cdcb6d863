"""Training scripts as people write them; `test_two_line_scripts.py` changes two of their lines."""
