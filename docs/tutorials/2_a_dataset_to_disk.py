"""
Write a dataset to disk
=======================

A loader that collates Python objects graph by graph can take a large part of the training time of a small network. A
`tp.GraphStore <dgl_tuplepack.GraphStore>` keeps all graphs in a few memory-mapped files, and makes a whole batch in
one pass. This page writes a store, looks into it, and makes batches from it.
"""

# %%
# Write once
# ----------
#
# ``tp.preprocess`` accepts a list, a dataset of PyG or DGL, an OGB folder, and other sources. It writes the graphs to a
# store, chooses the shape of batches of 64 graphs, plans packs, and verifies the checksums of the files. The splits are
# the attribute ``splits`` of the dataset.

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.tools import plots

num_graphs = 4000
torch.manual_seed(0)

sizes = tp.load_example("ogbg-molhiv")
rng = np.random.default_rng(0)
chosen = rng.choice(len(sizes.counts), num_graphs, p=sizes.counts / sizes.counts.sum())
dataset = []
for nodes, edges in sizes.sizes[chosen].tolist():
    edge_index = torch.randint(nodes, (2, edges))
    dataset.append(Data(x=torch.randn(nodes, 8), edge_index=edge_index, y=torch.randn(1, 1)))


class Molecules(torch.utils.data.Dataset):
    """The graphs, with a split for training and one for validation."""

    def __init__(self):
        order = rng.permutation(num_graphs).tolist()
        number = num_graphs * 8 // 10
        self.splits = {"train": order[:number], "valid": order[number:]}

    def __len__(self):
        return num_graphs

    def __getitem__(self, i):
        return dataset[i]


molecules = Molecules()
folder = Path(tempfile.mkdtemp()) / "molecules"
made = tp.preprocess(molecules, folder, batch_size=64)
print(made.static_shape)

# %%
# What is in the folder
# ---------------------
#
# The arrays are ``.npy`` files, which ``metadata.json`` describes (:doc:`/reference/format`). ``dgl-tuplepack info``
# shows the contents of a store, and ``dgl-tuplepack verify`` compares every byte with its checksums.

for path in sorted(folder.rglob("*")):
    if path.is_file():
        print(f"{path.stat().st_size:>10,}  {path.relative_to(folder)}")

# %%
# Open it
# -------
#
# Opening a store reads no graphs, so it takes milliseconds. The operating system reads a part of a file when a batch
# needs it, so a dataset may be larger than memory.

store = tp.GraphStore(folder)
print(len(store), "graphs;", {name: len(ids) for name, ids in store.splits.items()})
print(store.batched(framework="pyg")[0])

# %%
# The sizes of the graphs:

figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
plots.plot_sizes(store.histogram, ax=axes)

# %%
# Train from it
# -------------
#
# ``splits=True`` makes a loader for each split of the store. The first uses the shape that ``preprocess`` saved.

loaders = tp.packed_loader(folder, batch_size=64, splits=True)
for name, loader in loaders.items():
    print(name, len(loader), "batches;", next(iter(loader)))

# %%
# How fast is it?
# ---------------
#
# Three loaders with 64 graphs per batch: PyG's on the list; ``tp.pyg.DataLoader`` on the store, which makes the same
# batches; and ``packed_loader`` on the store.


def seconds(batches):
    """Return the time to go through the batches once."""
    begin = time.perf_counter()
    with torch.no_grad():  # this is not an epoch of training
        for _ in batches:
            pass
    return time.perf_counter() - begin


train = store.subset(store.splits["train"])
ways = {
    "PyG's loader, list": DataLoader([dataset[i] for i in store.splits["train"]], batch_size=64),
    "tp.pyg.DataLoader, store": tp.pyg.DataLoader(train, batch_size=64),
    "packed_loader, store": loaders["train"],
}
for batches in ways.values():
    seconds(batches)  # warm up
took = {name: seconds(batches) for name, batches in ways.items()}

figure, axes = plt.subplots(figsize=(7, 2), layout="constrained")
axes.barh(list(took), [1000 * value / len(ways[name]) for name, value in took.items()])
axes.set(xlabel="milliseconds per batch")
axes.invert_yaxis()

# %%
# ``tp.preprocess_shards`` does the same for a dataset in many files, with many processes: :doc:`/howto/shards`.
