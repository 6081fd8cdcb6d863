"""Batches as PyG has them: a `Batch` of static shape, whose single graphs are the real ones."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData

from dgl_tuplepack._checks import as_integer, shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType
from dgl_tuplepack.graphs.pyg_attributes import (
    EDGE,
    EDGE_KEYS,
    ENDPOINTS,
    GRAPH,
    NODE,
    NODE_KEYS,
    NUMBER,
    RESERVED,
    nodes_key,
)
from dgl_tuplepack.graphs.pyg_layout import LABEL, Column, PygLayout
from dgl_tuplepack.graphs.relations import INDEX_TYPES
from dgl_tuplepack.kernels.graph_slots import fill_graph_slots
from dgl_tuplepack.padding.batch import PaddedBatch

# What PyG calls the features that DGL's datasets call "feat".
_FEATURES = {"node_feature": "x", "edge_feature": "edge_attr"}
# PyG counts nodes, or edges, by these attributes of a `Data`.
_NOT_FOR = {"node_feature": EDGE_KEYS, "edge_feature": NODE_KEYS, "label": NODE_KEYS | EDGE_KEYS}
_LEVELS = {"node_feature": NODE, "edge_feature": EDGE, "label": GRAPH}


@dataclass(frozen=True)
class Names:
    """The columns of a batch as attributes of PyG: the storage and the name of each."""

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    columns: tuple[tuple[Column, GraphType | None, str], ...]
    layout: PygLayout
    is_plain: bool
    # Whether attributes and names are those of graphs of PyG.
    is_own: bool

    @functools.cached_property
    def template(self) -> Any:
        """An empty batch with the storages of all types; copies of it are made faster."""
        made = PygBatch(_base_cls=Data if self.is_plain else HeteroData)
        if not self.is_plain:
            for t in (*self.node_types, *self.edge_types):
                made[t]  # makes the storage
        return made

    def storage_of(self, t: GraphType | None) -> GraphType | None:
        """Return the key of the storage of a type; a `Data` has one for all."""
        return None if self.is_plain else t


def names_of(
    node_types: tuple[str, ...], edge_types: tuple[EdgeType, ...], columns: Sequence[Column], layout: PygLayout | None
) -> Names:
    """Return the names of attributes; SchemaError if two columns would have the same one."""
    is_plain = (node_types, edge_types) == ((NODE_TYPE,), (EDGE_TYPE,))
    taken: dict[GraphType | None, set[str]] = {}
    named = []
    for content, t, name in columns:
        storage = None if is_plain else t
        used = taken.setdefault(storage, {*RESERVED, ENDPOINTS, NUMBER})
        key = name or LABEL
        if layout is None:
            same = {n for c, other, n in columns if (c, other) == (content, t)}
            if name == "feat" and content in _FEATURES and _FEATURES[content] not in same:
                key = _FEATURES[content]
            if key in used or (is_plain and key in _NOT_FOR[content]):
                key = f"{_LEVELS[content]}_{key}"
        if key in used:
            raise SchemaError(
                f"the {content.replace('_', ' ')} {name!r} would be the attribute {key!r} of a batch of PyG, which is "
                "another one already; rename it in the dataset."
            )
        used.add(key)
        named.append(((content, t, name), storage, key))
    return Names(node_types, edge_types, tuple(named), layout or PygLayout(), is_plain, layout is not None)


@dataclass
class Origin:
    """What a batch knows of its graphs: how many there are, and nodes and edges of each type in each of them."""

    names: Names
    num_graphs: int
    num_real_graphs: int
    counts: dict[GraphType, Tensor]
    # Of sorted edges: where each edge stood before.
    edge_orders: Mapping[EdgeType, Tensor] = field(default_factory=dict)
    # Node types that are the edges of another type, and columns with the type that they index.
    ties: Mapping[str, EdgeType] = field(default_factory=dict)
    indices: Mapping[Column, GraphType] = field(default_factory=dict)
    _bounds: dict[GraphType, list[int]] | None = None

    @property
    def bounds(self) -> dict[GraphType, list[int]]:
        """First node (edge) of each type in each graph, and the end of the last one."""
        if self._bounds is None:
            self._bounds = {t: [0, *accumulate(count.tolist())] for t, count in self.counts.items()}
        return self._bounds


class PygBatch(Batch):  # type: ignore[misc]
    """A `torch_geometric.data.Batch` that a `PaddedBatch` or a store makes.

    `num_graphs` is the number of graph slots, the same in all batches of a sampler, which pooling needs; `len`,
    `to_data_list`, `get_example` and indices cover the real graphs alone.
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

    def __len__(self) -> int:
        return self.num_real_graphs

    def get_example(self, idx: Any) -> Any:
        """Return a real graph, as `Data` or `HeteroData`; its features are views of the batch."""
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
        """Return some of the real graphs."""
        if isinstance(idx, slice):
            return [self.get_example(i) for i in range(len(self))[idx]]
        chosen: list[Any] = super().index_select(idx)
        return chosen

    @classmethod
    def from_data_list(cls, *args: Any, **settings: Any) -> Any:
        """Return a `Batch` of graphs, as PyG makes it."""
        return Batch.from_data_list(*args, **settings)


def pyg_batch(batch: PaddedBatch) -> Any:
    """Make the batch of PyG of a padded batch; tensors are shared."""
    batch._exchange_features()
    values: dict[Column, Tensor] = {}
    for t, own in batch._node_features.items():
        values.update({("node_feature", t, name): value for name, value in own.items()})
    for e, own in batch._edge_features.items():
        values.update({("edge_feature", e, name): value for name, value in own.items()})
    if batch.labels is not None:
        labels = batch.labels if isinstance(batch.labels, dict) else {"": batch.labels}
        values.update({("label", None, name): value for name, value in labels.items()})
    names = _cached_names(batch.node_types, batch.edge_types, tuple(values), _Same(batch._pyg))
    counts: dict[Any, Tensor] = {**batch._nodes_per_graph, **batch._edges_per_graph}
    settings = batch._edge_orders or {}, batch._ties, batch._indices
    origin = Origin(names, batch.graph_mask.shape[0], batch.num_real_graphs, counts, *settings)
    ends = {e: (batch._src[e], batch._dst[e]) for e in batch.edge_types}
    made, storages = _made(origin, values, ends, {t: mask.shape[0] for t, mask in batch._node_masks.items()})
    for t, mask in batch._node_masks.items():
        storages[names.storage_of(t)]["node_mask"] = mask
        storages[names.storage_of(t)][NUMBER] = mask.shape[0]
    for e, mask in batch._edge_masks.items():
        storages[names.storage_of(e)]["edge_mask"] = mask
    storages[None]["graph_mask"] = batch.graph_mask
    if batch.graph_ids is not None:
        storages[None]["graph_ids"] = batch.graph_ids
    return made


def plain_batch(
    names: Names,
    values: Mapping[Column, Tensor],
    ends: Mapping[EdgeType, tuple[Tensor, Tensor]],
    counts: dict[GraphType, Tensor],
    num_nodes: Mapping[str, int],
    num_graphs: int,
    indices: Mapping[Column, GraphType],
) -> Any:
    """Make the batch of PyG of graphs without padding, equal to that of `Batch.from_data_list`."""
    made, storages = _made(Origin(names, num_graphs, num_graphs, counts, indices=indices), values, ends, num_nodes)
    for t in names.node_types:
        storage = storages[names.storage_of(t)]
        if t in names.layout.counted or not _tells_nodes(names, t):
            storage[NUMBER] = num_nodes[t]
    return made


class _Same:
    """A layout as part of the key of a cache: equal to itself alone."""

    def __init__(self, layout: PygLayout | None) -> None:
        self.layout = layout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.layout is self.layout

    def __hash__(self) -> int:
        return id(self.layout)


@functools.lru_cache(maxsize=64)
def _cached_names(node_types: Any, edge_types: Any, columns: tuple[Column, ...], layout: _Same) -> Names:
    return names_of(node_types, edge_types, columns, layout.layout)


def _made(
    origin: Origin,
    values: Mapping[Column, Tensor],
    ends: Mapping[EdgeType, tuple[Tensor, Tensor]],
    num_nodes: Mapping[str, int],
) -> tuple[Any, dict[GraphType | None, dict[str, Any]]]:
    """Return a batch with the attributes that every one has, and the content of its storages."""
    names = origin.names
    made = copy.copy(names.template)
    inside = made.__dict__
    inside["_origin"] = origin
    storages: dict[GraphType | None, dict[str, Any]]
    storages = {None: inside["_store" if names.is_plain else "_global_store"]._mapping}
    if not names.is_plain:
        storages.update({t: made[t]._mapping for t in names.node_types})
        storages.update({e: made[e]._mapping for e in names.edge_types})
    for column, t, key in names.columns:
        storages[t][key] = _laid_out(values[column], column, names.layout)
    for e, (src, dst) in ends.items():
        storages[names.storage_of(e)][ENDPOINTS] = joined_ends(src, dst)
    for node_type in names.node_types:
        storage = storages[names.storage_of(node_type)]
        storage["batch"], storage["ptr"] = _batch_and_pointers(origin.counts[node_type], num_nodes[node_type])
    return made, storages


def _laid_out(value: Tensor, column: Column, layout: PygLayout) -> Tensor:
    """Return a feature or label ``[rows, ...]`` as PyG joins it."""
    if column in layout.rows:
        value = value.flatten(0, 1)
    dim = layout.dims.get(column, 0)
    return value.movedim(0, dim) if dim else value


def joined_ends(src: Tensor, dst: Tensor) -> Tensor:
    """Return ``[2, E]``: a view if both lie one behind the other, as in the batches of a store, else a copy."""
    number = src.shape[0]
    follows = (
        dst.storage_offset() == src.storage_offset() + number
        and src.untyped_storage().data_ptr() == dst.untyped_storage().data_ptr()
        and src.is_contiguous()
    )
    return src.as_strided((2, number), (number, 1)) if number and follows else torch.stack((src, dst))


def _batch_and_pointers(counts: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the graph of each of `number` nodes, and where the nodes of each graph begin and the last ones end."""
    graphs = counts.shape[0]
    if not counts.is_cpu:
        slots = torch.repeat_interleave(torch.arange(graphs, device=counts.device), counts, output_size=number)
        return slots, torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    # A fraction of the time of torch's functions.
    of_graph, batch, pointers = counts.numpy(), np.empty(number, np.int64), np.empty(graphs + 1, np.int64)
    if (filled := fill_graph_slots(of_graph, batch)) != number:
        raise SchemaError(
            f"the counts of nodes in each graph slot were changed: they add up to {filled}, but the batch has "
            f"{number}; change a copy, nodes_per_graph.clone()."
        )
    pointers[0] = 0
    of_graph.cumsum(out=pointers[1:])
    return torch.from_numpy(batch), torch.from_numpy(pointers)


def _tells_nodes(names: Names, node_type: str) -> bool:
    """Whether a graph of PyG with these attributes tells its number of nodes."""
    tensor = torch.empty(0)
    contents = {key: column[0] for column, t, key in names.columns if t == names.storage_of(node_type)}
    return contents.get(nodes_key(dict.fromkeys(contents, tensor)) or "") == "node_feature"


def _example(batch: Any, origin: Origin, i: int) -> Any:
    """Return graph `i` of a batch."""
    names, spans = origin.names, {t: slice(*bounds[i : i + 2]) for t, bounds in origin.bounds.items()}
    data = Data() if names.is_plain else HeteroData()

    def storage(of: Any, t: GraphType | None) -> Any:
        return of._store if names.is_plain else of._global_store if t is None else of[t]

    # Of sorted edges, and of nodes that are tied to them: where each one in the batch stands in the graph.
    orders: dict[GraphType, Tensor] = {e: order[spans[e]] - spans[e].start for e, order in origin.edge_orders.items()}
    orders |= {t: orders[e] for t, e in origin.ties.items() if e in orders}

    def in_order(values: Tensor, t: GraphType, dim: int) -> Tensor:
        """Put rows of a type in the order that they have in the graph."""
        return values.index_select(dim, torch.argsort(orders[t]).to(values.device)) if t in orders else values

    def counted(values: Tensor, t: GraphType) -> Tensor:
        """Let numbers of nodes or edges of a type count those of the graph."""
        values = values - spans[t].start
        return orders[t].to(values.device)[values.long()].to(values.dtype) if t in orders else values

    for column, t, key in names.columns:
        content, of_type, _ = column
        value, dim, rows = storage(batch, t)[key], names.layout.dim(column), names.layout.rows.get(column, 1)
        if content == "label":
            found = value[i] if dim is None else value.narrow(dim, i * rows, rows)
        else:
            assert of_type is not None
            span = spans[of_type]
            found = in_order(value.narrow(dim or 0, span.start, span.stop - span.start), of_type, dim or 0)
        target = origin.indices.get(column)
        # A user may have put something else in their place.
        if target is not None and found.dtype in INDEX_TYPES:
            found = counted(found, target)
        storage(data, t)[key] = found
    for e in names.edge_types:
        found = storage(batch, names.storage_of(e))[ENDPOINTS][:, spans[e]]
        found = torch.stack([counted(end, t) for end, t in zip(found, (e[0], e[2]), strict=True)])
        storage(data, names.storage_of(e))[ENDPOINTS] = in_order(found, e, 1)
    for node_type in names.node_types:
        if node_type in names.layout.counted or not _tells_nodes(names, node_type):
            span = spans[node_type]
            storage(data, names.storage_of(node_type))[NUMBER] = span.stop - span.start
    return data
