"""Paths that are too long, loops of links, pipes, devices and others: a message, in Python and on the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.sharding import verify_shards
from dgl_tuplepack.sources import OgbFolder
from tests.stores import molecules

PLACES = ["long", "loop", "pipe", "device", "folder", "nul", "surrogate", "dangling"]


def odd(folder: Path, kind: str, suffix: str) -> Path:
    """A place that cannot be read, with a suffix that tells what it should be."""
    place = folder / {"long": "x" * 300, "nul": "a\0b", "surrogate": "\udcff"}.get(kind, kind)
    place = place.with_name(place.name + suffix)
    if kind == "loop":
        place.symlink_to(place)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "folder":
        place.mkdir()
    elif kind == "dangling":
        place.symlink_to(folder / "nowhere")
    return place


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "plan": (".json", tp.PackPlan.load),
    "histogram": (".csv", tp.SizeHistogram.load),
    "store": ("", tp.GraphStore),
    "shards": ("", tp.MultiStore),
    "OGB folder": ("", OgbFolder),
    "store of a folder": ("", lambda path: tp.GraphStore.write(path.parent / "out", path)),
    "store of a file": (".bin", lambda path: tp.GraphStore.write(path.parent / "out", path)),
    "verified": ("", verify_shards),
    "shard": ("", lambda path: tp.preprocess_shards({"a": str(path)}, Path(os.getcwd()) / "out", workers=1)),
    "shard of a file": (".bin", lambda path: tp.preprocess_shards([str(path)], Path(os.getcwd()) / "out", workers=1)),
    "written over": ("", lambda path: tp.GraphStore.write(path, molecules(2), overwrite=True)),
    "shards written over": ("", lambda path: tp.preprocess_shards([molecules(2)], path, workers=1)),
}


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("reader", READERS)
def test_places_that_cannot_be_used_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    suffix, read = READERS[reader]
    place = odd(tmp_path, kind, suffix)
    if "written over" in reader and kind in ("folder", "surrogate", "dangling"):
        pytest.skip("these can be written")
    with pytest.raises(InputError) as caught:
        read(place)
    assert len(str(caught.value)) < 2500
    assert not (tmp_path / "out" / "metadata.json").exists()
