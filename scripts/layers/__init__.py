"""Modules of `list_layers.py`: the construction and calls of layers, the comparison, and the page."""
