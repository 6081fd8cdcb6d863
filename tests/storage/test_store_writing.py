"""Writing a store is all or nothing: killed, interrupted, on a full disk, beside other writers and readers."""

from __future__ import annotations

import multiprocessing
import pickle
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from filelock import FileLock

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, SchemaError
from dgl_tuplepack.storage.format import StoreMetadata
from tests.support.graphs import assert_same_item
from tests.support.messages import refused
from tests.support.processes import run
from tests.support.stores import LIMITS, assert_same_items, data_of, molecules

pytestmark = [pytest.mark.processes, pytest.mark.slow]

OLD, NEW = molecules(6, seed=1), molecules(9, seed=2)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of the old graphs."""
    tp.GraphStore.write(tmp_path / "store", OLD)
    return tmp_path / "store"


def assert_holds(path: Path, items: list[Any]) -> None:
    """The store opens, is valid, and holds these items and nothing else."""
    assert_same_items(tp.GraphStore(path), items)
    assert_tidy(path)


def assert_tidy(path: Path) -> None:
    """No left-overs in the folder of a store."""
    assert {p.name for p in path.iterdir()} <= {".lock", "metadata.json", data_of(path).name}


def forked(work: Callable[..., None], *arguments: Any) -> tuple[Any, Connection]:
    """A process of its own that does ``work(connection, *arguments)``, and the other end of the connection.

    It starts as a copy of this one, which takes a hundredth of the time that importing torch and DGL takes.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs, *arguments))
    process.start()
    theirs.close()
    return process, ours


def ended(process: Any, code: int = 0) -> None:
    """Wait for the end of a process, which must be of this kind."""
    process.join(120)
    assert process.exitcode == code


class Broken(Exception):
    """An error of a source."""


def stopped(error: BaseException, after: int = 3) -> Iterator[Any]:
    """A source that ends in an error."""
    yield from NEW[:after]
    raise error


@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), FileNotFoundError("mine")], ids=repr)
def test_errors_of_the_source_are_passed_on(store: Path, tmp_path: Path, error: BaseException, after: int) -> None:
    """As they are, and nothing is left; the old store stays."""
    (tmp_path / "empty").mkdir()
    for path in (store, tmp_path / "new", tmp_path / "empty"):
        with pytest.raises(type(error)) as caught:
            tp.GraphStore.write(path, stopped(error, after), overwrite=True)
        assert caught.value is error
    assert_holds(store, OLD)
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("number", [700, 3])
def test_a_wrong_graph_is_named(store: Path, tmp_path: Path, number: int) -> None:
    """In the first block and in a later one; all that was written before it goes."""
    good = NEW[0]
    extra = dgl.add_self_loop(good[0])
    extra.ndata["more"] = torch.zeros(extra.num_nodes())
    for wrong, parts in (
        ((extra, good[1]), ["more"]),
        ((good[0], good[1][:1]), ["labels"]),
        ("text", ["str", "DGLGraph"]),
        ((dgl.batch([good[0], good[0]]), good[1]), ["batch of 2"]),
        ((good[0].int(), good[1]), ["int32", "int64"]),
    ):
        source = [good] * number + [wrong] + [good] * 5
        with refused(SchemaError, f"item {number}", *parts):
            tp.GraphStore.write(store, iter(source), overwrite=True)
        with refused(SchemaError, f"item {number}", *parts):
            tp.GraphStore.write(tmp_path / "new", source)
    assert not (tmp_path / "new").exists()
    assert_holds(store, OLD)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "of the disk")], ids=repr)
def test_an_interrupt_when_all_is_done_keeps_the_new_store(
    store: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """It can come at any moment, also between the commit and the clearing up."""
    save = StoreMetadata.save

    def interrupted(metadata: StoreMetadata, folder: Path) -> None:
        save(metadata, folder)
        raise error

    monkeypatch.setattr(StoreMetadata, "save", interrupted)
    with pytest.raises((KeyboardInterrupt, OSError, FormatError)):
        tp.GraphStore.write(store, NEW, overwrite=True)
    monkeypatch.undo()
    found = tp.GraphStore(store)
    found.verify()
    assert len(found) == len(NEW)
    tp.GraphStore.write(store, OLD, overwrite=True)
    assert_holds(store, OLD)


def test_an_existing_store_is_kept(store: Path) -> None:
    """Told before the source is read."""
    with refused(FormatError, str(store), "overwrite=True"):
        tp.GraphStore.write(store, stopped(Broken(), 0))
    assert_holds(store, OLD)
    tp.GraphStore.write(store, NEW, overwrite=True)
    assert_holds(store, NEW)
    # Also from itself: the old files stay until the new ones are complete.
    tp.GraphStore.write(store, tp.GraphStore(store), compact=True, overwrite=True)
    assert_holds(store, NEW)


@pytest.mark.parametrize("damage", ["cut", "newer", "no data"])
def test_a_damaged_store_can_be_overwritten(store: Path, damage: str) -> None:
    """As the messages about damage advise; until then nothing of it is lost."""
    file = store / "metadata.json"
    if damage == "no data":
        shutil.rmtree(data_of(store))
    else:
        text = file.read_text()
        file.write_text(text[:99] if damage == "cut" else text.replace('"version": 1', '"version": 2'))
    before = {p: p.stat().st_size for p in store.rglob("*.npy")}
    with pytest.raises(FormatError):
        tp.GraphStore(store)
    with refused(FormatError, "overwrite=True"):
        tp.GraphStore.write(store, NEW)
    with pytest.raises(Broken):
        tp.GraphStore.write(store, stopped(Broken()), overwrite=True)
    assert {p: p.stat().st_size for p in store.rglob("*.npy")} == before
    tp.GraphStore.write(store, NEW, overwrite=True)
    assert_holds(store, NEW)


def test_other_things_are_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with refused(FormatError, str(folder), "thesis.tex"):
            tp.GraphStore.write(folder, NEW, overwrite=overwrite)
    (folder / "thesis.tex").unlink()
    (folder / "metadata.json").write_text('{"of": "another program"}')
    with refused(FormatError, str(folder), "metadata.json"):
        tp.GraphStore.write(folder, NEW, overwrite=True)
    assert (folder / "metadata.json").read_text() == '{"of": "another program"}'


def test_places_that_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "dangling"):
        with refused(FormatError, str(path)):
            tp.GraphStore(path)
        with refused(FormatError, str(path)):
            tp.GraphStore.write(path, NEW, overwrite=True)
    assert (tmp_path / "file").read_text() == "mine"


def write_on_a_full_disk(connection: Connection, path: Path, most: int) -> None:
    """Tell the message of the refusal; no file may grow beyond `most` bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    try:
        tp.GraphStore.write(path, molecules(40, most=200), overwrite=True)
    except FormatError as error:
        connection.send(str(error))


@pytest.mark.parametrize("most", [100, 40_000])
def test_a_full_disk_is_reported(store: Path, tmp_path: Path, most: int) -> None:
    """Files may not grow beyond `most` bytes: from the first header on, or in the middle, or near the end."""
    for path in (store, tmp_path / "new"):
        process, connection = forked(write_on_a_full_disk, path, most)
        ended(process)
        printed = connection.recv()
        assert f"cannot write {path}" in printed
        assert "File too large" in printed
        assert "space" in printed
    assert not (tmp_path / "new").exists()
    assert_holds(store, OLD)


def test_a_second_writer_is_refused(store: Path, tmp_path: Path) -> None:
    """While the first one is at it, in this process or another; both the first and the store go on."""

    def try_to_write(connection: Connection) -> None:
        try:
            tp.GraphStore.write(store, OLD, overwrite=True)
        except FormatError as error:
            connection.send(str(error))

    def source() -> Iterator[Any]:
        yield NEW[0]
        with refused(FormatError, "another process is writing", str(store)):
            tp.GraphStore.write(store, OLD, overwrite=True)
        process, connection = forked(try_to_write)
        ended(process)
        assert f"another process is writing to {store}" in connection.recv()
        assert len(tp.GraphStore(store)) == len(OLD)
        yield from NEW[1:]

    tp.GraphStore.write(store, source(), overwrite=True)
    assert_holds(store, NEW)
    with FileLock(store / ".lock"), refused(FormatError, "another process is writing"):
        tp.GraphStore.write(store, OLD, overwrite=True)


def test_a_store_written_anew_is_not_mistaken(store: Path) -> None:
    """Ids of an old store mean nothing in the new one, also where it is as large."""
    opened = tp.GraphStore(store)
    pickles = [pickle.dumps(value) for value in (opened, opened.subset([1]), opened.padded(LIMITS))]
    for data in pickles:
        pickle.loads(data)
    tp.GraphStore.write(store, OLD, overwrite=True)
    for data in pickles:
        with refused(FormatError, str(store), "written again"):
            pickle.loads(data)


def overwrite_often(connection: Connection, path: Path) -> None:
    for turn in range(24):
        tp.GraphStore.write(path, (OLD, NEW)[turn % 2], overwrite=True)


def test_opening_while_it_is_overwritten(store: Path) -> None:
    """Whenever one opens it, there is a whole store: the one before or the one after."""
    writer, _ = forked(overwrite_often, store)
    seen = set()
    while writer.is_alive():
        found = tp.GraphStore(store)
        right = {len(OLD): OLD, len(NEW): NEW}[len(found)]
        assert_same_item(found[-1], right[-1])
        seen.add(len(found))
    ended(writer)
    assert seen == {len(OLD), len(NEW)}


STREAM = """
import resource, sys
import torch
import dgl
import dgl_tuplepack as tp
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def graphs(number):
    for i in range(number):
        graph = dgl.graph(([0, 1], [1, 2]))
        graph.ndata["x"] = torch.full((3, 4096), float(i))
        yield graph
tp.GraphStore.write(sys.argv[1] + "/small", graphs(600))
before = peak()
made = tp.GraphStore.write(sys.argv[1] + "/large", graphs(6000))
print(peak() - before)
assert made[5999].ndata["x"][2, 7] == 5999
"""


def test_memory_is_bounded_by_a_block(tmp_path: Path) -> None:
    """280 MiB of graphs pass through; a first write has taken what any write takes."""
    found = run("-c", STREAM, tmp_path)
    assert found.returncode == 0, found.stderr[-3000:]
    grown = float(found.stdout)
    total = sum(p.stat().st_size for p in (tmp_path / "large").rglob("*.npy")) / 2**20
    assert total > 280
    assert grown < 100
