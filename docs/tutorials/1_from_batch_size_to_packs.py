"""
From ``batch_size=64`` to packs
===============================

A training script batches 64 graphs at a time. This page replaces its loader with one whose batches all have the same
shape, first with DGL, then with PyG, and shows what changes and what does not.
"""

# %%
# A dataset
# ---------
#
# Any list of graphs and labels will do. These graphs are random, but their sizes are drawn from the sizes of the
# training molecules of ogbg-molhiv, a dataset of OGB. The package includes these sizes as an example.

import dgl
import matplotlib.pyplot as plt
import numpy as np
import torch

import dgl_tuplepack as tp

num_graphs = 4000

sizes = tp.load_example("ogbg-molhiv")
rng = np.random.default_rng(0)
chosen = rng.choice(len(sizes.counts), num_graphs, p=sizes.counts / sizes.counts.sum())

torch.manual_seed(0)
dataset = []
for nodes, edges in sizes.sizes[chosen].tolist():
    graph = dgl.rand_graph(nodes, edges)
    graph.ndata["x"] = torch.randn(nodes, 8)
    label = graph.ndata["x"].sum(0)[:1].sign().clamp(min=0)  # 1 if the first feature has a positive sum
    dataset.append((graph, label))

print(len(dataset), "graphs;", dataset[0])

# %%
# The usual loader
# ----------------
#
# Every batch (except the last) has 64 graphs, but the numbers of nodes and edges vary from batch to batch.

plain = dgl.dataloading.GraphDataLoader(dataset, batch_size=64, shuffle=True)
plain_nodes = [graph.num_nodes() for graph, labels in plain]

# %%
# The packed loader
# -----------------
#
# ``graphs_per_batch`` takes the place of ``batch_size``: batches hold about 64 graphs on average. A *pack* is a set of
# graphs that together stay within a limit on nodes and a limit on edges. The loader searches for good limits, plans
# which graphs share a pack, and pads every batch, which holds one pack or more, to one shape.

loader = tp.packed_loader(dataset, graphs_per_batch=64)
with torch.no_grad():  # so that this does not count as an epoch of training
    batches = list(loader)
batch = batches[0]

print("limits of a pack:", loader.limits)
print("packs in a batch:", loader.packs_per_batch)
print("graphs per batch:", round(loader.graphs_per_batch, 1))
print("shape:", len(batch.node_mask), "nodes,", len(batch.edge_mask), "edges,", len(batch.graph_mask), "graphs")

# %%
# Each bar shows the nodes of one batch, over one epoch. The grey tips in the right plot are padding.

packed_nodes = [batch.num_real_nodes for batch in batches]
slots = len(batch.node_mask)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
left.bar(range(len(plain_nodes)), plain_nodes, color="tab:blue")
left.set(title="batch_size=64", xlabel="batch", ylabel="nodes")
right.bar(range(len(packed_nodes)), slots, color="lightgrey", label="padding")
right.bar(range(len(packed_nodes)), packed_nodes, color="tab:orange", label="graphs")
right.set(title="graphs_per_batch=64", xlabel="batch")
right.legend(loc="lower right")

# %%
# A *slot* is a row of a padded batch, such as room for one node. Nearly all node slots are filled by graphs:

filled = sum(packed_nodes) / (slots * len(packed_nodes))
print(f"{filled:.1%} of the node slots hold nodes of graphs")

# %%
# Train with DGL
# --------------
#
# The model is an ordinary DGL model. ``GraphConv`` needs ``allow_zero_in_degree=True``, because a padding node may have
# no incoming edge. Three things are new in the training loop: ``set_epoch``, ``batch.graph``, which is the batch as a
# DGLGraph, and ``tp.nn.masked_loss``, which leaves out padding.
#
# The loss divides by ``count``, the mean number of graphs per batch, not by the number of graphs in this batch. So
# every graph has the same weight, although some batches hold more graphs than others.


class Model(torch.nn.Module):
    """Two graph convolutions and a sum over nodes."""

    def __init__(self):
        super().__init__()
        self.first = dgl.nn.GraphConv(8, 32, allow_zero_in_degree=True)
        self.second = dgl.nn.GraphConv(32, 32, allow_zero_in_degree=True)
        self.head = torch.nn.Linear(40, 1)

    def forward(self, graph):
        """Return one number for each graph."""
        with graph.local_scope():
            x = graph.ndata["x"]
            h = self.second(graph, self.first(graph, x).relu()).relu()
            graph.ndata["h"] = torch.cat([h, x], dim=1)
            return self.head(dgl.sum_nodes(graph, "h"))


torch.manual_seed(0)
model = Model()
optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = torch.nn.BCEWithLogitsLoss(reduction="none")

losses = []
for epoch in range(3):
    loader.set_epoch(epoch)  # a new order, and other graphs of the same sizes in each pack
    for batch in loader:
        output = model(batch.graph)
        loss = tp.nn.masked_loss(loss_fn, output, batch.labels, batch, count=loader.graphs_per_batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.plot(losses)
axes.set(xlabel="step", ylabel="loss")

# %%
# Evaluate
# --------
#
# Batches do not come in the order of the dataset. ``tp.Predictions`` collects the outputs of all batches, leaves out
# padding, and returns one row for each graph, in the order of the dataset. Here we evaluate on the training graphs.

predictions = tp.Predictions(len(dataset))
with torch.no_grad():
    for batch in loader:
        predictions.add(batch, model(batch.graph))

labels = torch.stack([label for graph, label in dataset])
right = (predictions.result() > 0) == (labels > 0)
print(f"accuracy {right.double().mean():.1%}")

# %%
# The same with PyG
# -----------------
#
# A dataset of PyG graphs is packed in the same way, and ``batch.pyg`` is a PyG batch of static shape. Layers and
# pools get the same arguments as before. ``data.num_graphs`` is the number of graph slots, which is the same in every
# batch. Pass it to pools, so that they return a row for each slot.

from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_add_pool

pyg_dataset = [
    Data(x=graph.ndata["x"], edge_index=torch.stack(graph.edges()), y=label[None]) for graph, label in dataset
]
pyg_loader = tp.packed_loader(pyg_dataset, graphs_per_batch=64)

conv, head = GCNConv(8, 32), torch.nn.Linear(32, 1)
optimiser = torch.optim.Adam([*conv.parameters(), *head.parameters()], lr=3e-3)
for batch in pyg_loader:
    data = batch.pyg
    pooled = global_add_pool(conv(data.x, data.edge_index).relu(), data.batch, data.num_graphs)
    loss = tp.nn.masked_loss(loss_fn, head(pooled), data.y, batch, count=pyg_loader.graphs_per_batch)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()

print(data)

# %%
# What to read next
# -----------------
#
# - Models with batch norms need two more lines: :doc:`/howto/norms`.
# - The next tutorial compares results with and without padding, and you can run it on your own model:
#   :doc:`/gallery/2_padding_changes_nothing`.
