"""Transforms: `pad_to_limits.py` pads a DGLGraph; the transforms in `random_changes.py` change whole padded batches."""
