"""PyG's in-memory datasets as sources: the tensors of all graphs are read at once.

An `InMemoryDataset` has one collated graph, whose attributes have the rows of all graphs, and `slices`: for each
attribute, the offsets at which the rows of each graph begin and end.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import InMemoryDataset

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import GraphBlock, GraphType, rows_of_spans
from dgl_tuplepack.graphs.build import chosen_from
from dgl_tuplepack.graphs.named import is_pyg
from dgl_tuplepack.graphs.pyg_join import JoinedData, follows_pyg, join_graphs, storages_of
from dgl_tuplepack.graphs.pyg_layout import NODE_KEYS, NUMBER, Attribute, counting_name
from dgl_tuplepack.graphs.pyg_read import block_of, schema_of_joined, sizes_of_joined, types_of
from dgl_tuplepack.graphs.readers.datasets import Items
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

# Graphs per block.
_GRAPHS = 16_384
# Number of evenly spaced graphs in the sample; the sample tells which attributes PyG's `__inc__` shifts.
_SAMPLE = 64
# Key of the list of all `num_nodes` in the dict of a storage.
_NUMBERS = "_num_nodes"
# If a class overrides one of these methods, its datasets are read item by item.
_OWN = ("get", "len", "indices", "__getitem__", "__len__", "__iter__")


class PygDataset(Items):
    """A PyG `InMemoryDataset`, or a subset of one."""

    prefers_items = True

    def __init__(self, given: Any, dataset: Any, ids: IntArray | None) -> None:
        super().__init__(given)
        self.knows_sizes = True
        # `_ids`: the graphs to read (None: all graphs). `_data`: the collated graph.
        self._dataset, self._ids, self._data = dataset, ids, _data_of(dataset)
        self._storages, self._total = dict(storages_of(self._data)), dataset.len()

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise an in-memory dataset without a transform, if its class does not override how graphs are read."""
        found = _in_memory(given)
        return None if found is None else cls(given, *found)

    def with_levels(self, levels: Mapping[str, str | None] | None) -> Source:
        """Return a copy of the source with these `levels`, without the cached results for other levels."""
        other = super().with_levels(levels)
        for name in ("_sample", "_structure"):
            other.__dict__.pop(name, None)
        return other

    @functools.cached_property
    def _offsets(self) -> dict[Attribute, IntArray]:
        """For each attribute with slices, the first row of each graph, and the end of the last graph, ``[N + 1]``.

        An attribute without slices belongs to the dataset, not to its graphs.
        """
        found: dict[Attribute, IntArray] = {}
        for t, storage in self._storages.items():
            slices: Mapping[str, Any] = self._dataset.slices if t is None else self._dataset.slices.get(t, {})
            # The slices that give the number of nodes are checked first.
            nodes_key = self._nodes_key(t)
            if nodes_key == NUMBER:
                what, numbers = "num_nodes of a graph", storage.to_dict()[_NUMBERS]
                known = [whole_number(what, n, 0, error=SchemaError) if isinstance(n, Tensor) else n for n in numbers]
                slices = {**slices, NUMBER: np.cumsum([0, *known])}
            for key in sorted(storage.keys() & slices.keys(), key=lambda key: (key != nodes_key, key)):
                found[t, key] = self._checked_offsets(t, key, np.asarray(slices[key], np.int64))
        return found

    def _checked_offsets(self, t: GraphType | None, key: str, offsets: IntArray) -> IntArray:
        """Return the slices of an attribute; raise SchemaError if they do not divide its rows among all graphs."""
        storage, of_type = self._storages[t], "" if t is None else f" of type {t!r}"
        if len(offsets) != self._total + 1:
            counted = "nodes" if key == self._nodes_key(t) else f"rows of {key!r}"
            raise SchemaError(
                f"the slices divide the {counted}{of_type} among {len(offsets) - 1} graphs, but the dataset has "
                f"{self._total} graphs; give its items, list(dataset)."
            )
        value = storage[key]
        axis = self._data.__cat_dim__(key, value, storage) or 0
        # A value that is not a tensor, such as a list, has one row for each graph; `num_nodes` is the sum of all.
        rows = value if key == NUMBER else self._total
        rows = value.shape[axis] if isinstance(value, Tensor) and value.ndim else rows
        if offsets[0] < 0 or (np.diff(offsets) < 0).any() or offsets[-1] > rows:
            raise SchemaError(
                f"the slices of {key!r}{of_type} of the dataset do not divide its {rows} rows among the graphs;"
                " correct them, or collate the graphs again."
            )
        return offsets

    def _nodes_key(self, t: GraphType | None) -> str | None:
        """Return the attribute that has the number of nodes, or from which PyG infers it; None if there is none."""
        if _NUMBERS in self._storages[t].to_dict():
            return NUMBER
        return counting_name([key for key, value in self._storages[t].items() if isinstance(value, Tensor)]) or None

    def _numbers_of_nodes(self, t: GraphType | None) -> IntArray | None:
        """Return, for each graph to read, the number of nodes of a storage; None if no attribute shows it."""
        key, storage = self._nodes_key(t), self._storages[t]
        if key is None or (t, key) not in self._offsets:
            return None
        counts: IntArray = np.diff(self._offsets[t, key])
        if NUMBER in storage and counts.sum() != storage[NUMBER]:
            raise SchemaError(
                f"num_nodes of the dataset add up to {storage[NUMBER]}, but {key!r} has {counts.sum()} rows; correct "
                "one of them."
            )
        return counts if self._ids is None else counts[self._ids]

    @functools.cached_property
    def _sample(self) -> JoinedData:
        """Some graphs of the dataset, joined."""
        if not len(self._given):
            raise SizesError("the dataset has no graphs; at least one is needed.")
        # For each attribute, the sample has the graph with the most rows, since other graphs may have no rows.
        longest = [int(np.argmax(np.diff(offsets))) for offsets in self._offsets.values()]
        number = min(self._total, _SAMPLE)
        ids = sorted({*longest, *(i * self._total // number for i in range(number))})
        return join_graphs([self._dataset.get(i) for i in ids], [f"item {i}" for i in ids], self.levels or {})

    @functools.cached_property
    def _structure(self) -> JoinedData:
        """All graphs as a `JoinedData` without values.

        Attributes that PyG shifts in the sample have the shifts of PyG's own rule; the shifts of others are 0.
        """
        sample = self._sample
        nodes = {t: self._numbers_of_nodes(t) for t in sample.nodes}
        attributes, number = {}, len(self._given)
        for (t, key), joined in sample.attributes.items():
            rows = np.diff(self._offsets[t, key])
            shifts = self._shifts_by_rule(t, nodes) if joined.is_shifted else np.zeros((number, 2), np.int64)
            attributes[t, key] = replace(
                joined,
                rows=rows if self._ids is None else rows[self._ids],
                shifts=shifts if joined.is_ends else shifts[:, 0],
                value=joined.value[:0],
            )
        return replace(sample, attributes=attributes, nodes=nodes, where=[f"item {i}" for i in range(number)])

    def _shifts_by_rule(self, t: GraphType | None, nodes: Mapping[GraphType | None, IntArray | None]) -> IntArray:
        """Return the shifts of PyG's own rule for attributes of a storage, ``[N, 2]``.

        PyG shifts attributes of an edge type by the numbers of nodes at both ends, and attributes of a Data by its
        number of nodes. The shifts are 0 if these are unknown; the sample then refuses the attribute.
        """
        both = [nodes.get(end) for end in ((t[0], t[2]) if isinstance(t, tuple) else (t, t))]
        known = [number for number in both if number is not None and not isinstance(t, str)]
        return np.stack(known, axis=1) if len(known) == 2 else np.zeros((len(self._given), 2), np.int64)

    def sizes(self) -> GraphSizes:
        """Return the sizes, from the slices."""
        return sizes_of_joined(self._structure, types_of(self._structure, self.levels or {}))

    def blocks(self) -> Iterator[GraphBlock]:
        """Return all graphs as blocks: views of the collated tensors, or copies of their rows for a subset."""
        schema = schema_of_joined(self._structure, self.levels or {}, True, self.indices)
        self.schema = schema.with_declared(None, self.indices)
        self.own_indices = self.schema.indices
        # Raises SchemaError if PyG shifts the sample in another way than `_structure` assumes.
        block_of(self.schema, self._sample)
        return self._runs(self.schema)

    def _runs(self, schema: Schema) -> Iterator[GraphBlock]:
        """Yield blocks of consecutive graphs, with the values that `_structure` lacks."""
        whole = self._structure
        for first in range(0, len(self._given), _GRAPHS):
            run = slice(first, min(first + _GRAPHS, len(self._given)))
            attributes = {
                p: replace(a, rows=a.rows[run], shifts=a.shifts[run], value=self._values(p, a.dim, run))
                for p, a in whole.attributes.items()
            }
            nodes = {t: None if counts is None else counts[run] for t, counts in whole.nodes.items()}
            yield block_of(schema, replace(whole, attributes=attributes, nodes=nodes, where=whole.where[run]))

    def _values(self, attribute: Attribute, dim: int | None, run: slice) -> Tensor:
        """Return the rows of an attribute, for the graphs in `run`. `dim` is the axis of the rows in the dataset."""
        value: Tensor = self._storages[attribute[0]][attribute[1]]
        offsets = self._offsets[attribute]
        rows = value.movedim(dim, 0) if dim else value
        if self._ids is None:
            return rows[int(offsets[run.start]) : int(offsets[run.stop])]
        ids = self._ids[run]
        return rows[torch.from_numpy(rows_of_spans(offsets[ids], offsets[ids + 1] - offsets[ids]))]


def _in_memory(given: Any) -> tuple[Any, IntArray | None] | None:
    """Return the `InMemoryDataset`, and the ids of the graphs that `given` has (None: all); None for other objects."""
    subset = chosen_from(given)
    if subset is not None:
        inner = _in_memory(subset.dataset)
        if inner is None:
            return None
        return inner[0], subset.positions if inner[1] is None else inner[1][subset.positions]
    own = [name for name in _OWN if getattr(type(given), name, None) is not getattr(InMemoryDataset, name)]
    if not isinstance(given, InMemoryDataset) or own:
        return None
    has_slices = given.slices and isinstance(given.slices, Mapping)
    if given.transform is not None or not has_slices or not _is_plain(_data_of(given)):
        return None
    ids = given.indices()
    return given, None if ids == range(given.len()) else np.asarray(ids, np.int64).reshape(-1)


def _data_of(dataset: Any) -> Any:
    with warnings.catch_warnings():
        # PyG warns against direct use of `data`. Here the tensors are cut by the slices, as in PyG itself.
        warnings.simplefilter("ignore")
        return dataset.data


def _is_plain(data: Any) -> bool:
    """Return whether PyG joins the graphs by its own rules, and numbers of nodes are given or rows of attributes."""
    if not is_pyg(data):
        return False
    # The storages that have nodes.
    storages = [storage for _, storage in storages_of(data) if hasattr(type(storage), "can_infer_num_nodes")]
    return follows_pyg(type(data)) and all(
        NUMBER not in s or {_NUMBERS, *NODE_KEYS} & s.to_dict().keys() for s in storages
    )
