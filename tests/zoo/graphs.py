"""Small random molecules with categories, positions and a label, as DGLGraphs."""

from __future__ import annotations

from typing import Any

import dgl
import torch

from tests.zoo.parts import Categories

CATEGORIES = Categories(nodes=(5, 3), edges=(4, 2))


def molecules(number: int, dtype: torch.dtype) -> list[tuple[Any, torch.Tensor]]:
    """Graphs whose edges have both directions; some nodes have none. The first graph is the smallest."""
    gen = torch.Generator().manual_seed(0)
    sizes = [2, *torch.randint(3, 9, (number - 1,), generator=gen).tolist()]
    return [_molecule(gen, nodes, dtype) for nodes in sizes]


def _molecule(gen: torch.Generator, nodes: int, dtype: torch.dtype) -> tuple[Any, torch.Tensor]:
    ends = torch.combinations(torch.arange(nodes))
    # The edge of the smallest graph stays.
    ends = ends[(torch.rand(len(ends), generator=gen) < 0.4) | (nodes == 2)].T
    edge_index = torch.cat([ends, ends.flip(0)], dim=1)
    graph = dgl.graph(tuple(edge_index), num_nodes=nodes)
    graph.ndata["feat"], graph.edata["feat"] = (
        torch.stack([torch.randint(0, most, (rows,), generator=gen) for most in each], dim=1)
        for rows, each in ((nodes, CATEGORIES.nodes), (edge_index.shape[1], CATEGORIES.edges))
    )
    graph.ndata["pos"] = 3 * torch.rand(nodes, 3, generator=gen, dtype=torch.float64).to(dtype)
    return graph, torch.randint(0, 2, (1,), generator=gen).to(dtype)
