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
# ``tp.preprocess`` accepts a list, a dataset, an OGB folder, a ``.bin`` file of DGL, and other sources. It writes the
# graphs to a store, searches limits, makes a plan for each split, and verifies the checksums of the files. The splits
# are the attribute ``splits`` of the dataset, here one for training and one for validation.

import tempfile
import time
from pathlib import Path

import dgl
import matplotlib.pyplot as plt
import numpy as np
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.tools import plots

num_graphs = 4000
torch.manual_seed(0)

sizes = tp.load_example("ogbg-molhiv")
rng = np.random.default_rng(0)
chosen = rng.choice(len(sizes.counts), num_graphs, p=sizes.counts / sizes.counts.sum())
dataset = []
for nodes, edges in sizes.sizes[chosen].tolist():
    graph = dgl.rand_graph(nodes, edges)
    graph.ndata["x"] = torch.randn(nodes, 8)
    dataset.append((graph, torch.randn(1)))


class Molecules(torch.utils.data.Dataset):
    """The graphs, with a split for training and one for validation."""

    def __init__(self):
        order = rng.permutation(num_graphs).tolist()
        self.splits = {"train": order[: num_graphs * 8 // 10], "valid": order[num_graphs * 8 // 10 :]}

    def __len__(self):
        return num_graphs

    def __getitem__(self, i):
        return dataset[i]


molecules = Molecules()
folder = Path(tempfile.mkdtemp()) / "molecules"
made = tp.preprocess(molecules, folder, graphs_per_batch=64)
print(made)

# %%
# What is in the folder
# ---------------------
#
# The arrays are ``.npy`` files, which ``metadata.json`` describes (:doc:`/reference/format`). On the command line,
# ``dgl-tuplepack info`` shows the contents of a store, and ``dgl-tuplepack verify`` compares every byte with its
# checksums.

for path in sorted(folder.rglob("*")):
    if path.is_file():
        print(f"{path.stat().st_size:>10,}  {path.relative_to(folder)}")

# %%
# Open it
# -------
#
# Opening a store reads no graphs, so it takes milliseconds, in every worker and rank. The operating system reads a part
# of a file when a batch needs it, and shares it between processes. So a dataset may be larger than memory.

store = tp.GraphStore(folder)
print(len(store), "graphs;", {name: len(ids) for name, ids in store.splits.items()})
graph, label = store[0]
print(graph)

# %%
# The sizes of the graphs, and the limits of a pack that ``preprocess`` chose:

plots.plot_sizes(store.histogram, made.limits)

# %%
# Train from it
# -------------
#
# ``splits=True`` makes a loader for each split of the store; the batches of all splits have one shape. The loaders use
# the limits and plans that ``preprocess`` saved in the folder.

loaders = tp.packed_loader(folder, graphs_per_batch=64, splits=True)
for name, loader in loaders.items():
    batch = next(iter(loader))
    print(name, len(loader), "batches,", len(batch.node_mask), "nodes,", len(batch.edge_mask), "edges")

# %%
# How fast is it?
# ---------------
#
# We compare three loaders with 64 graphs per batch (the packed one with about 64): DGL's loader on the list; on the
# store, ``tp.GraphDataLoader``, which makes the same batches as DGL's loader; and ``packed_loader`` on the store.


def seconds(batches):
    """Return the time to go through the batches once."""
    begin = time.perf_counter()
    with torch.no_grad():  # this is not an epoch of training
        for _ in batches:
            pass
    return time.perf_counter() - begin


train = store.subset(store.splits["train"])
ways = {
    "DGL's loader, list": dgl.dataloading.GraphDataLoader(
        [dataset[i] for i in molecules.splits["train"]], batch_size=64
    ),
    "tp.GraphDataLoader, store": tp.GraphDataLoader(train, batch_size=64),
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
# Several machines, several files
# -------------------------------
#
# ``tp.preprocess_shards`` does the same for a dataset in many files. It writes a store, called a *shard*, for each
# file, with one process for each core or on a cluster. A `tp.MultiStore <dgl_tuplepack.MultiStore>` reads all shards as
# one store. :doc:`/howto/shards` has the details.

paths = []
for number, part in enumerate(np.array_split(np.arange(num_graphs), 3)):
    paths.append(str(folder.parent / f"part-{number}.bin"))
    dgl.save_graphs(paths[-1], [dataset[i][0] for i in part], {"y": torch.stack([dataset[i][1] for i in part])})

tp.preprocess_shards(paths, folder.parent / "shards", workers=1)
shards = tp.MultiStore(folder.parent / "shards")
batch = next(iter(tp.packed_loader(shards, graphs_per_batch=64)))
print(len(shards), "graphs in 3 shards; a batch of", batch.num_real_graphs)
