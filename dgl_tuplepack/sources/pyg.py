"""PyG's datasets in memory as sources: the tensors of all graphs are read at once, without a loop over graphs."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock, GraphType, components_of
from dgl_tuplepack.graphs.named import is_pyg
from dgl_tuplepack.graphs.pyg_attributes import Attribute, Sizes, check_known, plain_tensor
from dgl_tuplepack.graphs.pyg_form import NUMBER, nodes_key, shifts_as_pyg, storages_of
from dgl_tuplepack.graphs.pyg_items import PygGraph, joined_data
from dgl_tuplepack.graphs.pyg_layout import Levels, Place
from dgl_tuplepack.graphs.pyg_levels import refuse_open, schema_of_attributes
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.values import as_array
from dgl_tuplepack.sizes import GraphSizes, IntArray
from dgl_tuplepack.sources.items import Items
from dgl_tuplepack.sources.kind import Source

# Graphs of a block.
_GRAPHS = 16_384
# Graphs that are read one by one, of a class with its own `__inc__`.
_CHECKED = 64
# Rows before each graph, and of all of them, [N + 1], where rows stand one after the other.
_Offsets = IntArray
# Methods that decide which graphs an InMemoryDataset has: a class with others is read item by item.
_OWN = ("get", "len", "indices", "__getitem__", "__len__", "__iter__")


class PygDataset(Items):
    """An `InMemoryDataset` of PyG, or a subset of one; its collated graphs are those that it returns."""

    prefers_items = True

    def __init__(self, given: Any, dataset: Any, ids: IntArray | None) -> None:
        super().__init__(given)
        self.knows_sizes = True
        self._graphs = _Collated(dataset, ids)

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise a dataset in memory without a transform, whose class changes nothing of how it is read."""
        if "torch_geometric.data" not in sys.modules:
            return None
        found = _in_memory(given)
        return None if found is None else cls(given, *found)

    def with_levels(self, levels: Mapping[str, str | None]) -> Source:
        """Return the same graphs, whose attributes belong to what `levels` say."""
        other = super().with_levels(levels)
        other._graphs = _Collated(self._graphs.dataset, self._graphs.ids, levels)  # type: ignore[attr-defined]
        return other

    def sizes(self) -> GraphSizes:
        """Return the sizes, from the slices."""
        return self._graphs.sizes

    def blocks(self) -> Iterator[GraphBlock]:
        """Yield runs of the collated tensors; of a subset, gathered rows."""
        self.schema = self._graphs.schema()
        self.own_indices = self.schema.indices
        return self._graphs.blocks(self.schema)


def _in_memory(given: Any) -> tuple[Any, IntArray | None] | None:
    """Return the dataset that holds all graphs, and the ids of those in `given`; None if it is something else."""
    base: Any = sys.modules["torch_geometric.data"].InMemoryDataset
    subset = sys.modules["torch.utils.data"].Subset
    if type(given) is subset:
        inner = _in_memory(given.dataset)
        if inner is None:
            return None
        try:
            chosen = np.asarray(given.indices, np.int64).reshape(-1)
            number = len(given.dataset)
        except (TypeError, ValueError):
            return None
        if len(chosen) and not -number <= chosen.min() <= chosen.max() < number:
            return None
        chosen = np.where(chosen < 0, chosen + number, chosen)
        return inner[0], chosen if inner[1] is None else inner[1][chosen]
    if not isinstance(given, base) or any(getattr(type(given), name) is not getattr(base, name) for name in _OWN):
        return None
    if (
        given.transform is not None
        or not is_pyg(given._data)
        or not (given.slices and isinstance(given.slices, Mapping))
    ):
        return None
    ids = None if given._indices is None else np.asarray(given._indices, np.int64).reshape(-1)
    return given, ids


class _Collated:
    """The graphs `ids`, or all, of a dataset that holds them in one."""

    def __init__(self, dataset: Any, ids: IntArray | None, levels: Levels | None = None) -> None:
        self.dataset, self.ids, self._levels = dataset, ids, levels or {}
        self._slices = dataset.slices
        self._data = self._read_by_pyg(dataset._data)
        self._known_offsets: dict[Place, _Offsets] = {}

    def _read_by_pyg(self, data: Any) -> Any:
        """Return the collated graph without attributes that no slices belong to, which its graphs do not have."""
        alone = [
            (t, key) for t, storage in storages_of(data) for key in {*storage.keys()} - {NUMBER, *self._slices_of(t)}
        ]
        data = copy.copy(data) if alone else data
        for t, key in alone:
            del dict(storages_of(data))[t][key]
        return data

    def _slices_of(self, t: GraphType | None) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._slices if t is None else self._slices.get(t, {})
        return found

    @functools.cached_property
    def _view(self) -> PygGraph:
        """A view of the collated graph, for its types and storages."""
        return PygGraph(self._data, "the dataset", self._levels)

    def __len__(self) -> int:
        return int(self._data_length()) if self.ids is None else len(self.ids)

    def _data_length(self) -> int:
        inner = next(iter(self._slices.values()))
        while isinstance(inner, Mapping):
            inner = next(iter(inner.values()))
        return len(inner) - 1

    def _check_number(self, found: int, what: str) -> None:
        if found != (number := self._data_length()):
            raise SchemaError(
                f"the dataset tells {found} numbers of {what}, but has {number} graphs; give its items, list(dataset)."
            )

    def _offsets(self, t: GraphType | None, key: str, what: str = "") -> _Offsets:
        if (t, key) not in self._known_offsets:
            found = np.asarray(self._slices_of(t)[key], np.int64)
            self._check_number(len(found) - 1, what or f"rows of {key!r}" + ("" if t is None else f" of type {t!r}"))
            dim = self._view.described((t, key))[0]
            # PyG's own axis is the first one of the collated tensor.
            rows = (self._view.storage(t)[key].shape or (1,))[dim or 0]
            if found[0] < 0 or (np.diff(found) < 0).any() or found[-1] > rows:
                raise SchemaError(
                    f"the slices of {key!r}{'' if t is None else f' of type {t!r}'} of the dataset do not divide its "
                    f"{rows} rows among the graphs; correct them, or collate the graphs again."
                )
            self._known_offsets[t, key] = found
        return self._known_offsets[t, key]

    def _counts(self, offsets: _Offsets) -> IntArray:
        counts: IntArray = np.diff(offsets)
        return counts if self.ids is None else counts[self.ids]

    def _all_nodes(self, t: str) -> IntArray:
        """Nodes of a type in each graph of the whole dataset."""
        of_type, key = self._view.form.nodes[t]
        storage = self._view.storage(of_type)
        if key == NUMBER:
            if "_num_nodes" in storage.__dict__:
                return np.asarray(storage.__dict__["_num_nodes"], np.int64)
            key = check_known(nodes_key(storage), "the dataset" if of_type is None else f"type {t!r}")
        if key == NUMBER:
            return np.asarray(storage[NUMBER], np.int64).reshape(-1)
        counts: IntArray = np.diff(self._offsets(of_type, key, f"nodes of type {t!r}"))
        return counts

    @functools.cached_property
    def _nodes(self) -> dict[str, IntArray]:
        every = {t: self._all_nodes(t) for t in self._view.ntypes}
        for t, counts in every.items():
            self._check_number(len(counts), f"nodes of type {t!r}")
        return every if self.ids is None else {t: counts[self.ids] for t, counts in every.items()}

    @functools.cached_property
    def _edges(self) -> dict[EdgeType, IntArray]:
        return {e: self._counts(self._offsets(*self._view.form.edges[e])) for e in self._view.canonical_etypes}

    @functools.cached_property
    def sizes(self) -> GraphSizes:
        """Sizes of the graphs."""
        if not len(self):
            raise SizesError("the dataset has no graphs; at least one is needed.")
        columns = [*self._nodes.values(), *self._edges.values()]
        return GraphSizes(np.stack(columns, axis=1), components_of(self._view.ntypes, self._view.canonical_etypes))

    def schema(self) -> Schema:
        """Return the schema; all graphs tell the levels of attributes."""
        if not len(self):
            raise SizesError("the dataset has no graphs; at least one is needed.")
        left_out: set[str] = set()
        attributes = []
        view, form = self._view, self._view.form
        for t in view.types:
            for key in view.keys(t, self._levels, left_out):
                dim, spec, _ = view.described((t, key))
                rows = self._counts(self._offsets(t, key))
                if dim is None:
                    # PyG's axis is in the collated tensor already.
                    spec = type(spec)(spec.shape[1:], spec.dtype)
                attributes.append(Attribute(t, key, dim, spec, rows))
        # As one graph, the collated ones have the nodes and edges of all of them.
        counts: dict[GraphType, int] = {t: view.num_nodes(t) for t in view.ntypes}
        view.check_joining(counts | {e: view.num_edges(e) for e in view.canonical_etypes}, form.indices)
        idtypes = {view.endpoints(e).dtype for e in view.canonical_etypes}
        idtype = torch.int32 if idtypes == {torch.int32} else torch.int64
        counted = tuple(t for t, (storage, key) in form.nodes.items() if key == NUMBER and key in view.storage(storage))
        schema, open_ones = schema_of_attributes(
            attributes, form, Sizes(self._nodes, self._edges), self._levels, idtype, counted, left_out, True
        )
        if open_ones:
            refuse_open(open_ones, len(self))
        self._check_graphs(schema)
        return schema

    def _check_graphs(self, schema: Schema) -> None:
        """Refuse graphs, of a class with its own `__inc__`, that PyG shifts alone in another way than all together."""
        if not shifts_as_pyg(type(self._data)):
            number = self._data_length()
            ids = [i * number // min(number, _CHECKED) for i in range(min(number, _CHECKED))]
            joined_data(schema, [self.dataset.get(i) for i in ids], [f"item {i}" for i in ids])

    def blocks(self, schema: Schema) -> Iterator[GraphBlock]:
        """Yield the graphs in blocks."""
        read = {column: self._reader(column, schema) for column, _ in schema.columns()}
        read |= {("ends", e, ""): self._end_reader(e) for e in schema.edge_types}
        for first in range(0, len(self), _GRAPHS):
            block = slice(first, min(first + _GRAPHS, len(self)))
            found = {column: reader(block) for column, reader in read.items()}
            yield GraphBlock(
                {t: self._nodes[t][block] for t in schema.node_types},
                {e: self._edges[e][block] for e in schema.edge_types},
                {e: (found["ends", e, ""][0], found["ends", e, ""][1]) for e in schema.edge_types},
                {t: {n: found["node_feature", t, n] for n in own} for t, own in schema.node_features.items()},
                {e: {n: found["edge_feature", e, n] for n in own} for e, own in schema.edge_features.items()},
                {n: found["label", None, n] for n in schema.labels},
            )

    def _reader(self, column: Any, schema: Schema) -> Any:
        """Return a function that reads the rows of a feature or label of a run of graphs."""
        t, key = self._view.place_of(column)
        assert schema.pyg is not None
        dim, number, is_label = schema.pyg.dim(column), schema.pyg.rows.get(column, 1), column[0] == "label"
        value = plain_tensor(self._view.storage(t)[key], key)
        rows = value if not dim else value.movedim(dim, 0)
        offsets = self._offsets(t, key)

        def read(block: slice) -> Array:
            found = as_array(rows[self._rows(offsets, block)])
            if not is_label or number == 1:
                return found
            return found.reshape(block.stop - block.start, number, *found.shape[1:])

        return read

    def _end_reader(self, e: EdgeType) -> Any:
        ends, offsets = self._view.endpoints(e), self._offsets(*self._view.form.edges[e])

        def read(block: slice) -> list[Array]:
            chosen = self._rows(offsets, block)
            return [as_array(end[chosen]) for end in ends]

        return read

    def _rows(self, offsets: _Offsets, block: slice) -> slice | Tensor:
        """Return the rows of a run of the graphs."""
        if self.ids is None:
            return slice(int(offsets[block.start]), int(offsets[block.stop]))
        ids = self.ids[block]
        first, lengths = offsets[ids], offsets[ids + 1] - offsets[ids]
        before = np.cumsum(lengths) - lengths
        return torch.from_numpy(np.repeat(first - before, lengths) + np.arange(lengths.sum()))
