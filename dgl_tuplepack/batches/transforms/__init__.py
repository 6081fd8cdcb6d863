"""Transforms: `pad_to_limits.py` pads a DGLGraph; the transforms in `batches.py` change whole padded batches."""
