"""
Compile a step
==============

``torch.compile`` works best with static shapes, and needs operations that it can trace. Packed batches have static
shapes, and a `tp.TensorGraph <dgl_tuplepack.TensorGraph>` has the interface of a DGLGraph but consists of torch
operations. So the forward and backward pass of a training step, written with DGL's layers, can be compiled as a whole.
This page compiles one, compares its results with uncompiled code, and measures its speed.
"""

# %%
# A model of DGL layers
# ---------------------

import copy
import time

import dgl
import matplotlib.pyplot as plt
import numpy as np
import torch

import dgl_tuplepack as tp

num_graphs = 2000
torch.manual_seed(0)
torch.set_num_threads(1)

sizes = tp.load_example("ogbg-molhiv")
rng = np.random.default_rng(0)
chosen = rng.choice(len(sizes.counts), num_graphs, p=sizes.counts / sizes.counts.sum())
dataset = []
for nodes, edges in sizes.sizes[chosen].tolist():
    graph = dgl.rand_graph(nodes, edges)
    graph.ndata["x"] = torch.randn(nodes, 8)
    dataset.append((graph, torch.randn(1)))


class Model(torch.nn.Module):
    """Three layers of GIN with batch norms, and a mean over nodes."""

    def __init__(self, width=32):
        super().__init__()
        self.embed = torch.nn.Linear(8, width)
        self.convs = torch.nn.ModuleList(
            dgl.nn.GINConv(
                torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width), torch.nn.ReLU())
            )
            for _ in range(3)
        )
        self.head = torch.nn.Linear(width, 1)

    def forward(self, graph):
        """Return one number for each graph."""
        with graph.local_scope():
            h = self.embed(graph.ndata["x"])
            for conv in self.convs:
                h = conv(graph, h)
            graph.ndata["h"] = h
            return self.head(dgl.mean_nodes(graph, "h"))


# %%
# The step as a function of tensors
# ---------------------------------
#
# The compiled function receives ``batch.tensors``, a tuple of the tensors of a batch. Its ``graph`` is a TensorGraph,
# which DGL's layers accept. ``count`` is the mean number of graphs per batch. It is passed as a tensor, because a
# Python number would become a constant of the compiled code.

loader = tp.packed_loader(dataset, graphs_per_batch=64)
model = tp.nn.convert(Model())
loss_fn = torch.nn.MSELoss(reduction="none")
count = loader.sampler.count_tensor


def loss_of(t, count):
    """Return the loss of a batch."""
    with tp.nn.masked(t):
        output = model(t.graph)
    return tp.nn.masked_loss(loss_fn, output, t.labels, t, count=count)


step = tp.compile(loss_of)

# %%
# The first call compiles, which takes a while. This happens only once, because all batches have one shape.

batch = next(iter(loader))
state = copy.deepcopy(model.state_dict())
begin = time.perf_counter()
compiled_loss = step(batch.tensors, count)
compiled_loss.backward()
print(f"first step: {time.perf_counter() - begin:.0f} s")

# %%
# The results are those of the uncompiled function
# ------------------------------------------------
#
# The loss and the gradients of the compiled and of the uncompiled function agree, apart from rounding.

compiled_gradients = [weight.grad.clone() for weight in model.parameters()]
model.load_state_dict(state)  # also restores the running statistics of the norms
model.zero_grad()
loss = loss_of(batch.tensors, count)
loss.backward()

print(f"loss {loss.item():.6f}, compiled {compiled_loss.item():.6f}")
for weight, gradient in zip(model.parameters(), compiled_gradients, strict=True):
    torch.testing.assert_close(weight.grad, gradient, rtol=1e-3, atol=1e-4)

# %%
# How much faster?
# ----------------
#
# We compare whole steps (loading, forward, backward, optimiser) in three variants: DGL's loader and batches; packed
# batches with the same layers; and packed batches with the compiled step. Measure on your own machine and model: wide
# layers gain less, because matrix products take most of their time.


def steps_per_second(loss_of_batch, batches, number=20):
    """Train on up to `number` batches; return steps per second."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    begin, done = time.perf_counter(), 0
    for batch, _ in zip(batches, range(number), strict=False):
        optimiser.zero_grad()
        loss_of_batch(batch).backward()
        optimiser.step()
        done += 1
    return done / (time.perf_counter() - begin)


def plain_loss_of(batch):
    """Return the loss of a batch of DGL's own loader, which has no padding."""
    graph, labels = batch
    with tp.nn.masked(None):
        return loss_fn(model(graph), labels).mean()


def padded_loss_of(batch):
    """Return the loss of a padded batch, uncompiled and with a DGLGraph."""
    with tp.nn.masked(batch):
        output = model(batch.graph)
    return tp.nn.masked_loss(loss_fn, output, batch.labels, batch, count=loader.graphs_per_batch)


def packed_batches():
    """Yield packed batches, epoch after epoch."""
    for epoch in range(1, 100):
        loader.set_epoch(epoch)
        yield from loader


plain_loader, packed = dgl.dataloading.GraphDataLoader(dataset, batch_size=64, shuffle=True), packed_batches()
rates = {}
for _ in range(2):  # the second round counts: the first one warms up
    rates = {
        "DGL": steps_per_second(plain_loss_of, plain_loader),
        "packed": steps_per_second(padded_loss_of, packed),
        "compiled": steps_per_second(lambda batch: step(batch.tensors, count), packed),
    }

figure, axes = plt.subplots(figsize=(6, 2), layout="constrained")
axes.barh(list(rates), [rate / rates["DGL"] for rate in rates.values()])
axes.set(xlabel="steps per second, relative to DGL's loader and batches")
axes.invert_yaxis()

# %%
# If something does not compile
# -----------------------------
#
# ``loss_of`` also runs uncompiled; use that to debug it. :doc:`/reference/layers` lists the DGL layers that run on a
# TensorGraph and compile. :doc:`/howto/compile` lists operations that cannot be compiled, and a remedy for each.
#
# PyG models do not need a TensorGraph: write ``loss_of`` for a PyG batch, and call ``step(batch.pyg, count)``.
