"""The folder of a store: a data folder with the arrays, and `metadata.json`, which names the data folder.

A write makes a new data folder and replaces the metadata last. Only one process at a time may write.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from dgl_tuplepack._core.files import is_there, read_json, writing
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.storage.format import MANIFEST, METADATA, StoreMetadata

LOCK = ".lock"
_DATA = "data-"
_NAMES = {"store": "a store", "chunks": "chunks"}
# Names of partial metadata files, which a killed process leaves behind.
_PARTIAL = re.compile(r"\.metadata\.json\..*\.partial")


@contextlib.contextmanager
def fresh_data(path: Path, overwrite: bool, what: str = "store") -> Iterator[Path]:
    """Provide a new data folder inside the store `path`; the caller writes arrays there, then saves the metadata.

    `what` is the content that is written, "store" or "chunks"; neither may overwrite the other.

    If the caller fails before the metadata is saved, the new data folder is removed, and an existing store is
    unchanged. On success, all older data folders are removed. Raise the errors of `check_folder` and `locked`.
    """
    check = functools.partial(check_folder, path, overwrite, what)
    data = path / f"{_DATA}{secrets.token_hex(8)}"
    with locked(path, check):
        try:
            with writing(path):
                # Check again: another process may have finished a store since the first check.
                check()
                current = _current(path)
                # If the metadata cannot be read, keep all data folders: a newer release may have written them.
                if current is not None or not is_there(path / METADATA):
                    _remove_data(path, keep=current)
                data.mkdir()
            yield data
            with writing(path):
                _remove_data(path, keep=data.name)
        except BaseException:
            # Keep the new data folder if the metadata already names it: the error may come after the metadata is saved.
            if not _is_current(path, data):
                shutil.rmtree(data, ignore_errors=True)
            raise


@contextlib.contextmanager
def locked(path: Path, check: Callable[[], None]) -> Iterator[None]:
    """Make the folder `path` and lock it for the ``with`` block.

    `check` is called before the lock file is made; it raises an error if the content of the folder does not allow
    writing. Raise FormatError if another process holds the lock, or if the folder or the lock cannot be made.

    If the ``with`` block fails and the folder holds only the lock file, the lock file is removed. The folder and
    its parents are then removed too if this function made them.
    """
    made = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    with writing(path):
        check()
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / LOCK, timeout=0)
        try:
            lock.acquire()
        except Timeout as held:
            raise FormatError(f"another process is writing to {path}; wait for it, or choose another folder.") from held
    try:
        yield
    except BaseException:
        # Delete the lock file while this process still holds the lock.
        with contextlib.suppress(OSError):
            if os.listdir(path) == [LOCK]:
                (path / LOCK).unlink()
                for folder in made:
                    folder.rmdir()
        raise
    finally:
        lock.release()


def _current(path: Path) -> str | None:
    """Return the name of the data folder of the store at `path`; None if no metadata can be read."""
    try:
        return StoreMetadata.load(path).data
    except FormatError:
        return None


def _is_current(path: Path, data: Path) -> bool:
    """Return whether the metadata of the store at `path` names the new data folder `data`.

    The metadata may be damaged, so its bytes are searched for the name, which is random.
    """
    return is_there(path / METADATA) and data.name.encode() in (path / METADATA).read_bytes()


def check_folder(path: Path, overwrite: bool, what: str = "store") -> None:
    """Raise FormatError unless a store (or chunks, if `what` is "chunks") may be written to `path`.

    `path` may be missing, empty, or the folder of an unfinished store. With `overwrite`, it may also be the folder of a
    finished store.
    """
    if not path.is_dir():
        if os.path.lexists(path):
            raise FormatError(f"{path} is not a folder; choose another path.")
        return
    names = sorted(p.name for p in path.iterdir())
    if MANIFEST in names:
        raise FormatError(f"{path} holds a dataset of shards ({MANIFEST}); choose another folder.")
    data = [name for name in names if name.startswith(_DATA)]
    # A damaged store still has data folders, so it may be overwritten. Without a data folder, a metadata.json that is
    # not the metadata of a store belongs to another program.
    if METADATA in names and (data or _current(path) is not None):
        found = _kind(path)
        if found not in (what, None):
            raise FormatError(f"{path} holds {_NAMES[found]}, but no {what}; choose another folder.")
        if not overwrite:
            raise FormatError(
                f"{path} holds {_NAMES[what]} already; choose another path, or overwrite it (overwrite=True, "
                "--overwrite)."
            )
        return
    others = [name for name in names if name != LOCK and name not in data and not _PARTIAL.fullmatch(name)]
    if others:
        raise FormatError(f"{path} holds other things, such as {others[0]}, but no {what}; choose an empty folder.")


def _kind(path: Path) -> str | None:
    """Return whether the folder at `path` holds a "store" or "chunks"; None if its metadata cannot be read."""
    try:
        return "store" if "format" in read_json(path / METADATA) else "chunks"
    except (FormatError, TypeError):
        return None


def is_begun(path: Path) -> bool:
    """Return whether `path` is a folder that holds only files of a store; the store may be unfinished."""
    return path.is_dir() and all(
        name in (LOCK, METADATA) or name.startswith(_DATA) or _PARTIAL.fullmatch(name) for name in os.listdir(path)
    )


def _remove_data(path: Path, keep: str | None) -> None:
    """Remove all partial metadata files, and all data folders except the folder named `keep`."""
    for folder in path.glob(f"{_DATA}*"):
        if folder.name != keep:
            # Ignore errors: the next write tries again.
            shutil.rmtree(folder, ignore_errors=True)
    for file in path.iterdir():
        if _PARTIAL.fullmatch(file.name):
            file.unlink(missing_ok=True)
