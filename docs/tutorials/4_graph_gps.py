"""
GraphGPS: attention among all atoms
===================================

A graph transformer lets each node attend to all nodes of its graph. If this needs a dense tensor whose size is read
from the batch, as by PyG's ``to_dense_batch``, the compiler has to stop there. This page trains a small GraphGPS, whose
layers have a convolution and attention, and compiles it in one graph.
"""

# %%
# The dataset
# -----------
#
# Rings of atoms. The label is the distance between the two atoms of kind 1, counted along the ring, so a few
# convolutions do not see both of them.

import matplotlib.pyplot as plt
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv, global_mean_pool

import dgl_tuplepack as tp

torch.manual_seed(0)
torch.set_num_threads(1)
num_graphs = 512


def ring(number):
    """Return a ring with two marked atoms, and the distance between them."""
    one_way = torch.stack([torch.arange(number), (torch.arange(number) + 1) % number])
    marked = torch.randperm(number)[:2]
    angle = 6.2832 * torch.arange(number) / number
    x = torch.stack([torch.zeros(number), angle.sin(), angle.cos()], 1)
    x[marked, 0] = 1
    steps = (marked[0] - marked[1]).abs()
    edge_index = torch.cat([one_way, one_way.flip(0)], 1)
    distance = torch.minimum(steps, number - steps) / number
    edge_attr = torch.zeros(2 * number, 1)
    return Data(x=x, edge_index=edge_index, edge_attr=edge_attr, y=distance.view(1, 1))


dataset = [ring(int(number)) for number in torch.randint(6, 30, (num_graphs,))]
loader = tp.packed_loader(dataset, batch_size=32)
print(loader, f"largest graph: {loader.max_nodes} nodes", sep="\n")

# %%
# Attention of nodes
# ------------------
#
# ``tp.nn.attention`` is softmax attention of each node to all nodes of its graph. Queries, keys and values are rows of
# nodes, ``[N, heads, width]``. The picture shows the pairs that attend to each other in a batch of 32 graphs: a square
# for each graph.

batch = next(iter(loader))
figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
axes.imshow((batch.batch[:, None] == batch.batch).numpy(), cmap="Blues")
axes.set(xlabel="node", ylabel="node")

# %%
# A layer
# -------
#
# A convolution sees the neighbours, attention sees the whole graph. Batch norms and small networks join them.


class GpsLayer(torch.nn.Module):
    """A convolution and attention in parallel, then a small network."""

    def __init__(self, width, heads):
        super().__init__()
        self.conv = GINEConv(network(width), edge_dim=1)
        self.heads, self.qkv = heads, torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(width) for _ in range(3))
        self.mlp = network(width)

    def forward(self, x, data, max_nodes):
        """Return the new rows of the nodes."""
        q, k, v = self.qkv(x).view(len(x), 3, self.heads, -1).unbind(1)
        seen = tp.nn.attention(q, k, v, data, max_nodes)
        attended = self.norms[0](x + self.out(seen.flatten(1)))
        x = self.norms[1](x + self.conv(x, data.edge_index, data.edge_attr)) + attended
        return self.norms[2](x + self.mlp(x))


def network(width):
    """Return two linear layers."""
    first, last = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
    return torch.nn.Sequential(first, torch.nn.ReLU(), last)


class GraphGPS(torch.nn.Module):
    """Layers, and a mean over nodes."""

    def __init__(self, width=32, heads=4, layers=2):
        super().__init__()
        self.encode, self.head = torch.nn.Linear(3, width), torch.nn.Linear(width, 1)
        self.layers = torch.nn.ModuleList(GpsLayer(width, heads) for _ in range(layers))

    def forward(self, data, max_nodes):
        """Return one number for each graph."""
        x = self.encode(data.x)
        for layer in self.layers:
            x = layer(x, data, max_nodes)
        return self.head(global_mean_pool(x, data.batch, data.num_graphs))


# %%
# Two lines
# ---------
#
# The loader is the first line, ``tp.compile`` the second. Results are those of the model itself: its first call
# compares them. The backend "aot_eager" makes one graph, but no machine code, which would take longer; leave it
# out for speed.

model = tp.compile(GraphGPS(), loader, fullgraph=True, backend="aot_eager")
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for _ in range(3):
    for batch in loader:
        loss = torch.nn.functional.mse_loss(model(batch, loader.max_nodes), batch.y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
print(f"loss {losses[0]:.3f} in the first step, {sum(losses[-8:]) / 8:.4f} in the last eight")

# %%
# A graph that is too large is never cut silently
# ------------------------------------------------
#
# The model itself raises an error. Compiled code cannot read the size, so the results of this graph are NaN.

try:
    rows = batch.x[:, None]
    tp.nn.attention(rows, rows, rows, batch, max_nodes=8)
except tp.errors.GraphTooLargeError as error:
    print(error)
