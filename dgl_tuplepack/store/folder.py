"""The folder of a store: new data beside what is there, visible at the end, by one process at a time."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from dgl_tuplepack._files import cannot
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.store.format import MANIFEST, METADATA, StoreMetadata
from dgl_tuplepack.store.plan_files import plan_files

LOCK = ".lock"
_DATA = "data-"
# What writing the metadata, a plan, or what a shard was made from, leaves where the process is killed.
_PARTIAL = re.compile(r"\.(metadata|source|plan(-.*)?)\.json\..*\.partial")


@contextlib.contextmanager
def fresh_data(path: Path, overwrite: bool) -> Iterator[Path]:
    """Give a new data folder inside the store `path`, in which the caller writes arrays, and then `metadata.json`.

    Whatever happens before that leaves an existing store as it was, and nothing of the new one. Afterwards older
    data folders, left-overs of killed processes included, are removed.

    Raises
    ------
    FormatError
        There is a store already and `overwrite` is False, the folder holds other things or shards, another process
        writes to it, or the place cannot be written.
    """
    with writing_to(path):
        created, lock = not path.is_dir(), FileLock(path / LOCK, timeout=0)
        check_place(path, overwrite)
        path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    data = path / f"{_DATA}{secrets.token_hex(8)}"
    try:
        with writing_to(path):
            # Another process may have finished a store since the first look.
            check_place(path, overwrite)
            current = _current(path)
            # What cannot be read may be of a newer version; it stays until it is replaced.
            if current is not None or not (path / METADATA).exists():
                _remove_data(path, keep=current)
            data.mkdir()
        yield data
        with writing_to(path):
            _remove_data(path, keep=data.name)
    except BaseException:
        # An interrupt may come when the new store is complete already.
        if _current(path) != data.name:
            shutil.rmtree(data, ignore_errors=True)
        if not (path / METADATA).exists():
            # Unlinked while held: whoever comes next makes a lock, and perhaps the folder, of its own.
            with contextlib.suppress(OSError):
                (path / LOCK).unlink()
                if created:
                    path.rmdir()
        raise
    finally:
        lock.release()


def move_store(new: Path, path: Path) -> None:
    """Put the finished store at `new` in the place of what is at `path`, on the same file system.

    A store that was there is valid until the new one is.

    Raises
    ------
    FormatError
        As `fresh_data`.
    """
    data = StoreMetadata.load(new).data
    with writing_to(path):
        check_place(path, overwrite=True)
        path.mkdir(parents=True, exist_ok=True)
        with FileLock(path / LOCK, timeout=0):
            os.replace(new / data, path / data)
            _remove_plans(path, StoreMetadata.load(new))
            os.replace(new / METADATA, path / METADATA)
            _remove_data(path, keep=data)


@contextlib.contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Say what is wrong with the place, around our own writing; errors of a source are not ours to explain.

    Raises
    ------
    FormatError
        Instead of the system's error.
    """
    if "\0" in str(path):
        raise FormatError(cannot("write", repr(str(path)), ValueError("no path holds the character \\0")))
    try:
        yield
    except Timeout as error:
        raise FormatError(f"another process is writing to {path}; wait for it, or choose another folder.") from error
    except OSError as error:
        raise FormatError(cannot("write", path, error)) from error


def _current(path: Path) -> str | None:
    """Name of the data folder of the store at `path`; None where there is no store, or it cannot be read."""
    try:
        return StoreMetadata.load(path).data
    except FormatError:
        return None


def check_place(path: Path, overwrite: bool) -> None:
    """Refuse a place for a store that is no folder, or holds other things, or a store that is not to be overwritten.

    Raises
    ------
    FormatError
        Says what is there.
    """
    if not path.is_dir():
        if os.path.lexists(path):
            raise FormatError(f"{path} is no folder; choose another path for the store.")
        return
    names = sorted(p.name for p in path.iterdir())
    if MANIFEST in names:
        raise FormatError(f"{path} holds a dataset of shards ({MANIFEST}); choose another folder for the store.")
    data = [name for name in names if name.startswith(_DATA)]
    # A damaged store can be overwritten, another program's metadata cannot.
    if METADATA in names and (data or _current(path) is not None):
        if not overwrite:
            raise FormatError(
                f"{path} holds a store already; choose another path, or overwrite it (overwrite=True, --overwrite)."
            )
        return
    others = [name for name in names if name != LOCK and name not in data and not _PARTIAL.fullmatch(name)]
    if others:
        raise FormatError(f"{path} holds other things ({others[0]} and so on) but no store; choose an empty folder.")


def commit(path: Path, metadata: StoreMetadata) -> None:
    """Make the new store in the folder `path` the one that is seen.

    Plans of the store that was there go first, so that those beside a store are never for another one.

    Raises
    ------
    FormatError
        The place cannot be written.
    """
    with writing_to(path):
        _remove_plans(path, metadata)
    metadata.save(path)


def _remove_plans(path: Path, new: StoreMetadata) -> None:
    for file in plan_files(path, new):
        file.unlink(missing_ok=True)


def is_begun(path: Path, besides: Collection[str] = ()) -> bool:
    """Whether a folder holds nothing but what writing a store leaves, killed or not, and `besides`."""
    return path.is_dir() and all(
        name in (LOCK, METADATA, *besides)
        or name.startswith(_DATA)
        or (name.startswith(".") and name.endswith(".partial"))
        for name in os.listdir(path)
    )


def _remove_data(path: Path, keep: str | None) -> None:
    for folder in path.iterdir():
        if folder.name.startswith(_DATA) and folder.name != keep:
            shutil.rmtree(folder, ignore_errors=True)
    remove_partial(path)


def remove_partial(path: Path) -> None:
    """Take away half-written small files that killed processes left in the folder of a store."""
    for file in path.iterdir():
        if _PARTIAL.fullmatch(file.name):
            file.unlink(missing_ok=True)
