"""The network of the training benchmark and the training study, with DGL or PyG layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class OnDGL:
    """Message passing and readout on a DGLGraph."""

    graph: Any

    def convolve(self, layer: nn.Module, x: Tensor, *edges: Tensor) -> Tensor:
        """Apply a DGL layer; several heads are concatenated."""
        result: Tensor = layer(self.graph, x, *edges)
        return result.flatten(1)

    def readout(self, x: Tensor) -> Tensor:
        """Return the mean over the nodes of each graph."""
        import dgl

        with self.graph.local_scope():
            self.graph.ndata["x"] = x
            result: Tensor = dgl.mean_nodes(self.graph, "x")
        return result


@dataclass(frozen=True)
class OnPyG:
    """Message passing and readout on edge endpoints."""

    edge_index: Tensor
    graph_slots: Tensor
    num_graphs: int

    def convolve(self, layer: nn.Module, x: Tensor, *edges: Tensor) -> Tensor:
        """Apply a PyG layer."""
        result: Tensor = layer(x, self.edge_index, *edges)
        return result

    def readout(self, x: Tensor) -> Tensor:
        """Return the mean over the nodes of each graph."""
        from torch_geometric.nn import global_mean_pool

        result: Tensor = global_mean_pool(x, self.graph_slots, self.num_graphs)
        return result


HEADS = 4


def layer_of(framework: str, kind: str, width: int) -> nn.Module:
    """Return a DGL or PyG layer of the given width: "GINE", "GCN", "SAGE" (mean) or "GAT" (4 heads)."""
    makers: dict[str, Callable[[], nn.Module]]
    if framework == "dgl":
        import dgl.nn as layers

        # Padding nodes may have no incoming edge.
        makers = {
            "GCN": lambda: layers.GraphConv(width, width, allow_zero_in_degree=True),
            "SAGE": lambda: layers.SAGEConv(width, width, "mean"),
            "GAT": lambda: layers.GATConv(width, width // HEADS, HEADS, allow_zero_in_degree=True),
        }
    else:
        import torch_geometric.nn as layers

        makers = {
            "GCN": lambda: layers.GCNConv(width, width, add_self_loops=False),
            "SAGE": lambda: layers.SAGEConv(width, width),
            "GAT": lambda: layers.GATConv(width, width // HEADS, HEADS, add_self_loops=False),
        }
    if kind == "GINE":
        return layers.GINEConv(nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)))
    return makers[kind]()


LAYERS = ("GINE", "GCN", "SAGE", "GAT")


class Network(nn.Module):
    """OGB's encoders, then layers of a framework with batch norm and residual connections, and a readout.

    Only GINE uses edge features.
    """

    def __init__(self, layers: int, width: int, framework: str, kind: str = "GINE") -> None:
        super().__init__()
        from ogb.graphproppred.mol_encoder import AtomEncoder, BondEncoder

        self.encode_nodes = AtomEncoder(width)
        self.encode_edges = nn.ModuleList(BondEncoder(width) for _ in range(layers if kind == "GINE" else 0))
        self.layers = nn.ModuleList(layer_of(framework, kind, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
        self.head = nn.Linear(width, 1)

    def forward(self, structure: OnDGL | OnPyG, x: Tensor, edges: Tensor) -> Tensor:
        """Return one output per graph, ``[G, 1]``."""
        x = self.encode_nodes(x)
        for i, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            on_edges = (self.encode_edges[i](edges),) if len(self.encode_edges) else ()
            x = x + torch.relu(norm(structure.convolve(layer, x, *on_edges)))
        result: Tensor = self.head(structure.readout(x))
        return result


def losses_of(out: Tensor, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy of each entry."""
    return nn.functional.binary_cross_entropy_with_logits(out, labels.to(out.dtype), reduction="none")
