"""Graphs of a store as PyG has them: batches without padding, and a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Dataset

from dgl_tuplepack.batches.pyg_batch import Template, plain_batch
from dgl_tuplepack.graphs.pyg_layout import names_of
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.storage.rows import GraphRows


class PygFace:
    """Makes batches equal to those of `Batch.from_data_list`."""

    has_counts, has_pairs = False, True

    def __init__(self, schema: Schema) -> None:
        columns = [column for column, _ in schema.columns()]
        self._template = Template(names_of(schema.node_types, schema.edge_types, columns, schema.pyg), False)
        self._indices, self._num_edge_types = schema.index_columns, len(schema.edge_types)

    def __call__(self, graphs: GraphRows, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        """Return the `Batch`."""
        counts, number = list(graphs.rows[:-1, 1]), self._num_edge_types
        return plain_batch(self._template, counts, totals, tensors[:number], tensors[number:], self._indices)


class PygStoreDataset(Dataset):  # type: ignore[misc]
    """`torch_geometric.data.Dataset` over a store, which it only reads."""

    def __init__(self, store: Any, transform: Any = None) -> None:
        self.store = store
        self._graphs = store.batched(framework="pyg")
        super().__init__(None, transform)

    def len(self) -> int:
        """Return the number of graphs."""
        return len(self.store)

    def get(self, idx: int) -> Any:
        """Return one graph."""
        return self._graphs[idx]

    @property
    def splits(self) -> Any:
        """Ids by name of the split."""
        return self.store.splits

    def get_idx_split(self) -> dict[str, Tensor]:
        """Return ids by name of the split, as OGB's datasets do."""
        return {name: torch.from_numpy(ids.copy()) for name, ids in self.store.splits.items()}
