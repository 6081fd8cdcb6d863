"""The folder of a store: new data beside the present store, made visible last, by one process at a time."""

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

from dgl_tuplepack._core.files import cannot, is_there
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.storage.format import MANIFEST, METADATA, StoreMetadata

LOCK = ".lock"
_DATA = "data-"
# Metadata that a killed process did not rename.
_PARTIAL = re.compile(r"\.metadata\.json\..*\.partial")


@contextlib.contextmanager
def fresh_data(path: Path, overwrite: bool) -> Iterator[Path]:
    """Make a new data folder inside the store `path`, in which the caller writes arrays; then it saves metadata.

    If the caller fails before that, an existing store stays as it was, and the new data is removed. Afterwards older
    data folders, also those of killed processes, are removed. FormatError as in `locked`.
    """
    check = functools.partial(check_place, path, overwrite)
    data = path / f"{_DATA}{secrets.token_hex(8)}"
    with locked(path, check):
        try:
            with writing_to(path):
                # Another process may have finished a store since the first check.
                check()
                current = _current(path)
                # Metadata that cannot be read may be of a newer version; its data stays until it is replaced.
                if current is not None or not is_there(path / METADATA):
                    _remove_data(path, keep=current)
                data.mkdir()
            yield data
            with writing_to(path):
                _remove_data(path, keep=data.name)
        except BaseException:
            # An interrupt may come when the new store is complete already.
            if not _is_current(path, data):
                shutil.rmtree(data, ignore_errors=True)
            raise


@contextlib.contextmanager
def locked(path: Path, check: Callable[[], None]) -> Iterator[None]:
    """Make the folder `path` and keep other processes out of it; FormatError if one is in it, or the system refuses.

    `check` refuses a folder with other content, before a lock file is put there. If the caller fails and leaves nothing
    in the folder, the lock file is removed, and so is the folder if it was made here.
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
        # Unlinked while held: the next process makes a lock, and perhaps the folder, of its own.
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
    """Turn errors of the system into a FormatError that names `path`; only our own writing belongs inside."""
    try:
        yield
    except Timeout as error:
        raise FormatError(f"another process is writing to {path}; wait for it, or choose another folder.") from error
    except (OSError, NotImplementedError) as error:
        # A file system without locks: filelock turns that error of the system into another one.
        raise FormatError(cannot("write", path, error)) from error


def _current(path: Path) -> str | None:
    """Return the name of the data folder of the store at `path`; None if there is no store, or it cannot be read."""
    try:
        return StoreMetadata.load(path).data
    except FormatError:
        return None


def _is_current(path: Path, data: Path) -> bool:
    """Whether the store at `path` is the one with this new data folder.

    The name is random, so that no metadata of another store holds it, damaged or not.
    """
    return is_there(path / METADATA) and data.name.encode() in (path / METADATA).read_bytes()


def check_place(path: Path, overwrite: bool) -> None:
    """Refuse (FormatError) what is not a folder, other content, or a store that must not be overwritten."""
    if not path.is_dir():
        if os.path.lexists(path):
            raise FormatError(f"{path} is not a folder; choose another path for the store.")
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


def is_begun(path: Path) -> bool:
    """Whether a folder holds nothing but what writing a store leaves, killed or not."""
    return path.is_dir() and all(
        name in (LOCK, METADATA) or name.startswith(_DATA) or _PARTIAL.fullmatch(name) for name in os.listdir(path)
    )


def _remove_data(path: Path, keep: str | None) -> None:
    for folder in path.glob(f"{_DATA}*"):
        if folder.name != keep:
            # What cannot be removed now is removed by the next write.
            shutil.rmtree(folder, ignore_errors=True)
    for file in path.iterdir():
        if _PARTIAL.fullmatch(file.name):
            file.unlink(missing_ok=True)
