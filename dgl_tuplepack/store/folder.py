"""The folder of a store: new data beside what is there, visible at the end, by one process at a time."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.store.format import METADATA, StoreMetadata

_LOCK, _DATA = ".lock", "data-"


@contextlib.contextmanager
def fresh_data(path: Path, overwrite: bool) -> Iterator[Path]:
    """Give a new data folder inside the store `path`, in which the caller writes arrays, and then `metadata.json`.

    Whatever happens before that leaves an existing store as it was, and nothing of the new one. Afterwards older
    data folders, left-overs of killed processes included, are removed.

    Raises
    ------
    FormatError
        There is a store already and `overwrite` is False, the folder holds other things, another process writes
        to it, or the place cannot be written.
    """
    created = not path.is_dir()
    try:
        _check_place(path, overwrite)
        path.mkdir(parents=True, exist_ok=True)
        with FileLock(path / _LOCK, timeout=0):
            # Another process may have finished a store since the first look.
            _check_place(path, overwrite)
            current = StoreMetadata.load(path).data if (path / METADATA).exists() else None
            data = path / f"{_DATA}{secrets.token_hex(8)}"
            _remove_data(path, keep=current)
            try:
                data.mkdir()
                yield data
            except BaseException:
                shutil.rmtree(data, ignore_errors=True)
                if created and not (path / METADATA).exists():
                    # Unlinked while held: whoever comes next makes a lock, and perhaps the folder, of its own.
                    (path / _LOCK).unlink(missing_ok=True)
                    with contextlib.suppress(OSError):
                        path.rmdir()
                raise
            _remove_data(path, keep=data.name)
    except Timeout as error:
        raise FormatError(f"another process is writing to {path}; wait for it, or choose another folder.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise FormatError(
            f"cannot write {path}: {reason}; check the path, its permissions and the space left."
        ) from error


def _check_place(path: Path, overwrite: bool) -> None:
    if not path.is_dir():
        if os.path.lexists(path):
            raise FormatError(f"{path} is no folder; choose another path for the store.")
        return
    if (path / METADATA).exists():
        if not overwrite:
            raise FormatError(
                f"{path} holds a store already; choose another path, or overwrite it (overwrite=True, --overwrite)."
            )
        return
    others = [p.name for p in path.iterdir() if p.name != _LOCK and not p.name.startswith(_DATA)]
    if others:
        raise FormatError(f"{path} holds other things ({min(others)} and so on) but no store; choose an empty folder.")


def _remove_data(path: Path, keep: str | None) -> None:
    for folder in path.iterdir():
        if folder.name.startswith(_DATA) and folder.name != keep:
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.name.startswith(f".{METADATA}."):
            folder.unlink(missing_ok=True)
