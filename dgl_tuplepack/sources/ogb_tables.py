"""Tables of OGB's raw folders, read a run of rows at a time: compressed CSV, or a member of an npz file."""

from __future__ import annotations

import gzip
import math
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np

from dgl_tuplepack._files import open_file
from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.sources.npz import npy_header, opened_npz, reading

_CHUNK = 1 << 20
# Empty fields, and the words that pandas reads as a missing value, in lower case.
_GAPS = (b",,", b",\n", b"\n,", b"na", b"n/a", b"null", b"none")


class CsvTable:
    """Rows of a gzip-compressed CSV file without a header, as int64 or float32.

    As in OGB, a table is float32 if any of its values is not an integer.
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
        """Refuse rows that are left."""
        if len(self._next(1)):
            raise FormatError(f"{self.path} has more rows than the lists of sizes say; it does not belong to them.")

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()

    def _next(self, number: int) -> Array:
        """Return at most `number` more rows; without rows, the array still has the columns of the table."""
        pandas = load("pandas")
        # Without a dtype, pandas would choose one for each run of rows.
        dtype = np.int64 if self.is_integer else np.float64
        if not number and self._columns is not None:
            # If pandas is asked for 0 rows, it skips some.
            return np.empty((0, self._columns), dtype)
        try:
            with reading(str(self.path), but=pandas.errors.EmptyDataError):
                if self._reader is None:
                    self._reader = pandas.read_csv(
                        self.path, compression="gzip", header=None, dtype=dtype, iterator=True
                    )
                rows = np.asarray(self._reader.get_chunk(number), dtype)
        except (StopIteration, pandas.errors.EmptyDataError):
            return np.empty((0, self._columns or 1), dtype)
        self._columns = rows.shape[1]
        return rows


def _looked_through(path: Path) -> tuple[bool, bool]:
    """Return whether a CSV file holds integers only, and whether values are missing."""
    is_integer, has_missing, last = True, False, b"\n"
    with reading(str(path)):
        with open_file(path) as packed, gzip.open(packed) as file:
            while chunk := file.read(_CHUNK):
                text = (last + chunk).replace(b"\r", b"").lower()
                has_missing |= any(gap in text for gap in _GAPS)
                is_integer &= not (has_missing or text.translate(None, b"0123456789-+,\n "))
                last = text[-3:]
        if last.endswith(b","):
            is_integer, has_missing = False, True
    return is_integer, has_missing


class NpzTable:
    """Rows of one array of an npz file, in its own dtype; or of one row of the array, if `row` is given."""

    def __init__(self, path: Path, member: str, row: int | None = None) -> None:
        self.path, self.member, self._row = path, member, row
        self._where = f"{member!r:.200} in {path}"
        self._opened = ExitStack()
        try:
            with reading(self._where):
                archive = self._opened.enter_context(opened_npz(path))
                name = f"{member}.npy"
                self._file: IO[bytes] = self._opened.enter_context(archive.open(name))
                shape, fortran, dtype = npy_header(self._file, archive.getinfo(name).file_size)
                if row is not None and (len(shape) < 2 or shape[0] <= row):
                    raise ValueError(f"its shape is {shape}, but it must have {row + 1} rows or more of numbers")
                self._stored, self.dtype = dtype, dtype.newbyteorder("=")
                # Rows of such an array are not contiguous.
                self._whole = self._read_whole() if fortran and len(shape) > 1 else None
                if row is not None and self._whole is None:
                    self._file.seek(row * math.prod(shape[1:]) * dtype.itemsize, 1)
        except FormatError:
            self.close()
            raise
        self.shape = tuple(shape) if row is None else tuple(shape[1:])
        self._position = 0

    def _read_whole(self) -> Array:
        with reading(self._where), open_file(self.path) as file, np.load(file, allow_pickle=False) as arrays:
            array = arrays[self.member] if self._row is None else arrays[self.member][self._row]
            return np.asarray(array, self.dtype)

    @property
    def has_missing(self) -> bool:
        """Whether there is a NaN; reads the whole array."""
        return self.dtype.kind == "f" and bool(np.isnan(self._read_whole()).any())

    def take(self, number: int) -> Array:
        """Return the next rows, ``[number, ...]``."""
        first, self._position = self._position, self._position + number
        if self._position > self.shape[0]:
            raise FormatError(f"{self.member} in {self.path} ends too early; it does not belong to the other arrays.")
        if self._whole is not None:
            return self._whole[first : self._position]
        shape = (number, *self.shape[1:])
        with reading(self._where):
            data = self._file.read(math.prod(shape) * self._stored.itemsize)
            return np.frombuffer(data, self._stored).reshape(shape).astype(self.dtype, copy=False)

    def end(self) -> None:
        """Refuse rows that are left."""
        if self._position != self.shape[0]:
            raise FormatError(
                f"{self.member} in {self.path} has {self.shape[0]} rows, but the lists of sizes say {self._position}; "
                "it does not belong to them."
            )

    def close(self) -> None:
        """Close the file."""
        self._opened.close()
