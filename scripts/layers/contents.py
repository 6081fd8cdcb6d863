"""Make batches of graphs and their inputs: two batches of equal sizes and different content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dgl
import torch
from torch import Tensor

# (nodes, edges) of the graphs of both batches; the totals are equal, so that compiled code gets one shape.
SIZES = (((4, 9), (1, 0), (7, 20), (0, 0), (6, 11)), ((6, 14), (3, 5), (2, 3), (5, 18), (2, 0)))


@dataclass(frozen=True)
class Content:
    """A batch of graphs and the generator of its random numbers."""

    graph: Any
    generator: torch.Generator


Input = Callable[[Content], Tensor]


def content(number: int, *, covered: bool = False, without_empty_graph: bool = False) -> Content:
    """Return batch 0 or 1; it has an empty graph and nodes without edges unless they are excluded.

    With ``covered``, every node has an incoming edge.
    """
    generator = torch.Generator().manual_seed(number)
    graphs = []
    for nodes, edges in SIZES[number]:
        nodes = nodes + 1 if without_empty_graph else nodes
        src, dst = (torch.randint(0, max(nodes, 1), (edges,), generator=generator) for _ in range(2))
        if covered:
            src, dst = (torch.cat([ends, torch.arange(nodes)]) for ends in (src, dst))
        graphs.append(dgl.graph((src, dst), num_nodes=nodes))
    return Content(dgl.batch(graphs), generator)


def heterographs(number: int) -> Content:
    """Return batch 0 or 1 of heterographs with two node types and three edge types."""
    generator = torch.Generator().manual_seed(number)
    graphs = []
    for users, edges in SIZES[number]:
        numbers = {"user": users, "item": 2 * users}
        ends = {
            (source, name, target): tuple(
                torch.randint(0, max(numbers[each], 1), (edges,), generator=generator) for each in (source, target)
            )
            for source, name, target in (
                ("user", "follows", "user"),
                ("user", "buys", "item"),
                ("item", "pleases", "user"),
            )
        }
        graphs.append(dgl.heterograph(ends, numbers))
    return Content(dgl.batch(graphs), generator)


def _normal(content: Content, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=content.generator, dtype=torch.float64)


def nodes(width: int, node_type: str | None = None) -> Input:
    """Return node features that require a gradient."""
    return lambda content: _normal(content, content.graph.num_nodes(node_type), width).requires_grad_()


def edges(width: int) -> Input:
    """Return edge features that require a gradient."""
    return lambda content: _normal(content, content.graph.num_edges(), width).requires_grad_()


def edge_scalars() -> Input:
    """Return a positive number for each edge; the numbers require a gradient."""
    return lambda content: _normal(content, content.graph.num_edges()).exp().requires_grad_()


def graph_scalars() -> Input:
    """Return a number between 1 and 2 for each graph."""
    return lambda content: 1 + torch.rand(content.graph.batch_size, generator=content.generator, dtype=torch.float64)


def node_types(number: int, *, column: bool = False) -> Input:
    """Return the type of each node, ``[V]`` int64; with ``column``, ``[V, 1]`` float64."""
    return lambda content: _types(content, content.graph.num_nodes(), number, column)


def edge_types(number: int) -> Input:
    """Return the type of each edge, ``[E]`` int64."""
    return lambda content: _types(content, content.graph.num_edges(), number, False)


def _types(content: Content, length: int, number: int, column: bool) -> Tensor:
    types = torch.randint(0, number, (length,), generator=content.generator)
    return types.to(torch.float64)[:, None] if column else types
