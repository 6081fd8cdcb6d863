"""Graphs of a store as PyG has them: batches without padding, and a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Dataset

from dgl_tuplepack.batches.pyg_batch import Template, plain_batch
from dgl_tuplepack.graphs.pyg_layout import names_of
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.storage.batched import BatchedStore, is_one_id, new_tensor, tensors_of
from dgl_tuplepack.storage.format import Key
from dgl_tuplepack.storage.selection import Selection


class PygBatched(BatchedStore):
    """View of a store whose item for a list of ids is a batch of PyG; made by ``GraphStore.batched(framework="pyg")``.

    `dgl_tuplepack.pyg.DataLoader` makes one of the store that it is given. The item for a single id is a `Data` or
    `HeteroData`.
    """

    framework = "pyg"

    def _tensors_of(self, schema: Schema) -> list[tuple[Key, torch.dtype, tuple[int, ...]]]:
        """Return those of any batch, without the counts of nodes and edges, which `GraphRows` has already."""
        return [made for made in tensors_of(schema) if made[0][0] != "per_graph"]

    def _builder_of(self, schema: Schema) -> Any:
        columns = [column for column, _ in schema.columns()]
        return Template(names_of(schema.node_types, schema.edge_types, columns, schema.pyg), False)

    def __getitem__(self, ids: Any) -> Any:
        if is_one_id(ids):
            number = int(ids)
            return self[[number + len(self) if -len(self) <= number < 0 else number]].get_example(0)
        graphs, totals = self._found(ids)
        # Sources and destinations are the rows of one tensor. They come first.
        last = 2 * len(self._schema.edge_types)
        ends = [new_tensor(2, (totals[t],), of_numpy, dtype) for t, _, of_numpy, dtype in self._made[:last:2]]
        values = [new_tensor(totals[t], row, of_numpy, dtype) for t, row, of_numpy, dtype in self._made[last:]]
        addresses = [pair.data_ptr() + row * pair.nbytes // 2 for pair in ends for row in (0, 1)]
        self._fill(graphs, addresses + [value.data_ptr() for value in values])
        counts = list(graphs.rows[:-1, 1])
        return plain_batch(self._builder, counts, totals, ends, values, self._schema.index_columns)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))


class PygStoreDataset(Dataset):  # type: ignore[misc]
    """`torch_geometric.data.Dataset` over a store, which it only reads."""

    def __init__(self, store: Selection, transform: Any = None) -> None:
        self.store = store
        self._graphs = PygBatched(store)
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
