"""The network of the benchmark and the study of training, on DGL's layers or on PyG's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class OnDGL:
    """Message passing and readout on a DGLGraph."""

    graph: Any

    def convolve(self, layer: nn.Module, x: Tensor, messages: Tensor) -> Tensor:
        """Apply a layer of DGL."""
        result: Tensor = layer(self.graph, x, messages)
        return result

    def readout(self, x: Tensor) -> Tensor:
        """Mean over the nodes of each graph."""
        import dgl

        with self.graph.local_scope():
            self.graph.ndata["x"] = x
            result: Tensor = dgl.mean_nodes(self.graph, "x")
        return result


@dataclass(frozen=True)
class OnPyG:
    """Message passing and readout on endpoints."""

    edge_index: Tensor
    graph_slots: Tensor
    num_graphs: int

    def convolve(self, layer: nn.Module, x: Tensor, messages: Tensor) -> Tensor:
        """Apply a layer of PyG."""
        result: Tensor = layer(x, self.edge_index, messages)
        return result

    def readout(self, x: Tensor) -> Tensor:
        """Mean over the nodes of each graph."""
        from torch_geometric.nn import global_mean_pool

        result: Tensor = global_mean_pool(x, self.graph_slots, self.num_graphs)
        return result


class Network(nn.Module):
    """GINE with OGB's encoders, batch norm and residual connections; `framework` has the layers."""

    def __init__(self, layers: int, width: int, framework: str) -> None:
        super().__init__()
        from ogb.graphproppred.mol_encoder import AtomEncoder, BondEncoder

        if framework == "dgl":
            from dgl.nn import GINEConv
        else:
            from torch_geometric.nn import GINEConv

        def perceptron() -> nn.Module:
            return nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

        self.encode_nodes = AtomEncoder(width)
        self.encode_edges = nn.ModuleList(BondEncoder(width) for _ in range(layers))
        self.layers = nn.ModuleList(GINEConv(perceptron()) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, structure: OnDGL | OnPyG, x: Tensor, edges: Tensor) -> Tensor:
        """One output for each graph, ``[G, 1]``."""
        x = self.encode_nodes(x)
        for encode, layer, norm in zip(self.encode_edges, self.layers, self.norms, strict=True):
            x = x + torch.relu(norm(structure.convolve(layer, x, encode(edges))))
        result: Tensor = self.head(structure.readout(x))
        return result


def losses_of(out: Tensor, labels: Tensor) -> Tensor:
    """Binary cross-entropy of each entry."""
    return nn.functional.binary_cross_entropy_with_logits(out, labels.to(out.dtype), reduction="none")
