"""Transforms: one that pads graphs, and some of whole padded batches."""
