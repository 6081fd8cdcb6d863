"""Graphs for loaders: sixty small ones, and a large one."""

from __future__ import annotations

import torch

import dgl_tuplepack as tp
from tests.support.graphs import generator, random_graph
from tests.support.stores import molecules

NUMBER = 60
ITEMS = molecules(NUMBER)
SIZES = tp.sizes_of(ITEMS)
LARGE = (
    random_graph(
        generator(9), 300, 500, {"feat": ((3,), torch.int64), "x": ((), torch.float32)}, {"feat": ((2,), torch.int64)}
    ),
    torch.zeros(2),
)
