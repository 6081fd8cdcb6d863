"""The main entry: one call from a source to a loader, and drop-in loaders for DGL and PyG.

In: a store, a path or any dataset. Out: loaders of batches (`packed_loader`, `GraphDataLoader`, `pyg.DataLoader`), and
a dataset of packs (`PackedDataset`). It may use all rooms up to `storage`.
"""
