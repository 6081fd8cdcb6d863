"""The algorithms that the stages of "auto" use; the stages are in `auto.py`."""
