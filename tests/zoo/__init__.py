"""Whole models as training scripts have them, each for DGL and for PyG; `tests.zoo.models` lists them.

The same class runs on a plain batch, on a batch of a store, on a padded batch and in compiled code.
"""
