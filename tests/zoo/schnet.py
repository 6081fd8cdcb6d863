"""SchNet: convolutions with filters of distances, and a sum over atoms (Schuett et al., arXiv 1706.08566)."""

from __future__ import annotations

import math
from typing import Any

import dgl
import dgl.function as fn
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch_geometric import nn as gnn

from tests.zoo.parts import Categories, Encoder

CUTOFF, CENTRES = 5.0, 16


class ShiftedSoftplus(nn.Module):
    """A smooth activation that is 0 at 0."""

    def forward(self, x: Tensor) -> Tensor:
        return softplus(x) - math.log(2.0)


class RadialBasis(nn.Module):
    """Gaussians of distances around equidistant centres."""

    centres: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centres", torch.linspace(0.0, CUTOFF, CENTRES))

    def forward(self, distances: Tensor) -> Tensor:
        width = CUTOFF / (CENTRES - 1)
        return (-0.5 * ((distances[:, None] - self.centres) / width) ** 2).exp()


class _Maps(nn.Module):
    """The filter network of an interaction, and the maps of atoms around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.filters = nn.Sequential(
            nn.Linear(CENTRES, width), ShiftedSoftplus(), nn.Linear(width, width), ShiftedSoftplus()
        )
        self.before = nn.Linear(width, width, bias=False)
        self.after = nn.Sequential(nn.Linear(width, width), ShiftedSoftplus(), nn.Linear(width, width))

    def filters_of(self, distances: Tensor, basis: Tensor) -> Tensor:
        """Filters that go to 0 at the cutoff."""
        smooth = 0.5 * ((distances * (math.pi / CUTOFF)).cos() + 1.0) * (distances < CUTOFF)
        filters: Tensor = self.filters(basis) * smooth[:, None]
        return filters


class DglSchNet(nn.Module):
    """Distances are computed from positions by message passing."""

    interaction: type[nn.Module] = _Maps

    def __init__(self, width: int, layers: int, categories: Categories) -> None:
        super().__init__()
        self.encode, self.basis = Encoder(categories.nodes, width), RadialBasis()
        self.interactions = nn.ModuleList(self.interaction(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width // 2), ShiftedSoftplus(), nn.Linear(width // 2, 1))

    def forward(self, graph: Any) -> Tensor:
        h = self.encode(graph.ndata["feat"])
        with graph.local_scope():
            graph.apply_edges(fn.u_sub_v("pos", "pos", "difference"))
            distances = graph.edata["difference"].norm(dim=1)
            basis = self.basis(distances)
            for maps in self.interactions:
                graph.ndata["sent"], graph.edata["filter"] = maps.before(h), maps.filters_of(distances, basis)
                graph.update_all(fn.u_mul_e("sent", "filter", "m"), fn.sum("m", "messages"))
                h = h + maps.after(graph.ndata["messages"])
            graph.ndata["h"] = self.head(h)
            score: Tensor = dgl.sum_nodes(graph, "h")
        return score


class PygInteraction(gnn.MessagePassing):
    """An interaction as a class of message passing."""

    def __init__(self, width: int) -> None:
        super().__init__(aggr="add")
        self.maps = _Maps(width)

    def forward(self, h: Tensor, edge_index: Tensor, distances: Tensor, basis: Tensor) -> Tensor:
        filters = self.maps.filters_of(distances, basis)
        messages = self.propagate(edge_index, sent=self.maps.before(h), filters=filters)
        out: Tensor = h + self.maps.after(messages)
        return out

    def message(self, sent_j: Tensor, filters: Tensor) -> Tensor:
        return sent_j * filters


class PygSchNet(DglSchNet):
    """The same with message passing of PyG."""

    interaction = PygInteraction

    def forward(self, data: Any) -> Tensor:
        h = self.encode(data.x)
        source, target = data.edge_index
        distances = (data.pos[source] - data.pos[target]).norm(dim=1)
        basis = self.basis(distances)
        for interaction in self.interactions:
            h = interaction(h, data.edge_index, distances, basis)
        return gnn.global_add_pool(self.head(h), data.batch, data.num_graphs)
