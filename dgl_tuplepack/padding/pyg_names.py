"""The tensors of a batch as attributes of PyG: the storage, the name and the layout of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import NODE_TYPE, EdgeType, GraphType
from dgl_tuplepack.graphs.pyg_form import EDGE, EDGE_KEYS, GRAPH, NODE, NODE_KEYS, NUMBER, RESERVED, nodes_key
from dgl_tuplepack.graphs.pyg_layout import ENDPOINTS, LABEL, Column, PygLayout

# What PyG calls the features that DGL's datasets call "feat".
_FEATURES = {"node_feature": "x", "edge_feature": "edge_attr"}
# PyG counts nodes, or edges, by these attributes of a `Data`.
_NOT_FOR = {"node_feature": EDGE_KEYS, "edge_feature": NODE_KEYS, "label": NODE_KEYS | EDGE_KEYS}
_LEVELS = {"node_feature": NODE, "edge_feature": EDGE, "label": GRAPH}


class NodePlace(NamedTuple):
    """Number of the storage of a node type, and what `batch`, `ptr`, the mask and `num_nodes` of it are called."""

    storage: int
    batch: str
    pointers: str
    mask: str
    # None where the rows of an attribute are the number.
    number: str | None


class EdgePlace(NamedTuple):
    """Number of the storage of an edge type, and what its endpoints and its mask are called."""

    storage: int
    ends: str
    mask: str


@dataclass(frozen=True)
class Names:
    """The columns of a batch as attributes of PyG: the storage and the name of each."""

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    columns: tuple[tuple[Column, GraphType | None, str], ...]
    layout: PygLayout
    # Whether graphs are `Data`, which keep the attributes of all types in one storage.
    is_flat: bool

    def storage_of(self, t: GraphType | None) -> GraphType | None:
        """Return the key of the storage of a type."""
        return None if t is None else self.layout.storage_of(t, self.is_flat)

    @functools.cached_property
    def storages(self) -> tuple[GraphType | None, ...]:
        """Keys of all storages; None is that of the graph."""
        types: tuple[GraphType, ...] = (*self.node_types, *self.edge_types)
        return tuple(dict.fromkeys((None, *map(self.storage_of, types))))

    @functools.cached_property
    def node_places(self) -> tuple[NodePlace, ...]:
        """Where each node type has what is added to batches."""
        numbers = {t: number for number, t in enumerate(self.storages)}
        made = []
        for t in self.node_types:
            number, named = numbers[self.storage_of(t)], "" if self._has_number(t) else f"{t}_"
            mask = f"{named}mask" if named else "node_mask"
            made.append(NodePlace(number, f"{named}batch", f"{named}ptr", mask, None if named else NUMBER))
        return tuple(made)

    @functools.cached_property
    def edge_places(self) -> tuple[EdgePlace, ...]:
        """Where each edge type has its endpoints and its mask."""
        numbers = {t: number for number, t in enumerate(self.storages)}
        places = [self.layout.place_of(e, self.is_flat) for e in self.edge_types]
        return tuple(
            EdgePlace(numbers[t], key, "edge_mask" if key == ENDPOINTS else f"{key}_mask") for t, key in places
        )

    def _has_number(self, node_type: str) -> bool:
        """Whether PyG knows a number of nodes of a type; in a `Data` it knows one."""
        return not self.is_flat or node_type == NODE_TYPE

    @functools.cached_property
    def places(self) -> list[tuple[int, str, Callable[[Tensor], Tensor] | None]]:
        """For each column: the number of its storage, its name, and what lays it out as PyG joins it; None if it is."""
        numbers = {t: number for number, t in enumerate(self.storages)}
        return [(numbers[t], key, _layout_of(column, self.layout)) for column, t, key in self.columns]

    @functools.cached_property
    def counted(self) -> frozenset[str]:
        """Node types whose graphs have `num_nodes`: those of the layout, and those that nothing else tells it of."""
        types = filter(self._has_number, self.node_types)
        return frozenset(t for t in types if t in self.layout.counted or not self._is_told(t))

    def _is_told(self, node_type: str) -> bool:
        """Whether an attribute tells PyG the number of nodes."""
        tensor = torch.empty(0)
        contents = {key: column[0] for column, t, key in self.columns if t == self.storage_of(node_type)}
        return contents.get(nodes_key(dict.fromkeys(contents, tensor)) or "") == "node_feature"


def _layout_of(column: Column, layout: PygLayout) -> Callable[[Tensor], Tensor] | None:
    """Return what changes a feature or label ``[rows, ...]`` to the form in which PyG joins it."""
    dim, has_rows = layout.dim(column) or 0, column in layout.rows
    return functools.partial(_laid_out, dim=dim, has_rows=has_rows) if dim or has_rows else None


def _laid_out(value: Tensor, dim: int, has_rows: bool) -> Tensor:
    return (value.flatten(0, 1) if has_rows else value).movedim(0, dim)


def names_of(
    node_types: tuple[str, ...], edge_types: tuple[EdgeType, ...], columns: Sequence[Column], layout: PygLayout | None
) -> Names:
    """Return the names of attributes; SchemaError if two columns would have the same one."""
    found = layout or PygLayout()
    is_flat = found.is_flat(node_types, edge_types)
    bare = Names(node_types, edge_types, (), found, is_flat)
    added = {str(name) for place in (*bare.node_places, *bare.edge_places) for name in place[1:]}
    taken: dict[GraphType | None, set[str]] = {}
    named = []
    for content, t, name in columns:
        storage = bare.storage_of(t)
        used = taken.setdefault(storage, {*RESERVED, ENDPOINTS, NUMBER, *added})
        key = name or LABEL
        if layout is None:
            same = {n for c, other, n in columns if (c, other) == (content, t)}
            if name == "feat" and content in _FEATURES and _FEATURES[content] not in same:
                key = _FEATURES[content]
            if key in used or (is_flat and key in _NOT_FOR[content]):
                key = f"{_LEVELS[content]}_{key}"
        if key in used:
            raise SchemaError(
                f"the {content.replace('_', ' ')} {name!r} would be the attribute {key!r} of a batch of PyG, which is "
                "another one already; rename it in the dataset."
            )
        used.add(key)
        named.append(((content, t, name), storage, key))
    return Names(node_types, edge_types, tuple(named), found, is_flat)
