"""Training scripts as people write them, with the loaders of DGL and PyG; `test_two_line_scripts.py` changes two lines."""
