"""Files of `dgl.save_graphs`, read without DGL, whose own reader ends the process if a file is damaged.

The layout is the one of DGL 0.5 and later (version 2 of the format; src/graph/serialize/heterograph_serialize.cc,
src/graph/unit_graph.cc, include/dgl/aten/coo.h and csr.h in its sources). Numbers are little-endian. A vector is its
length and its elements, a text its length and its bytes. Every length is compared with the rest of the file
before anything is allocated.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, TypeVar

import numpy as np

from dgl_tuplepack._files import cannot, open_file
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.sizes import IntArray

Named = dict[str, Array]
Element = TypeVar("Element")

# What each part begins with.
_FILE, _ARRAY, _GRAPH = 0xDD2E4FF046B4A13F, 0xDD5E40F096B4A13F, 0xDD589FBE35224ABF
_TYPES, _RELATION = 0xDD3C5FFE20046ABF, 0xDD2E60F0F6B4A127
_COO, _CSR = 0xDD61FFD305DFF127, 0xDD6CD31205DFF127
_HEADER_BYTES = 4096
# Device, its number, and the number of axes; then code, bits and lanes of the dtype.
_ARRAY_HEADER = struct.Struct("<QQiiiBBH")
# Code and bits of a dtype -> numpy's name; numpy has no bfloat16, so its bits are kept.
_DTYPES = {
    **{(code, 8 * size): f"<{kind}{size}" for code, kind in enumerate("iu") for size in (1, 2, 4, 8)},
    **{(2, 8 * size): f"<f{size}" for size in (2, 4, 8)},
    (4, 16): "bfloat16",
}
# Bits of the format code: what is saved of a relation, in this order.
_FORMATS = (1, 2, 4)
# Format codes of early releases.
_OLD_FORMATS = {1: 1, 2: 2, 3: 4}
_MOST_AXES = 32


@dataclass(frozen=True)
class SavedGraph:
    """One graph as it was saved, with types in the order of the file.

    `edge_ends` are the indices of the source node type and the destination node type of each edge type, `endpoints` the
    source nodes and destination nodes of each edge type, int32 or int64, in the order of edge ids.
    """

    ntypes: tuple[str, ...]
    relations: tuple[str, ...]
    edge_ends: tuple[tuple[int, int], ...]
    num_nodes: tuple[int, ...]
    endpoints: tuple[tuple[Array, Array], ...]
    node_features: tuple[Named, ...]
    edge_features: tuple[Named, ...]

    @property
    def canonical_etypes(self) -> list[tuple[str, str, str]]:
        """Canonical edge types, called as by DGLGraph."""
        ends = zip(self.edge_ends, self.relations, strict=True)
        return [(self.ntypes[src], relation, self.ntypes[dst]) for (src, dst), relation in ends]


class BFloat16(np.ndarray[Any, np.dtype[np.int16]]):
    """Values of bfloat16, as the integers of the same bits."""


def read_saved_graphs(path: Path) -> tuple[list[SavedGraph], Named]:
    """Read graphs and labels of `dgl.save_graphs`; FormatError for other, older (DGL < 0.5) or damaged files."""
    with open_file(path) as file:
        try:
            return _Reader(file, path).graphs_and_labels()
        except OSError as error:
            raise FormatError(cannot("read", path, error)) from error


class _Reader:
    """Reads one part of a file after another."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self._file, self._path = file, path
        self._size = os.fstat(file.fileno()).st_size
        self._at = 0
        # Nearly always, all graphs have the same types.
        self._seen_types: list[tuple[bytes, tuple[list[tuple[int, int]], int]]] = []

    def graphs_and_labels(self) -> tuple[list[SavedGraph], Named]:
        magic, version, kind, number = struct.unpack("<4Q", self._bytes(32))
        if magic != _FILE:
            self._refuse("it does not begin as such a file does")
        if (version, kind) != (2, 2):
            raise FormatError(
                f"{self._path} is of version {version} of dgl.save_graphs, kind {kind}, but version 2 is read; load it "
                "with the DGL that wrote it, and save it with DGL 0.5 or later."
            )
        self._bytes(_HEADER_BYTES - 32)
        begin = self._number()
        labels = self._named()
        if self._at != begin:
            self._refuse("its graphs do not begin where its labels end")
        graphs, places = [], []
        for _ in range(self._fitting(number, 8)):
            places.append(self._at)
            graphs.append(self._graph())
        # A list of where graphs begin, its own length before and behind it.
        length = 8 * (number + 1)
        if self._number() != length or self._vector(self._number) != places or self._number() != length:
            self._refuse("it does not end as such a file does")
        if self._at != self._size:
            self._refuse("more follows behind its end")
        return graphs, labels

    def _refuse(self, what: str) -> NoReturn:
        raise FormatError(
            f"{self._path} cannot be read as a file of dgl.save_graphs ({what}); it is damaged or of another kind, "
            "write it again."
        )

    def _bytes(self, number: int) -> bytes:
        found = self._file.read(self._fitting(number, 1))
        self._at += number
        if len(found) != number:
            self._refuse("it became shorter while it was read")
        return found

    def _fitting(self, number: int, size: int) -> int:
        """Return `number`; refuse it if the rest of the file has fewer elements of this size."""
        if number * size > self._size - self._at:
            self._refuse(f"it ends early, at byte {self._size}")
        return number

    def _number(self) -> int:
        return int.from_bytes(self._bytes(8), "little", signed=True)

    def _expect(self, magic: int, what: str) -> None:
        if int.from_bytes(self._bytes(8), "little") != magic:
            self._refuse(f"there is no {what} at byte {self._at - 8}")

    def _vector(self, element: Callable[[], Element]) -> list[Element]:
        # No element takes less than its own length, or number.
        return [element() for _ in range(self._fitting(self._length(), 8))]

    def _length(self) -> int:
        length = self._number()
        if length < 0:
            self._refuse(f"a length at byte {self._at - 8} is negative")
        return length

    def _text(self) -> str:
        try:
            return self._bytes(self._length()).decode()
        except UnicodeDecodeError:
            self._refuse(f"a name before byte {self._at} is not UTF-8 text")

    def _named(self) -> Named:
        pairs = self._vector(lambda: (self._text(), self._array()))
        if len(dict(pairs)) != len(pairs):
            self._refuse(f"a name stands twice before byte {self._at}")
        return dict(pairs)

    def _array(self) -> Array:
        magic, _, device, _, axes, code, bits, lanes = _ARRAY_HEADER.unpack(self._bytes(_ARRAY_HEADER.size))
        name = _DTYPES.get((code, bits))
        if magic != _ARRAY or device != 1 or lanes != 1 or name is None or not 0 <= axes <= _MOST_AXES:
            self._refuse(f"there is no array before byte {self._at}")
        dtype = np.dtype("<i2" if name == "bfloat16" else name)
        shape = struct.unpack(f"<{axes}q", self._bytes(8 * axes))
        length = self._number()
        if min(shape, default=0) < 0 or length != math.prod(shape) * dtype.itemsize:
            self._refuse(f"an array before byte {self._at} has the shape {shape!s:.100}, but {length} bytes")
        self._fitting(length, 1)
        try:
            array = np.empty(shape, dtype)
        except ValueError:
            # If one axis has length 0, the others may have any length.
            self._refuse(f"an array before byte {self._at} has the shape {shape!s:.100}")
        if length and self._file.readinto(array.reshape(-1).view(np.uint8).data) != length:  # type: ignore[attr-defined]
            self._refuse("it became shorter while it was read")
        self._at += length
        array = array.astype(dtype.newbyteorder("="), copy=False)
        return array.view(BFloat16) if name == "bfloat16" else array

    def _graph(self) -> SavedGraph:
        self._expect(_GRAPH, "graph")
        ends, num_types = self._type_graph()
        relations = self._vector(self._relation)
        num_nodes = self._vector(self._number)
        features = [self._vector(self._named) for _ in range(2)]
        node_types, names = (self._vector(self._text) for _ in range(2))
        counts = [len(num_nodes), len(features[0]), len(node_types)]
        if counts != [num_types] * 3 or [len(relations), len(features[1]), len(names)] != [len(ends)] * 3:
            self._refuse(f"the types of a graph before byte {self._at} do not agree")
        canonical = {(node_types[src], name, node_types[dst]) for (src, dst), name in zip(ends, names, strict=True)}
        if len(set(node_types)) != num_types or len(canonical) != len(names) or not names:
            self._refuse(f"a type of a graph before byte {self._at} stands twice, or there is none")
        endpoints = []
        for (rows, columns, src, dst), (src_type, dst_type) in zip(relations, ends, strict=True):
            if (rows, columns) != (num_nodes[src_type], num_nodes[dst_type]) or src.dtype != relations[0][2].dtype:
                self._refuse(f"the edges of a graph before byte {self._at} do not fit its nodes")
            endpoints.append((src, dst))
        if min(num_nodes) < 0 or max(num_nodes) > np.iinfo(relations[0][2].dtype).max:
            self._refuse(f"a graph before byte {self._at} has {num_nodes} nodes")
        for of_types, rows_of in ((features[0], num_nodes), (features[1], [len(src) for src, _ in endpoints])):
            for named, rows in zip(of_types, rows_of, strict=True):
                if any(array.shape[:1] != (rows,) for array in named.values()):
                    self._refuse(f"a feature of a graph before byte {self._at} has not one row for each node or edge")
        return SavedGraph(
            tuple(node_types), tuple(names), tuple(ends), tuple(num_nodes), tuple(endpoints), tuple(features[0]),
            tuple(features[1]),
        )  # fmt: skip

    def _type_graph(self) -> tuple[list[tuple[int, int]], int]:
        """Read the graph of types: the node types of the ends of each edge type, and the number of node types."""
        begin = self._at
        for content, found in self._seen_types:
            if self._file.read(len(content)) == content:
                self._at += len(content)
                return found
            self._file.seek(begin)
        types = self._read_type_graph()
        self._file.seek(begin)
        self._seen_types = [(self._file.read(self._at - begin), types), *self._seen_types[:3]]
        return types

    def _read_type_graph(self) -> tuple[list[tuple[int, int]], int]:
        self._expect(_TYPES, "graph of types")
        rows, columns, src, dst = self._compressed()
        if rows != columns:
            self._refuse(f"the graph of types before byte {self._at} has {rows} and {columns} types")
        return list(zip(src.tolist(), dst.tolist(), strict=True)), rows

    def _relation(self) -> tuple[int, int, Array, Array]:
        """Read the numbers of source nodes and destination nodes, and the endpoints of the edges in their order."""
        self._expect(_RELATION, "edges")
        saved = self._number()
        self._number()
        code = saved & 0xFFFFFFFF if saved >> 32 else _OLD_FORMATS.get(saved, 0)
        if code not in range(1, 8) or saved >> 32 not in (0, 1):
            self._refuse(f"edges before byte {self._at} are of the unknown format {saved}")
        found = []
        for bit in _FORMATS:
            if code & bit:
                self._type_graph()
                rows, columns, src, dst = self._coordinates() if bit == 1 else self._compressed()
                found.append((columns, rows, dst, src) if bit == 4 else (rows, columns, src, dst))
        first = found[0]
        for other in found[1:]:
            same = first[:2] == other[:2] and all(map(np.array_equal, first[2:], other[2:]))
            if not same:
                self._refuse(f"edges before byte {self._at} are saved twice and differ")
        return first

    def _coordinates(self) -> tuple[int, int, Array, Array]:
        """Read numbers of rows and columns, and the row and column of each edge."""
        self._expect(_COO, "list of edges")
        columns, rows = self._number(), self._number()
        src, dst, ids = (self._integers() for _ in range(3))
        self._bytes(2)
        return self._in_order(rows, columns, src, dst, ids)

    def _compressed(self) -> tuple[int, int, Array, Array]:
        """Read the same for edges that are sorted by row."""
        self._expect(_CSR, "compressed list of edges")
        columns, rows = self._number(), self._number()
        offsets, dst, ids = (self._integers() for _ in range(3))
        self._bytes(1)
        steps = np.diff(offsets)
        if len(offsets) != rows + 1 or offsets[0] != 0 or offsets[-1] != len(dst) or (steps < 0).any():
            self._refuse(f"the offsets of edges before byte {self._at} do not fit them")
        src = np.repeat(np.arange(rows, dtype=dst.dtype), steps)
        return self._in_order(rows, columns, src, dst, ids)

    def _in_order(self, rows: int, columns: int, src: Array, dst: Array, ids: Array) -> tuple[int, int, Array, Array]:
        """Check edges, and sort them by their ids, if they have any."""
        if len(src) != len(dst) or src.dtype != dst.dtype or len(ids) not in (0, len(src)):
            self._refuse(f"the ends of edges before byte {self._at} differ in number or type")
        for ends, most in ((src, rows), (dst, columns)):
            if len(ends) and not 0 <= ends.min() <= ends.max() < most:
                self._refuse(f"an edge before byte {self._at} leads to a node that is not there")
        if len(ids):
            if not np.array_equal(np.sort(ids), np.arange(len(src))):
                self._refuse(f"the ids of edges before byte {self._at} do not number them")
            order = np.argsort(ids)
            src, dst = src[order], dst[order]
        return rows, columns, src, dst

    def _integers(self) -> IntArray:
        array = self._array()
        if array.ndim != 1 or array.dtype not in (np.int32, np.int64):
            self._refuse(f"edges before byte {self._at} are not a list of integers")
        return array
