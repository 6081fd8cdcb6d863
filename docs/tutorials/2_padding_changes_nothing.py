"""
Check that padding changes no result
====================================

Padding is safe only if every number that matters is the same with it and without it. This page compares outputs,
losses, gradients and running statistics of one model on the same graphs, once batched by ``dgl.batch`` and once in a
padded batch. Copy the script, and replace the model with your own.
"""

# %%
# A model that padding could affect
# ---------------------------------
#
# A batch norm computes statistics over all rows, and a readout combines nodes. In both, padding could change a result.
# In float64, we can compare results almost to the last digit.

import copy

import dgl
import matplotlib.pyplot as plt
import torch

import dgl_tuplepack as tp

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


class Model(torch.nn.Module):
    """Two layers with batch norms, and a readout by attention."""

    def __init__(self):
        super().__init__()
        self.first = dgl.nn.GraphConv(4, 16, allow_zero_in_degree=True)
        self.second = dgl.nn.GraphConv(16, 16, allow_zero_in_degree=True)
        self.norms = torch.nn.ModuleList([torch.nn.BatchNorm1d(16), torch.nn.BatchNorm1d(16)])
        self.pool = dgl.nn.GlobalAttentionPooling(torch.nn.Linear(16, 1))
        self.head = torch.nn.Linear(16, 1)

    def forward(self, graph):
        """Return one number for each graph."""
        h = self.norms[0](self.first(graph, graph.ndata["x"])).relu()
        h = self.norms[1](self.second(graph, h)).relu()
        return self.head(self.pool(graph, h))


dataset = []
for number in range(60):
    graph = dgl.rand_graph(5 + number % 20, 3 * (5 + number % 20))
    graph.ndata["x"] = torch.randn(graph.num_nodes(), 4)
    dataset.append((graph, torch.randn(1)))

# %%
# The same graphs, twice
# ----------------------
#
# ``batch.graph_ids`` has the ids of the graphs in a padded batch, and ``batch.graph_mask`` is True for real graphs. We
# batch exactly these graphs with DGL. The loader makes batches of two packs from seven packs, so the last batch of an
# epoch holds only one pack, and about half of it is padding.

loader = tp.packed_loader(dataset, graphs_per_batch=16)
print(f"{loader.plan.num_packs} packs, {loader.packs_per_batch} per batch")
batch = list(loader)[-1]
ids = batch.graph_ids[batch.graph_mask].tolist()

plain_graph = dgl.batch([dataset[i][0] for i in ids])
plain_labels = torch.stack([dataset[i][1] for i in ids])
print(f"{plain_graph.num_nodes()} nodes without padding, {batch.graph.num_nodes()} with padding")

# %%
# The picture shows where padding is: after all real rows. Padding nodes and edges form a graph of their own, so no
# message and no readout mixes them with real graphs.

figure, axes = plt.subplots(3, 1, figsize=(8, 2.4), layout="constrained")
for axis, name in zip(axes, ("node_mask", "edge_mask", "graph_mask"), strict=True):
    axis.imshow(getattr(batch, name)[None].numpy(), aspect="auto", cmap="Greys_r", vmin=-1, vmax=1)
    axis.set(title=name.replace("_mask", "s"), yticks=[])
figure.supxlabel("slot (white: real, grey: padding)")

# %%
# One step on each batch
# ----------------------
#
# Both models start with equal weights. For the padded batch, ``tp.nn.convert`` replaces the batch norms with norms that
# leave padding out. They read the masks of the batch, which ``with tp.nn.masked(batch):`` provides. The weights keep
# their names, so checkpoints still fit.

plain_model = Model()
padded_model = tp.nn.convert(copy.deepcopy(plain_model))

plain_output = plain_model(plain_graph)
plain_loss = (plain_output - plain_labels).square().mean()
plain_loss.backward()

with tp.nn.masked(batch):
    padded_output = padded_model(batch.graph)
loss_fn = torch.nn.MSELoss(reduction="none")
padded_loss = tp.nn.masked_loss(loss_fn, padded_output, batch.labels, batch)
padded_loss.backward()

# %%
# Every difference is rounding
# ----------------------------
#
# The first column is the largest absolute difference of each result.

differences = {
    "outputs": (plain_output - padded_output[batch.graph_mask]).abs().max().item(),
    "loss": abs(plain_loss.item() - padded_loss.item()),
}
for (name, weight), other in zip(plain_model.named_parameters(), padded_model.parameters(), strict=True):
    differences[f"gradient of {name}"] = (weight.grad - other.grad).abs().max().item()
for name, value in plain_model.named_buffers():
    differences[name] = (value - padded_model.state_dict()[name]).abs().max().item()

for name, difference in differences.items():
    print(f"{difference:.1e}  {name}")
assert max(differences.values()) < 1e-12

# %%
# What it looks like when padding does leak
# -----------------------------------------
#
# Without ``convert``, the statistics of the batch norms include padding. The loss then looks plausible, but is wrong.

wrong_model = copy.deepcopy(plain_model)
wrong_output = wrong_model(batch.graph)
wrong_loss = tp.nn.masked_loss(loss_fn, wrong_output, batch.labels, batch)
print(f"right {plain_loss.item():.6f}, padded {padded_loss.item():.6f}, without convert {wrong_loss.item():.6f}")
assert abs(wrong_loss.item() - plain_loss.item()) > 1e-4

figure, axes = plt.subplots(figsize=(4, 4), layout="constrained")
expected = plain_output.detach().numpy()
axes.scatter(expected, padded_output[batch.graph_mask].detach().numpy(), label="converted")
axes.scatter(expected, wrong_output[batch.graph_mask].detach().numpy(), marker="x", label="without convert")
axes.axline((0, 0), slope=1, color="grey", zorder=0)
axes.set(xlabel="output without padding", ylabel="output with padding")
axes.legend()

# %%
# Do the same with your model
# ---------------------------
#
# Replace ``Model`` and ``dataset`` above. If a difference is larger than rounding, :doc:`/troubleshooting` lists the
# usual causes, such as a norm that was not converted, a readout that mixes all rows of the batch, or padding nodes that
# all have the same position.

torch.set_default_dtype(torch.float32)
