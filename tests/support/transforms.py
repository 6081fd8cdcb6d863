"""A few graphs, and transforms that fail or draw."""

from __future__ import annotations

import random
from typing import Any

import dgl
import numpy as np
import torch

import dgl_tuplepack as tp

LIMITS = tp.Limits(nodes=30, edges=60, graphs=8)


def ring(number: int) -> Any:
    """A ring of nodes, with edges in both directions."""
    around = torch.arange(number)
    graph = dgl.to_bidirected(dgl.graph((around, (around + 1) % number)))
    graph.ndata["x"] = torch.arange(number * 2.0).reshape(number, 2)
    return graph


def dataset() -> list[Any]:
    """Four rings, with their numbers of nodes as labels."""
    return [(ring(n), torch.tensor(float(n))) for n in (3, 5, 4, 6)]


def only_large(change: Any) -> Any:
    """A transform that does `change` to graphs of 5 nodes and more, and nothing to others."""

    def only_large_graphs(graph: Any) -> Any:
        return change(graph) if graph.num_nodes() >= 5 else graph

    return only_large_graphs


def failing(graph: Any) -> Any:
    """Fail as a transform does that needs a feature."""
    raise KeyError("charge")


def shaken(graph: Any) -> Any:
    """Draw from all three generators, and drop edges; features are written in place."""
    graph.ndata["x"].mul_(random.random())
    graph.ndata["y"] = torch.rand(graph.num_nodes(), 2) + float(np.random.rand())  # noqa: NPY002
    return dgl.transforms.DropEdge(0.3)(graph)
