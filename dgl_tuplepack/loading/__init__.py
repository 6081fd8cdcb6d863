"""The main entry: one call from a source to a loader, and drop-in loaders for DGL and PyG.

In: a store, a path or any dataset. Out: loaders of batches (`packed_loader`, `GraphDataLoader`, `pyg.DataLoader`), and
a dataset of packs (`PackedDataset`). Start with `make_loader.py`.
It may use `_core`, `planning`, `graphs`, `nn`, `batches`, `sampling` and `storage`.
"""
