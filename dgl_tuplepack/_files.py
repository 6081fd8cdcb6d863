"""Reading and writing of small files: written beside their place, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dgl_tuplepack._checks import as_path
from dgl_tuplepack.errors import FormatError

# It can be read only by setting it, which threads must not do at once: one would keep what another set for a moment.
_UMASK = threading.Lock()


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` as a whole or not at all; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `path` as a whole or not at all.

    Raises
    ------
    FormatError
        The place cannot be written; nothing is left behind.
    """
    path = as_path(path)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    except OSError as error:
        raise FormatError(cannot("write", path, error)) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files that only the owner reads; a result has the usual mode.
        with _UMASK:
            mask = os.umask(0)
            os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise FormatError(cannot("write", path, error)) from error
    finally:
        Path(name).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a renaming last, where folders can be opened (not on Windows)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_text(path: str | os.PathLike[str]) -> str:
    """Text of the file `path`.

    Raises
    ------
    FormatError
        The file is missing, unreadable or not text.
    """
    try:
        return as_path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(cannot("read", path, error)) from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Value of the JSON file `path`."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{path} is no valid JSON ({error}); it is damaged or another kind of file.") from error


def is_there(path: Path) -> bool:
    """Whether there is a file, readable or not."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # It cannot be told; reading says why.
        pass
    return True


def check_header(document: Any, path: str | os.PathLike[str], kind: str, version: int) -> None:
    """Refuse a JSON document that is not of this `kind`, or newer than `version`."""
    found = document.get("format") if isinstance(document, dict) else None
    if found != kind:
        raise FormatError(
            f"{path} is not a {kind} file (its format is {found!r}); give a file that this package has written."
        )
    if document.get("version") != version:
        raise FormatError(
            f"{path} has version {document.get('version')!r} of {kind}, but this release reads version {version}; "
            "use the release that wrote it, or write it again."
        )


def checksum(document: Mapping[str, Any]) -> str:
    """SHA-256 of everything in a JSON document but its ``checksum``."""
    content = {name: value for name, value in document.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def cannot(verb: str, path: str | os.PathLike[str], error: Exception) -> str:
    """Message for a path that cannot be read or written."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    checks = ", its permissions and the space left" if verb == "write" else " and its permissions"
    return f"cannot {verb} {path}: {reason}; check the path{checks}."
