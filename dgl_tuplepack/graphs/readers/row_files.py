"""Read rows of an array that is stored in several numpy, CSV or parquet files, one file after the other."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
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
# Key in the metadata of a parquet file, under which DGL's tools write the shape of the array as text, "(5, 2)".
SHAPE = b"shape"


class RowFiles:
    """The rows of several files, numbered from 0 over all files.

    `spec` is an entry of ``metadata.json`` in `folder`: the format and the list of files (DGL's ``ChunkFileSpec``).
    With `pairs`, each row is an edge: two integers. Only one numpy file is memory-mapped at a time; CSV and parquet
    files are read once and stay in memory.
    """

    def __init__(self, what: str, spec: Any, folder: Path, absolute: bool, pairs: bool = False) -> None:
        form = spec.get("format") if isinstance(spec, Mapping) else None
        name = form.get("name") if isinstance(form, Mapping) else None
        if form is None or name not in FORMATS or not isinstance(spec.get("data"), list):
            raise FormatError(
                f"{folder} describes {what} by {shown(spec, 200)}; it needs 'format' with the 'name' "
                f"{' or '.join(FORMATS)}, and 'data' with a list of files."
            )
        delimiter = form.get("delimiter", " " if pairs else ",")
        if not isinstance(delimiter, str) or len(delimiter) != 1:
            raise FormatError(f"{what} has the delimiter {shown(delimiter)} in {folder}; give one character.")
        self._what, self._form, self._delimiter, self._pairs = what, name, delimiter, pairs
        self._files = [inside(folder, file, absolute) for file in spec["data"]]
        self._arrays: dict[int, Array] = {}
        if not self._files and not pairs:
            raise FormatError(f"{what} has no files in {folder}; name at least one.")
        if pairs:
            # Edges are int64, since their files may have different integer dtypes.
            self.empty: Array = np.empty((0, 2), np.int64)
        else:
            self._arrays[0] = self._read(self._files[0])
            self.empty = self._arrays[0][:0]
        lengths = [len(self._array(i)) for i in range(len(self._files))]
        self._offsets = np.cumsum([0, *lengths], dtype=np.int64)

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def __getitem__(self, rows: IntArray) -> Array:
        found = np.empty((len(rows), *self.empty.shape[1:]), self.empty.dtype)
        file_of = np.searchsorted(self._offsets, rows, side="right") - 1
        for i in np.unique(file_of).tolist():
            found[file_of == i] = self._array(i)[rows[file_of == i] - self._offsets[i]]
        return found

    def _array(self, i: int) -> Array:
        if i not in self._arrays:
            if self._form == "numpy":
                self._arrays.clear()
            array = self._read(self._files[i])
            if not self._pairs:
                self._check_like_first(array, self._files[i])
            self._arrays[i] = array
        return self._arrays[i]

    def _read(self, file: Path) -> Array:
        try:
            array = _READERS[self._form](file, self._delimiter, self._pairs)
        except (FormatError, MissingDependencyError):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise FormatError(cannot("read", file, error)) from error
            raise FormatError(f"cannot read {file}: {error!s:.200}; it is truncated, or of another format.") from error
        if array.ndim == 0:
            raise FormatError(f"{file} holds a single value, but must hold rows of {self._what}.")
        if self._pairs and (array.shape[1:] != (2,) or array.dtype.kind not in "iu"):
            raise FormatError(
                f"{file} holds {_row(array)} in each row, but {self._what} needs two integers, a source and a "
                "destination; check the file and its delimiter."
            )
        return array

    def _check_like_first(self, array: Array, file: Path) -> None:
        """Refuse (FormatError) rows whose dtype or shape differs from the rows of the first file."""
        if (array.dtype, array.shape[1:]) != (self.empty.dtype, self.empty.shape[1:]):
            raise FormatError(
                f"{file} holds {_row(array)} in each row, but {self._files[0]} has {_row(self.empty)}; write both with "
                "the same dtype and shape."
            )


def _row(array: Array) -> str:
    """Return the dtype and shape of one row, for messages."""
    return f"{array.dtype} {list(array.shape[1:])}"


def inside(folder: Path, file: Any, absolute: bool) -> Path:
    """Return the path of a file that is listed in ``metadata.json`` in `folder`.

    Raise FormatError if the path leads out of the folder, or if a relative path does not exist. With `absolute`, an
    absolute path is returned unchecked.
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


def _numpy(file: Path, *_: Any) -> Array:
    open_file(file).close()
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise ValueError("it holds several arrays")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _csv(file: Path, delimiter: str, pairs: bool) -> Array:
    pandas = load("pandas")
    with open_file(file) as opened:
        try:
            table = pandas.read_csv(opened, sep=delimiter, header=None, dtype=np.int64 if pairs else None)
        except pandas.errors.EmptyDataError:
            return np.empty((0, 2 if pairs else 1), np.int64)
        return np.ascontiguousarray(table.to_numpy())


def _parquet(file: Path, *_: Any) -> Array:
    parquet = load("pyarrow.parquet")
    with open_file(file) as opened:
        table = parquet.read_table(opened)
    # Drop the columns in which pandas may have stored its index.
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    table = table.drop_columns([column for column in index if isinstance(column, str)])
    columns = [np.asarray(column.to_numpy()) for column in table.columns]
    # In a column of lists, each list is one row.
    columns = [np.stack(column.tolist()) if column.dtype == object and len(column) else column for column in columns]
    array = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    shape = (table.schema.metadata or {}).get(SHAPE)
    return array if shape is None else array.reshape([int(n) for n in ast.literal_eval(shape.decode())])


_READERS = {"numpy": _numpy, "csv": _csv, "parquet": _parquet}
