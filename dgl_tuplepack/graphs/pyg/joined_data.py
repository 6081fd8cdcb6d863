"""Several PyG graphs, joined: the rows of each attribute, and by how much PyG shifts them.

A shift is what `__inc__` returns for an attribute of a graph: PyG adds it to the attribute in all later graphs of a
batch. A storage is one of PyG's dicts of attributes. A `Data` has one storage; its key is None. A `HeteroData` has a
storage for each type, with the type as its key, and a storage for the whole graph, with the key None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.pyg_layout import ENDPOINTS, NUMBER, Attribute, Types, named, refuse_unknown
from dgl_tuplepack.graphs.relations import INDEX_TYPES
from dgl_tuplepack.graphs.schema import ArraySpec
from dgl_tuplepack.planning.sizes import IntArray


@dataclass
class Joined:
    """An attribute of B graphs, joined.

    `dim` is the axis of the rows in a graph; None if PyG adds an axis. `spec` describes a row. `rows`, ``[B]``, has the
    number of rows of each graph. `shifts` has the shift of each graph: ``[B]``, or ``[B, 2]`` with a column for each
    end of edges, or None if all shifts are 0. `dtype` is the dtype in PyG's batch. `value` has the rows of all graphs,
    along the first axis and without shifts.
    """

    dim: int | None
    spec: ArraySpec
    rows: IntArray
    shifts: IntArray | None
    dtype: torch.dtype
    value: Tensor

    @property
    def is_ends(self) -> bool:
        """Whether the attribute has the shape, dtype and axis of an `edge_index`."""
        return self.spec.shape == (2,) and self.spec.dtype in INDEX_TYPES and self.dim in (-1, 1)


@dataclass
class JoinedData:
    """A group of PyG graphs, joined."""

    node_types: list[str]
    edge_types: list[EdgeType]
    attributes: dict[Attribute, Joined]
    # Key of each storage that has nodes -> number of nodes of each graph, [B]; None if PyG would guess a number.
    nodes: dict[GraphType | None, IntArray | None]
    # Keys of the storages that have `num_nodes`.
    numbered: set[GraphType | None]
    # Whether the classes of all graphs have PyG's own `__inc__` and `__cat_dim__`.
    follows_pyg: bool
    # Names of attributes that are left out: by `levels`, or because they are text.
    left_out: set[str]
    # Display name of each graph.
    where: list[str]
    # Keys of the storages that have no nodes (edges) in these and earlier graphs: later graphs decide their attributes.
    bare: set[GraphType | None]

    @property
    def is_flat(self) -> bool:
        """Whether the graphs are `Data`."""
        return None in self.nodes

    def counts(self, types: Types) -> dict[GraphType, IntArray]:
        """Return the number of nodes (edges) of each graph, ``[B]``, by type; raise SchemaError if one is unknown."""
        found: dict[GraphType, IntArray] = {}
        for t in types.all:
            storage, key = attribute = types.attribute_of(t)
            if key == NUMBER:
                known = self.nodes[storage]
            elif attribute in self.attributes:
                known = self.attributes[attribute].rows
            else:
                what = "counts the nodes" if isinstance(t, str) else "holds the endpoints of edges"
                raise SchemaError(
                    f"{named(self.where[0], storage)} has no attribute {key!r}, which {what} in earlier graphs; set it."
                )
            if known is None:
                refuse_unknown(named(self.where[0], storage))
            found[t] = known
        return found

    def without_values(self) -> JoinedData:
        """Return the group without the values of attributes."""
        return replace(self, attributes={p: replace(a, value=a.value[:0]) for p, a in self.attributes.items()})

    def late(self, later: JoinedData) -> dict[Attribute, Joined]:
        """Return the attributes of a later group that this group lacks, or has without rows and with another spec."""
        specs = {p: a.spec for p, a in self.attributes.items()}
        return {p: a for p, a in later.attributes.items() if p[1] != ENDPOINTS and specs.get(p) != a.spec}

    def completed(self, later: JoinedData) -> JoinedData:
        """Return the group with the `late` attributes, without rows."""
        found = {**later.attributes, **self.attributes}
        for p, a in self.late(later).items():
            # PyG shifts other indices of edges as their endpoints.
            shifts = None if a.shifts is None else getattr(found.get((p[0], ENDPOINTS)), "shifts", None)
            found[p] = replace(a, rows=np.zeros(len(self.where), np.int64), shifts=shifts, value=a.value[:0])
        return replace(self, attributes=found)


def merged(groups: Sequence[JoinedData]) -> JoinedData:
    """Join groups that have no values, see `without_values`.

    Apart from `late` attributes, groups must have the types, attributes and specs of the last group (`join_graphs`).
    """
    groups = [group.completed(groups[-1]) for group in groups]
    first = groups[0]

    def joined(arrays: list[IntArray | None]) -> IntArray | None:
        """Return the numbers of nodes of all groups, joined; None if the numbers of a group are None."""
        known = [array for array in arrays if array is not None]
        return np.concatenate(known) if len(known) == len(arrays) else None

    def merged_values(attribute: Attribute) -> Joined:
        """Return an attribute of all groups, joined."""
        each = [group.attributes[attribute] for group in groups]
        shifted = next((a.shifts for a in each if a.shifts is not None), None)
        shifts = None
        if shifted is not None:
            zeros = np.zeros((1, *shifted.shape[1:]), np.int64)
            given = [zeros.repeat(len(a.rows), 0) if a.shifts is None else a.shifts for a in each]
            widths = {a.ndim for a in given}
            shifts = np.concatenate([a if len(widths) == 1 else two_columns(a) for a in given])
        # As in PyG, indices become int64 if some groups have int32 and other groups int64.
        dtype = torch.int32 if {a.dtype for a in each} == {torch.int32} else torch.int64
        return replace(
            each[0], rows=np.concatenate([a.rows for a in each]), shifts=shifts,
            dtype=dtype if each[0].dtype in INDEX_TYPES else each[0].dtype,
        )  # fmt: skip

    nodes = {t: joined([c.nodes[t] for c in groups]) for t in first.nodes}
    where = [name for group in groups for name in group.where]
    return replace(
        first, attributes={p: merged_values(p) for p in first.attributes}, nodes=nodes, where=where,
        follows_pyg=all(group.follows_pyg for group in groups), left_out=set().union(*(c.left_out for c in groups)),
    )  # fmt: skip


def two_columns(shifts: IntArray) -> IntArray:
    """Return shifts as ``[B, 2]``, with a column for each end of edges; ``[B]`` means equal shifts for both."""
    return shifts if shifts.ndim == 2 else np.stack([shifts, shifts], axis=1)
