"""Where the graphs of a batch lie in the arrays of a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from dgl_tuplepack.kernels.gather import find_rows
from dgl_tuplepack.padding.shape import PaddedShape
from dgl_tuplepack.sizes import IntArray
from dgl_tuplepack.store.arrays import as_ids

if TYPE_CHECKING:
    from dgl_tuplepack.store.graph_store import GraphStore


@dataclass(frozen=True)
class Places:
    """n graphs: their ids in the view and in the store, and, for each type, where their rows are.

    `starts` and `counts`, int64 ``[n]``, have the first row and the number of rows of each graph, `totals` the sum.
    The key None stands for labels, of which each graph has one.
    """

    own_ids: IntArray
    graph_ids: IntArray
    starts: Mapping[Any, IntArray]
    counts: Mapping[Any, IntArray]
    totals: Mapping[Any, int]

    def __len__(self) -> int:
        return len(self.own_ids)


class Finder:
    """Finds the graphs of a batch, and refuses those that would exceed its shape."""

    def __init__(self, store: GraphStore, shape: PaddedShape) -> None:
        self._store, self._shape = store, shape
        self._offsets = [(t, store._arrays.offsets(t), rows) for t, rows in store._arrays.rows.items()]
        self._most = list(shape.most.values())
        self._ones = np.ones(shape.num_graphs, np.int64)

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
        starts: dict[Any, IntArray] = {}
        counts: dict[Any, IntArray] = {}
        totals: dict[Any, int] = {}
        for t, offsets, rows in self._offsets:
            starts[t], counts[t] = np.empty((2, number), np.int64)
            totals[t] = found = find_rows(graph_ids, offsets, rows, starts[t], counts[t])
            if found < 0:
                self._store._arrays.refuse_offsets(int(graph_ids[-1 - found]), t)
        totals[None] = number
        if any(total > most for total, most in zip(totals.values(), self._most, strict=True)):
            schema = self._shape.schema
            nodes, edges = {t: totals[t] for t in schema.node_types}, {t: totals[t] for t in schema.edge_types}
            self._shape.check_content(nodes, edges, number)
        starts[None], counts[None] = graph_ids, self._ones[:number]
        return Places(own_ids, graph_ids, starts, counts, totals)
