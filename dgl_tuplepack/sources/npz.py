"""Members of npz files of others; each header is checked before anything is read or allocated by it."""

from __future__ import annotations

import contextlib
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from dgl_tuplepack._files import cannot, open_file
from dgl_tuplepack.errors import FormatError

_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What damaged archives and tables raise, of any kind of compression. Encrypted ones raise RuntimeError, and unknown
# kinds NotImplementedError, which is one.
_UNREADABLE = (
    ValueError, KeyError, OSError, EOFError, RuntimeError, OverflowError, MemoryError, struct.error,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


@contextlib.contextmanager
def reading(what: str, but: type[Exception] = FormatError) -> Iterator[None]:
    """Turn the errors that a damaged file of others raises, except for `but`, into a FormatError that names it."""
    try:
        yield
    except (FormatError, but):
        raise
    except _UNREADABLE as error:
        if isinstance(error, OSError) and error.errno is not None:
            # An error of the system; those of compressions have no number.
            raise FormatError(cannot("read", what, error)) from error
        said = str(error) or type(error).__name__
        # A length that is damaged asks for any amount of memory, but so does a large file that is not.
        hint = "there is not enough memory, or it is" if isinstance(error, MemoryError) else "it is"
        raise FormatError(f"cannot read {what}: {said:.200}; {hint} damaged, or not a file of OGB.") from error


@contextlib.contextmanager
def opened_npz(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an npz file."""
    with reading(str(path)), open_file(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


def members_of(path: Path) -> list[str]:
    """Return the names of the arrays in an npz file."""
    with opened_npz(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def npy_header(file: IO[bytes], length: int) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return shape, whether the order is Fortran's, and dtype of an array in the npy format, of `length` bytes in all.

    ValueError if it is not such an array, holds Python objects, or needs more bytes; OSError if it cannot be read.
    """
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its npy format is of version {version}")
    try:
        shape, fortran, dtype = _HEADERS[version](file)
    except OSError:
        raise
    except Exception as error:
        # Numpy hands the text to Python's parser, and what that gives to `numpy.dtype`; both have many ways to fail.
        raise ValueError(f"its npy header is damaged ({error!s:.100})") from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    # For numpy's check, True is an integer.
    if any(type(axis) is not int or axis < 0 for axis in shape):
        raise ValueError(f"its shape is {shape!r:.100}")
    if not shape:
        raise ValueError("it is a single value, but must have a row for each graph, node or edge")
    if math.prod(shape) * dtype.itemsize > length:
        raise ValueError(f"its shape is {shape!r:.100}, but it has {length} bytes")
    return shape, fortran, dtype
