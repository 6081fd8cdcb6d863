"""What a schema knows of the attributes of PyG's graphs beyond features and labels, so that they come out again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgl_tuplepack._checks import as_integer
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType
from dgl_tuplepack.graphs.relations import Column as Column

# Name of an attribute -> what it belongs to: "node", "edge", "graph", an attribute that counts nodes or is endpoints of
# edges, or None to leave it out.
Levels = Mapping[str, str | None]
# The key of a storage, and the name of an attribute.
Place = tuple[GraphType | None, str]
# The attribute that is a single label, and the one that is the endpoints.
LABEL, ENDPOINTS = "y", "edge_index"


@dataclass(frozen=True)
class PygLayout:
    """How the graphs of PyG that a schema was learnt from hold their attributes.

    Attributes
    ----------
    dims
        The axis along which PyG joins an attribute, where it is not the first one; None where PyG adds an axis.
    rows
        Number of rows that each graph has of an attribute of graphs, where it is not 1.
    counted
        Node types whose graphs tell `num_nodes`.
    ends
        Storage and attribute of the endpoints of edge types, where it is not `edge_index` of a storage of their own. If
        that storage is the one of a `Data`, whose key is None, the node types are named by the attributes that count
        them, apart from the one that `num_nodes` counts.
    left_out
        Attributes that were left out.
    shifted
        Attributes that `__inc__` shifts, besides endpoints; files do not keep it.
    """

    dims: Mapping[Column, int | None] = field(default_factory=dict)
    rows: Mapping[Column, int] = field(default_factory=dict)
    counted: tuple[str, ...] = ()
    ends: Mapping[EdgeType, Place] = field(default_factory=dict)
    left_out: tuple[str, ...] = field(default=(), compare=False)
    shifted: tuple[Column, ...] = field(default=(), compare=False)

    def dim(self, column: Column) -> int | None:
        """Return the axis along which an attribute is joined."""
        return self.dims.get(column, 0)

    def is_flat(self, node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> bool:
        """Whether graphs of these types are `Data`, with one storage for all types."""
        is_plain = [*node_types, *edge_types] == [NODE_TYPE, EDGE_TYPE]
        return is_plain or any(storage is None for storage, _ in self.ends.values())

    def storage_of(self, t: GraphType, is_flat: bool) -> GraphType | None:
        """Return the key of the storage of a type."""
        return None if is_flat else t if isinstance(t, str) else self.place_of(t, is_flat)[0]

    def place_of(self, edge_type: EdgeType, is_flat: bool) -> Place:
        """Return where the endpoints of an edge type are."""
        return self.ends.get(edge_type, (None if is_flat else edge_type, ENDPOINTS))

    def check_types(self, node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> None:
        """Refuse (ValueError) endpoints of other types, or in other storages, than graphs of these types have."""
        storages = {None} if self.is_flat(node_types, edge_types) else {*node_types, *edge_types, None}
        places = [self.place_of(e, storages == {None}) for e in edge_types]
        known = {*self.ends} <= {*edge_types} and {storage for storage, _ in places} <= storages
        if not known or len(set(places)) != len(places):
            raise ValueError(f"the endpoints in the layout of PyG are {dict(self.ends)!r:.200}")

    def as_document(self) -> dict[str, Any]:
        """Return the layout for a file; `from_document` reads it."""
        document = {
            "dims": [[*column, dim] for column, dim in self.dims.items()],
            "rows": [[*column, rows] for column, rows in self.rows.items()],
            "counted": list(self.counted),
        }
        # Left out where there are none, so that stores of earlier releases keep their checksum.
        return document | ({"ends": [[e, *place] for e, place in self.ends.items()]} if self.ends else {})

    @classmethod
    def from_document(cls, document: Any) -> PygLayout:
        """Check a layout from a file; ValueError, KeyError or TypeError if it is not one."""
        dims = {_column(entry): _number(entry[3], or_none=True) for entry in document["dims"]}
        rows = {_column(entry): _number(entry[3]) for entry in document["rows"]}
        counted = tuple(document["counted"])
        ends = dict(map(_ends, document.get("ends", ())))
        if not all(isinstance(t, str) for t in counted) or any(
            number is None or number < 0 for number in rows.values()
        ):
            raise ValueError(f"the layout of PyG is {document!r:.200}")
        return cls(dims, {column: int(number or 0) for column, number in rows.items()}, counted, ends)


def _column(entry: Any) -> Column:
    content, t, name, _ = entry
    if content not in ("node_feature", "edge_feature", "label") or not isinstance(name, str):
        raise ValueError(f"an attribute of PyG is {entry!r:.200}")
    return content, tuple(t) if isinstance(t, list) else t, name


def _ends(entry: Any) -> tuple[EdgeType, Place]:
    (source, relation, target), storage, key = entry
    storage = tuple(storage) if isinstance(storage, list) else storage
    texts = (source, relation, target, key, *(storage if isinstance(storage, tuple) else (storage or "",)))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"endpoints of PyG are {entry!r:.200}")
    return (source, relation, target), (storage, key)


def _number(value: Any, or_none: bool = False) -> int | None:
    if or_none and value is None:
        return None
    number = as_integer(value)
    if number is None or not -64 <= number < 2**63:
        raise ValueError(f"a number in the layout of PyG is {value!r:.200}")
    return number
