"""Rows of an array that lies in several files, one after the other: numpy, CSV or parquet."""

from __future__ import annotations

import ast
import contextlib
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_path, shown
from dgl_tuplepack._core.files import cannot, is_there, open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, MissingDependencyError
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.planning.sizes import IntArray

FORMATS = ("csv", "numpy", "parquet")
# Name of the shape of an array in the metadata of a parquet file, as DGL's tools write it.
SHAPE = b"shape"


class RowFiles:
    """The rows of all files, numbered from 0 over all of them; `what` names them in messages.

    A numpy file is mapped. Of the other formats one file is in memory, or all of them if rows are read in any order.
    """

    def __init__(self, what: str, files: Sequence[Path], form: str, delimiter: str = " ", pairs: bool = False) -> None:
        self.what, self.files, self._form, self._delimiter, self._pairs = what, tuple(files), form, delimiter, pairs
        self._last: tuple[int, Array] | None = None
        if not files and not pairs:
            raise FormatError(f"{what} has no files; name at least one.")

    @classmethod
    def of_spec(cls, what: str, spec: Any, folder: Path, absolute: bool, pairs: bool = False) -> RowFiles:
        """Return the rows of a ``ChunkFileSpec`` of the file ``metadata.json`` in `folder`."""
        form = spec.get("format") if isinstance(spec, Mapping) else None
        name = form.get("name") if isinstance(form, Mapping) else None
        files = spec.get("data") if isinstance(spec, Mapping) else None
        if form is None or name not in FORMATS or not isinstance(files, list):
            raise FormatError(
                f"{folder} describes {what} by {shown(spec, 200)}; it needs a format, with the name "
                f"{' or '.join(FORMATS)}, and data, a list of files."
            )
        delimiter = form.get("delimiter", " " if pairs else ",")
        if not isinstance(delimiter, str) or len(delimiter) != 1:
            raise FormatError(f"{what} has the delimiter {shown(delimiter)} in {folder}; give one character.")
        return cls(what, [inside(folder, file, absolute) for file in files], name, delimiter, pairs)

    @functools.cached_property
    def offsets(self) -> IntArray:
        """Number of the first row of each file, and the number of all rows."""
        return np.cumsum([0, *(len(self._array(i)) for i in range(len(self.files)))], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def rows(self, wanted: slice | IntArray) -> Array:
        """Return the rows of a slice, or any rows by their numbers."""
        if not isinstance(wanted, slice):
            return self._any_rows(wanted)
        offsets, first, last = self.offsets, wanted.start, min(wanted.stop, len(self))
        begin = max(int(np.searchsorted(offsets, first, side="right")) - 1, 0)
        end = int(np.searchsorted(offsets, last))
        pieces = [self._array(i)[max(first - offsets[i], 0) : last - offsets[i]] for i in range(begin, end)]
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else self._empty()

    def _any_rows(self, wanted: IntArray) -> Array:
        if self._form != "numpy":
            return self._all[wanted]
        empty = self._empty()
        found = np.empty((len(wanted), *empty.shape[1:]), empty.dtype)
        file_of = np.searchsorted(self.offsets, wanted, side="right") - 1
        for i in np.unique(file_of).tolist():
            found[file_of == i] = self._array(i)[wanted[file_of == i] - self.offsets[i]]
        return found

    @functools.cached_property
    def _all(self) -> Array:
        return np.concatenate([self._array(i) for i in range(len(self.files))] or [self._empty()])

    def _empty(self) -> Array:
        return self._array(0)[:0] if self.files else np.empty((0, 2), np.int64)

    def _array(self, i: int) -> Array:
        if self._last is None or self._last[0] != i:
            array = _READERS[self._form](self.files[i], self._delimiter, self._pairs)
            if array.ndim == 0:
                raise FormatError(f"{self.files[i]} holds a single value, but must hold rows of {self.what}.")
            if self._pairs and (array.shape[1:] != (2,) or array.dtype.kind not in "iu"):
                raise FormatError(
                    f"{self.files[i]} holds {array.dtype} {list(array.shape)}, but {self.what} needs two integers in "
                    "each row, a source and a destination; check the file and its delimiter."
                )
            if not self._pairs and i and (array.dtype, array.shape[1:]) != (self._first.dtype, self._first.shape[1:]):
                raise FormatError(
                    f"{self.files[i]} holds {array.dtype} {list(array.shape[1:])} in each row, but {self.files[0]} has "
                    f"{self._first.dtype} {list(self._first.shape[1:])}; write both alike."
                )
            self._last = i, array
        return self._last[1]

    @functools.cached_property
    def _first(self) -> Array:
        return _READERS[self._form](self.files[0], self._delimiter, self._pairs)[:0]


def inside(folder: Path, file: Any, absolute: bool) -> Path:
    """Return the path of a file that ``metadata.json`` in `folder` names; FormatError if it leads out of the folder.

    With `absolute`, absolute paths may lead anywhere.
    """
    path = as_path(file)
    if path.is_absolute() and absolute:
        return path
    within, root = os.path.realpath(folder / path), os.path.realpath(folder)
    if os.path.commonpath([within, root]) != root:
        advice = "allow it by ChunkedGraph(folder, absolute_paths=True)" if path.is_absolute() else "move the file"
        raise FormatError(f"{folder} names the file {shown(str(file), 200)}, which lies outside the folder; {advice}.")
    if path.is_absolute() or is_there(Path(within)):
        return Path(within)
    raise FormatError(f"{folder} names the file {shown(str(file), 200)}, which does not exist; restore it.")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors about a file into a FormatError that names it."""
    try:
        yield
    except (FormatError, MissingDependencyError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise FormatError(cannot("read", path, error)) from error
        raise FormatError(f"cannot read {path}: {error!s:.200}; it is truncated, or of another format.") from error


def _numpy(path: Path, *_: Any) -> Array:
    with _reading(path):
        open_file(path).close()
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("it holds several arrays")
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _csv(path: Path, delimiter: str, pairs: bool) -> Array:
    pandas = load("pandas")
    with _reading(path), open_file(path) as file:
        try:
            table = pandas.read_csv(file, sep=delimiter, header=None, dtype=np.int64 if pairs else None)
        except pandas.errors.EmptyDataError:
            return np.empty((0, 2 if pairs else 1), np.int64)
        return np.ascontiguousarray(table.to_numpy())


def _parquet(path: Path, *_: Any) -> Array:
    parquet = load("pyarrow.parquet")
    with _reading(path), open_file(path) as file:
        table = parquet.read_table(file)
        columns = [np.asarray(column.to_numpy()) for column in table.columns]
        # A column of lists has a row in each list.
        columns = [
            np.stack(column.tolist()) if column.dtype == object and len(column) else column for column in columns
        ]
        array = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        shape = (table.schema.metadata or {}).get(SHAPE)
        return array if shape is None else array.reshape([int(n) for n in ast.literal_eval(shape.decode())])


_READERS = {"numpy": _numpy, "csv": _csv, "parquet": _parquet}
