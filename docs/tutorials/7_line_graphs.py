"""
Graphs and their line graphs
============================

Networks that use angles, such as ALIGNN, pass messages on two graphs at once: on the graph of atoms and bonds, and on
its line graph, whose nodes are the bonds and whose edges are the angles between them. Each item of the dataset then
consists of two graphs. This page packs such items by the sizes of both graphs, and trains a small model.
"""

# %%
# Items with two graphs
# ---------------------
#
# An item may be a dict of named graphs. Here the nodes of the graph ``bonds`` are the edges of the graph ``atoms``.

import dgl
import dgl.function as fn
import matplotlib.pyplot as plt
import torch

import dgl_tuplepack as tp

torch.manual_seed(0)


def crystal(number):
    """Return a random graph and its line graph."""
    atoms = dgl.to_bidirected(dgl.rand_graph(number, 2 * number))
    atoms.ndata["x"] = torch.randn(number, 8)
    atoms.edata["r"] = torch.randn(atoms.num_edges(), 8)
    bonds = dgl.line_graph(atoms, backtracking=False, shared=True)
    bonds.edata["angle"] = torch.randn(bonds.num_edges(), 8)
    return {"atoms": atoms, "bonds": bonds}


dataset = [(crystal(4 + number % 20), torch.randn(1)) for number in range(200)]
graphs, label = dataset[5]
print(graphs["atoms"], graphs["bonds"], sep="\n")

# %%
# Declare what belongs together
# -----------------------------
#
# A *tie* declares that the nodes of one graph are the edges of the other. Bond i is then row i in both graphs of a
# batch, also after padding and sorting.

ties = {"nodes:bonds": "edges:atoms"}
loader = tp.packed_loader(dataset, graphs_per_batch=16, ties=ties)
print(loader.limits)

# %%
# Four numbers, four limits
# -------------------------
#
# Each pack stays within four limits at once: on the nodes and on the edges of both graphs. Each bar is the fraction of
# slots that are real, as a mean over an epoch.

batches = list(loader)
filled = {
    "nodes of atoms": [batch.node_mask["atoms"].double().mean() for batch in batches],
    "edges of atoms": [batch.edge_mask["atoms"].double().mean() for batch in batches],
    "nodes of bonds": [batch.node_mask["bonds"].double().mean() for batch in batches],
    "edges of bonds": [batch.edge_mask["bonds"].double().mean() for batch in batches],
}
figure, axes = plt.subplots(figsize=(7, 2.2), layout="constrained")
axes.barh(list(filled), [100 * torch.stack(values).mean().item() for values in filled.values()])
axes.set(xlabel="real rows among the slots, %", xlim=(0, 100))
axes.invert_yaxis()

# %%
# A model on both graphs
# ----------------------
#
# ``batch.graphs`` has the two batched DGLGraphs. The model copies features of bonds from one graph to the other without
# any index, because row i is the same bond in both.


class Model(torch.nn.Module):
    """Messages along angles, then along bonds, then a mean over atoms."""

    def __init__(self):
        super().__init__()
        self.along_angles, self.along_bonds = torch.nn.Linear(16, 8), torch.nn.Linear(16, 8)
        self.head = torch.nn.Linear(8, 1)

    def forward(self, graphs):
        """Return one number for each pair of graphs."""
        atoms, bonds = graphs["atoms"], graphs["bonds"]
        with atoms.local_scope(), bonds.local_scope():
            bonds.ndata["r"] = atoms.edata["r"]
            bonds.apply_edges(lambda e: {"m": self.along_angles(torch.cat([e.src["r"], e.data["angle"]], 1)).relu()})
            bonds.update_all(fn.copy_e("m", "m"), fn.sum("m", "sum"))
            atoms.edata["r"] = atoms.edata["r"] + bonds.ndata["sum"]
            atoms.apply_edges(lambda e: {"m": self.along_bonds(torch.cat([e.src["x"], e.data["r"]], 1)).relu()})
            atoms.update_all(fn.copy_e("m", "m"), fn.sum("m", "h"))
            return self.head(dgl.mean_nodes(atoms, "h"))


model = Model()
optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
loss_fn = torch.nn.MSELoss(reduction="none")
losses = []
for epoch in range(1, 6):  # epoch 0 was iterated above
    loader.set_epoch(epoch)
    for batch in loader:
        output = model(batch.graphs)
        loss = tp.nn.masked_loss(loss_fn, output, batch.labels, batch, count=loader.graphs_per_batch)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
print(f"loss {losses[0]:.3f} in the first step, {losses[-1]:.3f} in the last")

# %%
# Padding changes no output
# -------------------------
#
# Without padding, the same graphs have the same outputs, up to rounding.

batch = batches[0]
ids = batch.graph_ids[batch.graph_mask].tolist()
plain = {name: dgl.batch([dataset[i][0][name] for i in ids]) for name in ("atoms", "bonds")}
with torch.no_grad():
    difference = (model(plain) - model(batch.graphs)[batch.graph_mask]).abs().max().item()
print(f"largest difference {difference:.1e}")
assert difference < 1e-4

# %%
# Batch norms of bonds need one more argument, because the edges of ``atoms`` and the nodes of ``bonds`` have the same
# number of rows: see "Two named graphs" in :doc:`/reference/models`.
