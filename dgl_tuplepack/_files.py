"""Reading and writing of small files: written beside their place, then renamed."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dgl_tuplepack._checks import as_path
from dgl_tuplepack.errors import FormatError

# It can be read only by setting it, which threads must not do at once: one would keep what another set for a moment.
_UMASK = threading.Lock()

# Of a file that is read as a whole; a plan of a million size classes takes a tenth of it.
_MOST_BYTES = 2**30
# Of lists and objects in each other; our files have up to five.
_MOST_LEVELS = 32
# Of numbers; what is too large for its place is told there.
_LARGEST = 10**100


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


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open the file `path` for reading.

    Raises
    ------
    FormatError
        It is missing, unreadable, or not a plain file: a pipe would wait for a writer, a device may have no end.
    """
    path = as_path(path)
    try:
        return open_plain(path)
    except (OSError, ValueError) as error:
        raise FormatError(cannot("read", path, error)) from error


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """As `open_file`, with errors of the system.

    Raises
    ------
    OSError
        The file is missing, unreadable, or not a plain file.
    ValueError
        The path holds a character that no path can.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe, a device or a socket, not a plain file")
    return open(path, "rb")


def read_text(path: str | os.PathLike[str]) -> str:
    """Text of the file `path`.

    Raises
    ------
    FormatError
        The file is missing, unreadable, too large or not text.
    """
    try:
        with open_file(path) as opened, io.TextIOWrapper(opened, encoding="utf-8") as file:
            size = os.fstat(file.fileno()).st_size
            if size > _MOST_BYTES:
                raise FormatError(f"{path} has {size} bytes, more than any file that this package writes.")
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(cannot("read", path, error)) from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Value of the JSON file `path`, which is not trusted.

    What comes back can be walked through, printed and written again: it is not nested deeply, its numbers are finite
    and of a hundred digits at most, and no key stands twice.

    Raises
    ------
    FormatError
        The file is missing, unreadable, too large, not JSON, or holds a value that no file of ours does.
    """
    return parse_json(read_text(path), path)


def parse_json(text: str, path: str | os.PathLike[str]) -> Any:
    """Value of JSON text from the file `path`; as `read_json`."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
        _check_values(value)
    except (ValueError, RecursionError) as error:
        # Too many digits, and too many brackets, are errors of Python's own.
        raise FormatError(
            f"{path} is no valid JSON ({error!s:.200}); it is damaged or another kind of file."
        ) from error
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _check_values(value: Any) -> None:
    """Refuse nesting and numbers that no file of ours has; level by level, so that no depth is too much."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        inner: list[Any] = []
        kinds = set(map(type, level))
        if kinds & {int, float}:
            numbers = [number for number in level if type(number) in (int, float)]
            if not -_LARGEST <= min(numbers) <= max(numbers) <= _LARGEST:
                raise ValueError("a number in it is too large")
        if kinds & {list, dict}:
            for part in level:
                if type(part) is list:
                    inner += part
                elif type(part) is dict:
                    inner += part.values()
        if not inner:
            return
        level = inner
    raise ValueError(f"it is nested more than {_MOST_LEVELS} levels deep")


def is_there(path: Path) -> bool:
    """Whether there is something, readable or not."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        # It cannot be told; reading says why.
        pass
    return True


def is_file(path: Path) -> bool:
    """Whether there is a plain file; False where it cannot be told: reading says why."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def check_header(document: Any, path: str | os.PathLike[str], kind: str, version: int) -> None:
    """Refuse a JSON document that is not of this `kind`, or newer than `version`."""
    found = document.get("format") if isinstance(document, dict) else None
    if found != kind:
        raise FormatError(
            f"{path} is not a {kind} file (its format is {found!r:.100}); give a file that this package has written."
        )
    if document.get("version") != version:
        raise FormatError(
            f"{path} has version {document.get('version')!r:.100} of {kind}, but this release reads version {version}; "
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
