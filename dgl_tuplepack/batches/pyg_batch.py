"""PyG batches, padded or not: a subclass of PyG's `Batch` whose methods for single graphs return only real graphs."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.collate import collate

from dgl_tuplepack._core.checks import as_integer, shown
from dgl_tuplepack._core.tracing import is_traced
from dgl_tuplepack.batches.tensors import slots_and_pointers
from dgl_tuplepack.errors import InputError, SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType, components_of
from dgl_tuplepack.graphs.pyg_join import storages_of
from dgl_tuplepack.graphs.pyg_layout import NUMBER, Attribute, Column, Names, PygLayout, attribute_names
from dgl_tuplepack.graphs.relations import INDEX_TYPES
from dgl_tuplepack.nn.masks import RowMask
from dgl_tuplepack.planning.sizes import IntArray

# The rules by which PyG joins graphs, for each attribute: the axis along which it joins the values (None: PyG adds an
# axis), and the attributes whose sizes it adds to the values in later graphs: none if the values are not indices, two
# for endpoints, whose source nodes and destination nodes it counts separately.
Rules = Mapping[Attribute, tuple[int | None, tuple[Attribute, ...]]]


@dataclass
class Origin:
    """Facts about the graphs of a `PygBatch`, from which the batch makes single graphs and row masks."""

    names: Names
    num_graphs: int
    num_real_graphs: int
    # Node type -> number of nodes in each graph slot; edge type -> number of edges in each graph slot.
    counts: Mapping[Any, Tensor | IntArray]
    # If edges are sorted: edge type -> the position that each edge had before sorting.
    edge_orders: Mapping[EdgeType, Tensor] = field(default_factory=dict)
    # As `ties` and `indices` of `PaddedBatch`.
    ties: Mapping[str, EdgeType] = field(default_factory=dict)
    indices: Mapping[Column, GraphType] = field(default_factory=dict)
    is_padded: bool = False
    is_named: bool = False
    # Component name -> the mask with which the batch was made, and the number of its real rows.
    row_masks: Mapping[str, RowMask] = field(default_factory=dict)

    @functools.cached_property
    def rules(self) -> Rules | None:
        """The rules by which PyG joins the graphs; None if they are PyG's default rules."""
        names, types, indices = self.names, self.names.types, self.indices
        rules: dict[Attribute, tuple[int | None, tuple[Attribute, ...]]] = {}
        for column, t, key in names.columns:
            shifted_by = (types.attribute_of(indices[column]),) if column in indices else ()
            rules[t, key] = names.layout.dim(column), shifted_by
        for e, attribute in types.edges.items():
            rules[attribute] = -1, (types.attribute_of(e[0]), types.attribute_of(e[2]))
        usual = (_is_usual(attribute, *rule, types.is_flat) for attribute, rule in rules.items())
        return None if all(usual) else rules

    @functools.cached_property
    def bounds(self) -> dict[GraphType, list[int]]:
        """For each type, the first node (edge) of each graph slot, then the end of the last graph slot."""
        return {t: [0, *accumulate(count.tolist())] for t, count in self.counts.items()}


class PygBatch(Batch):  # type: ignore[misc]
    """A `torch_geometric.data.Batch` that a `PaddedBatch` or a store makes; it has an `Origin`.

    `num_graphs` is the number of graph slots, which pooling needs. ``len(batch)``, ``batch[i]``, `to_data_list` and
    `get_example` cover only the real graphs. A batch that PyG makes from such batches has no `Origin`, and behaves like
    PyG's own batches.
    """

    @property
    def num_graphs(self) -> int:
        """Number of graph slots, padding included."""
        origin = self.__dict__.get("_origin")
        number: int = super().num_graphs if origin is None else origin.num_graphs
        return number

    @property
    def num_real_graphs(self) -> int:
        """Number of real graphs."""
        origin = self.__dict__.get("_origin")
        return self.num_graphs if origin is None else int(origin.num_real_graphs)

    def __init_subclass__(cls) -> None:
        # PyG makes a subclass of `PygBatch` for each class of graphs. Name it like PyG's own subclass: DataBatch.
        cls.__name__ = cls.__qualname__ = f"{cls.__bases__[-1].__name__}Batch"

    def __len__(self) -> int:
        return self.num_real_graphs

    def row_masks(self) -> dict[str, RowMask]:
        """Return row masks by component name, for ``tp.nn.masked(batch)``; an empty dict if nothing is padding."""
        origin = self.__dict__.get("_origin")
        if origin is None:
            raise SchemaError(
                "PyG made this batch from other batches, so it is unknown which rows are padding; give masked() the "
                "batch that the model is applied to, or None if nothing is padding."
            )
        if not origin.is_padded:
            return {}
        names = origin.names
        types, storages = names.types, dict(storages_of(self))
        components = components_of(types.nodes, [*types.edges], origin.is_named)
        masks = [*(storages[own.storage][own.mask] for own in names.added.values()), storages[None]["graph_mask"]]
        name_of: dict[Any, str] = dict(zip((*types.nodes, *types.edges, None), (*components, "graphs"), strict=True))
        found = dict(zip(name_of.values(), masks, strict=True))
        # Add the number of real rows of each mask, unless the user has replaced the mask: then real rows may be
        # anywhere. Compiled code must not read these numbers, since they vary between batches.
        known = {} if is_traced() else {n: rows for n, rows in origin.row_masks.items() if rows.mask is found[n]}
        # If the user has replaced the mask of only one of two tied components, the masks may differ.
        tied = {name_of[t] for t, e in origin.ties.items() if (name_of[t] in known) == (name_of[e] in known)}
        return {n: RowMask(mask, known[n].num_real if n in known else None, n in tied) for n, mask in found.items()}

    def get_example(self, idx: Any) -> Any:
        """Return a real graph. Features are views; only indices and features of sorted edges or nodes are copies."""
        origin = self.__dict__.get("_origin")
        if origin is None:
            return super().get_example(idx)
        number, real = as_integer(idx), origin.num_real_graphs
        if number is None or not -real <= number < real:
            raise IndexError(f"the batch has no graph {shown(idx)}; it has {real} real graphs.")
        return _example(self, origin, number % real)

    def to_data_list(self) -> list[Any]:
        """Return the real graphs."""
        return [self.get_example(i) for i in range(len(self))]

    def index_select(self, idx: Any) -> list[Any]:
        """Return the real graphs that `idx` selects: a slice, or any other index that PyG accepts."""
        if isinstance(idx, slice):
            return [self.get_example(i) for i in range(len(self))[idx]]
        chosen: list[Any] = super().index_select(idx)
        return chosen

    @classmethod
    def from_data_list(cls, *args: Any, **settings: Any) -> Any:
        """Return PyG's own `Batch` of the graphs, not a `PygBatch`."""
        return Batch.from_data_list(*args, **settings)


class _Value:
    """A placeholder in a `Template`; its deep copy is ``given.values[number]``."""

    given = threading.local()  # `values`: the values of the batch that this thread makes

    def __init__(self, number: int) -> None:
        self.number = number

    def __deepcopy__(self, memo: Any) -> Any:
        return self.given.values[self.number]


class Template:
    """A batch of placeholders. Each new batch is a deep copy of it, with values in place of the placeholders.

    Setting the attributes of each batch one by one would take three times as long.
    """

    def __init__(self, names: Names, is_padded: bool, has_ids: bool = False) -> None:
        self.names = names
        graph = Data() if names.types.is_flat else HeteroData()
        for own in () if names.types.is_flat else names.added.values():
            graph[own.storage]  # creates the storage with this key
        self._empty = collate(PygBatch, [graph], add_batch=False)[0]
        # The attributes in the order in which `pyg_batch` and `plain_batch` pass them.
        attributes: list[Attribute] = [(storage, key) for _, storage, key in names.columns]
        attributes += names.types.edges.values()
        for t in names.types.nodes:
            own = names.added[t]
            attributes += [(own.storage, own.slots), (own.storage, own.pointers)]
            # `names.counted`: the node types that have `num_nodes` in every batch, padded or not.
            if t in names.counted or (is_padded and own.has_number):
                attributes.append((own.storage, NUMBER))
            attributes += [(own.storage, own.mask)] if is_padded else []
        if is_padded:
            attributes += [(names.added[e].storage, names.added[e].mask) for e in names.types.edges]
            attributes.append((None, "graph_mask"))
        attributes += [(None, "graph_ids")] if has_ids else []
        storages = dict(storages_of(self._empty))
        for position, (storage, key) in enumerate(attributes):
            storages[storage][key] = _Value(position)

    def new(self, origin: Origin, columns: Sequence[Tensor], others: Sequence[Any]) -> Any:
        """Return a new batch. `columns` has its features and labels, `others` all other values, in template order."""
        pairs = zip(self.names.layouts, columns, strict=True)
        laid_out = [lay_out(values) if lay_out else values for lay_out, values in pairs]
        _Value.given.values = (*laid_out, *others)
        made = copy.deepcopy(self._empty)
        _Value.given.values = ()
        made.__dict__["_origin"] = origin
        return made


def pyg_batch(batch: Any) -> Any:
    """Return the PyG batch of a `PaddedBatch`. The two batches share their features, labels and masks."""
    batch.sync_with_graph()
    columns = batch.columns()
    ids, graph_mask = batch.graph_ids, batch.graph_mask
    template = _cached_template(batch.node_types, batch.edge_types, tuple(columns), batch.pyg_layout, ids is not None)
    origin = Origin(
        template.names, graph_mask.shape[0], batch.num_real_graphs, batch.per_graph_by_type, batch.edge_orders or {},
        batch.ties, batch.indices, True, bool(batch.graph_names), batch.row_masks(),
    )  # fmt: skip
    # In the order of `Template`.
    others: list[Any] = [joined_ends(batch.src_by_type[e], batch.dst_by_type[e]) for e in batch.edge_types]
    for t in batch.node_types:
        mask = batch.masks_by_type[t]
        others += slots_and_pointers(t, batch.per_graph_by_type[t], mask.shape[0])
        others += [mask.shape[0], mask] if template.names.added[t].has_number else [mask]
    others += [*(batch.masks_by_type[e] for e in batch.edge_types), graph_mask]
    made = template.new(origin, [*columns.values()], others if ids is None else [*others, ids])
    if batch.source_ids is not None:
        made.source_ids = batch.source_ids
    return made


def plain_batch(
    template: Template, counts: Sequence[IntArray], totals: Sequence[int], ends: Sequence[Tensor],
    values: Sequence[Tensor], indices: Mapping[Column, GraphType],
) -> Any:  # fmt: skip
    """Return the PyG batch of graphs without padding, equal to the result of `Batch.from_data_list`.

    `counts` has, for each node type and then each edge type, its number in each graph. `totals` has the sum of each
    array in `counts`, then the number of graphs. `ends` has the endpoints ``[2, E]`` of each edge type.
    """
    names, types = template.names, template.names.types
    others: list[Any] = [*ends]
    for number, t in enumerate(types.nodes):
        others += slots_and_pointers(t, torch.from_numpy(counts[number]), totals[number])
        others += [totals[number]] if t in names.counted else []
    by_type = dict(zip((*types.nodes, *types.edges), counts, strict=True))
    origin = Origin(names, totals[-1], totals[-1], by_type, indices=indices)
    return template.new(origin, values, others)


def follow_and_exclude(follow: Collection[str], exclude: Collection[str], batch: Any) -> Any:
    """Apply `follow_batch` and `exclude_keys` of `Batch.from_data_list` in place to a batch that `plain_batch` made."""
    if not isinstance(batch, PygBatch) or not (follow or exclude):
        return batch
    storages = dict(storages_of(batch))
    for (t, key), counts in _rows_per_graph(batch.__dict__["_origin"]).items():
        if key in exclude:
            del storages[t][key]
        elif key in follow:
            slots, pointers = slots_and_pointers(key, torch.from_numpy(counts), int(counts.sum()))
            storages[t][f"{key}_batch"], storages[t][f"{key}_ptr"] = slots, pointers
    if NUMBER in exclude:
        for storage in batch.stores:
            storage.pop(NUMBER, None)
    return batch


def _rows_per_graph(origin: Origin) -> dict[Attribute, Any]:
    """Return the number of rows in each graph, ``[graphs]``, of each feature, each label and the endpoints of edges."""
    counts, names, found = origin.counts, origin.names, dict[Attribute, Any]()
    for column, storage, key in names.columns:
        t, rows_of_label = column[1], names.layout.rows.get(column, 1)
        found[storage, key] = np.full(origin.num_graphs, rows_of_label, np.int64) if t is None else counts[t]
    return found | {attribute: counts[e] for e, attribute in names.types.edges.items()}


@functools.lru_cache(maxsize=64)
def _cached_template(
    node_types: Any, edge_types: Any, columns: tuple[Column, ...], layout: PygLayout | None, has_ids: bool
) -> Template:
    return Template(attribute_names(node_types, edge_types, columns, layout), True, has_ids)


def joined_ends(src: Tensor, dst: Tensor) -> Tensor:
    """Return both ends as one tensor ``[2, E]``: a view if `dst` follows `src` in memory, as in batches of a store."""
    number = src.shape[0]
    follows = (
        dst.storage_offset() == src.storage_offset() + number
        and src.untyped_storage().data_ptr() == dst.untyped_storage().data_ptr()
        and src.is_contiguous()
        and dst.is_contiguous()
    )
    return src.as_strided((2, number), (number, 1)) if number and follows else torch.stack((src, dst))


class _GraphRows:
    """The rows of graph `i` of a batch, in the order that they had before edges were sorted."""

    def __init__(self, origin: Origin, i: int) -> None:
        self.origin, self.i = origin, i
        # For each type, the graph's nodes (edges) among those of the batch.
        self.spans = spans = {t: slice(bounds[i], bounds[i + 1]) for t, bounds in origin.bounds.items()}
        # For sorted edges, and for nodes tied to them: the position in the graph that each row had before sorting.
        old: dict[GraphType, Tensor] = {e: order[spans[e]] - spans[e].start for e, order in origin.edge_orders.items()}
        self.old_positions = old | {t: old[e] for t, e in origin.ties.items() if e in old}

    def of_label(self, values: Any, key: str, dim: int, each: int) -> Any:
        """Return the graph's rows of a label that has `each` rows in each graph."""
        _check_rows(values, key, dim, self.origin.num_graphs * each, self.origin.num_real_graphs * each)
        return values.narrow(dim, self.i * each, each)

    def of_type(self, values: Any, key: str, dim: int, t: GraphType) -> Any:
        """Return the graph's rows of an attribute that has one row for each node (edge) of the type `t`."""
        bounds, span = self.origin.bounds[t], self.spans[t]
        _check_rows(values, key, dim, bounds[-1], bounds[self.origin.num_real_graphs])
        rows = values.narrow(dim, span.start, span.stop - span.start)
        if t not in self.old_positions:
            return rows
        return rows.index_select(dim, torch.argsort(self.old_positions[t]).to(rows.device))

    def local(self, indices: Tensor, t: GraphType) -> Tensor:
        """Convert indices of nodes (edges) of the type `t` in the batch to indices in the graph."""
        positions = indices - self.spans[t].start
        if t not in self.old_positions:
            return positions
        return self.old_positions[t].to(positions.device)[positions.long()].to(positions.dtype)

    def check_ends(self, ends: Tensor, key: str, e: EdgeType) -> None:
        """Raise SchemaError if the endpoints ``[2, E]`` of edges of the type `e` are nodes of other graphs."""
        if ends.shape[1]:
            spans = self.spans[e[0]], self.spans[e[2]]
            first, last = (each.tolist() for each in ends.aminmax(dim=1))
            if any(low < span.start or high >= span.stop for low, high, span in zip(first, last, spans, strict=True)):
                raise _changed(key, "has edges of other graphs in the rows of a graph")


def _example(batch: Any, origin: Origin, i: int) -> Any:
    """Return graph `i` of a batch, with all attributes that the batch still has: the user may have deleted some."""
    names, rows = origin.names, _GraphRows(origin, i)
    data, storages = _new_graph(names, origin.rules), dict(storages_of(batch))

    def put(value: Any, storage: GraphType | None, key: str) -> None:
        (data.stores[0] if storage is None else data[storage])[key] = value

    for column, storage, key in names.columns:
        if key not in storages.get(storage, {}):
            continue
        value, dim, t = storages[storage][key], names.layout.dim(column), column[1]
        if t is not None:
            value = rows.of_type(value, key, dim or 0, t)
        else:
            value = rows.of_label(value, key, dim or 0, names.layout.rows.get(column, 1))
            # If `dim` is None, PyG adds an axis to batches.
            value = value[0] if dim is None else value
        target = origin.indices.get(column)
        # The user may have replaced the indices by other values.
        if target is not None and value.dtype in INDEX_TYPES:
            value = rows.local(value, target)
        put(value, storage, key)
    for e, (storage, key) in names.types.edges.items():
        if key in storages.get(storage, {}):
            ends = rows.of_type(storages[storage][key], key, 1, e)
            # The user may have replaced the edges by the same number of other edges.
            rows.check_ends(ends, key, e)
            local_ends = [rows.local(end, t) for end, t in zip(ends, (e[0], e[2]), strict=True)]
            put(torch.stack(local_ends), storage, key)
    for node_type in names.counted:
        span = rows.spans[node_type]
        put(span.stop - span.start, names.types.storage_of(node_type), NUMBER)
    return data


def _check_rows(values: Any, key: str, dim: int, slots: int, real: int) -> None:
    """Raise SchemaError unless an attribute has a row for each slot, or for each slot with real content."""
    number = values.shape[dim] if isinstance(values, Tensor) and values.ndim > dim else -1
    if number not in (slots, real):
        raise _changed(key, f"has {number} rows, not {slots}" if number >= 0 else "is not a tensor with rows")


def _changed(key: str, how: str) -> SchemaError:
    return SchemaError(
        f"{key!r} of the batch was changed and now {how}, so it is unknown which rows belong to a graph; take single "
        "graphs before the change, or change a clone()."
    )


class _Stored:
    """A mixin for graphs that have the joining rules of another class in ``_joining``."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        rule = self._rule(key, args)
        if rule is None:
            return super().__inc__(key, value, *args, **kwargs)  # type: ignore[misc]
        shifts = [self._size_of(*each) for each in rule[1]]
        if len(set(rule[1])) > 1:
            # Source nodes and destination nodes are of two types, with different shifts.
            return torch.tensor(shifts).view(-1, 1)
        return shifts[0] if shifts else 0

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        rule = self._rule(key, args)
        return super().__cat_dim__(key, value, *args, **kwargs) if rule is None else rule[0]  # type: ignore[misc]

    def stores_as(self, data: Any) -> Any:
        """Call PyG's `stores_as`, and copy the joining rules of `data`."""
        if "_joining" in data.__dict__:
            self.__dict__["_joining"] = data.__dict__["_joining"]
        return super().stores_as(data)  # type: ignore[misc]

    @classmethod
    def from_dict(cls, mapping: Any) -> Any:
        """Raise InputError, since a dict lacks the joining rules; `InMemoryDataset.load` calls this method."""
        raise InputError(
            "the dict of a graph from a store lacks the rules by which PyG joins its attributes; convert such graphs "
            "to your own class, MyData.from_dict(graph.to_dict()), before you collate or save them."
        )

    def _rule(self, key: str, given: tuple[Any, ...]) -> Any:
        """Return the joining rule of an attribute, or None. ``given[0]``, if passed, is the attribute's storage."""
        found = (t for t, storage in storages_of(self) if given and storage is given[0])
        return self.__dict__.get("_joining", {}).get((next(found, None), key))

    def _size_of(self, t: GraphType | None, key: str) -> int:
        """Return the size of an attribute: PyG adds this number to the indices of later graphs."""
        storage = dict(storages_of(self))[t]
        if key == NUMBER:
            return int(storage.num_nodes)
        value = storage[key]
        return int(value.shape[self.__cat_dim__(key, value, storage)])


class StoredData(_Stored, Data):  # type: ignore[misc]
    """A `Data` with the joining rules of another class."""


class StoredHeteroData(_Stored, HeteroData):  # type: ignore[misc]
    """A `HeteroData` with the joining rules of another class."""


def _new_graph(names: Names, rules: Rules | None) -> Any:
    """Return an empty `Data` (if the types are flat) or `HeteroData`, with the joining rules unless they are None."""
    if rules is None:
        return Data() if names.types.is_flat else HeteroData()
    graph = StoredData() if names.types.is_flat else StoredHeteroData()
    graph.__dict__["_joining"] = rules
    return graph


def _is_usual(attribute: Attribute, axis: int | None, shifted_by: tuple[Attribute, ...], is_flat: bool) -> bool:
    """Return whether these rules are PyG's default for an attribute; the default depends on the attribute's name."""
    t, key = attribute
    if "batch" in key:
        # By default, PyG shifts the attribute by its own maximum plus 1.
        return False
    is_index = "index" in key or (is_flat and key == "face")
    # By default, only storages of edges have indices in a HeteroData.
    if not is_index or not (is_flat or isinstance(t, tuple)):
        return axis == 0 and not shifted_by
    ends: list[Attribute] = [(t[0], NUMBER), (t[2], NUMBER)] if isinstance(t, tuple) else [(None, NUMBER)]
    # If both ends have the same attribute, `shifted_by` may have this attribute once or twice.
    return axis == -1 and ({*shifted_by} == {*ends} if len({*ends}) == 1 else shifted_by == tuple(ends))
