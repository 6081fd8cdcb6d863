"""Facts about a single PyG graph: its storages, its types, and what its class does when graphs are joined.

A storage is one of PyG's dicts of attributes, see `graphs.pyg_layout`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from torch_geometric.data import Batch, Data, HeteroData

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.named import is_pyg
from dgl_tuplepack.graphs.pyg_layout import NUMBER


def storages_of(data: Any) -> Iterator[tuple[GraphType | None, Any]]:
    """Yield (key, storage) for each storage of a graph; the storage of the whole graph comes first."""
    yield None, data.stores[0]
    if isinstance(data, HeteroData):
        yield from sorted(data.node_items(), key=lambda item: item[0])
        yield from sorted(data.edge_items(), key=lambda item: item[0])


def types_in(data: Any) -> tuple[list[str], list[EdgeType]]:
    """Return the node types and edge types of a HeteroData, sorted; for a Data, return two empty lists."""
    return (sorted(data.node_types), sorted(data.edge_types)) if isinstance(data, HeteroData) else ([], [])


def follows_pyg(graph_class: Any) -> bool:
    """Return whether a graph class has PyG's own `__inc__` and `__cat_dim__`."""
    base: Any = HeteroData if issubclass(graph_class, HeteroData) else Data
    return graph_class.__inc__ is base.__inc__ and graph_class.__cat_dim__ is base.__cat_dim__


def check_library(data: Any, where: str, expects_pyg: bool = True) -> None:
    """Refuse (SchemaError) a graph of the wrong library, and any PyG batch."""
    if is_pyg(data) != expects_pyg:
        found, other = ("PyG", "DGL") if is_pyg(data) else ("DGL", "PyG")
        raise SchemaError(
            f"{where} is a {found} graph, but the example or earlier graphs are {other} graphs; use only one library."
        )
    if isinstance(data, Batch):
        raise SchemaError(f"{where} is a batch of graphs; give its graphs, batch.to_data_list().")


def known_nodes(storage: Any, what: str) -> int | None:
    """Return the number of nodes of a storage; None if PyG has no number, or only a guess."""
    if NUMBER in storage:
        return whole_number(f"num_nodes of {what}", storage[NUMBER], 0, error=SchemaError)
    try:
        with warnings.catch_warnings():
            # PyG warns when it guesses the number.
            warnings.simplefilter("error")
            number = storage.num_nodes
    except (UserWarning, IndexError):
        return None
    return None if number is None else int(number)
