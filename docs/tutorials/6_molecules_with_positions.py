"""
Molecules with positions
========================

Models of atoms in space compute distances and angles. If all padding nodes have the same position, the distance between
two of them is 0. The derivative of the square root at 0 is infinite, and infinity times 0 is NaN. So the gradients of
shared weights become NaN, even if the loss leaves out padding. This page shows the problem, and the one argument that
avoids it.
"""

# %%
# Points in space, with edges between neighbours
# ----------------------------------------------

import dgl
import matplotlib.pyplot as plt
import torch

import dgl_tuplepack as tp

torch.manual_seed(0)
cutoff = 2.0


def cloud(number):
    """Return a graph of random points, with an edge between any two that are closer than the cutoff."""
    positions = torch.rand(number, 3) * number ** (1 / 3) * 1.2
    distances = torch.cdist(positions, positions) + 2 * cutoff * torch.eye(number)
    graph = dgl.graph(tuple((distances < cutoff).nonzero().T), num_nodes=number)
    graph.ndata["pos"], graph.ndata["kind"] = positions, torch.randint(4, (number,))
    return graph


dataset = []
for number in range(200):
    graph = cloud(8 + number % 17)
    target = torch.pdist(graph.ndata["pos"]).mean()[None]  # the mean distance of two atoms
    dataset.append((graph, target))

# %%
# A small continuous-filter network
# ---------------------------------
#
# Each message depends on the length of its edge.


class Model(torch.nn.Module):
    """Two rounds of messages, weighted by Gaussians of the distance."""

    def __init__(self, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(4, width)
        self.filters = torch.nn.ModuleList(torch.nn.Linear(16, width) for _ in range(2))
        self.updates = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(2))
        self.head = torch.nn.Linear(width, 1)
        self.register_buffer("centres", torch.linspace(0, cutoff, 16))

    def forward(self, graph):
        """Return one number for each graph."""
        with graph.local_scope():
            src, dst = graph.edges()
            lengths = (graph.ndata["pos"][src] - graph.ndata["pos"][dst]).square().sum(1).sqrt()
            gaussians = torch.exp(-10 * (lengths[:, None] - self.centres).square())
            h = self.embed(graph.ndata["kind"])
            for filters, update in zip(self.filters, self.updates, strict=True):
                graph.ndata["h"], graph.edata["w"] = h, filters(gaussians)
                graph.update_all(dgl.function.u_mul_e("h", "w", "m"), dgl.function.sum("m", "sum"))
                h = h + update(graph.ndata["sum"]).tanh()
            graph.ndata["h"] = h
            return self.head(dgl.mean_nodes(graph, "h"))


# %%
# In models that predict forces, and in equivariant networks, gradients flow through the positions, and so through the
# lengths of edges. To show what then happens, we scale all positions by a single weight, and compute its gradient.

loss_fn = torch.nn.MSELoss(reduction="none")


def loss_and_gradient(batch, count):
    """Return the loss, and the gradient of one shared weight that scales all positions."""
    torch.manual_seed(0)
    model, scale = Model(), torch.ones(1, requires_grad=True)
    batch.graph.ndata["pos"] = batch.graph.ndata["pos"] * scale
    loss = tp.nn.masked_loss(loss_fn, model(batch.graph), batch.labels, batch, count=count)
    loss.backward()
    return loss.item(), scale.grad.item()


without = tp.packed_loader(dataset, graphs_per_batch=16)
loss, gradient = loss_and_gradient(next(iter(without)), without.graphs_per_batch)
print(f"without coordinates: loss {loss:.3f}, gradient {gradient:.3f}")
assert gradient != gradient  # it is NaN

# %%
# The loss is right. The gradient is NaN, because the padding edges have length 0.
#
# Name the positions
# ------------------
#
# ``coordinates`` names the feature that holds positions, and gives the smallest distance between two padding nodes.
# It should be smaller than half the cutoff, so that padding nodes have neighbours, as real nodes have. The loss does
# not change.

loader = tp.packed_loader(dataset, graphs_per_batch=16, coordinates={"pos": cutoff / 4})
batch = next(iter(loader))
loss, gradient = loss_and_gradient(batch, loader.graphs_per_batch)
print(f"with coordinates: loss {loss:.3f}, gradient {gradient:.3f}")

# %%
# The lengths of all edges of one batch:

positions = batch.node_features["pos"].detach()
lengths = (positions[batch.src] - positions[batch.dst]).norm(dim=1)

figure, axes = plt.subplots(figsize=(7, 2.5), layout="constrained")
axes.hist(
    [lengths[batch.edge_mask].numpy(), lengths[~batch.edge_mask].numpy()],
    bins=40,
    stacked=True,
    label=["real", "padding"],
)
axes.axvline(cutoff, color="grey", linestyle="--", label="cutoff")
axes.set(xlabel="length of an edge", ylabel="edges", yscale="log")
axes.legend()

# %%
# Train
# -----

model = Model()
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for epoch in range(1, 11):  # epoch 0 was iterated above
    loader.set_epoch(epoch)
    for batch in loader:
        output = model(batch.graph)
        loss = tp.nn.masked_loss(loss_fn, output, batch.labels, batch, count=loader.graphs_per_batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())

figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
axes.semilogy(losses)
axes.set(xlabel="step", ylabel="mean squared error")

# %%
# Other features of edges
# -----------------------
#
# If your dataset stores vectors or lengths of edges as features, set their value in padding to one that your model can
# divide by, such as ``feature_fill={"vector": [1.0, 0.0, 0.0]}``. :doc:`/howto/geometry` has the details, also for
# angles.
