"""Tables of OGB's raw folders: compressed CSV files, or arrays of npz files. Each read returns the next rows."""

from __future__ import annotations

import codecs
import contextlib
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.files import cannot, open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.blocks import Array

# Bytes of a CSV file to scan at once.
_CHUNK = 1 << 20
# Texts that show a missing value: empty fields, and words that pandas reads as missing, in lower case.
_GAPS = (b",,", b",\n", b"\n,", b"na", b"n/a", b"null", b"none")


@contextlib.contextmanager
def reading(what: str, but: type[Exception] = FormatError) -> Iterator[None]:
    """Turn errors of other libraries into a FormatError, which names the file as `what`.

    FormatError, StopIteration and exceptions of the class `but` pass unchanged.
    """
    try:
        yield
    except (FormatError, StopIteration, but):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            # Errors of decompression have no error number.
            raise FormatError(cannot("read", what, error)) from error
        reason = str(error) or type(error).__name__
        raise FormatError(f"cannot read {what}: {reason:.200}; it is damaged, or not a file of OGB.") from error


@contextlib.contextmanager
def opened_npz(path: Path, what: str) -> Iterator[Any]:
    """Open an npz file in a ``with`` block; errors become FormatErrors as in `reading`."""
    with reading(what), open_file(path) as file, np.load(file, allow_pickle=False) as arrays:
        yield arrays


class CsvTable:
    """Rows of a gzip-compressed CSV file without header; as in OGB, int64 if all values are integers, else float32."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_integer, self.has_missing = _scan(path)
        self._reader: Any = None
        self._columns: int | None = None

    def read(self, number: int) -> Array:
        """Return the next rows, ``[number, columns]``; raise FormatError if there are fewer."""
        rows = self._next(number)
        if len(rows) != number:
            raise FormatError(f"{self.path} ends too early; it does not belong to the other tables, or is damaged.")
        return rows if self.is_integer else rows.astype(np.float32)

    def check_end(self) -> None:
        """Raise FormatError if there are more rows."""
        if len(self._next(1)):
            raise FormatError(
                f"{self.path} has more rows than the lists of sizes add up to; it does not belong to these lists."
            )

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()

    def _next(self, number: int) -> Array:
        """Return the next `number` rows, or fewer at the end. An array without rows still has columns."""
        pandas = load("pandas")
        # Without a dtype, pandas would choose a dtype for each chunk of rows.
        dtype = np.int64 if self.is_integer else np.float64
        if not number and self._columns is not None:
            # If pandas is asked for 0 rows, it skips rows.
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


def _scan(path: Path) -> tuple[bool, bool]:
    """Return whether a CSV file holds integers only, and whether values are missing."""
    is_integer, has_missing, last = True, False, b"\n"
    with reading(str(path)):
        with open_file(path) as packed, gzip.open(packed) as file:
            # `text` begins with the end of the text before it, since a gap may lie across two chunks.
            while chunk := file.read(_CHUNK):
                text = (last + chunk).replace(b"\r", b"").replace(codecs.BOM_UTF8, b"").lower()
                has_missing |= any(gap in text for gap in _GAPS)
                is_integer &= not (has_missing or text.translate(None, b"0123456789-+,\n "))
                last = text[-3:]
        # The last field of the file is empty, and no newline follows it.
        if last.endswith(b","):
            is_integer, has_missing = False, True
    return is_integer, has_missing


class NpzTable:
    """Rows of an array of an npz file, in the array's dtype. With `row`, the table is that row of the array."""

    def __init__(self, path: Path, member: str, row: int | None = None) -> None:
        self.path, self.member, self._position = path, member, 0
        with opened_npz(path, f"{member!r:.200} in {path}") as arrays:
            array = np.asarray(arrays[member])
            if array.ndim < (1 if row is None else 2) or (row is not None and len(array) <= row):
                raise ValueError(
                    f"its shape is {array.shape}, but it must have a row for each graph, node or edge (edge_index: two "
                    "rows)"
                )
            array = array if row is None else array[row]
            self._rows: Array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def has_missing(self) -> bool:
        """Whether there is a NaN."""
        return self._rows.dtype.kind == "f" and bool(np.isnan(self._rows).any())

    def read(self, number: int) -> Array:
        """Return the next rows, ``[number, ...]``; raise FormatError if there are fewer."""
        first, self._position = self._position, self._position + number
        if self._position > len(self):
            raise FormatError(f"{self.member} in {self.path} ends too early; it does not belong to the other arrays.")
        return self._rows[first : self._position]

    def check_end(self) -> None:
        """Raise FormatError if there are more rows."""
        if self._position != len(self):
            raise FormatError(
                f"{self.member} in {self.path} has {len(self)} rows, but the lists of sizes add up to "
                f"{self._position}; it does not belong to these lists."
            )
