"""The folder of a store: one process at a time writes new data next to the old, and makes it visible last."""

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

from dgl_tuplepack._core.files import cannot, is_there, read_json
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.storage.format import MANIFEST, METADATA, StoreMetadata

LOCK = ".lock"
_DATA = "data-"
_NAMES = {"store": "a store", "chunks": "chunks"}
# Names of partial metadata files, which a killed process leaves.
_PARTIAL = re.compile(r"\.metadata\.json\..*\.partial")


@contextlib.contextmanager
def fresh_data(path: Path, overwrite: bool, what: str = "store") -> Iterator[Path]:
    """Make a new data folder inside the store `path`; the caller writes arrays there, then saves the metadata.

    `what` is "store" or "chunks", which have the same layout; neither replaces the other.

    If the caller fails before that, the new data is removed, and an existing store is unchanged. On success, older
    data folders are removed, including data of killed processes. Raises the errors of `locked`.
    """
    check = functools.partial(check_folder, path, overwrite, what)
    data = path / f"{_DATA}{secrets.token_hex(8)}"
    with locked(path, check):
        try:
            with writing_to(path):
                # Another process may have finished a store since the first check.
                check()
                current = _current(path)
                # A newer version may have written unreadable metadata: keep its data until it is replaced.
                if current is not None or not is_there(path / METADATA):
                    _remove_data(path, keep=current)
                data.mkdir()
            yield data
            with writing_to(path):
                _remove_data(path, keep=data.name)
        except BaseException:
            # An interrupt may arrive when the new store is already complete.
            if not _is_current(path, data):
                shutil.rmtree(data, ignore_errors=True)
            raise


@contextlib.contextmanager
def locked(path: Path, check: Callable[[], None]) -> Iterator[None]:
    """Make the folder `path` and lock it; FormatError if another process holds the lock, or the system refuses.

    `check` refuses a folder with other content before the lock file is made. If the caller fails and leaves the folder
    empty, the lock file is removed, and so is a folder that was made here.
    """
    created = not os.path.isdir(path)
    with writing_to(path):
        check()
        path.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path / LOCK, timeout=0)
        lock.acquire()
    try:
        yield
    except BaseException:
        # Unlink the lock while holding it: the next process makes a new lock, and perhaps a new folder.
        with contextlib.suppress(OSError):
            if os.listdir(path) == [LOCK]:
                (path / LOCK).unlink()
                if created:
                    path.rmdir()
        raise
    finally:
        lock.release()


@contextlib.contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Turn system errors into a FormatError that names `path`; use it only around this library's own writing."""
    try:
        yield
    except Timeout as error:
        raise FormatError(f"another process is writing to {path}; wait for it, or choose another folder.") from error
    except (OSError, NotImplementedError) as error:
        # filelock raises NotImplementedError on a file system without locks.
        raise FormatError(cannot("write", path, error)) from error


def _current(path: Path) -> str | None:
    """Return the name of the data folder of the store at `path`; None if there is no store, or it cannot be read."""
    try:
        return StoreMetadata.load(path).data
    except FormatError:
        return None


def _is_current(path: Path, data: Path) -> bool:
    """Return whether the store at `path` has this new data folder.

    The metadata may be damaged, so its bytes are searched. The name is random: no other metadata contains it.
    """
    return is_there(path / METADATA) and data.name.encode() in (path / METADATA).read_bytes()


def check_folder(path: Path, overwrite: bool, what: str = "store") -> None:
    """Raise FormatError if `path` is not a folder, has other content, or has a store that must not be overwritten.

    `what` is "store" or "chunks", the content that is to be written.
    """
    if not path.is_dir():
        if os.path.lexists(path):
            raise FormatError(f"{path} is not a folder; choose another path.")
        return
    names = sorted(p.name for p in path.iterdir())
    if MANIFEST in names:
        raise FormatError(f"{path} holds a dataset of shards ({MANIFEST}); choose another folder.")
    data = [name for name in names if name.startswith(_DATA)]
    # A damaged store can be overwritten; another program's metadata cannot.
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
    """Return "store" or "chunks", what the folder at `path` holds; None if its metadata cannot be read."""
    try:
        return "store" if "format" in read_json(path / METADATA) else "chunks"
    except (FormatError, TypeError):
        return None


def is_begun(path: Path) -> bool:
    """Return whether a folder holds only the files of a store, finished or not."""
    return path.is_dir() and all(
        name in (LOCK, METADATA) or name.startswith(_DATA) or _PARTIAL.fullmatch(name) for name in os.listdir(path)
    )


def _remove_data(path: Path, keep: str | None) -> None:
    for folder in path.glob(f"{_DATA}*"):
        if folder.name != keep:
            # The next write removes folders that cannot be removed now.
            shutil.rmtree(folder, ignore_errors=True)
    for file in path.iterdir():
        if _PARTIAL.fullmatch(file.name):
            file.unlink(missing_ok=True)
