"""Read and write small files, JSON with checksums and CSV. Files are written under a temporary name, then renamed."""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dgl_tuplepack._core.checks import as_path
from dgl_tuplepack.errors import FormatError


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` to `path` as UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write `content` to `writable(path)` completely, or raise FormatError and leave no partial file."""
    path = writable(path)
    partial = path.parent / f".{path.name}.{secrets.token_hex(8)}.partial"
    try:
        with writing(path):
            with open(partial, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            # Flush the renaming, too; on Windows, folders cannot be opened.
            if os.name == "posix":
                handle = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)
    finally:
        # The partial file still exists only if writing failed.
        with contextlib.suppress(OSError):
            partial.unlink()


def writable(path: str | os.PathLike[str]) -> Path:
    """Return `path`, or the target if it is a link; raise FormatError if `write_bytes` could not write there.

    The final renaming would replace a device or a pipe.
    """
    path = as_path(path)
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "a device or a pipe"
        raise FormatError(f"cannot write {path}: it is {what}; give the path of a file.")
    if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise FormatError(f"cannot write {path}: {path.parent} is no folder that accepts files; create the folder.")
    return path


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open the plain file `path` for reading, or raise FormatError; a pipe or a device might never end."""
    path = as_path(path)
    try:
        return open_plain(path)
    except (OSError, ValueError) as error:
        raise FormatError(cannot("read", path, error)) from error


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file like `open_file`, but raise OSError, or ValueError for impossible characters in `path`."""
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe, a device or a socket, not a plain file")
    return open(path, "rb")


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of the file `path`; raise FormatError if it is missing, unreadable or not text."""
    try:
        with open_file(path) as opened, io.TextIOWrapper(opened, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(cannot("read", path, error)) from error


def read_json(path: str | os.PathLike[str]) -> Any:
    """Return the value of the JSON file `path`; raise FormatError if it cannot be read, or is not JSON."""
    return parse_json(read_text(path), path)


def parse_json(text: str, name: str | os.PathLike[str]) -> Any:
    """Return the value of a JSON text. If it is not JSON, raise FormatError; its message has the text's `name`."""
    try:
        # Some programs begin text files with a byte order mark.
        return json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as error:
        # RecursionError: too many brackets.
        raise FormatError(
            f"{name} is not valid JSON ({error!s:.200}); it is damaged or another kind of file."
        ) from error


def is_there(path: Path) -> bool:
    """Return whether a path exists, even if it cannot be read."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        # After any other error, assume that the path exists: reading it later reports the error.
        return not isinstance(error, FileNotFoundError | NotADirectoryError)
    return True


def checksum(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON document, computed without its key ``checksum``."""
    content = {name: value for name, value in document.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class JsonFormat:
    """A JSON file format with a checksum.

    `content` and `remedy` are for messages: what a file holds, and what to do about a damaged file.
    """

    kind: str
    version: int
    content: str
    remedy: str

    def document(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole document of a file."""
        document = {"format": self.kind, "version": self.version, **content}
        return {**document, "checksum": checksum(document)}

    def write(self, path: str | os.PathLike[str], content: Mapping[str, Any], indent: int | None = None) -> None:
        """Write a file; see `write_bytes`."""
        write_text(path, self.text(content, indent))

    def text(self, content: Mapping[str, Any], indent: int | None = None) -> str:
        """Return the text of a file with this `content`."""
        return json.dumps(self.document(content), indent=indent) + "\n"

    def reading(self, path: str | os.PathLike[str]) -> AbstractContextManager[dict[str, Any]]:
        """Read a file, and provide its document in a ``with`` block; see `checking`."""
        return self.checking(read_json(path), path)

    @contextlib.contextmanager
    def checking(self, document: Any, path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
        """Provide the `document` of the file `path` in a ``with`` block; raise FormatError if it is not intact.

        That is: another `kind` or `version`; after the block, a wrong checksum; or an error in the block that is an
        `InputError`, or comes from a missing value, a value of a wrong type, or reading another file.
        """
        given = document.get("format") if isinstance(document, dict) else None
        if given != self.kind:
            raise FormatError(
                f"{path} is not a {self.kind} file (its format is {given!r:.100}); give a file that this package wrote."
            )
        if document.get("version") != self.version:
            raise FormatError(
                f"{path} has version {document.get('version')!r:.100} of {self.kind}, but this release reads version "
                f"{self.version}; use the release that wrote it, or write it again."
            )
        try:
            yield document
            intact = document["checksum"] == checksum(document)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, OSError, MemoryError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else f"{error!s:.500}".rstrip(".")
            raise FormatError(f"{path} holds no valid {self.content} ({reason}); {self.remedy}.") from error
        if not intact:
            raise FormatError(f"{path} was altered: its content does not match its checksum; {self.remedy}.")


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows, all with the same keys, as CSV text; a nested mapping becomes one column for each of its keys."""
    flat = [_flat(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a row without nested mappings: ``{"limits": {"nodes": 9}}`` becomes ``{"limits_nodes": 9}``."""
    cells: dict[str, Any] = {}
    for name, value in row.items():
        cells |= _flat(value, f"{prefix}{name}_") if isinstance(value, Mapping) else {prefix + name: value}
    return cells


# What to do about errors of the system; for all others, see `cannot`.
_ADVICE = {
    errno.EMFILE: "close other files, or allow more open files (ulimit -n)",
    errno.ENOMEM: "free memory, or close other stores: each of their arrays is one of the memory maps of the process, "
    "of which Linux allows vm.max_map_count",
    errno.ENOSPC: "free some space, or choose another folder (TMPDIR for temporary files)",
    errno.EDQUOT: "free some of your quota, or choose another folder (TMPDIR for temporary files)",
    errno.EFBIG: "allow larger files (ulimit -f), or choose a folder with more space",
    errno.EROFS: "choose a folder on another file system",
    errno.EIO: "check the disk or the network drive",
    errno.ENAMETOOLONG: "choose a shorter path",
}


def cannot(verb: str, path: str | os.PathLike[str], error: Exception) -> str:
    """Return the message for a path that cannot be read or written; `verb` is "read" or "write"."""
    number = error.errno if isinstance(error, OSError) else None
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    other = "save it as UTF-8" if isinstance(error, UnicodeDecodeError) else "check the path and its permissions"
    advice = _ADVICE.get(number or 0, other)
    return f"cannot {verb} {path}: {reason}; {advice}."


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn an error of the system in the ``with`` block into a FormatError that names `path`.

    The block must not read from a source of graphs: errors of the source would get the wrong message.
    """
    try:
        yield
    except (OSError, NotImplementedError) as error:
        # filelock raises NotImplementedError on a file system without locks.
        raise FormatError(cannot("write", path, error)) from error
