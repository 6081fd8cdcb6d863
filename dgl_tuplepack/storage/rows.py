"""Find the rows of the graphs of a batch in the segments of a selection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from dgl_tuplepack._core.checks import as_ids, as_integers
from dgl_tuplepack._core.kernels.find_graphs import OFFSETS, find_graphs
from dgl_tuplepack.graphs.blocks import Array, GraphType
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.selection import Selection


@dataclass
class GraphRows:
    """n graphs: their positions in the selection, their ids, their segments, and their rows for each type.

    `ids` are the ids that the batch reports. `segments`, int64 ``[n]``, has the index of the segment of each graph.
    ``rows[t]``, int64 ``[3, n]``, has three numbers for each graph: its first row in the segment, its number of rows,
    and its first row in the batch. ``totals[t]`` is the number of rows of all graphs. Types are numbered: node types,
    edge types, then labels, which have one row for each graph.
    """

    positions: IntArray
    ids: IntArray
    segments: IntArray
    rows: IntArray
    totals: IntArray

    @property
    def local_ids(self) -> IntArray:
        """Index of each graph in its segment."""
        # The last type is labels: the row of a graph in its segment is the index of the graph.
        return self.rows[-1, 0]  # type: ignore[no-any-return]


class Finder:
    """Find the graphs of a batch in the segments of a selection."""

    def __init__(self, selection: Selection) -> None:
        self._selection, self._segments = selection, selection.segments
        # The kernel needs an array, even if the selection has all graphs.
        self._chosen = np.empty(0, np.int64) if selection.chosen is None else selection.chosen
        self._types: list[GraphType] = [*selection.schema.node_types, *selection.schema.edge_types]
        # For each type and segment: the address of its offsets (the first row of each graph), and its number of rows.
        self._offsets = np.empty((len(self._types), len(self._segments)), OFFSETS)
        for of_type, t in zip(self._offsets, self._types, strict=True):
            of_type["address"] = [address_of(segment.offsets(t)) for segment in self._segments]
            of_type["rows"] = [segment.rows[t] for segment in self._segments]

    def find(self, ids: Sequence[int] | IntArray | Tensor) -> GraphRows:
        """Return the rows of the graphs `ids`; an id is the position of a graph in the selection.

        Raise SizesError for an id outside 0..N-1, and FormatError for damaged offsets.
        """
        positions = np.ascontiguousarray(as_integers(ids), np.int64)
        # Labels are one more type.
        num_graphs, num_types = len(positions), len(self._types) + 1
        segments, totals = np.empty(num_graphs, np.int64), np.empty(num_types, np.int64)
        rows = np.empty((num_types, 3, num_graphs), np.int64)
        is_subset, first_ids = self._selection.chosen is not None, self._selection.first_ids
        wrong = find_graphs(positions, self._chosen, first_ids, is_subset, self._offsets, segments, rows, totals)
        if wrong < 0:
            # Raises SizesError for the wrong id.
            as_ids(ids, len(self._selection))
        if wrong > 0:
            t, i = divmod(wrong - 1, num_graphs)
            self._segments[segments[i]].refuse_offsets(int(rows[-1, 0, i]), self._types[t])
        kept = self._selection.kept_ids
        return GraphRows(positions, positions if kept is None else kept[positions], segments, rows, totals)


def address_of(array: Array) -> int:
    """Return the address of the first byte of an array; the caller keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address
