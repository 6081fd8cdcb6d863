"""The tensors of a batch as attributes of PyG: the storage, the name and the layout of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType
from dgl_tuplepack.graphs.pyg_attributes import (
    EDGE,
    EDGE_KEYS,
    ENDPOINTS,
    GRAPH,
    NODE,
    NODE_KEYS,
    NUMBER,
    RESERVED,
    nodes_key,
)
from dgl_tuplepack.graphs.pyg_layout import LABEL, Column, PygLayout

# What PyG calls the features that DGL's datasets call "feat".
_FEATURES = {"node_feature": "x", "edge_feature": "edge_attr"}
# PyG counts nodes, or edges, by these attributes of a `Data`.
_NOT_FOR = {"node_feature": EDGE_KEYS, "edge_feature": NODE_KEYS, "label": NODE_KEYS | EDGE_KEYS}
_LEVELS = {"node_feature": NODE, "edge_feature": EDGE, "label": GRAPH}


@dataclass(frozen=True)
class Names:
    """The columns of a batch as attributes of PyG: the storage and the name of each."""

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    columns: tuple[tuple[Column, GraphType | None, str], ...]
    layout: PygLayout
    is_plain: bool

    def storage_of(self, t: GraphType | None) -> GraphType | None:
        """Return the key of the storage of a type; a `Data` has one for all."""
        return None if self.is_plain else t

    @property
    def storages(self) -> tuple[GraphType | None, ...]:
        """Keys of all storages; None is that of the graph."""
        return (None,) if self.is_plain else (None, *self.node_types, *self.edge_types)

    @functools.cached_property
    def places(self) -> list[tuple[int, str, Callable[[Tensor], Tensor] | None]]:
        """For each column: the number of its storage, its name, and what lays it out as PyG joins it; None if it is."""
        numbers = {t: number for number, t in enumerate(self.storages)}
        return [(numbers[t], key, _layout_of(column, self.layout)) for column, t, key in self.columns]

    @functools.cached_property
    def counted(self) -> frozenset[str]:
        """Node types whose graphs have `num_nodes`: those of the layout, and those that nothing else tells it of."""
        return frozenset(t for t in self.node_types if t in self.layout.counted or not self._is_told(t))

    def _is_told(self, node_type: str) -> bool:
        """Whether an attribute tells PyG the number of nodes."""
        tensor = torch.empty(0)
        contents = {key: column[0] for column, t, key in self.columns if t == self.storage_of(node_type)}
        return contents.get(nodes_key(dict.fromkeys(contents, tensor)) or "") == "node_feature"


def _layout_of(column: Column, layout: PygLayout) -> Callable[[Tensor], Tensor] | None:
    """Return what changes a feature or label ``[rows, ...]`` to the form in which PyG joins it."""
    dim, is_flat = layout.dim(column) or 0, column in layout.rows
    if not dim:
        return (lambda value: value.flatten(0, 1)) if is_flat else None
    return lambda value: (value.flatten(0, 1) if is_flat else value).movedim(0, dim)


def names_of(
    node_types: tuple[str, ...], edge_types: tuple[EdgeType, ...], columns: Sequence[Column], layout: PygLayout | None
) -> Names:
    """Return the names of attributes; SchemaError if two columns would have the same one."""
    is_plain = (node_types, edge_types) == ((NODE_TYPE,), (EDGE_TYPE,))
    taken: dict[GraphType | None, set[str]] = {}
    named = []
    for content, t, name in columns:
        storage = None if is_plain else t
        used = taken.setdefault(storage, {*RESERVED, ENDPOINTS, NUMBER})
        key = name or LABEL
        if layout is None:
            same = {n for c, other, n in columns if (c, other) == (content, t)}
            if name == "feat" and content in _FEATURES and _FEATURES[content] not in same:
                key = _FEATURES[content]
            if key in used or (is_plain and key in _NOT_FOR[content]):
                key = f"{_LEVELS[content]}_{key}"
        if key in used:
            raise SchemaError(
                f"the {content.replace('_', ' ')} {name!r} would be the attribute {key!r} of a batch of PyG, which is "
                "another one already; rename it in the dataset."
            )
        used.add(key)
        named.append(((content, t, name), storage, key))
    return Names(node_types, edge_types, tuple(named), layout or PygLayout(), is_plain)
