"""Small promises of stores that the property tests do not reach, and what a store can be written from."""

from __future__ import annotations

import collections
import gc
import hashlib
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from tests.support.messages import refused
from tests.support.stores import assert_same_items, files_of, molecules, purchases, write_shards

GRAPHS = [dgl.graph(([0, 1], [1, 2])), dgl.graph(([0], [1])), dgl.graph(([], []), num_nodes=1)]


@pytest.mark.parametrize(
    ("splits", "parts"),
    [([0, 1], ["mapping", "[0, 1]"]), ({"train": [0, 3]}, ["id 3", "0..2"]), ({5: [0], "5": [1]}, ["2 splits", "'5'"])],
)
def test_wrong_splits_are_refused_before_a_graph_is_read(tmp_path: Path, splits: Any, parts: list[str]) -> None:
    # The schema is learnt from the first graph.
    unread = [GRAPHS[0], "a graph that would be refused", "another"]
    with refused(SizesError, *parts):
        tp.GraphStore.write(tmp_path / "store", unread, splits=splits)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_a_subset_keeps_ids_of_its_own(tmp_path: Path, kind: Any) -> None:
    """Else a change of the ids that were given would lead compiled code anywhere."""
    ids, limits = kind([2, 0]), tp.Limits(9, 9, 4)
    part = tp.GraphStore.write(tmp_path / "store", GRAPHS).subset(ids)
    padded = part.padded(limits)
    ids[0] = 10**12
    for again in (part, pickle.loads(pickle.dumps(part))):
        assert again.original_ids.tolist() == [2, 0]
        assert again.padded(limits)[[0]].num_real_nodes == padded[[0]].num_real_nodes == 1
        with pytest.raises(ValueError, match="read-only"):
            again.original_ids[0] = 10**12


@pytest.mark.parametrize("content", ["sources", "destinations", "edge_offsets"])
def test_damage_in_a_shard_is_named(tmp_path: Path, content: str) -> None:
    """The file, and the graph in its shard, whatever its id among all, or in a subset."""
    shards = write_shards(tmp_path / "shards", [GRAPHS, GRAPHS])
    part = shards.subset([5, 3, 4])
    file = files_of(tmp_path / "shards" / "part-1")[content]
    # Of the graph 1 of the second shard, which has one edge.
    np.load(file, mmap_mode="r+")[2] = 100
    with refused(FormatError, str(file), "graph 1"):
        part.padded(tp.Limits(9, 9, 4))[[1, 2]]
    with refused(FormatError, str(file), "graph 1"):
        part[2]


def test_positions_are_checked_run_by_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first graph that points outside itself is named, in whichever run of graphs it is."""
    monkeypatch.setattr("dgl_tuplepack.storage.selection._GRAPHS_PER_CHECK", 2)
    store = tp.GraphStore.write(tmp_path / "store", GRAPHS * 3)
    store.verify()
    path = files_of(store.path)["destinations"]
    # The only edge of graph 4, behind those of graphs 0, 1 and 3.
    np.load(path, mmap_mode="r+")[5] = 7
    with refused(FormatError, path.name, "graph 4"):
        store.segments[0].check_positions()


@pytest.mark.parametrize("compact", [False, True])
def test_blocks_of_any_size_have_the_checksums_of_their_files(compact: bool, tmp_path: Path) -> None:
    """Large ones are hashed while they are written, also when a file is written again in a wider dtype."""
    graphs = []
    for number, value in ((1_200_000, 7), (3, 1), (200_000, 70_000)):
        graph = dgl.graph(([], []), num_nodes=number)
        graph.ndata["x"] = torch.full((number,), value)
        graphs.append(graph)
    # The last one is in a later block.
    graphs[1:2] = graphs[1:2] * 600
    store = tp.GraphStore.write(tmp_path / "store", graphs, compact=compact)
    for entry in store.segments[0].metadata.arrays:
        path = next((tmp_path / "store").glob(f"*/{entry.file}"))
        values = np.load(path)
        assert hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest() == entry.sha256
    store.verify()
    assert [int(store[i].ndata["x"].sum()) for i in (0, 1, 601)] == [8_400_000, 3, 14_000_000_000]


# --- what a store can be written from


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
