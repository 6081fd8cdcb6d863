"""Small promises of stores that the property tests do not reach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dgl
import pytest
from torch.utils.data import IterableDataset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.store import arrays
from tests.messages import refused

GRAPHS = [dgl.graph(([0, 1], [1, 2])), dgl.graph(([0], [1])), dgl.graph(([], []), num_nodes=1)]


class Counted(IterableDataset):  # type: ignore[type-arg]
    """An iterable dataset that knows its length, as some do."""

    def __iter__(self) -> Iterator[Any]:
        return iter(GRAPHS)

    def __len__(self) -> int:
        return len(GRAPHS)


def test_an_iterable_dataset_with_a_length_is_iterated(tmp_path: Path) -> None:
    assert tp.GraphStore.write(tmp_path / "store", Counted()).sizes.array.tolist() == [[3, 2], [2, 1], [1, 0]]


def test_a_store_written_from_a_store_keeps_its_splits(tmp_path: Path) -> None:
    first = tp.GraphStore.write(tmp_path / "first", GRAPHS, splits={"train": [2, 0], "test": [1]})
    again = tp.GraphStore.write(tmp_path / "again", first)
    assert {name: ids.tolist() for name, ids in again.splits.items()} == {"train": [2, 0], "test": [1]}


@pytest.mark.parametrize(("splits", "parts"), [([0, 1], ["mapping", "[0, 1]"]), ({"train": [0, 3]}, ["id 3", "0..2"])])
def test_wrong_splits_are_refused_before_a_graph_is_read(tmp_path: Path, splits: Any, parts: list[str]) -> None:
    class Unread(list):  # type: ignore[type-arg]
        def __getitem__(self, index: Any) -> Any:
            # The schema is learnt from the first graph.
            assert index == 0
            return super().__getitem__(index)

    with refused(SizesError, *parts):
        tp.GraphStore.write(tmp_path / "store", Unread(GRAPHS), splits=splits)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("index", [slice(0, 2), [0, 1], "0", 1.0])
def test_an_index_must_be_one_integer(tmp_path: Path, index: Any) -> None:
    store = tp.GraphStore.write(tmp_path / "store", GRAPHS)
    with refused(SizesError, "one integer", "subset"):
        store[index]
    assert store[-1].num_nodes() == 1


def test_positions_are_checked_run_by_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first graph that leads outside itself is named, in whichever run of graphs it is."""
    monkeypatch.setattr(arrays, "_GRAPHS", 2)
    store = tp.GraphStore.write(tmp_path / "store", GRAPHS * 3)
    store.verify()
    entry = store._arrays.entries["destinations", ("_N", "_E", "_N"), None]
    path = store.path / store._arrays.metadata.data / entry.file
    with open(path, "r+b") as file:
        # The only edge of graph 4, behind those of graphs 0, 1 and 3.
        file.seek(-4, 2)
        file.write(b"\x07")
    with refused(FormatError, entry.file.replace("destinations", "sources")[3:], "graph 4"):
        store._arrays.check_positions()
