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
from dgl_tuplepack.batches.content import BatchContent
from dgl_tuplepack.batches.graph_slots import slots_and_pointers
from dgl_tuplepack.batches.pyg_data import Joining, joining_of, new_graph
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType, components_of
from dgl_tuplepack.graphs.pyg.storages import storages_of
from dgl_tuplepack.graphs.pyg_layout import NUMBER, Column, Names, PygLayout, attribute_names
from dgl_tuplepack.graphs.relations import INDEX_TYPES
from dgl_tuplepack.nn.masks import RowMask
from dgl_tuplepack.planning.sizes import IntArray


@dataclass
class Origin:
    """Facts about the graphs of a `PygBatch`, from which the batch makes single graphs and row masks."""

    names: Names
    num_graphs: int
    num_real_graphs: int
    # Node type -> number of nodes in each graph slot; edge type -> number of edges in each graph slot.
    counts: tuple[Mapping[str, Tensor | IntArray], Mapping[EdgeType, Tensor | IntArray]]
    # If edges are sorted: edge type -> the position that each edge had before sorting.
    edge_orders: Mapping[EdgeType, Tensor] = field(default_factory=dict)
    # As `_ties` and `_indices` of `BatchContent`.
    ties: Mapping[str, EdgeType] = field(default_factory=dict)
    indices: Mapping[Column, GraphType] = field(default_factory=dict)
    is_padded: bool = False
    is_named: bool = False
    # Component name -> the mask with which the batch was made, and the number of its real rows.
    row_masks: Mapping[str, RowMask] = field(default_factory=dict)

    @functools.cached_property
    def joining(self) -> Joining | None:
        """The rules by which PyG joins the graphs; None if they are PyG's default rules."""
        return joining_of(self.names, self.indices)

    @functools.cached_property
    def bounds(self) -> dict[GraphType, list[int]]:
        """For each type, the first node (edge) of each graph slot, then the end of the last graph slot."""
        counts: list[tuple[GraphType, Any]] = [*self.counts[0].items(), *self.counts[1].items()]
        return {t: [0, *accumulate(count.tolist())] for t, count in counts}


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
        number: int = super().num_graphs if origin is None else origin.num_real_graphs
        return number

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
        attributes = [
            (names.storages[attribute.storage], attribute.mask)
            for attribute in (*names.node_attributes, *names.edge_attributes)
        ]
        masks = [storages[t][mask] for t, mask in (*attributes, (None, "graph_mask"))]
        found = {name: RowMask(mask, None) for name, mask in zip((*components, "graphs"), masks, strict=True)}
        if not is_traced():
            # Add the number of real rows of each mask, unless the user has replaced the mask: then real rows may be
            # anywhere. Compiled code must not read these numbers, since they vary between batches.
            found |= {name: known for name, known in origin.row_masks.items() if known.mask is found[name].mask}
        return found

    def get_example(self, idx: Any) -> Any:
        """Return a real graph. Its features are views of the batch; only indices and sorted features are copies."""
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
        self.names, graph = names, Data() if names.types.is_flat else HeteroData()
        for t in names.storages[1:]:
            graph[t]  # creates the storage with the key t
        self._empty = collate(PygBatch, [graph], add_batch=False)[0]
        # (index of the storage, name) of each attribute, in the order in which `pyg_batch` and `plain_batch` pass them.
        attributes = [(number, key) for number, key, _ in names.attributes] + [
            (at, ends) for at, ends, _ in names.edge_attributes
        ]
        # `number` is None if the node type is itself an attribute, such as x_s.
        for t, (at, slots, pointers, mask, number) in zip(names.types.nodes, names.node_attributes, strict=True):
            is_counted = number is not None and (is_padded or t in names.counted)
            attributes += [(at, slots), (at, pointers)] + [(at, NUMBER)] * is_counted + [(at, mask)] * is_padded
        if is_padded:
            attributes += [(at, mask) for at, _, mask in names.edge_attributes] + [(0, "graph_mask")]
        for position, (at, key) in enumerate([*attributes, *[(0, "graph_ids")] * has_ids]):
            self._empty.stores[at][key] = _Value(position)

    def new(self, origin: Origin, columns: Sequence[Tensor], others: Sequence[Any]) -> Any:
        """Return a new batch. `columns` has its features and labels, `others` all other values, in template order."""
        laid_out = [f(v) if f else v for (_, _, f), v in zip(self.names.attributes, columns, strict=True)]
        _Value.given.values = (*laid_out, *others)
        made = copy.deepcopy(self._empty)
        _Value.given.values = ()
        made.__dict__["_origin"] = origin
        return made


def pyg_batch(batch: BatchContent) -> Any:
    """Return the PyG batch of a padded batch. The two batches share their features, labels and masks."""
    batch._exchange_features()
    columns: list[Column] = []
    values: list[Tensor] = []
    contents: Any = ("node_feature", batch._node_features), ("edge_feature", batch._edge_features)
    for content, features in contents:
        for t, own in features.items():
            columns += [(content, t, name) for name in own]
            values += own.values()
    labels = batch._labels_by_name()
    columns += [("label", None, name) for name in labels]
    values += labels.values()
    ids, graph_mask = batch.graph_ids, batch.graph_mask
    template = _cached_template(batch.node_types, batch.edge_types, tuple(columns), _Same(batch._pyg), ids is not None)
    origin = Origin(
        template.names, graph_mask.shape[0], batch.num_real_graphs,
        (batch._nodes_per_graph, batch._edges_per_graph), batch._edge_orders or {}, batch._ties, batch._indices, True,
        bool(batch.graph_names), batch.row_masks(),
    )  # fmt: skip
    # In the order of `Template`.
    others: list[Any] = [joined_ends(batch._src[e], batch._dst[e]) for e in batch.edge_types]
    for t, attribute in zip(batch.node_types, template.names.node_attributes, strict=True):
        mask = batch._node_masks[t]
        others += slots_and_pointers(t, batch._nodes_per_graph[t], mask.shape[0])
        others += [mask] if attribute.number is None else [mask.shape[0], mask]
    others += [*(batch._edge_masks[e] for e in batch.edge_types), graph_mask]
    return template.new(origin, values, others if ids is None else [*others, ids])


def plain_batch(
    template: Template, counts: Sequence[IntArray], totals: Sequence[int], ends: Sequence[Tensor],
    values: Sequence[Tensor], indices: Mapping[Column, GraphType],
) -> Any:  # fmt: skip
    """Return the PyG batch of graphs without padding, equal to the result of `Batch.from_data_list`.

    `counts` has, for each node type and then each edge type, the number of nodes or edges in each graph, ``[graphs]``.
    `totals` has the sum of each array in `counts`, then the number of graphs. `ends` has the endpoints ``[2, E]`` for
    each edge type, `values` the features and labels. `indices` maps features and labels to the type that they index.
    """
    names, types = template.names, template.names.types
    of_nodes = dict(zip(types.nodes, counts, strict=False))
    of_edges = dict(zip(types.edges, counts[len(types.nodes) :], strict=True))
    others: list[Any] = [*ends]
    for number, t in enumerate(types.nodes):
        others += slots_and_pointers(t, torch.from_numpy(counts[number]), totals[number])
        others += [totals[number]] if t in names.counted else []
    origin = Origin(names, totals[-1], totals[-1], (of_nodes, of_edges), indices=indices)
    return template.new(origin, values, others)


def follow_and_exclude(batch: Any, follow: Collection[str], exclude: Collection[str]) -> Any:
    """Apply `follow_batch` and `exclude_keys` of `Batch.from_data_list` in place to a batch that `plain_batch` made."""
    origin = batch.__dict__["_origin"]
    names, counts = origin.names, {**origin.counts[0], **origin.counts[1]}
    rows, number = names.layout.rows, origin.num_graphs
    # (key of its storage, name, number of rows in each graph) of each feature or label; the type of a label is None.
    found = [(t, key, counts.get(c[1], np.full(number, rows.get(c, 1), np.int64))) for c, t, key in names.columns]
    storages = dict(storages_of(batch))
    # Endpoints have one row for each edge.
    for t, key, each in (*found, *((*attribute, counts[e]) for e, attribute in names.types.edges.items())):
        storage = storages[t]
        if key in exclude:
            del storage[key]
        elif key in follow:
            vectors = slots_and_pointers(key, torch.from_numpy(each), int(each.sum()))
            storage[f"{key}_batch"], storage[f"{key}_ptr"] = vectors
    if NUMBER in exclude:
        for storage in batch.stores:
            storage.pop(NUMBER, None)
    return batch


class _Same:
    """A layout in a cache key: two layouts are equal only if they are the same object."""

    def __init__(self, layout: PygLayout | None) -> None:
        self.layout = layout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.layout is self.layout

    def __hash__(self) -> int:
        return id(self.layout)


@functools.lru_cache(maxsize=64)
def _cached_template(
    node_types: Any, edge_types: Any, columns: tuple[Column, ...], layout: _Same, has_ids: bool
) -> Template:
    """Return the template of padded batches with these types, features and labels."""
    return Template(attribute_names(node_types, edge_types, columns, layout.layout), True, has_ids)


def joined_ends(src: Tensor, dst: Tensor) -> Tensor:
    """Return source nodes and destination nodes as one tensor ``[2, E]``.

    The tensor is a view if `dst` follows `src` in memory, as in the batches of a store. Otherwise it is a copy.
    """
    number = src.shape[0]
    follows = (
        dst.storage_offset() == src.storage_offset() + number
        and src.untyped_storage().data_ptr() == dst.untyped_storage().data_ptr()
        and src.is_contiguous()
        and dst.is_contiguous()
    )
    return src.as_strided((2, number), (number, 1)) if number and follows else torch.stack((src, dst))


def _example(batch: Any, origin: Origin, i: int) -> Any:
    """Return graph `i` of a batch, with all attributes that the batch still has: the user may have deleted some."""
    # spans[t]: slice of the batch's nodes (edges) of type t that belong to graph i.
    names, spans = origin.names, {t: slice(*bounds[i : i + 2]) for t, bounds in origin.bounds.items()}
    data, storages = new_graph(names, origin.joining), dict(storages_of(batch))

    def target_of(t: GraphType | None) -> Any:
        """Return the new graph's storage with the key `t`."""
        return data.stores[0] if t is None else data[t]

    # orders[t][j], for sorted edges and nodes tied to them: old position in graph i of the row that is now row j.
    orders: dict[GraphType, Tensor] = {e: order[spans[e]] - spans[e].start for e, order in origin.edge_orders.items()}
    orders |= {t: orders[e] for t, e in origin.ties.items() if e in orders}

    def in_order(values: Tensor, t: GraphType, dim: int) -> Tensor:
        """Return rows of the type `t`, along the axis `dim`, in the order that the rows had before sorting."""
        return values.index_select(dim, torch.argsort(orders[t]).to(values.device)) if t in orders else values

    def local(values: Tensor, t: GraphType) -> Tensor:
        """Convert indices of nodes (edges) of the type `t` in the batch to indices in graph i."""
        values = values - spans[t].start
        return orders[t].to(values.device)[values.long()].to(values.dtype) if t in orders else values

    def rows_of_graph(values: Any, t: GraphType | None, key: str, dim: int, each: int = 1) -> Any:
        """Return the rows of graph i. `t` is their type, or None for a label, which has `each` rows in each graph."""
        first, last = (i * each, (i + 1) * each) if t is None else (spans[t].start, spans[t].stop)
        _check_rows(values, key, dim, origin, t, each)
        return values.narrow(dim, first, last - first)

    for column, t, key in names.columns:
        content, of_type, _ = column
        found = storages.get(t, {})
        if key not in found:
            continue
        dim, rows = names.layout.dim(column), names.layout.rows.get(column, 1)
        value = rows_of_graph(found[key], of_type if content != "label" else None, key, dim or 0, rows)
        if content == "label":
            # If `dim` is None, PyG adds an axis to batches.
            value = value[0] if dim is None else value
        else:
            assert of_type is not None
            value = in_order(value, of_type, dim or 0)
        target = origin.indices.get(column)
        # The user may have replaced the indices by other values.
        if target is not None and value.dtype in INDEX_TYPES:
            value = local(value, target)
        target_of(t)[key] = value
    for e, (storage, key) in names.types.edges.items():
        found = storages.get(storage, {})
        if key in found:
            ends = rows_of_graph(found[key], e, key, 1)
            # The user may have replaced the edges by the same number of other edges.
            _check_ends(ends, key, [spans[e[0]], spans[e[2]]])
            ends = torch.stack([local(end, t) for end, t in zip(ends, (e[0], e[2]), strict=True)])
            target_of(storage)[key] = in_order(ends, e, 1)
    for node_type in names.counted:
        span = spans[node_type]
        target_of(names.types.storage_of(node_type))[NUMBER] = span.stop - span.start
    return data


def _check_rows(values: Any, key: str, dim: int, origin: Origin, t: GraphType | None, each: int) -> None:
    """Raise SchemaError unless an attribute has a row for each slot, or for each slot with real content."""
    number = values.shape[dim] if isinstance(values, Tensor) and values.ndim > dim else -1
    if t is None:
        slots, real = origin.num_graphs * each, origin.num_real_graphs * each
    else:
        slots, real = origin.bounds[t][-1], origin.bounds[t][origin.num_real_graphs]
    if number not in (slots, real):
        raise _changed(key, f"has {number} rows, not {slots}" if number >= 0 else "is not a tensor with rows")


def _check_ends(ends: Tensor, key: str, nodes: Sequence[slice]) -> None:
    """Raise SchemaError if edges of a graph, with the endpoints `ends` ``[2, E]``, join nodes of other graphs.

    `nodes` has the slices of the graph's source nodes and destination nodes.
    """
    if ends.shape[1]:
        first, last = (each.tolist() for each in ends.aminmax(dim=1))
        if any(low < span.start or high >= span.stop for low, high, span in zip(first, last, nodes, strict=True)):
            raise _changed(key, "has edges of other graphs in the rows of a graph")


def _changed(key: str, how: str) -> SchemaError:
    """Return the error for an attribute that the user has changed."""
    return SchemaError(
        f"{key!r} of the batch was changed and now {how}, so it is unknown which rows belong to a graph; take single "
        "graphs before the change, or change a clone()."
    )
