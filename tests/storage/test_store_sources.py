"""What a store can be written from: each source gives the items that its own library gives."""

from __future__ import annotations

import collections
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from torch.utils.data import IterableDataset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from tests.support.messages import refused
from tests.support.stores import assert_same_items, molecules, purchases


def plain_graphs() -> list[Any]:
    return [graph for graph, _ in molecules(7)]


@pytest.mark.parametrize("labels", ["none", "one", "several"])
@pytest.mark.parametrize("hetero", [False, True])
def test_files_of_save_graphs(tmp_path: Path, labels: str, hetero: bool) -> None:
    graphs = purchases(7) if hetero else plain_graphs()
    values = {"y": torch.arange(7.0), "z": torch.arange(14).reshape(7, 2)}
    saved = {"none": {}, "one": {"y": values["y"]}, "several": values}[labels]
    dgl.save_graphs(str(tmp_path / "graphs.bin"), graphs, saved)
    store = tp.GraphStore.write(tmp_path / "store", tmp_path / "graphs.bin")
    expected: list[Any] = {
        "none": graphs,
        "one": list(zip(graphs, values["y"], strict=True)),
        "several": [(g, {name: v[i] for name, v in values.items()}) for i, g in enumerate(graphs)],
    }[labels]
    assert_same_items(store, expected)


def test_damaged_files_of_save_graphs(tmp_path: Path) -> None:
    path = tmp_path / "graphs.bin"
    with refused(FormatError, str(path), "No such file"):
        tp.GraphStore.write(tmp_path / "store", path)
    path.write_bytes(b"something else entirely" * 30)
    with refused(FormatError, str(path)):
        tp.GraphStore.write(tmp_path / "store", path)
    dgl.save_graphs(str(path), plain_graphs(), {"y": torch.arange(6)})
    with refused(FormatError, str(path), "7 graphs", "labels 'y' of the shape [6]"):
        tp.GraphStore.write(tmp_path / "store", path)
    assert not (tmp_path / "store").exists()


class Counted(IterableDataset):  # type: ignore[type-arg]
    """An iterable dataset that knows its length, as some do."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


@pytest.mark.parametrize("source", [collections.deque, iter, lambda items: map(list, items), Counted])
def test_anything_that_gives_graphs(tmp_path: Path, source: Callable[[list[Any]], Any]) -> None:
    items = molecules(5)
    assert_same_items(tp.GraphStore.write(tmp_path / "store", source(items)), items)


@pytest.mark.parametrize(
    ("source", "error", "parts"),
    [
        (3, SizesError, ["int"]),
        (iter([]), SizesError, ["no graphs"]),
        ([1, 2], SchemaError, ["list", "only sizes", "dataset of DGLGraph"]),
        ([(dgl.graph(([0], [0])), 1, 2)], SchemaError, ["item 0 has the id 2", "positions"]),
        ([(dgl.graph(([0], [0])), "text")], SchemaError, ["label", "text"]),
        ([(dgl.graph(([0], [0])), torch.zeros(1, dtype=torch.uint32))], SchemaError, ["uint32", "int64"]),
    ],
)
def test_wrong_sources_are_refused(tmp_path: Path, source: Any, error: Any, parts: list[str]) -> None:
    with refused(error, *parts):
        tp.GraphStore.write(tmp_path / "store", source)
    # A file that was left open would be reported now.
    gc.collect()
    assert not (tmp_path / "store").exists()
