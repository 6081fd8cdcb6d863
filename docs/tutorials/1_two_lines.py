"""
Two lines
=========

A training script batches 64 graphs at a time. This page changes two of its lines: the loader, so that all batches fit
one shape, and the model, so that it is compiled for this shape. It shows what changes in the batches, and that nothing
changes in the results. With DGL, the same two lines change.
"""

# %%
# A dataset and a model
# ---------------------
#
# These graphs are random, with the sizes of the training molecules of ogbg-molhiv, which the package includes.

import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINConv, global_add_pool

import dgl_tuplepack as tp

num_graphs = 4000

sizes = tp.load_example("ogbg-molhiv")
rng = np.random.default_rng(0)
chosen = rng.choice(len(sizes.counts), num_graphs, p=sizes.counts / sizes.counts.sum())

torch.set_num_threads(1)
torch.manual_seed(0)
dataset = []
for nodes, edges in sizes.sizes[chosen].tolist():
    x = torch.randn(nodes, 8)
    label = (x[:, 0].sum() > 0).float().reshape(1, 1)  # 1 if the first feature has a positive sum
    dataset.append(Data(x=x, edge_index=torch.randint(nodes, (2, edges)), y=label))


class Model(torch.nn.Module):
    """Three layers of GIN with batch norms, and a sum over nodes."""

    def __init__(self, width=64):
        super().__init__()
        self.encode, self.head = torch.nn.Linear(8, width), torch.nn.Linear(width, 1)
        self.convs = torch.nn.ModuleList(GINConv(torch.nn.Linear(width, width)) for _ in range(3))
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(width) for _ in range(3))

    def forward(self, data):
        """Return one number for each graph."""
        h = self.encode(data.x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            h = h + norm(conv(h, data.edge_index)).relu()
        return self.head(global_add_pool(h, data.batch, data.num_graphs))


# %%
# The first line: the loader
# --------------------------
#
# Every batch of the usual loader has 64 graphs (except the last), but another number of nodes. Ours has 64 graphs, too.
# It shuffles the graphs in each epoch, and then exchanges a few of them between batches, until all fit one shape.

number = num_graphs * 8 // 10
splits = {"train": range(number), "valid": range(number, num_graphs)}
plain = DataLoader([dataset[i] for i in splits["train"]], batch_size=64, shuffle=True)
loaders = tp.packed_loader(dataset, batch_size=64, splits=splits)
loader = loaders["train"]

print(loader.shape)
with torch.no_grad():  # so that this does not count as an epoch of training
    shuffled, exchanged = ([data.num_nodes for data in each] for each in (plain, loader))

figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
for axis, nodes, most, title in (
    (axes[0], shuffled, max(shuffled), "DataLoader"),
    (axes[1], exchanged, loader.shape.nodes, "packed_loader"),
):
    axis.bar(range(len(nodes)), most, color="lightgrey", label="padding to one shape")
    axis.bar(range(len(nodes)), nodes, color="tab:blue", label="nodes of graphs")
    axis.set(title=title, xlabel="batch")
axes[0].set(ylabel="nodes")
axes[1].legend(loc="lower right")

# %%
# The second line: the model
# --------------------------
#
# The compiled model pads each batch inside, and returns the rows of real graphs. It shares the parameters of the plain
# one. The first call compiles, and compares outputs and gradients with those of the plain model: if padding or the
# compiler changed them, it would raise an error that names the layer.

plain_model = Model()
model = tp.compile(plain_model, loader)
optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
loss_fn = torch.nn.BCEWithLogitsLoss()

losses = []
for _ in range(3):
    for data in loader:
        loss = loss_fn(model(data), data.y)
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
# Batches of splits that are not shuffled come in the order of the dataset, and outputs have no padding.

model.eval()
with torch.no_grad():
    scores = torch.cat([model(data) for data in loaders["valid"]])
labels = torch.cat([dataset[i].y for i in splits["valid"]])
print(f"accuracy {((scores > 0) == (labels > 0)).double().mean():.1%}")

with torch.no_grad():
    expected = torch.cat([plain_model(data) for data in loaders["valid"]])
print(f"largest difference from the plain model: {(scores - expected).abs().max():.1e}")

# %%
# How fast is it?
# ---------------
#
# Whole steps, with loading. Measure your own model: wide layers gain less, because matrix products take their time.


def seconds_per_step(model, batches, steps=20):
    """Train for some steps; return the seconds of one."""
    begin = time.perf_counter()
    for data, _ in zip(batches, range(steps), strict=False):
        optimiser.zero_grad()
        loss_fn(model(data), data.y).backward()
        optimiser.step()
    return (time.perf_counter() - begin) / steps


model.train()
took = {
    "as before": seconds_per_step(plain_model, plain),
    "two lines": seconds_per_step(model, loader),
}
figure, axes = plt.subplots(figsize=(6, 1.5), layout="constrained")
axes.barh(list(took), [1000 * value for value in took.values()])
axes.set(xlabel="milliseconds per step")

# %%
# :doc:`/howto/two-lines` says what is padded, and what to do about an error.
