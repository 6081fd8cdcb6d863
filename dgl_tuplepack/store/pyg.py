"""Graphs of a store as PyG has them: batches without padding, and a dataset."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Dataset

from dgl_tuplepack.graphs.blocks import GraphType
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.padding.pyg_batch import Names, names_of, plain_batch
from dgl_tuplepack.store.batched import BatchedStore, is_one_id
from dgl_tuplepack.store.format import Key
from dgl_tuplepack.store.selection import Selection


class PygBuilder:
    """Builds batches of one schema, without padding, as `Batch.from_data_list` makes them."""

    def __init__(self, schema: Schema) -> None:
        self._indices = schema.index_columns
        columns = [column for column, _ in schema.columns()]
        self.names: Names = names_of(schema.node_types, schema.edge_types, columns, schema.pyg)
        types: list[GraphType] = [*schema.node_types, *schema.edge_types]
        # In the order in which the tensors come.
        self._keys: list[Key] = [("per_graph", t) for t in types]
        self._keys += [(end, e) for e in schema.edge_types for end in ("sources", "destinations")]
        self._keys += columns

    def batch(self, totals: list[int], tensors: Iterable[Tensor]) -> Any:
        """Make the batch of its tensors; `totals` are nodes and edges of each type, and graphs."""
        found, names = dict(zip(self._keys, tensors, strict=True)), self.names
        number = totals[-1]
        counts: dict[GraphType, Tensor] = {key[1]: value for key, value in found.items() if key[0] == "per_graph"}
        ends = {e: (found["sources", e], found["destinations", e]) for e in names.edge_types}
        num_nodes = dict(zip(names.node_types, totals, strict=False))
        return plain_batch(names, found, ends, counts, num_nodes, number, self._indices)


class PygBatched(BatchedStore):
    """View of a store whose item for a list of ids is a batch of PyG; made by ``GraphStore.batched(framework="pyg")``.

    It stands in for the dataset of a script: ``torch_geometric.loader.DataLoader(view, batch_size=64, shuffle=True)``
    gets whole batches. The item for a single id is a `Data` or `HeteroData`.
    """

    def _builder_of(self, schema: Schema) -> Any:
        return PygBuilder(schema)

    def __getitem__(self, ids: Any) -> Any:
        if not is_one_id(ids):
            return super().__getitem__(ids)
        number = int(ids)
        return super().__getitem__([number + len(self) if number < 0 else number]).get_example(0)


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
