"""
From ``batch_size=64`` to packs
===============================

A training script batches 64 graphs at a time. This page replaces its loader by one whose batches all have the same
shape, first with DGL, then with PyG, and shows what changes and what does not.
"""

# %%
# A dataset
# ---------
#
# Any list of graphs and labels will do. These graphs are random, but their sizes are those of the molecules of
# ogbg-molhiv, which are packaged as an example.

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
# Every batch has 64 graphs, but the number of nodes and edges varies from batch to batch.

plain = dgl.dataloading.GraphDataLoader(dataset, batch_size=64, shuffle=True)
plain_nodes = [graph.num_nodes() for graph, labels in plain]

# %%
# The packed loader
# -----------------
#
# ``graphs_per_batch`` takes the place of ``batch_size``. Batches hold 64 graphs on average. The loader searches for
# limits on nodes and edges, plans which graphs share a pack, and pads every batch to one shape.

loader = tp.packed_loader(dataset, graphs_per_batch=64)
with torch.no_grad():  # so that this does not count as an epoch of training
    batches = list(loader)
batch = batches[0]

print("limits of a pack:", loader.limits)
print("packs in a batch:", loader.packs_per_batch)
print("graphs per batch:", round(loader.graphs_per_batch, 1))
print("shape:", len(batch.node_mask), "nodes,", len(batch.edge_mask), "edges,", len(batch.graph_mask), "graphs")

# %%
# Here are the nodes of all batches of one epoch. The grey tips on the right are padding.

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
# All batches but the last are nearly full:

filled = sum(packed_nodes) / (slots * len(packed_nodes))
print(f"{filled:.1%} of the node slots hold nodes of graphs")

# %%
# Train with DGL
# --------------
#
# The model is unchanged. ``allow_zero_in_degree=True`` is needed because a padding node may have no edges. Two things
# are new: ``batch.graph`` is the DGLGraph, and the loss leaves out padding.
#
# The loss divides by ``count``, the mean number of graphs per batch, not by the number of graphs in this batch. Then
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
    loader.set_epoch(epoch)  # a new order, and new packs of the same sizes
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
# Batches come in the order of a plan. ``tp.Predictions`` collects the outputs of all batches, leaves out padding, and
# returns one row for each graph, in the order of the dataset.

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
# pools get the same arguments as before; ``data.num_graphs`` counts slots, which pools need.

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
# - Models with batch norms need one more line: see the how-to about norms.
# - The next tutorial proves, on your own numbers, that padding changes nothing.
