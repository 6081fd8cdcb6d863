"""Paths that are too long, loops of links, pipes, devices and others: a message, in Python and on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.preprocessing import preprocess
from dgl_tuplepack.sharding import verify_shards
from dgl_tuplepack.sources import OgbFolder
from tests.ogb_folder import write_ogb_folder
from tests.shards import write_bins
from tests.stores import molecules

PLACES = [
    "long",
    "long inside",
    "loop",
    "loop inside",
    "pipe",
    "device",
    "folder",
    "nul",
    "surrogate",
    "socket",
    "dangling",
]


def odd(folder: Path, kind: str, suffix: str) -> Path:
    """A place that cannot be read, with a suffix that tells what it should be."""
    loop = folder / f"loop{suffix}"
    place = {
        "long": folder / ("x" * 300 + suffix), "long inside": folder / ("x" * 300) / f"a{suffix}", "loop": loop,
        "loop inside": loop / f"a{suffix}", "pipe": folder / f"pipe{suffix}", "device": folder / f"device{suffix}",
        "folder": folder / f"folder{suffix}", "nul": folder / f"a\0b{suffix}", "surrogate": folder / f"\udcff{suffix}",
        "socket": folder / f"socket{suffix}", "dangling": folder / f"dangling{suffix}",
    }[kind]  # fmt: skip
    if kind.startswith("loop"):
        loop.symlink_to(loop)
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    elif kind == "folder":
        place.mkdir()
    elif kind == "dangling":
        place.symlink_to(folder / "nowhere")
    elif kind == "socket":
        import socket

        with socket.socket(socket.AF_UNIX) as opened:
            os.chdir(folder)
            opened.bind(place.name)
    return place


READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "plan": (".json", tp.PackPlan.load),
    "histogram": (".csv", tp.SizeHistogram.load),
    "store": ("", tp.GraphStore),
    "shards": ("", tp.MultiStore),
    "sizes of a folder": ("", tp.sizes_of),
    "OGB folder": ("", OgbFolder),
    "OGB name": ("", lambda path: OgbFolder(path, "ogbg-molhiv")),
    "store of a folder": ("", lambda path: tp.GraphStore.write(path.parent / "out", path)),
    "store of a file": (".bin", lambda path: tp.GraphStore.write(path.parent / "out", path)),
    "store of a long file": (".bin", lambda path: preprocess(path, Path(os.getcwd()) / "out")),
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


@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "folder"])
@pytest.mark.parametrize("file", ["raw/num-node-list.csv.gz", "raw/edge.csv.gz", "raw/node-feat.csv.gz",
    "split/scaffold/train.csv.gz"])  # fmt: skip
def test_odd_files_inside_an_ogb_folder_are_told(tmp_path: Path, file: str, kind: str) -> None:
    import numpy as np

    folder = write_ogb_folder(tmp_path / "ogb", tp.GraphSizes(np.array([[3, 4]] * 8))) / "ogbg_molhiv"
    (folder / file).unlink()
    odd((folder / file).parent, kind, ".csv.gz").rename(folder / file)
    with pytest.raises(InputError, match=r"csv\.gz"):
        tp.GraphStore.write(tmp_path / "out", folder)


@pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
@pytest.mark.parametrize("file", ["metadata.json", "data"])
def test_odd_files_inside_a_store_are_told(tmp_path: Path, file: str, kind: str) -> None:
    store = tp.GraphStore.write(tmp_path / "store", molecules(3))
    path = store.path / "metadata.json" if file == "metadata.json" else sorted(store.path.glob("data-*/*"))[2]
    path.unlink()
    odd(tmp_path, kind, ".x").rename(path)
    with pytest.raises(InputError, match=path.name):
        tp.GraphStore(store.path)
    if file != "metadata.json":
        with pytest.raises(InputError, match=path.name):
            store.verify()


def test_worker_processes_tell_of_odd_places_too(tmp_path: Path) -> None:
    """None of them waits or dies, and the other shards are done."""
    bins = write_bins(tmp_path, 1)
    places = {kind: odd(tmp_path, kind, ".bin") for kind in ("long", "loop", "pipe", "device")}
    program = (
        "import sys, dgl_tuplepack as tp\n"
        "if __name__ == '__main__':\n"
        "    try:\n"
        "        tp.preprocess_shards(sys.argv[2:], sys.argv[1], workers=2)\n"
        "    except tp.errors.ShardsError as error:\n"
        "        print(error)\n"
    )
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "out"), str(bins[0]), *map(str, places.values())],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "4 of 5 shards failed" in done.stdout
    assert len(tp.GraphStore(tmp_path / "out" / "part-0")) == 20


@pytest.mark.parametrize("kind", ["long", "loop", "pipe", "device", "dangling"])
@pytest.mark.parametrize("command", ["sizes", "info", "verify", "preprocess"])
@pytest.mark.parametrize("suffix", ["", ".bin"])
def test_the_command_line_tells_of_odd_places(tmp_path: Path, run: Any, command: str, kind: str, suffix: str) -> None:
    place = odd(tmp_path, kind, suffix)
    done = run(command, place, *([tmp_path / "out"] if command == "preprocess" else []))
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert str(place) in done.err
    assert not (tmp_path / "out").exists()
