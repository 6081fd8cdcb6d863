"""The models and the molecules of the benchmark on a GPU; layers of PyG."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dgl_tuplepack import load_example

# Numbers of values of the integer features of OGB's molecules.
ATOM_VALUES, BOND_VALUES = (119, 5, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)
HEADS, CUTOFF, GAUSSIANS, DROPOUT = 4, 10.0, 50, 0.2


@functools.cache
def molecules(number: int, kind: str) -> list[Any]:
    """Return random graphs with molhiv's sizes: with positions for SchNet, and with features of edges for others."""
    from torch_geometric.data import Data

    histogram, gen = load_example("ogbg-molhiv"), np.random.default_rng(0)
    counts = histogram.counts
    if number < 1000:
        # A few batches with a very large graph would differ too much for one shape.
        counts = np.where(histogram.sizes[:, 0] > 40, 0, counts)
    sizes = histogram.sizes[gen.choice(len(histogram), number, p=counts / counts.sum())]
    graphs = []
    for nodes, edges in sizes.tolist():
        src = gen.integers(0, nodes, edges)
        # No edge is a loop, whose length would be 0.
        dst = (src + gen.integers(1, max(2, nodes), edges)) % nodes
        made: dict[str, Any] = {"x": gen.integers(0, ATOM_VALUES, (nodes, len(ATOM_VALUES)))}
        if kind == "SchNet":
            made["pos"] = 3 * gen.random((nodes, 3), np.float32)
        else:
            made["edge_attr"] = gen.integers(0, BOND_VALUES, (edges, len(BOND_VALUES)))
        made |= {"edge_index": np.stack([src, dst]), "y": gen.integers(0, 2, (1, 1))}
        graphs.append(Data(**{name: torch.from_numpy(value) for name, value in made.items()}))
    return graphs


def positions_of(kind: str) -> dict[str, Any]:
    """Return the settings of a loader of padded batches: the feature that has positions."""
    return {"coordinates": ("pos",)} if kind == "SchNet" else {}


def network(kind: str, layers: int, width: int) -> nn.Module:
    """Return a network of "GIN" (with batch norms), "SchNet" or "GAT" (with dropout) layers."""
    return SchNet(layers, width) if kind == "SchNet" else Molecular(kind, layers, width)


class OnBatches(nn.Module):
    """A network on PyG's batches, as a user's model."""

    def __init__(self, network: Any, kind: str) -> None:
        super().__init__()
        self.network, self.has_positions = network, kind == "SchNet"

    def forward(self, batch: Any) -> Tensor:
        """Return one output per graph."""
        more = batch.pos if self.has_positions else batch.edge_attr
        result: Tensor = self.network(batch.x, batch.edge_index, more, batch.batch, batch.num_graphs)
        return result


class Categories(nn.Module):
    """The sum of an embedding for each integer feature."""

    def __init__(self, numbers: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.rows = nn.Embedding(sum(numbers), width)
        self.register_buffer("first", torch.tensor(np.cumsum((0, *numbers[:-1]))), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        """Return one row for each row of `values`."""
        result: Tensor = self.rows(values + self.first).sum(1)
        return result


class Molecular(nn.Module):
    """GIN layers with batch norms and features of edges, or GAT layers with dropout; residual connections, mean."""

    def __init__(self, kind: str, layers: int, width: int) -> None:
        from torch_geometric.nn import GATConv, GINEConv

        super().__init__()
        self.is_gin, numbers = kind == "GIN", range(layers)
        self.atoms = Categories(ATOM_VALUES, width)
        self.bonds = nn.ModuleList(Categories(BOND_VALUES, width) for _ in numbers if self.is_gin)
        self.layers = nn.ModuleList(
            GINEConv(nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)))
            if self.is_gin
            else GATConv(width, width // HEADS, HEADS, dropout=DROPOUT, add_self_loops=False)
            for _ in numbers
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) if self.is_gin else nn.Dropout(DROPOUT) for _ in numbers)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor, edge_index: Tensor, edges: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        """Return one output per graph."""
        from torch_geometric.nn import global_mean_pool

        h = self.atoms(x)
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            messages = layer(h, edge_index, self.bonds[i](edges)) if self.is_gin else layer(h, edge_index)
            h = h + torch.relu(norm(messages))
        result: Tensor = self.head(global_mean_pool(h, batch, num_graphs))
        return result


class SchNet(nn.Module):
    """PyG's interaction blocks of SchNet on given edges, and the sum of the outputs of atoms."""

    def __init__(self, layers: int, width: int) -> None:
        from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock, ShiftedSoftplus

        super().__init__()
        self.atoms = nn.Embedding(ATOM_VALUES[0], width)
        self.smear = GaussianSmearing(0.0, CUTOFF, GAUSSIANS)
        self.layers = nn.ModuleList(InteractionBlock(width, GAUSSIANS, width, CUTOFF) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width // 2), ShiftedSoftplus(), nn.Linear(width // 2, 1))

    def forward(self, x: Tensor, edge_index: Tensor, pos: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        """Return one output per graph."""
        from torch_geometric.nn import global_add_pool

        h = self.atoms(x[:, 0])
        pos = pos.to(h.dtype)
        lengths = (pos[edge_index[0]] - pos[edge_index[1]]).norm(dim=1)
        smeared = self.smear(lengths)
        for layer in self.layers:
            h = h + layer(h, edge_index, lengths, smeared)
        result: Tensor = global_add_pool(self.head(h), batch, num_graphs)
        return result
