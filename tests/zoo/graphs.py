"""Small random molecules with categories, positions and a label, as graphs of DGL and of PyG."""

from __future__ import annotations

from typing import Any

import dgl
import torch
from torch_geometric.data import Data

from tests.zoo.parts import Categories

CATEGORIES = Categories(nodes=(5, 3), edges=(4, 2))


def molecules(framework: str, number: int, dtype: torch.dtype) -> list[Any]:
    """Graphs whose edges have both directions; some nodes have none. The first graph is the smallest."""
    gen = torch.Generator().manual_seed(0)
    sizes = [2, *torch.randint(3, 9, (number - 1,), generator=gen).tolist()]
    return [_molecule(framework, gen, nodes, dtype) for nodes in sizes]


def _molecule(framework: str, gen: torch.Generator, nodes: int, dtype: torch.dtype) -> Any:
    ends = torch.combinations(torch.arange(nodes))
    # The edge of the smallest graph stays.
    ends = ends[(torch.rand(len(ends), generator=gen) < 0.4) | (nodes == 2)].T
    edge_index = torch.cat([ends, ends.flip(0)], dim=1)
    x, edge_attr = (
        torch.stack([torch.randint(0, most, (rows,), generator=gen) for most in each], dim=1)
        for rows, each in ((nodes, CATEGORIES.nodes), (edge_index.shape[1], CATEGORIES.edges))
    )
    pos = 3 * torch.rand(nodes, 3, generator=gen, dtype=torch.float64).to(dtype)
    label = torch.randint(0, 2, (1, 1), generator=gen).to(dtype)
    if framework == "pyg":
        return Data(x=x, edge_index=edge_index, edge_attr=edge_attr, pos=pos, y=label)
    graph = dgl.graph(tuple(edge_index), num_nodes=nodes)
    graph.ndata["feat"], graph.ndata["pos"], graph.edata["feat"] = x, pos, edge_attr
    return graph, label[0]
