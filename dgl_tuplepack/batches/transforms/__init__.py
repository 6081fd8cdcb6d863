"""Transforms: one pads graphs; the others change whole padded batches."""
