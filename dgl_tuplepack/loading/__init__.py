"""The main entry: one call from a source to a loader, and drop-in loaders for DGL and PyG.

In: a store, a path or any dataset. Out: loaders of batches (`packed_loader`, `GraphDataLoader`, `pyg.DataLoader`), a
dataset of packs (`PackedDataset`), and models that pad ordinary batches inside (``compile(model, loader)``). Start with
`make_loader.py`; for models, with `static_model.py`.
It may use `_core`, `planning`, `graphs`, `compiling`, `nn`, `batches`, `sampling` and `storage`.
"""
