"""One array in one `.npy` file: written in blocks, mapped for reading, checked by samples or completely."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import mmap
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from dgl_tuplepack._core.files import cannot, open_plain
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.storage.format import ArrayEntry, Key, allowed_storage

# A sample consists of this many blocks of this many bytes, evenly spaced from the start of the data to its end.
_SAMPLE_BLOCKS, _SAMPLE_BYTES = 8, 4096
_COPY_BYTES = 1 << 22
# Data of at least this many bytes is hashed in a thread while it is written.
_BYTES_FOR_THREAD = 1 << 20


def npy_header(stored: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a `.npy` file (version 1.0); its length does not depend on the number of rows."""
    descr = np.dtype(stored).newbyteorder("<").str
    text, longest = (
        repr({"descr": descr, "fortran_order": False, "shape": (rows, *shape[1:])}) for rows in (shape[0], 2**63)
    )
    # 8 bytes of magic, 2 with the length of the body, and a newline; a multiple of 64 bytes, as in numpy's own files.
    length = -(-(8 + 2 + len(longest) + 1) // 64) * 64
    body = text.ljust(length - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body.encode("latin1")


class ArrayWriter:
    """Append rows to a new array file; with `narrow`, integers get the narrowest dtype that holds all of them."""

    def __init__(
        self, folder: Path, file: str, key: Key, dtype: str, row_shape: tuple[int, ...], narrow: bool = False
    ) -> None:
        content, type_, name = key
        allowed = allowed_storage(content, dtype)
        self._made = {"file": file, "content": content, "type": type_, "name": name, "dtype": dtype}
        self._path, self._row_shape, self._rows = folder / file, row_shape, 0
        # Dtypes that the file may still get, narrowest first; the first one is in use.
        self._candidates = list(allowed) if narrow else [allowed[-1]]
        # Smallest and largest value so far; 0 counts as a value.
        self._least = self._most = 0
        self._start()

    def _start(self) -> None:
        """Create the file, with a header that `finish` replaces."""
        self._file: IO[bytes] = open(self._path, "xb")  # noqa: SIM115 (closed by finish or close)
        self._file.write(npy_header(self._stored, (0, *self._row_shape)))
        self._hash = hashlib.sha256()

    @property
    def _stored(self) -> str:
        return self._candidates[0]

    def append(self, rows: Array) -> None:
        """Append n rows: an array ``[n, *row_shape]`` of values of the dtype `dtype`."""
        if rows.size and len(self._candidates) > 1:
            self._least, self._most = min(self._least, int(rows.min())), max(self._most, int(rows.max()))
            self._widen()
        data = np.ascontiguousarray(rows, dtype=np.dtype(self._stored).newbyteorder("<"))
        self._write(data.reshape(-1).view(np.uint8).data)
        self._rows += len(rows)

    def _write(self, data: memoryview) -> None:
        if data.nbytes < _BYTES_FOR_THREAD:
            self._file.write(data)
            self._hash.update(data)
            return
        # Hashing and writing both release the GIL.
        hashing = threading.Thread(target=self._hash.update, args=(data,))
        hashing.start()
        try:
            self._file.write(data)
        finally:
            hashing.join()

    def _widen(self) -> None:
        """Rewrite the file in the narrowest dtype that holds all values, if the current dtype does not."""
        before = self._stored
        while not np.iinfo(self._stored).min <= self._least <= self._most <= np.iinfo(self._stored).max:
            del self._candidates[0]
        if self._stored == before:
            return
        self._file.close()
        narrow = self._path.with_suffix(".narrow")
        os.replace(self._path, narrow)
        self._start()
        with open(narrow, "rb") as file:
            file.seek(len(npy_header(before, (0, *self._row_shape))))
            while block := file.read(_COPY_BYTES):
                values = np.frombuffer(block, np.dtype(before).newbyteorder("<"))
                self._write(values.astype(np.dtype(self._stored).newbyteorder("<")).view(np.uint8).data)
        narrow.unlink()

    def finish(self) -> ArrayEntry:
        """Complete the file, sync it to disk and return its entry."""
        shape = (self._rows, *self._row_shape)
        self._file.seek(0)
        self._file.write(npy_header(self._stored, shape))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        checks = {"sample": _sample(self._path, len(npy_header(self._stored, shape))), "sha256": self._hash.hexdigest()}
        return ArrayEntry(**self._made, stored=self._stored, shape=shape, **checks)

    def close(self) -> None:
        """Close the file, complete or not."""
        # On a full disk, closing tries to write the buffered bytes again.
        with contextlib.suppress(OSError):
            self._file.close()


def open_array(folder: Path, entry: ArrayEntry) -> Array:
    """Check the header, the length and a sample of an array file, and map the file into memory, read-only.

    Raise FormatError if the file has changed since it was written, and FileNotFoundError if it does not exist.
    """
    path, stored = folder / entry.file, np.dtype(entry.stored).newbyteorder("<")
    header = npy_header(entry.stored, entry.shape)
    # Computed with Python integers: the shape comes from a file, and int64 might overflow.
    num_values = int(np.prod([1, *entry.shape], dtype=object))
    try:
        with open_plain(path) as file:
            length, written = os.fstat(file.fileno()).st_size, len(header) + num_values * stored.itemsize
            if file.read(len(header)) != header or length != written or _sample(path, len(header)) != entry.sample:
                raise FormatError(f"{path} does not hold what was written{_DAMAGED}")
            # A plain array: np.memmap is a subclass, and each slice of it takes more time.
            content = np.asarray(_Map(file, length) if os.name == "posix" else np.memmap(file, np.uint8, "r"))
        return content[len(header) :].view(stored).reshape(entry.shape)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FormatError(cannot("read", path, error)) from error


if os.name == "posix":
    _system: Any = ctypes.CDLL(None, use_errno=True)
    _system.mmap.restype = ctypes.c_void_p


class _Map:
    """The bytes of a file, mapped into memory, read-only.

    Python's `mmap` keeps a file open for each map. Torch's maps can be written to, so the system counts them as memory.
    """

    def __init__(self, file: IO[bytes], length: int) -> None:
        size = ctypes.c_size_t(length)
        address = _system.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), ctypes.c_long(0))
        if address == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        weakref.finalize(self, _system.munmap, ctypes.c_void_p(address), size).atexit = False
        # True: the bytes are read-only.
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (length,), "data": (address, True)}


def check_bytes(folder: Path, entry: ArrayEntry, progress: Callable[[int], object]) -> None:
    """Raise FormatError if the header or the checksum of an array file is wrong; report read bytes to `progress`."""
    path, digest = folder / entry.file, hashlib.sha256()
    header = npy_header(entry.stored, entry.shape)
    try:
        with open_plain(path) as file:
            intact = file.read(len(header)) == header
            while block := file.read(_COPY_BYTES):
                digest.update(block)
                progress(len(block))
    except OSError as error:
        raise FormatError(cannot("read", path, error)) from error
    if not intact or digest.hexdigest() != entry.sha256:
        raise FormatError(f"{path} has a wrong header or a wrong checksum{_DAMAGED}")


_DAMAGED = "; the store is damaged, write it again."


def _sample(path: Path, header: int) -> str:
    """Return the SHA-256 of a sample of the file after its first `header` bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        length = os.fstat(file.fileno()).st_size - header
        last = max(length - _SAMPLE_BYTES, 0)
        # A set, since the blocks of a small file may begin at the same byte.
        starts = {last * i // (_SAMPLE_BLOCKS - 1) for i in range(_SAMPLE_BLOCKS)}
        for start in sorted(starts):
            file.seek(header + start)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
