"""The attributes and storages of PyG graphs that hold the types, features and labels of a schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType
from dgl_tuplepack.graphs.relations import Column as Column

# Name of an attribute -> its level: "node", "edge" or "graph"; or, for another type, the attribute that counts its
# nodes or is its endpoints; or None to leave it out. Endpoints have the counting attributes of both ends: "x_s -> x_t".
Levels = Mapping[str, str | None]
# The key of a storage, and the name of an attribute.
Attribute = tuple[GraphType | None, str]
# Attributes: a single label, the endpoints of edges, and the number of nodes.
LABEL, ENDPOINTS, NUMBER = "y", "edge_index", "num_nodes"
NODE, EDGE, GRAPH = "node", "edge", "graph"
LEVELS = {"node_feature": NODE, "edge_feature": EDGE, "label": GRAPH}
# PyG infers the number of nodes, or edges, from these attributes.
NODE_KEYS = frozenset({"x", "feat", "pos", "node_type", "n_id"})
EDGE_KEYS = frozenset({"edge_weight", "edge_attr", "edge_type", "e_id"})
# Attributes that batches add to the attributes of their graphs.
RESERVED = frozenset({"batch", "ptr", "node_mask", "edge_mask", "graph_mask", "graph_ids", "num_graphs"})
# PyG's names for features that DGL datasets call "feat".
_FEATURES = {"node_feature": "x", "edge_feature": "edge_attr"}
# Names that columns of a `Data` must not have: PyG would infer wrong numbers of nodes or edges from them.
_NOT_FOR = {"node_feature": EDGE_KEYS, "edge_feature": NODE_KEYS, "label": NODE_KEYS | EDGE_KEYS}


def checked_levels(levels: Any) -> Levels:
    """Return the setting `levels` as a dict; SchemaError if it does not map names to strings or None."""
    good = isinstance(levels, Mapping) and all(
        isinstance(key, str) and (level is None or (isinstance(level, str) and level)) for key, level in levels.items()
    )
    if not good:
        raise SchemaError(
            'levels must map names of attributes to "node", "edge", "graph", the name of an attribute that counts '
            f"nodes or is endpoints of edges, or None to leave one out, but is {shown(levels)}; give a dict such as "
            '{"w": "edge"}.'
        )
    return dict(levels)


@dataclass(frozen=True)
class Types:
    """The types of PyG graphs, and the storages and attributes that hold them.

    A `Data` is flat: one storage, whose key is None, has the attributes of all types. Its node types are named after
    the attributes that count their nodes, except for the type `_N`, which `num_nodes` counts.
    """

    is_flat: bool
    nodes: tuple[str, ...]
    # Storage and attribute of the endpoints of each edge type.
    edges: Mapping[EdgeType, Attribute]

    @property
    def all(self) -> tuple[GraphType, ...]:
        """Node types, then edge types."""
        return (*self.nodes, *self.edges)

    def storage_of(self, t: GraphType | None) -> GraphType | None:
        """Return the key of the storage of a type; None is the storage of the graph, the only one of a `Data`."""
        return None if self.is_flat or t is None else t if isinstance(t, str) else self.edges[t][0]

    def attribute_of(self, t: GraphType) -> Attribute:
        """Return the storage, and the attribute there that counts the nodes or edges of a type."""
        if not isinstance(t, str):
            return self.edges[t]
        return self.storage_of(t), NUMBER if not self.is_flat or t == NODE_TYPE else t

    @property
    def ends(self) -> dict[EdgeType, Attribute]:
        """Endpoints other than the `edge_index` of the storage of the type (for `EDGE_TYPE`, of the `Data`)."""
        usual = {e: (None if e == EDGE_TYPE else e, ENDPOINTS) for e in self.edges}
        return {e: attribute for e, attribute in self.edges.items() if attribute != usual[e]}


@dataclass(frozen=True)
class PygLayout:
    """The layout of attributes in the PyG graphs of a schema."""

    # Axis along which PyG joins an attribute, if it is not the first one; None if PyG adds an axis.
    dims: Mapping[Column, int | None] = field(default_factory=dict)
    # Number of rows per graph of an attribute of graphs, if it is not 1.
    rows: Mapping[Column, int] = field(default_factory=dict)
    # Node types with an attribute `num_nodes`.
    counted: tuple[str, ...] = ()
    # `Types.ends`.
    ends: Mapping[EdgeType, Attribute] = field(default_factory=dict)
    # Not kept in files: attributes that were left out, and attributes other than endpoints that `__inc__` shifts.
    left_out: tuple[str, ...] = field(default=(), compare=False)
    shifted: tuple[Column, ...] = field(default=(), compare=False)

    def dim(self, column: Column) -> int | None:
        """Return the axis along which PyG joins an attribute; None if PyG adds an axis."""
        return self.dims.get(column, 0)

    def types(self, node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> Types:
        """Return the types with their storages and attributes."""
        is_plain = [*node_types, *edge_types] == [NODE_TYPE, EDGE_TYPE]
        is_flat = is_plain or any(storage is None for storage, _ in self.ends.values())
        edges = {e: self.ends.get(e, (None if is_flat else e, ENDPOINTS)) for e in edge_types}
        return Types(is_flat, tuple(node_types), edges)

    def as_document(self) -> dict[str, Any]:
        """Return the layout for a file; `from_document` reads it."""
        document: dict[str, Any] = {
            "dims": [[*column, dim] for column, dim in self.dims.items()],
            "rows": [[*column, rows] for column, rows in self.rows.items()],
            "counted": list(self.counted),
        }
        if self.ends:
            document["ends"] = [[e, *attribute] for e, attribute in self.ends.items()]
        return document

    @classmethod
    def from_document(cls, document: Any) -> PygLayout:
        """Return the layout from a document of `as_document`. It is not checked, since its file has a checksum."""
        dims = {(content, _type(t), name): dim for content, t, name, dim in document["dims"]}
        rows = {(content, _type(t), name): number for content, t, name, number in document["rows"]}
        ends = {_type(e): (_type(t), key) for e, t, key in document.get("ends", ())}
        return cls(dims, rows, tuple(document["counted"]), ends)


def _type(entry: Any) -> Any:
    return tuple(entry) if isinstance(entry, list) else entry


def refuse_without_ends(what: str) -> NoReturn:
    """Raise the error for graphs without endpoints."""
    raise SchemaError(
        f"{what} has no edge_index; set torch.empty(2, 0, dtype=torch.long) if it has no edges, or "
        "torch.stack(adj_t.coo()[:2][::-1]) for an adj_t."
    )


def refuse_unknown(what: str) -> NoReturn:
    """Raise the error for graphs whose number of nodes PyG would guess."""
    raise SchemaError(
        f"the number of nodes of {what} is unknown: it has neither num_nodes nor an attribute such as x; set num_nodes "
        "(PyG itself would count up to the last node that has an edge). To put several graphs into one Data, use a "
        "class whose __inc__ returns the number of nodes of each, as in PyG's guide, or use a HeteroData."
    )


def named(where: str, t: GraphType | None) -> str:
    """Return the display name of a graph, or of one of its types."""
    return where if t is None else f"{where}, type {t!r}"


def named_attribute(key: str, where: str, t: GraphType | None) -> str:
    """Return the display name of an attribute."""
    return f"the {key} of {named(where, t)}" if key == ENDPOINTS else f"the attribute {key!r} of {named(where, t)}"


def or_left_out(key: str) -> str:
    """Return the offer of a message to leave an attribute out; empty for endpoints, since graphs need them."""
    return "" if key == ENDPOINTS else f', or leave it out: levels={{"{key}": None}}'


class NodeAttributes(NamedTuple):
    """The index in `Names.storages` of a node type's storage; the names of its `batch`, `ptr`, mask and `num_nodes`."""

    storage: int
    batch: str
    pointers: str
    mask: str
    # None if the number of nodes is the number of rows of an attribute.
    number: str | None


class EdgeAttributes(NamedTuple):
    """The index in `Names.storages` of an edge type's storage, and the names of its endpoints and its mask."""

    storage: int
    ends: str
    mask: str


@dataclass(frozen=True)
class Names:
    """The columns of a batch as PyG attributes, with the storage and the name of each."""

    types: Types
    columns: tuple[tuple[Column, GraphType | None, str], ...]
    layout: PygLayout

    @functools.cached_property
    def storages(self) -> tuple[GraphType | None, ...]:
        """Keys of all storages; None is the key of the graph's own storage."""
        return tuple(dict.fromkeys((None, *map(self.types.storage_of, self.types.all))))

    @functools.cached_property
    def node_attributes(self) -> tuple[NodeAttributes, ...]:
        """For each node type, the storage and the names of the attributes that batches add."""
        made = []
        for t in self.types.nodes:
            storage, key = self.types.attribute_of(t)
            prefix = "" if key == NUMBER else f"{t}_"
            mask = f"{prefix}mask" if prefix else "node_mask"
            number = None if prefix else NUMBER
            made.append(NodeAttributes(self.storages.index(storage), f"{prefix}batch", f"{prefix}ptr", mask, number))
        return tuple(made)

    @functools.cached_property
    def edge_attributes(self) -> tuple[EdgeAttributes, ...]:
        """For each edge type, the storage and the names of its endpoints and its mask."""
        return tuple(
            EdgeAttributes(self.storages.index(t), key, "edge_mask" if key == ENDPOINTS else f"{key}_mask")
            for t, key in self.types.edges.values()
        )

    @functools.cached_property
    def attributes(self) -> list[tuple[int, str, Callable[[Tensor], Tensor] | None]]:
        """For each column: the index of its storage, its name, and a converter to PyG's layout, or None."""
        return [(self.storages.index(t), key, _layout_of(column, self.layout)) for column, t, key in self.columns]

    @functools.cached_property
    def counted(self) -> frozenset[str]:
        """Node types with `num_nodes`: types in `layout.counted`, and types without a feature that counts nodes."""
        types = [t for t in self.types.nodes if self.types.attribute_of(t)[1] == NUMBER]
        return frozenset(t for t in types if t in self.layout.counted or not self._is_inferred(t))

    def _is_inferred(self, node_type: str) -> bool:
        """Return whether PyG infers the number of nodes from a node feature."""
        contents = {key: content for (content, _, _), t, key in self.columns if t == self.types.storage_of(node_type)}
        # PyG takes the first of NODE_KEYS, else the first name with "node" in it.
        counting = [key for key in contents if key in NODE_KEYS] or [key for key in contents if "node" in key]
        return bool(counting) and contents[counting[0]] == "node_feature"


def _layout_of(column: Column, layout: PygLayout) -> Callable[[Tensor], Tensor] | None:
    """Return a converter of a feature or label ``[rows, ...]`` to PyG's layout; None if the layouts are equal."""
    dim, has_rows = layout.dim(column) or 0, column in layout.rows
    return functools.partial(_laid_out, dim=dim, has_rows=has_rows) if dim or has_rows else None


def _laid_out(value: Tensor, dim: int, has_rows: bool) -> Tensor:
    return (value.flatten(0, 1) if has_rows else value).movedim(0, dim)


def attribute_names(
    node_types: Sequence[str], edge_types: Sequence[EdgeType], columns: Sequence[Column], layout: PygLayout | None
) -> Names:
    """Return the attributes of columns; SchemaError if two columns would have the same name."""
    found = layout or PygLayout()
    types = found.types(node_types, edge_types)
    bare = Names(types, (), found)
    added = {str(name) for attribute in (*bare.node_attributes, *bare.edge_attributes) for name in attribute[1:]}
    taken: dict[GraphType | None, set[str]] = {}
    attributes = []
    for content, t, name in columns:
        storage = types.storage_of(t)
        used = taken.setdefault(storage, {*RESERVED, ENDPOINTS, NUMBER, *added})
        key = name or LABEL
        # Not from PyG graphs: choose usual names.
        if layout is None:
            same = {n for c, other, n in columns if (c, other) == (content, t)}
            if name == "feat" and content in _FEATURES and _FEATURES[content] not in same:
                key = _FEATURES[content]
            if key in used or (types.is_flat and key in _NOT_FOR[content]):
                key = f"{LEVELS[content]}_{key}"
        if key in used:
            raise SchemaError(
                f"the {content.replace('_', ' ')} {name!r} would be the attribute {key!r} of a PyG batch, but that "
                "name is in use already; rename it in the dataset."
            )
        used.add(key)
        attributes.append(((content, t, name), storage, key))
    return Names(types, tuple(attributes), found)
