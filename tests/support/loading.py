"""Graphs for loaders, sixty small ones and a large one; and every kind of source that has them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import torch

import dgl_tuplepack as tp
from tests.support.graphs import generator, random_graph
from tests.support.stores import molecules, purchases

NUMBER = 60
ITEMS = molecules(NUMBER)
SIZES = tp.sizes_of(ITEMS)
LARGE = (
    random_graph(
        generator(9), 300, 500, {"feat": ((3,), torch.int64), "x": ((), torch.float32)}, {"feat": ((2,), torch.int64)}
    ),
    torch.zeros(2),
)


class Dataset(dgl.data.DGLDataset):
    """A dataset as DGL's users write them."""

    def __init__(self) -> None:
        super().__init__("molecules")

    def process(self) -> None:
        self.items = ITEMS

    def __getitem__(self, i: int) -> Any:
        return self.items[i]

    def __len__(self) -> int:
        return len(self.items)


# What a loader can be made of, from the folder of the fixture `folder`; all of `NUMBER` graphs.
SOURCES: dict[str, Callable[[Path], Any]] = {
    "a list": lambda folder: ITEMS,
    "a dataset of DGL": lambda folder: Dataset(),
    "graphs alone": lambda folder: [graph for graph, _ in ITEMS],
    "items with ids": lambda folder: [(*item, i) for i, item in enumerate(ITEMS)],
    "a list with ids": lambda folder: tp.with_ids(ITEMS),
    "a subset of torch": lambda folder: torch.utils.data.Subset(ITEMS * 2, range(30, 30 + NUMBER)),
    "a subset of DGL": lambda folder: dgl.data.utils.Subset(ITEMS, range(NUMBER)),
    "an iterator": lambda folder: iter(ITEMS),
    "a store": lambda folder: tp.GraphStore(folder / "store"),
    "a store with ids": lambda folder: tp.with_ids(tp.GraphStore(folder / "store")),
    "a subset of a store": lambda folder: tp.GraphStore(folder / "store").subset([0, *range(NUMBER - 1)]),
    "shards": lambda folder: tp.MultiStore(folder / "shards"),
    "the path of a store": lambda folder: folder / "store",
    "the path of shards": lambda folder: str(folder / "shards"),
    "the path of saved graphs": lambda folder: folder / "graphs.bin",
    "an OGB folder": lambda folder: tp.OgbFolder(folder / "ogbg_molhiv"),
    "the path of an OGB folder": lambda folder: folder / "ogbg_molhiv",
    "heterographs": lambda folder: purchases(NUMBER),
}
