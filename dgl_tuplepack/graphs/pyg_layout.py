"""The attributes and storages of PyG graphs that hold the types, features and labels of a schema.

A storage is one of PyG's dicts of attributes. A `Data` has one storage; its key is None. A `HeteroData` has a storage
for each node and edge type, with the type as its key, and a storage for the whole graph, with the key None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of
from dgl_tuplepack.graphs.relations import Column as Column

# Name of an attribute -> its level: "node", "edge" or "graph"; None leaves the attribute out. With several types, the
# level may also be the name of an attribute that counts nodes (has one row for each node of a type) or holds endpoints.
# If the attribute itself holds endpoints, its level is like "x_s -> x_t": the name of the attribute that counts the
# source nodes, then of the attribute that counts the destination nodes.
Levels = Mapping[str, str | None]
# The key of a storage, and the name of an attribute in that storage.
Attribute = tuple[GraphType | None, str]
# Names of attributes: a single label, the endpoints of edges, and the number of nodes.
LABEL, ENDPOINTS, NUMBER = "y", "edge_index", "num_nodes"
NODE, EDGE, GRAPH, ARROW = "node", "edge", "graph", "->"
# Content of a column (a feature or label) -> level of the column.
LEVELS = {"node_feature": NODE, "edge_feature": EDGE, "label": GRAPH}
# Attributes from which PyG infers the number of nodes (`NODE_KEYS`) or edges (`EDGE_KEYS`).
NODE_KEYS = frozenset({"x", "feat", "pos", "node_type", "n_id"})
EDGE_KEYS = frozenset({"edge_weight", "edge_attr", "edge_type", "e_id"})
# Attributes that batches add to the attributes of their graphs.
RESERVED = frozenset({"batch", "ptr", "node_mask", "edge_mask", "graph_mask", "graph_ids", "num_graphs"})
# Content of a column -> PyG's name for a feature that DGL datasets call "feat".
_FEATURES = {"node_feature": "x", "edge_feature": "edge_attr"}
# Content of a column -> names that the column must not have in a `Data`: from an attribute with such a name, PyG would
# infer wrong numbers of nodes or edges.
_NOT_FOR = {"node_feature": EDGE_KEYS, "edge_feature": NODE_KEYS, "label": NODE_KEYS | EDGE_KEYS}


def checked_levels(levels: Any) -> Levels:
    """Return the setting `levels` as a dict; raise SchemaError if it does not map names to strings or None."""
    good = isinstance(levels, Mapping) and all(
        isinstance(key, str) and (level is None or (isinstance(level, str) and level)) for key, level in levels.items()
    )
    if not good or (levels.get(ENDPOINTS, EDGE) not in (EDGE, ENDPOINTS) and ARROW not in (levels[ENDPOINTS] or "")):
        raise SchemaError(
            'levels must map names of attributes to "node", "edge", "graph", the name of an attribute that counts '
            "nodes or holds the endpoints of edges, or None to leave the attribute out (edge_index, which graphs need, "
            f'only to "edge" or "x_s -> x_t"), but levels are {shown(levels)}; give a dict such as {{"w": "edge"}}.'
        )
    return dict(levels)


@dataclass(frozen=True)
class Types:
    """The node and edge types of PyG graphs, with the storage and the attribute of each type.

    A `Data` is flat: its only storage has the attributes of all types. A node type of a `Data` has the name of the
    attribute that counts its nodes, except `_N`, whose nodes `num_nodes` counts.
    """

    is_flat: bool
    nodes: tuple[str, ...]
    # For each edge type, the attribute that holds its endpoints.
    edges: Mapping[EdgeType, Attribute]

    @property
    def all(self) -> tuple[GraphType, ...]:
        """Node types, then edge types."""
        return (*self.nodes, *self.edges)

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the components of a size."""
        return components_of(self.nodes, [*self.edges])

    def storage_of(self, t: GraphType | None) -> GraphType | None:
        """Return the key of the storage of a type; for None, the key of the storage of the whole graph."""
        return None if self.is_flat or t is None else t if isinstance(t, str) else self.edges[t][0]

    def attribute_of(self, t: GraphType) -> Attribute:
        """Return the attribute that counts the nodes of a node type, or that holds the endpoints of an edge type."""
        if not isinstance(t, str):
            return self.edges[t]
        return self.storage_of(t), NUMBER if not self.is_flat or t == NODE_TYPE else t

    @property
    def ends(self) -> dict[EdgeType, Attribute]:
        """Map each edge type whose endpoints are not in the usual attribute to the attribute that holds them."""
        usual = {e: (None if e == EDGE_TYPE else e, ENDPOINTS) for e in self.edges}
        return {e: attribute for e, attribute in self.edges.items() if attribute != usual[e]}


@dataclass(frozen=True)
class PygLayout:
    """The layout of attributes in the PyG graphs of a schema."""

    # Axis along which PyG joins an attribute; None if PyG adds an axis. Attributes joined along axis 0 are not listed.
    dims: Mapping[Column, int | None] = field(default_factory=dict)
    # For attributes of the level "graph": number of rows in each graph. Attributes with one row are not listed.
    rows: Mapping[Column, int] = field(default_factory=dict)
    # Node types whose storage has the attribute `num_nodes`.
    counted: tuple[str, ...] = ()
    # See `Types.ends`.
    ends: Mapping[EdgeType, Attribute] = field(default_factory=dict)
    # Not stored in files. `left_out`: names of attributes that are not in the schema. `shifted`: columns to which PyG
    # adds, in a batch, what `__inc__` returned for earlier graphs.
    left_out: tuple[str, ...] = field(default=(), compare=False)
    shifted: tuple[Column, ...] = field(default=(), compare=False)

    def __hash__(self) -> int:
        # Equal layouts have equal hashes; the other fields are mappings, which have none.
        return hash((self.counted, *self.ends))

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
        """Return the layout as a JSON document."""
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
        """Return the layout from a document of `as_document`. There are no checks, since its file has a checksum."""
        dims = {(content, type_of_json(t), name): dim for content, t, name, dim in document["dims"]}
        rows = {(content, type_of_json(t), name): number for content, t, name, number in document["rows"]}
        ends = {type_of_json(e): (type_of_json(t), key) for e, t, key in document.get("ends", ())}
        return cls(dims, rows, tuple(document["counted"]), ends)


def counting_name(names: Collection[str]) -> str:
    """Return the attribute from which PyG infers the number of nodes; empty if there is none."""
    return [*(n for n in names if n in NODE_KEYS), *(n for n in names if "node" in n), ""][0]


def type_of_json(entry: Any) -> Any:
    """Return a type that was read from JSON, where an edge type is a list instead of a tuple."""
    return tuple(entry) if isinstance(entry, list) else entry


def refuse_without_ends(what: str) -> NoReturn:
    """Raise the error for graphs without endpoints."""
    raise SchemaError(
        f"{what} has no edge_index; set it to torch.empty(2, 0, dtype=torch.long) if there are no edges, or to "
        "torch.stack(adj_t.coo()[:2][::-1]) for an adj_t."
    )


def refuse_unknown(what: str) -> NoReturn:
    """Raise the error for graphs whose number of nodes PyG would guess."""
    raise SchemaError(
        f"the number of nodes of {what} is unknown: there is no num_nodes, and no attribute such as x; set num_nodes "
        "(PyG itself would count up to the last node that has an edge). For several graphs in one Data, declare which "
        'attributes count their nodes, such as levels={"edge_index": "x_s -> x_t"}, or use a HeteroData.'
    )


def title_of(where: str, t: GraphType | None) -> str:
    """Return the display name of a graph, or of one of its types."""
    return where if t is None else f"{where}, type {t!r}"


def attribute_title(key: str, where: str, t: GraphType | None) -> str:
    """Return the display name of an attribute."""
    return (
        f"the {key} of {title_of(where, t)}" if key == ENDPOINTS else f"the attribute {key!r} of {title_of(where, t)}"
    )


def or_left_out(key: str) -> str:
    """Return the part of a message that offers to leave an attribute out; empty for endpoints, which graphs need."""
    return "" if key == ENDPOINTS else f', or leave it out: levels={{"{key}": None}}'


class Added(NamedTuple):
    """Names of the attributes that batches add to the storage of a type; `slots` and `pointers` only for node types."""

    storage: GraphType | None
    mask: str
    slots: str = ""
    pointers: str = ""
    # False if the number of nodes is the number of rows of an attribute.
    has_number: bool = False


@dataclass(frozen=True)
class Names:
    """The columns of a batch as PyG attributes."""

    types: Types
    # Each column, with the key of its storage and the name of its attribute.
    columns: tuple[tuple[Column, GraphType | None, str], ...]
    layout: PygLayout

    @functools.cached_property
    def added(self) -> dict[GraphType, Added]:
        """For each node type, then each edge type, the attributes that batches add."""
        added: dict[GraphType, Added] = {}
        for t in self.types.all:
            storage, key = self.types.attribute_of(t)
            # If x_s counts the nodes, the names are x_s_batch, x_s_ptr and x_s_mask.
            prefix = "" if key in (NUMBER, ENDPOINTS) else f"{key}_"
            if isinstance(t, str):
                mask = f"{prefix}mask" if prefix else "node_mask"
                added[t] = Added(storage, mask, f"{prefix}batch", f"{prefix}ptr", key == NUMBER)
            else:
                added[t] = Added(storage, f"{prefix}mask" if prefix else "edge_mask")
        return added

    @functools.cached_property
    def layouts(self) -> list[Callable[[Tensor], Tensor] | None]:
        """The result of `_layout_of` for each column."""
        return [_layout_of(column, self.layout) for column, _, _ in self.columns]

    @functools.cached_property
    def counted(self) -> frozenset[str]:
        """Node types that need `num_nodes`: `layout.counted`, and types without a feature that counts their nodes."""
        types = [t for t in self.types.nodes if self.types.attribute_of(t)[1] == NUMBER]
        return frozenset(t for t in types if t in self.layout.counted or not self._is_inferred(t))

    def _is_inferred(self, node_type: str) -> bool:
        """Return whether PyG infers the number of nodes of a type from a node feature."""
        contents = {key: content for (content, _, _), t, key in self.columns if t == self.types.storage_of(node_type)}
        return contents.get(counting_name(contents)) == "node_feature"


def _layout_of(column: Column, layout: PygLayout) -> Callable[[Tensor], Tensor] | None:
    """Return a function that converts a feature or label ``[rows, ...]`` to PyG's layout; None if nothing changes."""
    dim, has_rows = layout.dim(column) or 0, column in layout.rows
    return functools.partial(_laid_out, dim=dim, has_rows=has_rows) if dim or has_rows else None


def _laid_out(value: Tensor, dim: int, has_rows: bool) -> Tensor:
    """Move the rows of a value to the axis `dim`. With `has_rows`, first join axes 0 and 1 of ``[B, rows, ...]``."""
    return (value.flatten(0, 1) if has_rows else value).movedim(0, dim)


def attribute_names(
    node_types: Sequence[str], edge_types: Sequence[EdgeType], columns: Sequence[Column], layout: PygLayout | None
) -> Names:
    """Return the PyG attributes of columns; raise SchemaError if the name of an attribute would be used twice.

    `layout` is None for columns that are not from PyG graphs.
    """
    found = layout or PygLayout()
    types = found.types(node_types, edge_types)
    bare = Names(types, (), found)
    # Names of the attributes that batches add for types, and of endpoints.
    added = {name for own in bare.added.values() for name in (own.mask, own.slots, own.pointers)}
    added |= {key for _, key in types.edges.values()}
    taken: dict[GraphType | None, set[str]] = {}
    attributes = []
    for content, t, name in columns:
        storage = types.storage_of(t)
        used = taken.setdefault(storage, {*RESERVED, ENDPOINTS, NUMBER, *added})
        # A single label has the empty name.
        key = name or LABEL
        # Choose names that are usual in PyG.
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
