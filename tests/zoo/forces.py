"""Potentials: models whose forward pass computes energies of molecules and, by `torch.autograd.grad`, forces on atoms.

The loss of a potential contains its forces, so a training step needs second derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dgl
import dgl.function as fn
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, silu
from torch_geometric import nn as gnn
from torch_geometric.data import Data

from tests.zoo.geometry import CENTRES, CUTOFF, DglSchNet, PygSchNet
from tests.zoo.parts import AtomModel, Categories

# Molecules of atoms at random places. Edges are all pairs within the cutoff, in both directions.

KINDS = 10


@dataclass(frozen=True)
class Molecule:
    """A molecule with random targets."""

    kinds: Tensor
    pos: Tensor
    energy: Tensor
    force: Tensor
    cell: Tensor

    @classmethod
    def random(cls, number: int, gen: torch.Generator, dtype: torch.dtype) -> Molecule:
        """Return a molecule of this many atoms, at least 1 apart if it has many, in 18 units of volume for each."""
        side = (18.0 * number) ** (1 / 3)
        pos = torch.empty(0, 3, dtype=torch.float64)
        while len(pos) < number:
            place = side * torch.rand(1, 3, generator=gen, dtype=torch.float64)
            if (pos - place).norm(dim=1).gt(1.0).all():
                pos = torch.cat([pos, place])
        cell = side * torch.eye(3) + torch.rand(3, 3, generator=gen)
        energy, force = torch.randn(1, generator=gen), torch.randn(number, 3, generator=gen)
        kinds = torch.randint(0, KINDS, (number, 1), generator=gen)
        return cls(kinds, *(each.to(dtype) for each in (pos, energy, force, cell)))

    def item(self, framework: str) -> Any:
        """Return an item for the framework's own loader; only PyG's has a cell."""
        distances = torch.cdist(self.pos, self.pos)
        src, dst = ((distances < CUTOFF) & ~torch.eye(len(self.pos), dtype=torch.bool)).nonzero().T
        if framework == "pyg":
            edge_index = torch.stack([src, dst])
            return Data(
                x=self.kinds, pos=self.pos, edge_index=edge_index, y=self.energy[None], force=self.force,
                cell=self.cell[None],
            )  # fmt: skip
        graph = dgl.graph((src, dst), num_nodes=len(self.pos))
        graph.ndata["feat"], graph.ndata["pos"], graph.ndata["force"] = self.kinds, self.pos, self.force
        return graph, self.energy


def loss_of(framework: str, model: nn.Module, batch: Any) -> Tensor:
    """Return the mean squared error of energies plus that of forces."""
    graph, targets, force = (batch, batch.y, batch.force) if framework == "pyg" else (*batch, None)
    if force is None:
        force = graph.ndata["force"]
    out = model(graph)
    return mse_loss(out[0], targets) + mse_loss(out[1], force)


# SchNet with forces (Schuett et al., arXiv 1706.08566).


class DglSchNetForces(DglSchNet):
    def forward(self, graph: Any) -> tuple[Tensor, Tensor]:
        pos = graph.ndata["pos"].requires_grad_()
        energies = super().forward(graph)
        (gradient,) = torch.autograd.grad(energies.sum(), pos, create_graph=self.training)
        return energies, -gradient


class PygSchNetForces(PygSchNet):
    def forward(self, data: Any) -> tuple[Tensor, Tensor]:
        data.pos.requires_grad_()
        energies = super().forward(data)
        (gradient,) = torch.autograd.grad(energies.sum(), data.pos, create_graph=self.training)
        return energies, -gradient


# PaiNN: each atom has vectors, which sums of directions begin (Schuett et al., arXiv 2102.03150).

# Keeps the derivatives of norms defined for atoms without neighbours, whose vectors are 0.
SMALL = 1e-8


def _perceptron(width: int, wide: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, wide), nn.SiLU(), nn.Linear(wide, out))


class PainnBasis(nn.Module):
    """Sines of distances over distances, and a weight of 0 from the cutoff on."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.arange(1, CENTRES + 1) * (math.pi / CUTOFF))

    def forward(self, distances: Tensor) -> tuple[Tensor, Tensor]:
        """Return the basis ``[E, CENTRES]`` and the weights ``[E, 1]`` of distances ``[E, 1]``."""
        smooth = 0.5 * ((distances * (math.pi / CUTOFF)).cos() + 1.0) * (distances < CUTOFF)
        return (distances * self.frequencies).sin() / distances, smooth


class PainnLayer(nn.Module):
    """The maps of a message and of an update; vectors are ``[V, 3, width]``."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.sent, self.filters = _perceptron(width, width, 3 * width), nn.Linear(CENTRES, 3 * width)
        self.left, self.right = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.mix = _perceptron(2 * width, width, 3 * width)

    def update(self, h: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        left, right = self.left(v), self.right(v)
        norms = (right.square().sum(1) + SMALL).sqrt()
        of_vectors, of_products, own = self.mix(torch.cat([h, norms], dim=1)).chunk(3, dim=1)
        return h + own + of_products * (left * right).sum(1), v + of_vectors[:, None] * left


class DglPainn(AtomModel):
    """Scalars and vectors are two features of atoms, with a message each."""

    layer: type[nn.Module] = PainnLayer

    def build(self, width: int, layers: int) -> None:
        self.basis = PainnBasis()
        self.layers = nn.ModuleList(self.layer(width) for _ in range(layers))
        self.head = _perceptron(width, width // 2, 1)

    def energies(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        v = h.new_zeros(len(h), 3, h.shape[1])
        with graph.local_scope():
            graph.apply_edges(fn.v_sub_u("pos", "pos", "difference"))
            distances = graph.edata["difference"].norm(dim=1, keepdim=True)
            directions = (graph.edata["difference"] / distances)[:, :, None]
            basis, smooth = self.basis(distances)
            for layer in self.layers:
                graph.ndata["sent"], graph.ndata["v"] = layer.sent(h), v
                graph.edata["filters"] = layer.filters(basis) * smooth
                graph.apply_edges(fn.u_mul_e("sent", "filters", "x"))
                graph.edata["scalars"], of_vectors, of_directions = graph.edata["x"].chunk(3, dim=1)
                graph.edata["of_vectors"] = of_vectors[:, None]
                graph.edata["turned"] = directions * of_directions[:, None]
                graph.update_all(fn.copy_e("scalars", "m"), fn.sum("m", "scalars"))
                graph.update_all(fn.u_mul_e("v", "of_vectors", "m"), fn.sum("m", "vectors"))
                graph.update_all(fn.copy_e("turned", "m"), fn.sum("m", "turned"))
                h, v = layer.update(
                    h + graph.ndata["scalars"], v + graph.ndata["vectors"] + graph.ndata["turned"]
                )  # fmt: skip
            graph.ndata["h"] = self.head(h)
            return dgl.sum_nodes(graph, "h")

    def forward(self, graph: Any) -> tuple[Tensor, ...]:
        pos = graph.ndata["pos"].requires_grad_()
        energies = self.energies(graph)
        (gradient,) = torch.autograd.grad(energies.sum(), pos, create_graph=self.training)
        return energies, -gradient


class PygPainnLayer(gnn.MessagePassing):
    """A message of scalars and vectors ``[E, 4, width]``, and an update."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="add", node_dim=0)
        self.maps = PainnLayer(width)

    def forward(self, h: Tensor, v: Tensor, edge_index: Tensor, filters: Tensor, directions: Tensor) -> Any:
        sums = self.propagate(edge_index, sent=self.maps.sent(h), v=v, filters=filters, directions=directions)
        return self.maps.update(h + sums[:, 0], v + sums[:, 1:])

    def message(self, sent_j: Tensor, v_j: Tensor, filters: Tensor, directions: Tensor) -> Tensor:
        scalars, of_vectors, of_directions = (sent_j * filters)[:, None].chunk(3, dim=2)
        return torch.cat([scalars, v_j * of_vectors + directions * of_directions], dim=1)


class PygPainn(DglPainn):
    """Also computes stress: the derivative of energies by a strain of the molecule, over the volume of its cell."""

    layer = PygPainnLayer

    def energies_at(self, data: Any, pos: Tensor) -> Tensor:
        h = self.encode(data.x)
        v = h.new_zeros(len(h), 3, h.shape[1])
        source, target = data.edge_index
        difference = pos[target] - pos[source]
        distances = difference.norm(dim=1, keepdim=True)
        directions = (difference / distances)[:, :, None]
        basis, smooth = self.basis(distances)
        for layer in self.layers:
            h, v = layer(h, v, data.edge_index, layer.maps.filters(basis) * smooth, directions)
        return gnn.global_add_pool(self.head(h), data.batch, data.num_graphs)

    def forward(self, data: Any) -> tuple[Tensor, ...]:
        data.pos.requires_grad_()
        strain = torch.zeros_like(data.cell) + 0 * data.pos.sum()
        moved = data.pos + torch.einsum("ni,nij->nj", data.pos, strain[data.batch])
        energies = self.energies_at(data, moved)
        gradient, virial = torch.autograd.grad(energies.sum(), [data.pos, strain], create_graph=self.training)
        return energies, -gradient, virial / torch.linalg.det(data.cell)[:, None, None]


# EGNN: layers move the positions along edges (Satorras et al., arXiv 2102.09844).


class EgnnLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(_perceptron(2 * width + 1, width, width), nn.SiLU())
        self.move, self.update = _perceptron(width, width, 1), _perceptron(2 * width, width, width)

    def forward(self, graph: Any, h: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        with graph.local_scope():
            graph.ndata["h"], graph.ndata["pos"] = h, pos
            graph.apply_edges(fn.v_sub_u("pos", "pos", "difference"))
            squares = graph.edata["difference"].square().sum(1, keepdim=True)
            graph.apply_edges(lambda edges: {"ends": torch.cat([edges.src["h"], edges.dst["h"]], dim=1)})
            graph.edata["m"] = self.message(torch.cat([graph.edata["ends"], squares], dim=1))
            # Differences over their length plus 1 keep moves small, as in the authors' code.
            lengths = (squares + SMALL).sqrt()
            graph.edata["move"] = graph.edata["difference"] / (lengths + 1.0) * self.move(graph.edata["m"])
            graph.update_all(fn.copy_e("m", "m"), fn.sum("m", "sum"))
            graph.update_all(fn.copy_e("move", "m"), fn.mean("m", "moved"))
            return h + self.update(torch.cat([h, graph.ndata["sum"]], dim=1)), pos + graph.ndata["moved"]


class DglEgnn(AtomModel):
    def build(self, width: int, layers: int) -> None:
        self.layers = nn.ModuleList(EgnnLayer(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, graph: Any) -> tuple[Tensor, Tensor]:
        h, start = self.encode(graph.ndata["feat"]), graph.ndata["pos"].requires_grad_()
        pos = start
        for layer in self.layers:
            h, pos = layer(graph, h, pos)
        with graph.local_scope():
            graph.ndata["h"] = self.head(silu(h))
            energies = dgl.sum_nodes(graph, "h")
        (gradient,) = torch.autograd.grad(energies.sum(), start, create_graph=self.training)
        return energies, -gradient


@dataclass(frozen=True)
class Potential:
    """A class for each framework, and the number of `layers` in the paper."""

    classes: dict[str, Callable[..., nn.Module]]
    layers: int

    def new(self, framework: str, width: int, layers: int) -> nn.Module:
        """Return a new model."""
        return self.classes[framework](width, layers, Categories(nodes=(KINDS,), edges=()))


POTENTIALS = {
    "SchNet": Potential({"dgl": DglSchNetForces, "pyg": PygSchNetForces}, 3),
    "PaiNN": Potential({"dgl": DglPainn, "pyg": PygPainn}, 3),
    "EGNN": Potential({"dgl": DglEgnn}, 4),
}
