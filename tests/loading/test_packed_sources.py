"""A packed dataset takes every source, and keeps what is no store in a folder that goes with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, SamplerError, SchemaError
from tests.support.ogb_folder import write_ogb_folder
from tests.support.stores import molecules, purchases, write_shards

LIMITS = tp.Limits(nodes=12, edges=14)


def ids_of(packed: Any) -> list[list[int]]:
    return [labels.graph_ids[labels.graph_mask].tolist() for _, labels in packed]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def sources(folder: Path) -> Iterator[tuple[str, Any, int]]:
    """A source of every kind that has graphs, and their number."""
    items = molecules(20)
    store = tp.GraphStore.write(folder / "stored", items)
    sharded = write_shards(folder / "shards", [items[:8], items[8:]])
    dgl.save_graphs(str(folder / "graphs.bin"), [graph for graph, _ in items])
    sizes = tp.GraphSizes([[3, 4], [2, 2], [5, 3]])
    yield "list", items, 20
    yield "heterographs", purchases(), 8
    yield "with ids", tp.with_ids(items), 20
    yield "own ids", [(*item, i) for i, item in enumerate(items)], 20
    yield "subset of torch", torch.utils.data.Subset(items, [3, 1, 2]), 3
    yield "store", store, 20
    yield "path of a store", folder / "stored", 20
    yield "subset", store.subset([5, 3, 3, 7]), 4
    yield "shards", sharded, 20
    yield "path of shards", str(folder / "shards"), 20
    yield "bin file", folder / "graphs.bin", 20
    yield "OGB folder", write_ogb_folder(folder / "ogb", sizes) / "ogbg_molhiv", 3


def test_every_kind_of_source_can_be_packed_and_stores_are_not_copied(tmp_path: Path, temporary: Path) -> None:
    for name, source, number in sources(tmp_path / "given"):
        limits = tp.Limits.from_components({each: 20 for each in tp.sizes_of(source).components})
        packed = tp.PackedDataset(source, limits)
        assert sorted(i for pack in ids_of(packed) for i in pack) == list(range(number)), name
        is_stored = name in ("store", "path of a store", "subset", "shards", "path of shards")
        assert len(list(temporary.iterdir())) == (not is_stored), name
        del packed
        assert not list(temporary.iterdir()), name


def test_a_temporary_folder_does_not_go_with_a_worker(temporary: Path) -> None:
    packed = tp.PackedDataset(molecules(20), LIMITS)
    child = os.fork()
    if not child:
        try:
            del packed
            os._exit(0 if list(temporary.iterdir()) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(ids_of(packed)) == len(packed)


def test_no_folder_is_left_behind_by_a_dataset_that_fails(temporary: Path) -> None:
    with pytest.raises(SchemaError):
        tp.PackedDataset([*molecules(5), (molecules(1)[0][0], "name")], LIMITS)
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"content": "repack", "shuffle": False}, SamplerError, "shuffle=False"),
        ({"rank": 0}, SamplerError, "num_replicas and rank"),
        ({"multiple_of": 0}, SamplerError, "multiple_of"),
        ({"replan_every": 0}, SamplerError, "replan_every"),
        ({"limits": tp.Limits({"a": 3}, {"b": 3})}, InputError, "limit"),
        ({"source": ([3, 2], [4, 2])}, SchemaError, "sizes only"),
        ({"source": []}, InputError, "no graphs"),
        ({"source": "nowhere"}, FormatError, "there is no nowhere"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    temporary: Path, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    given: dict[str, Any] = {"source": molecules(5), "limits": LIMITS, **settings}
    with pytest.raises(error, match=says):
        tp.PackedDataset(**given)
    assert not list(temporary.iterdir())
