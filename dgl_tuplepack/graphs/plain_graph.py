"""A batch of graphs on plain tensors, with those methods of a batched DGLGraph that padding and blocks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import EdgeType


@dataclass(frozen=True)
class _Data:
    """Features of one type."""

    data: Mapping[str, Tensor]


class _Edges(dict[EdgeType, _Data]):
    """Features of edges by type; called, the endpoints of one type."""

    def __init__(self, features: Mapping[EdgeType, Mapping[str, Tensor]], ends: Mapping[EdgeType, Any]) -> None:
        super().__init__({t: _Data(own) for t, own in features.items()})
        self._ends = ends

    def __call__(self, form: str, order: Any, etype: EdgeType) -> tuple[Tensor, Tensor, Tensor]:
        src, dst = self._ends[etype]
        return src, dst, torch.arange(len(src), device=src.device)


class PlainGraph:
    """Several graphs joined, with their labels ``[B, ...]``.

    Endpoints count the nodes of all graphs; `num_nodes` and `num_edges` have int64 ``[B]`` of each type.
    """

    def __init__(
        self,
        counts: tuple[Mapping[str, Tensor], Mapping[EdgeType, Tensor]],
        ends: Mapping[EdgeType, tuple[Tensor, Tensor]],
        node_features: Mapping[str, Mapping[str, Tensor]],
        edge_features: Mapping[EdgeType, Mapping[str, Tensor]],
        labels: dict[str, Tensor],
    ) -> None:
        self._counts: dict[Any, Tensor] = {**counts[0], **counts[1]}
        self.ntypes, self.canonical_etypes = list(counts[0]), list(counts[1])
        self.nodes = {t: _Data(own) for t, own in node_features.items()}
        self.edges = _Edges(edge_features, ends)
        self.labels = labels

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return next(iter(self._counts.values())).device

    def batch_num_nodes(self, ntype: str) -> Tensor:
        """Nodes of a type in each graph."""
        return self._counts[ntype]

    def batch_num_edges(self, etype: EdgeType) -> Tensor:
        """Edges of a type in each graph."""
        return self._counts[etype]

    def num_nodes(self, ntype: str) -> int:
        """Nodes of a type in all graphs."""
        return int(self._counts[ntype].sum())

    def num_edges(self, etype: EdgeType) -> int:
        """Edges of a type in all graphs."""
        return int(self._counts[etype].sum())
