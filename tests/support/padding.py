"""Small items with features of nodes and edges, and limits that two of them nearly fill."""

from __future__ import annotations

from typing import Any

import torch

import dgl_tuplepack as tp
from tests.support.graphs import ITEM, RELATIONS, USER, generator, random_graph, random_heterograph

FEATURES = {"x": ((2,), torch.float32)}
WEIGHTS = {"w": ((), torch.int64)}
LIMITS = tp.Limits(nodes=6, edges=8, graphs=4)


def graph(nodes: int = 2, edges: int = 3, seed: int = 0) -> Any:
    """A graph with a feature of its nodes and one of its edges."""
    return random_graph(generator(seed), nodes, edges, FEATURES, WEIGHTS)


def item(nodes: int = 2, edges: int = 3, label: float = 1.0) -> tuple[Any, torch.Tensor]:
    """A graph and its label."""
    return graph(nodes, edges), torch.tensor([label])


def collate(**settings: Any) -> tp.PaddedCollate:
    """Collate as for `item()`, but for `settings`."""
    return tp.PaddedCollate(settings.pop("limits", LIMITS), **{"example": item(), **settings})


def hetero(seed: int = 0, users: int = 2, items: int = 3, edges: tuple[int, int, int] = (2, 3, 1)) -> Any:
    """Users and items, with three relations."""
    return random_heterograph(
        generator(seed), {USER: users, ITEM: items}, dict(zip(RELATIONS, edges, strict=True)),
        {USER: {"x": ((2,), torch.float32)}}, {RELATIONS[1]: {"w": ((), torch.int64)}},
    )  # fmt: skip
