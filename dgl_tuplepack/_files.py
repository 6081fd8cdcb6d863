"""Reading and writing of small files: written beside their place, then renamed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dgl_tuplepack._checks import as_path
from dgl_tuplepack.errors import FormatError

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
    partial = path.parent / f".{path.name}.{secrets.token_hex(8)}.partial"
    try:
        with open(partial, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise FormatError(cannot("write", path, error)) from error
    finally:
        # Renamed, or never made, unless writing failed; that error is the one to report.
        with contextlib.suppress(OSError):
            partial.unlink()


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


def parse_json(text: str | bytes, path: str | os.PathLike[str]) -> Any:
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


@dataclass(frozen=True)
class JsonFormat:
    """A kind of JSON file with a version and a checksum.

    Attributes
    ----------
    kind, version
        Values of the keys ``format`` and ``version``.
    content, remedy
        For messages: what a file holds, and what to do about a damaged one.
    """

    kind: str
    version: int
    content: str
    remedy: str

    def document(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """The whole document of a file, with header and checksum."""
        document = {"format": self.kind, "version": self.version, **content}
        return {**document, "checksum": checksum(document)}

    def write(self, path: str | os.PathLike[str], content: Mapping[str, Any], indent: int | None = None) -> None:
        """Write a file; see `write_bytes`."""
        write_text(path, json.dumps(self.document(content), indent=indent) + "\n")

    def reading(self, path: str | os.PathLike[str]) -> AbstractContextManager[dict[str, Any]]:
        """Give the document of a file to the body of a ``with``; see `checking`."""
        return self.checking(read_json(path), path)

    @contextlib.contextmanager
    def checking(self, document: Any, path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
        """Give the document of the file `path` to the body of a ``with``, which takes it apart.

        Raises
        ------
        FormatError
            The document is of another kind or version, the body refuses it (with an `InputError`, an error that values
            of other types lead to, or one of reading more of the file), or its content does not match its checksum.
        """
        check_header(document, path, self.kind, self.version)
        try:
            yield document
            intact = document["checksum"] == checksum(document)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, OSError, MemoryError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else f"{error!s:.500}".rstrip(".")
            raise FormatError(f"{path} holds no valid {self.content} ({reason}); {self.remedy}.") from error
        if not intact:
            raise FormatError(f"{path} was altered: its content does not match its checksum; {self.remedy}.")

    def recognises(self, path: Path) -> bool:
        """Whether a file says that it is of this kind, in whatever version; False if it cannot be read."""
        try:
            document = read_json(path)
        except FormatError:
            return False
        return isinstance(document, dict) and document.get("format") == self.kind


def cannot(verb: str, path: str | os.PathLike[str], error: Exception) -> str:
    """Message for a path that cannot be read or written."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    checks = ", its permissions and the space left" if verb == "write" else " and its permissions"
    return f"cannot {verb} {path}: {reason}; check the path{checks}."
