"""PyG batches without padding, from the arrays of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dgl_tuplepack.batches.pyg_batch import Template, plain_batch
from dgl_tuplepack.graphs.pyg_layout import attribute_names
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.storage.view import GraphRows


class PygBuilder:
    """Make batches equal to the results of `Batch.from_data_list`."""

    def __init__(self, schema: Schema) -> None:
        columns = [column for column, _ in schema.columns()]
        # False: the batches are not padded.
        self._template = Template(attribute_names(schema.node_types, schema.edge_types, columns, schema.pyg), False)
        self._indices, self._num_edge_types = schema.index_columns, len(schema.edge_types)

    def __call__(self, graphs: GraphRows, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        """Return the `Batch`. `tensors` has the endpoints ``[2, E]`` of each edge type, then features and labels."""
        # counts: for each type, the number of rows of each graph; labels, the last type of `graphs.rows`, are left out.
        counts, number = list(graphs.rows[:-1, 1]), self._num_edge_types
        return plain_batch(self._template, counts, totals, tensors[:number], tensors[number:], self._indices)
