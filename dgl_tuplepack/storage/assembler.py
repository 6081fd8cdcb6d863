"""Fill the tensors of a batch from the arrays of a selection (graphs of one or several stores), in compiled code."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

import numpy as np

from dgl_tuplepack._core.kernels import assemble as kernel
from dgl_tuplepack._core.kernels.gather import ARRAY, CODES, OTHER
from dgl_tuplepack.graphs.blocks import ENDS, Array, EdgeType
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.format import DTYPES
from dgl_tuplepack.storage.memory import Field
from dgl_tuplepack.storage.rows import GraphRows, address_of
from dgl_tuplepack.storage.selection import Selection

# Content of a tensor that no array of a store holds -> how the kernel computes the tensor.
_COMPUTED = {
    "graph_ids": kernel.GRAPH_IDS,
    "mask": kernel.MASK,
    "per_graph": kernel.PER_GRAPH,
    "row_pointers": kernel.ROW_POINTERS,
    "edge_order": kernel.EDGE_ORDER,
}


class Assembler:
    """Fill the tensors of a batch.

    `fills` has, for each tensor, the rows that pad it. Padding edges of the types `chained` lead from one padding node
    to the next.
    """

    def __init__(
        self,
        store: Selection,
        schema: Schema,
        fields: Sequence[Field],
        fills: Sequence[Array],
        chained: Collection[EdgeType] = (),
    ) -> None:
        # Keep the arrays alive: compiled code holds only their addresses.
        self._segments, self._fills, self._keys = store.segments, fills, [field.key for field in fields]
        # None stands for graphs, which the kernel expects last.
        self._schema, self._types = schema, [*schema.types.values(), None]
        self.records = np.array(
            [self._record(field, fill, chained) for field, fill in zip(fields, fills, strict=True)], kernel.FIELD
        )
        # [fields, segments]: address, bytes per row and dtype of the array of each tensor in each segment.
        self._stored = np.zeros((len(fields), len(store.segments)), ARRAY)
        for stored, key in zip(self._stored, self._keys, strict=True):
            if key[0] not in _COMPUTED:
                arrays = [segment.array(*key) for segment in store.segments]
                stored[:] = [
                    (address_of(a), prod(a.shape[1:]) * a.itemsize, CODES.get(str(a.dtype), OTHER)) for a in arrays
                ]

    def _record(self, field: Field, fill: Array, chained: Collection[EdgeType]) -> tuple[int, ...]:
        """Return the values of one record for a tensor; `FIELD` in `_core/kernels/assemble.py` names them."""
        content, t = field.key[:2]
        # `nodes` is the index of the type that the values point to, if the values are endpoints or indices; else 0.
        kind, nodes = _COMPUTED.get(content, kernel.ROWS), 0
        if content in ENDS:
            kind, nodes = kernel.ENDPOINTS, self._types.index(t[0 if content == "sources" else 2])
        elif field.key in self._schema.index_columns:
            kind, nodes = kernel.INDICES, self._types.index(self._schema.index_columns[field.key])
        width = prod(field.shape[1:])
        return (
            kind,
            self._types.index(t),
            nodes,
            field.stretch,
            field.first,  # first byte of the tensor in its stretch of memory
            width,  # values per row
            width * field.dtype.itemsize,  # bytes per row
            CODES.get(DTYPES[str(field.dtype).removeprefix("torch.")], OTHER),
            address_of(fill),
            len(fill),  # number of rows that pad the tensor: 1, or one for each slot
            content == "destinations" and t in chained,  # whether padding edges end at the next padding node
        )

    def fill(self, memory: IntArray, graphs: GraphRows, slots: IntArray) -> None:
        """Fill the stretches of memory that begin at the addresses `memory`, int64 ``[stretches]``.

        `slots`, int64 ``[types]``, has the number of slots of each type of nodes and edges, then of graphs. Raise
        FormatError if an endpoint or index points outside its graph.
        """
        wrong = kernel.assemble(
            memory, self.records, self._stored, slots, graphs.ids, graphs.segments, graphs.rows, graphs.totals
        )
        # The kernel returns 0, or -1 - (f * n + i) if a value of field f points outside graph i of n.
        if wrong:
            f, i = divmod(-1 - wrong, len(graphs.ids))
            self._segments[graphs.segments[i]].refuse_endpoints(int(graphs.local_ids[i]), *self._keys[f])
