"""Where the graphs of a batch lie in the arrays of a store, or of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from dgl_tuplepack.kernels.gather import find_rows
from dgl_tuplepack.padding.shape import PaddedShape
from dgl_tuplepack.sizes import IntArray
from dgl_tuplepack.sources.blocks import Array
from dgl_tuplepack.store.arrays import as_ids

if TYPE_CHECKING:
    from dgl_tuplepack.store.stored_graphs import StoredGraphs


@dataclass
class Places:
    """n graphs: their ids in the view, the parts they lie in, and, for each type, where their rows are.

    `parts`, int64 ``[n]``, numbers the parts of the store, `part_ids` the graphs in each. `starts`, `counts` and
    `firsts`, int64 ``[n]``, have the first row in the part, the number of rows, and the first row in the batch of each
    graph; `totals` the rows of all of them. The key None stands for labels, of which each graph has one.
    """

    own_ids: IntArray
    parts: IntArray
    part_ids: IntArray
    starts: Mapping[Any, IntArray]
    counts: Mapping[Any, IntArray]
    firsts: Mapping[Any, IntArray]
    totals: Mapping[Any, int]

    def __len__(self) -> int:
        return len(self.own_ids)


class Finder:
    """Finds the graphs of a batch, and refuses those that would exceed its shape."""

    def __init__(self, store: StoredGraphs, shape: PaddedShape) -> None:
        self._store, self._shape = store, shape
        self._parts = store._arrays.parts
        self._first_ids = store._arrays.first_ids
        self._num_graphs = np.diff(self._first_ids)
        # For each type: where the offsets of each part lie, and the rows it has.
        self._offsets = [
            (t, addresses_of([part.offsets(t) for part in self._parts]), np.array([p.rows[t] for p in self._parts]))
            for t in self._parts[0].rows
        ]
        self._most = list(shape.most.values())
        self._ones = np.ones(shape.num_graphs, np.int64)
        self._order = np.arange(shape.num_graphs)

    def find(self, ids: Sequence[int] | IntArray | Tensor) -> Places:
        """Look up the graphs `ids` of the view.

        Raises
        ------
        SizesError, GraphTooLargeError
            An id is not in 0..N-1, or the graphs exceed the packs.
        FormatError
            The offsets of a graph cannot be right.
        """
        own_ids = as_ids(ids, len(self._store))
        chosen, number = self._store._ids, len(own_ids)
        graph_ids = own_ids if chosen is None else chosen[own_ids]
        if len(self._parts) == 1:
            parts, part_ids = np.zeros(number, np.int64), graph_ids
        else:
            parts = np.searchsorted(self._first_ids, graph_ids, side="right") - 1
            part_ids = graph_ids - self._first_ids[parts]
        starts: dict[Any, IntArray] = {}
        counts: dict[Any, IntArray] = {}
        firsts: dict[Any, IntArray] = {}
        totals: dict[Any, int] = {}
        for t, addresses, rows in self._offsets:
            starts[t], counts[t], firsts[t] = np.empty((3, number), np.int64)
            totals[t] = found = find_rows(
                part_ids, parts, addresses, self._num_graphs, rows, starts[t], counts[t], firsts[t]
            )
            if found < 0:
                self._parts[parts[-1 - found]].refuse_offsets(int(part_ids[-1 - found]), t)
        totals[None] = number
        for total, most in zip(totals.values(), self._most, strict=True):
            if total > most:
                schema = self._shape.schema
                nodes, edges = {t: totals[t] for t in schema.node_types}, {t: totals[t] for t in schema.edge_types}
                self._shape.check_content(nodes, edges, number)
        starts[None], counts[None], firsts[None] = part_ids, self._ones[:number], self._order[:number]
        return Places(own_ids, parts, part_ids, starts, counts, firsts, totals)


def addresses_of(arrays: Sequence[Array]) -> IntArray:
    """Address of the first byte of each array, int64; whoever uses them keeps the arrays."""
    return np.array([array.__array_interface__["data"][0] for array in arrays], np.int64)
