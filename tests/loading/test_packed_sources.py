"""A packed dataset takes every source, and keeps what is no store in a folder that goes with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError, SamplerError, SchemaError
from tests.support.loading import ITEMS, NUMBER, SOURCES
from tests.support.stores import molecules

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


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_can_be_packed_and_stores_are_not_copied(kind: str, folder: Path, temporary: Path) -> None:
    source = SOURCES[kind](folder)
    sizes = tp.sizes_of(ITEMS if kind == "an iterator" else source)
    packed = tp.PackedDataset(source, tp.Limits.from_components(dict.fromkeys(sizes.components, 20)))
    assert sorted(i for pack in ids_of(packed) for i in pack) == list(range(NUMBER))
    assert len(list(temporary.iterdir())) == ("store" not in kind and "shards" not in kind)
    del packed
    assert not list(temporary.iterdir())


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
        ({"content": "exchange", "shuffle": False}, SamplerError, "shuffle=False"),
        ({"rank": 0}, SamplerError, "num_replicas and rank"),
        ({"multiple_of": 0}, SamplerError, "multiple_of"),
        ({"limits": tp.Limits({"a": 3}, {"b": 3})}, InputError, "limit"),
        ({"source": ([3, 2], [4, 2])}, SchemaError, "only sizes"),
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
