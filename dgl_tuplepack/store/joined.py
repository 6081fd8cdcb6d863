"""The arrays of several stores, seen as those of one."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.sizes import GraphSizes, IntArray
from dgl_tuplepack.store.arrays import StoreArrays
from dgl_tuplepack.store.format import Key


class JoinedArrays:
    """What `StoreArrays` offers, for the graphs of several stores one after the other.

    Raises
    ------
    SchemaError
        The stores hold different kinds of graphs; says which ones, and what differs.
    """

    def __init__(self, path: Path, parts: Sequence[StoreArrays]) -> None:
        self.path, self.parts = path, tuple(parts)
        self.schema: Schema = parts[0].schema
        for part in parts[1:]:
            check_same_schema(self.schema, part.schema, str(parts[0].path), str(part.path))
        self.first_ids: IntArray = np.cumsum([0, *(part.num_graphs for part in parts)], dtype=np.int64)

    @property
    def num_graphs(self) -> int:
        """Graphs in all stores."""
        return int(self.first_ids[-1])

    @property
    def checksum(self) -> str:
        """Identifies the content of all stores, in their order."""
        return hashlib.sha256(" ".join(part.checksum for part in self.parts).encode()).hexdigest()

    @functools.cached_property
    def stored_schema(self) -> Schema:
        """The schema with dtypes that hold what any of the stores holds."""
        return self.schema.with_columns({key: self.stored_spec(key) for key, _ in self.schema.columns()})

    def stored_spec(self, key: Key) -> ArraySpec:
        """How a row of a feature or label looks in the store that narrowed it least."""
        return max((part.stored_spec(key) for part in self.parts), key=lambda spec: spec.dtype.itemsize)

    @functools.cached_property
    def sizes(self) -> GraphSizes:
        """Sizes of all graphs."""
        return GraphSizes(np.concatenate([part.sizes.array for part in self.parts]), self.schema.components)

    @functools.cached_property
    def histogram(self) -> SizeHistogram:
        """Sum of the stored histograms."""
        return functools.reduce(SizeHistogram.__add__, (part.histogram for part in self.parts))

    @property
    def splits(self) -> dict[str, IntArray]:
        """Ids by name of the split, of all stores that have it: a whole store may be of one part."""
        joined: dict[str, list[IntArray]] = {}
        for first, part in zip(self.first_ids, self.parts, strict=False):
            for name, ids in part.splits.items():
                joined.setdefault(name, []).append(ids + first)
        return {name: np.concatenate(ids) for name, ids in joined.items()}

    def item(self, graph_id: int) -> Any:
        """One graph as a DGLGraph, or (DGLGraph, label)."""
        part = int(np.searchsorted(self.first_ids, graph_id, side="right")) - 1
        return self.parts[part].item(graph_id - int(self.first_ids[part]))

    def verify(self) -> None:
        """Verify every store."""
        for part in self.parts:
            part.verify()

    def check_positions(self) -> None:
        """Check all offsets and endpoints of every store."""
        for part in self.parts:
            part.check_positions()


Arrays = StoreArrays | JoinedArrays


def check_same_schema(expected: Schema, found: Schema, where: str, other: str) -> None:
    """Refuse graphs of another kind; `where` and `other` are what the message calls the two.

    Raises
    ------
    SchemaError
        Names what differs.
    """
    for what in ("node_types", "edge_types", "idtype", "node_features", "edge_features", "labels"):
        theirs, ours = getattr(found, what), getattr(expected, what)
        if theirs != ours:
            raise SchemaError(
                f"the graphs of {other} have the {what.replace('_', ' ')} {_shown(theirs)}, but those of {where} have "
                f"{_shown(ours)}; shards of one dataset must agree."
            )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(inside)}" for key, inside in value.items()) + "}"
    return str(value)
