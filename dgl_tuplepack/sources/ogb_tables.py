"""Tables of OGB's raw folders, read a run of rows at a time: compressed CSV, or a member of an npz file."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError

Array = NDArray[Any]

_CHUNK = 1 << 20
# Empty fields, and the words that pandas takes for a missing value, in small letters.
_GAPS = (b",,", b",\n", b"\n,", b"na", b"n/a", b"null", b"none")


class CsvTable:
    """Rows of a gzip-compressed CSV file without a header, as int64 or float32.

    As OGB does it, a table is float32 as soon as one of its values is no integer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_integer, self.has_missing = _looked_through(path)
        self._reader: Any = None
        self._columns: int | None = None

    def take(self, number: int) -> Array:
        """Return the next rows, ``[number, columns]``."""
        rows = self._next(number)
        if len(rows) != number:
            raise FormatError(f"{self.path} ends too early; it does not belong to the other tables, or is damaged.")
        return rows if self.is_integer else rows.astype(np.float32)

    def end(self) -> None:
        """Refuse rows that are left over."""
        if len(self._next(1)):
            raise FormatError(f"{self.path} has more rows than the lists of sizes say; it does not belong to them.")

    def close(self) -> None:
        """Let go of the file."""
        if self._reader is not None:
            self._reader.close()

    def _next(self, number: int) -> Array:
        """At most `number` more rows; no rows still have the columns of the table."""
        pandas = load("pandas")
        # Without a type of our own, pandas would decide on one for each run of rows.
        dtype = np.int64 if self.is_integer else np.float64
        if not number and self._columns is not None:
            # Asked for no rows between others, pandas skips some.
            return np.empty((0, self._columns), dtype)
        try:
            if self._reader is None:
                self._reader = pandas.read_csv(self.path, compression="gzip", header=None, dtype=dtype, iterator=True)
            rows = np.asarray(self._reader.get_chunk(number), dtype)
        except (StopIteration, pandas.errors.EmptyDataError):
            return np.empty((0, self._columns or 1), dtype)
        except (ValueError, OSError, EOFError, zlib.error) as error:
            raise FormatError(f"{self.path} is no table of numbers ({error!s:.200}); is it an OGB file?") from error
        self._columns = rows.shape[1]
        return rows


def _looked_through(path: Path) -> tuple[bool, bool]:
    """Whether a CSV file holds integers only, and whether values are missing."""
    is_integer, has_missing, last = True, False, b"\n"
    try:
        with gzip.open(path) as file:
            while chunk := file.read(_CHUNK):
                text = (last + chunk).replace(b"\r", b"").lower()
                has_missing |= any(gap in text for gap in _GAPS)
                is_integer &= not (has_missing or text.translate(None, b"0123456789-+,\n "))
                last = text[-3:]
        if last.endswith(b","):
            is_integer, has_missing = False, True
    except (OSError, EOFError, zlib.error) as error:
        raise FormatError(f"cannot read {path}: {error!s:.200}; it is damaged, fetch it again.") from error
    return is_integer, has_missing


class NpzTable:
    """Rows of one array of an npz file, in its own dtype; of a row of it, where `row` is given."""

    def __init__(self, path: Path, member: str, row: int | None = None) -> None:
        self.path, self.member = path, member
        self._opened = ExitStack()
        try:
            archive = self._opened.enter_context(zipfile.ZipFile(path))
            self._file: IO[bytes] = self._opened.enter_context(archive.open(f"{member}.npy"))
            version = np.lib.format.read_magic(self._file)
            read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
            shape, fortran, self.dtype = read(self._file)
            if self.dtype.hasobject:
                raise ValueError("it holds Python objects")
            if fortran and len(shape) > 1:
                # Rows of such an array do not lie together.
                with np.load(path) as arrays:
                    self._whole: Array | None = arrays[member] if row is None else arrays[member][row]
            else:
                self._whole = None
                if row is not None:
                    self._file.seek(row * int(np.prod(shape[1:])) * self.dtype.itemsize, 1)
        except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            self.close()
            raise FormatError(f"cannot read {member} in {path}: {error!s:.200}; is it an OGB file?") from error
        self.shape = tuple(shape) if row is None else tuple(shape[1:])
        self._position = 0

    @property
    def has_missing(self) -> bool:
        """Whether there is a NaN; reads the whole array."""
        if self.dtype.kind != "f":
            return False
        with np.load(self.path) as arrays:
            return bool(np.isnan(arrays[self.member]).any())

    def take(self, number: int) -> Array:
        """Return the next rows, ``[number, ...]``."""
        first, self._position = self._position, self._position + number
        if self._position > self.shape[0]:
            raise FormatError(f"{self.member} in {self.path} ends too early; it does not belong to the other arrays.")
        if self._whole is not None:
            return self._whole[first : self._position]
        shape = (number, *self.shape[1:])
        try:
            data = self._file.read(int(np.prod(shape)) * self.dtype.itemsize)
            return np.frombuffer(data, self.dtype).reshape(shape)
        except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise FormatError(f"cannot read {self.member} in {self.path}: {error!s:.200}; it is damaged.") from error

    def end(self) -> None:
        """Refuse rows that are left over."""
        if self._position != self.shape[0]:
            raise FormatError(
                f"{self.member} in {self.path} has {self.shape[0]} rows, but the lists of sizes say {self._position}; "
                "it does not belong to them."
            )

    def close(self) -> None:
        """Let go of the file."""
        self._opened.close()
