"""What a schema knows of the attributes of PyG's graphs beyond features and labels, so that they come out again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dgl_tuplepack._checks import as_integer
from dgl_tuplepack.graphs.relations import Column as Column

# Name of an attribute -> what it belongs to: "node", "edge", "graph", or None to leave it out.
Levels = Mapping[str, str | None]
# The attribute that is a single label.
LABEL = "y"


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
    left_out
        Attributes that were left out.
    """

    dims: Mapping[Column, int | None] = field(default_factory=dict)
    rows: Mapping[Column, int] = field(default_factory=dict)
    counted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = field(default=(), compare=False)

    def dim(self, column: Column) -> int | None:
        """Return the axis along which an attribute is joined."""
        return self.dims.get(column, 0)

    def as_document(self) -> dict[str, Any]:
        """Return the layout for a file; `from_document` reads it."""
        return {
            "dims": [[*column, dim] for column, dim in self.dims.items()],
            "rows": [[*column, rows] for column, rows in self.rows.items()],
            "counted": list(self.counted),
        }

    @classmethod
    def from_document(cls, document: Any) -> PygLayout:
        """Check a layout from a file; ValueError, KeyError or TypeError if it is not one."""
        dims = {_column(entry): _number(entry[3], or_none=True) for entry in document["dims"]}
        rows = {_column(entry): _number(entry[3]) for entry in document["rows"]}
        counted = tuple(document["counted"])
        if not all(isinstance(t, str) for t in counted) or any(
            number is None or number < 0 for number in rows.values()
        ):
            raise ValueError(f"the layout of PyG is {document!r:.200}")
        return cls(dims, {column: int(number or 0) for column, number in rows.items()}, counted)


def _column(entry: Any) -> Column:
    content, t, name, _ = entry
    if content not in ("node_feature", "edge_feature", "label") or not isinstance(name, str):
        raise ValueError(f"an attribute of PyG is {entry!r:.200}")
    return content, tuple(t) if isinstance(t, list) else t, name


def _number(value: Any, or_none: bool = False) -> int | None:
    if or_none and value is None:
        return None
    number = as_integer(value)
    if number is None or not -64 <= number < 2**63:
        raise ValueError(f"a number in the layout of PyG is {value!r:.200}")
    return number
