"""Collate a list of graphs into one padded batch, sort its edges, read batches by ids, and unpad them again.

How data flows: `PaddedCollate` gets the items of a batch. They are joined to one `GraphBlock`; a `PaddedShape`
(`shape.py`), made of the schema and the limits, says which tensors a batch has, and what padding holds. `padded_batch`
writes real rows and padding into these tensors, and `batch_of` makes a `PaddedBatch` (`batch.py`) of them, whose views
for DGL, PyG, JAX and plain tensors are made when they are asked for. A store fills the same tensors by itself. A
`BatchTransform` may change the batch; `unpad` makes graphs of it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import UINT64_MAX, shown, true_or_false, whole_number
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.batch_transform import BatchTransform
from dgl_tuplepack.batches.shape import Coordinates, Fill, Key, PaddedShape, batch_of, number_of_shape
from dgl_tuplepack.errors import GraphTooLargeError, SchemaError, TransformError
from dgl_tuplepack.graphs.blocks import ENDS, EdgeType, GraphBlock, GraphType
from dgl_tuplepack.graphs.build import build_item, joined, schema_of
from dgl_tuplepack.graphs.items import (
    BatchItems,
    Examples,
    Identified,
    Parts,
    as_item,
    epoch_of,
    fetched,
    is_iterable,
    parts_of,
    shape_index_of,
    taken_apart,
)
from dgl_tuplepack.graphs.pyg_layout import Levels, checked_levels
from dgl_tuplepack.graphs.relations import INDEX_TYPES, Column, Indices, Ties, check_values, sorting_order
from dgl_tuplepack.graphs.schema import Schema, as_array, as_label
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.planning.buckets import Shapes, all_of, as_shapes
from dgl_tuplepack.planning.sizes import IntArray


class PaddedCollate:
    """Collate a list of graphs, which may be empty, into a `PaddedBatch` of static shape.

    If `limits` is a list, there are several static shapes. A batch of items of ``with_ids(dataset)`` gets the shape
    that the sampler chose for the step. A batch of other items gets the smallest shape that holds it, which may differ
    between ranks.

    Parameters
    ----------
    limits
        Limits of one pack, including a limit on graphs, or a list of such limits; usually ``sampler.limits``.
    example
        One item of the dataset: DGLGraph, (DGLGraph, label) or (DGLGraph, label, id), or a Data or HeteroData of PyG.
        It defines types, features and labels; it shows the features of a type only if it has nodes (edges) of the type.
        If it has an id, all items must have ids >= 0, and the batch has `graph_ids` (see `with_ids`). A dict of named
        DGLGraphs may replace the graph; the batch then has the property `graphs` instead of `graph`.
    packs_per_batch
        Number of packs in a batch, p >= 1; give the same number as to the sampler.
    label_fill, feature_fill
        Value of padding: a number, or a dict from names to values, 0 for other names. A value in the dict is a number,
        or an array with the shape of one node's, edge's or graph's value. Labels include all values of graphs, such as
        a cell.
    cover_padding
        Give every padding node an incoming edge (of each type), for layers that refuse nodes without incoming edges,
        such as GraphConv and GATConv. For limits `nodes` and `edges`, a batch then has p x edges + p x nodes + 1 edge
        slots instead of p x edges.
    idtype
        dtype of `src` and `dst`, torch.int64 or torch.int32.
    coordinates
        Names of node features that hold positions ``[V, ..., D]``, such as ``("pos",)``, for models that divide by
        distances or compute angles: padding nodes get distinct positions, so no padding edge has length 0. A batch then
        has p x nodes + 2 node slots. With ``{"pos": 0.1}`` padding nodes are at least 0.1 apart (default 1); choose
        less than half of the model's cutoff, so that padding nodes have neighbours.
    sort_edges
        Sort the edges of each type by destination; edges with the same destination keep their order. The batch then
        has `row_pointers`. Real edges still come first, and `unpad` restores the original order in each graph.
    ties
        Components with the same elements: with ``{"nodes:bonds": "edges:atoms"}`` node i of the graph "bonds" is edge i
        of "atoms". In a batch, too, such a node and edge have the same index. Both components have p x limit + 1
        slots, where `limit` is the smaller of their limits.
    indices
        Names of features and labels that hold indices of nodes or edges of their graph, each with the component that
        the indices point to: ``{"root": "nodes"}``. In a batch, each index becomes the slot number of the same node
        or edge; indices in padding point to padding.
    transform
        Applied to a copy of each graph, including the example: a transform of `dgl.transforms`, or any callable from
        DGLGraph to DGLGraph (for PyG: from Data to Data). It may change features and remove nodes and edges, but must
        not add nodes or edges.
    batch_transform
        Applied to each batch: a callable that changes features or labels of a `PaddedBatch` and returns it. Then
        padding rows get their previous values again, or 0 in new features.
    transform_seed
        0..2**64-1. The random numbers of transforms depend only on this seed, the epoch, and the ids of the graphs, not
        on the number of workers. A random transform needs items from ``with_ids(dataset)``.
    levels
        What a PyG attribute belongs to, if the example does not show it: "node", "edge" or "graph", as in
        ``{"w": "edge"}``. If a Data holds several graphs, instead the name of an attribute that has a row for each node
        of the same graph, such as "x_s", or of the attribute with the endpoints of the same edges, such as
        "edge_index_s". An attribute with the level None is left out. With its own name as the level, ``{"w": "w"}``,
        the rows of an attribute become a component of their own, with a limit of their own.

    Raises
    ------
    LimitsError
        The limits have no cap on graphs, or their components differ from the components of the example.
    SchemaError
        The example is not a graph with an optional label and id, or a fill value does not fit the dtype or shape
        of its feature or label.
    TransformError
        A transform cannot be applied to the example, or to a padding-only batch.

    Notes
    -----
    A call raises GraphTooLargeError if the graphs exceed p x limits, SchemaError if a graph differs from the example,
    and TransformError if a transform fails. All padding edges lead from padding nodes to padding nodes, and are spread
    evenly over them. Padding edges between nodes of one type are self-loops, unless `coordinates` are given.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits
    >>> pair = dgl.graph(([0, 1], [1, 0]))
    >>> PaddedCollate(Limits(nodes=6, edges=8, graphs=4), example=pair)([pair, pair])
    PaddedBatch(7 nodes, 8 edges, 5 graphs; real: 4 nodes, 4 edges, 2 graphs; device cpu)
    """

    def __init__(
        self,
        limits: Shapes,
        example: Any,
        packs_per_batch: int = 1,
        *,
        label_fill: Fill = 0,
        feature_fill: Fill = 0,
        cover_padding: bool = False,
        idtype: torch.dtype = torch.int64,
        coordinates: Coordinates = (),
        sort_edges: bool = False,
        ties: Ties | None = None,
        indices: Indices | None = None,
        transform: Callable[[Any], Any] | None = None,
        batch_transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
        levels: Levels | None = None,
    ) -> None:
        whole_number("transform_seed", transform_seed, 0, UINT64_MAX, TransformError)
        levels = None if levels is None else checked_levels(levels)
        self._transform = None if transform is None else GraphTransform(transform, transform_seed, levels=levels)
        self.schema = schema_of(self._transformed(example), ties, indices, levels)
        if self._transform is not None:
            # The transform must not remove nodes (edges) that labels index.
            targets = self.schema.index_columns.items()
            self._transform.numbered = {target: name for (content, _, name), target in targets if content == "label"}
        settings = (packs_per_batch, label_fill, feature_fill, cover_padding, idtype, coordinates, sort_edges)
        self.shapes = tuple(PaddedShape(self.schema, each, *settings) for each in all_of(as_shapes(limits)))
        # The last shape is the largest.
        self.shape = self.shapes[-1]
        self._batch_transform: BatchTransform | None = None
        if batch_transform is not None:
            self._batch_transform = BatchTransform(batch_transform, transform_seed, self._padded([], [], None))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of random transforms, also in worker processes, for items that carry no epoch.

        Items of ``with_ids(dataset)`` carry the epoch if their ids come from a `PackBatchSampler`.
        """
        for transform in (self._transform, self._batch_transform):
            if transform is not None:
                transform.draws.set_epoch(epoch)

    def _transformed(self, example: Any) -> Any:
        """Return the example or examples, transformed as in epoch 0."""
        if self._transform is None:
            return example
        given = example if isinstance(example, Examples) else [example]
        parts = [parts_of(each, "the example") for each in given]
        # The example only defines the schema, so any id may seed the transform.
        found = self._transform([part._replace(id=part.id or 0) for part in parts], ["the example"] * len(parts), 0)
        return Examples(as_item(each._replace(id=part.id)) for each, part in zip(found, parts, strict=True))

    def __call__(self, items: Iterable[Any]) -> PaddedBatch:
        """Return the padded batch of `items`, which have the same form as the example."""
        if not is_iterable(items):
            raise SchemaError(
                f"a batch needs a list of items, but got {shown(items)}; give a list, or [] for a batch of padding."
            )
        sampler_shape = shape_index_of(items)
        parts, names, epoch = taken_apart(list(items))
        if self._transform is not None:
            parts = self._transform(parts, names, epoch)
            names = [f"{name} after the transform {self._transform.name}" for name in names]
        padded = self._padded(parts, names, sampler_shape)
        if self._batch_transform is None:
            return padded
        return self._batch_transform(padded, [part.id for part in parts], epoch)

    def _padded(self, parts: Sequence[Parts], names: list[str], sampler_shape: int | None) -> PaddedBatch:
        """Return the padded batch of items with these parts, and these names in messages."""
        schema = self.schema
        graphs = joined(schema, parts, names)
        if schema.ties or schema.indices:
            check_values(
                schema,
                lambda t: as_array(graphs.lengths[t]),
                lambda column: as_array(graphs.column(column)),
                lambda i: names[i],
            )
        shape = self.shapes[number_of_shape(self.shapes, sampler_shape, list(graphs.totals.values()))]
        try:
            padded = padded_batch(shape, graphs)
        except GraphTooLargeError as error:
            largest = int(torch.stack([*graphs.lengths.values()]).sum(dim=0).argmax())
            size = ", ".join(f"{int(graphs.lengths[t][largest])} {each}" for each, t in schema.types.items())
            raise GraphTooLargeError(
                f"{error} If you do, items have grown since sizes were counted; the largest is {names[largest]} with "
                f"{size}. A dataset must return the same sizes each time; give random changes as transform=..."
            ) from None
        padded.graph_ids = self._ids(shape, parts, names, padded.device)
        return padded

    def _ids(self, shape: PaddedShape, items: Sequence[Parts], names: list[str], device: torch.device) -> Tensor | None:
        """Return the id of each graph slot, -1 in padding; None if the example, and so no item, has an id."""
        # Only the example decides whether a batch has ids, so that empty batches have ids if other batches do.
        for item, name in zip(items, names, strict=True):
            if (item.id is not None) != self.schema.has_ids:
                has, example = ("no", "one") if self.schema.has_ids else ("an", "none")
                raise SchemaError(
                    f"{name} has {has} id, but the example has {example}; use with_ids(dataset) for both or neither."
                )
        if not self.schema.has_ids:
            return None
        ids = torch.full((shape.num_graphs,), -1, dtype=torch.int64, device=device)
        ids[: len(items)] = torch.tensor([item.id for item in items], dtype=torch.int64, device=device)
        return ids


def padded_batch(shape: PaddedShape, graphs: GraphBlock) -> PaddedBatch:
    """Return the padded batch of the graphs, without ids; GraphTooLargeError if they exceed the limits of `shape`."""
    # real[t]: number of real nodes or edges of type t; real[None]: number of graphs. Node types come first, None last.
    schema, real, device = shape.schema, graphs.totals, graphs.device
    shape.check_content(list(real.values()))
    tensors: dict[Key, Tensor] = {
        ("mask", t): torch.arange(slots, device=device) < real[t] for t, slots in shape.slots.items()
    }
    tensors |= {("per_graph", t): _per_graph(shape, graphs, t) for t in schema.types.values()}
    for e in schema.edge_types:
        tensors |= zip(((end, e) for end in ENDS), _endpoints(shape, graphs, e), strict=True)
    tensors |= {column: _padded(shape, graphs, column) for column, _ in schema.columns()}
    if shape.sort_edges:
        tensors = sorted_by_destination(schema, tensors)
    return batch_of(schema, tensors, list(real.values()))


def _endpoints(shape: PaddedShape, graphs: GraphBlock, edge_type: EdgeType) -> tuple[Tensor, Tensor]:
    """Return the source nodes and the destination nodes of all edges of a type, padding edges last."""
    padding_edges = torch.arange(shape.slots[edge_type] - graphs.totals[edge_type], device=graphs.device)

    def with_padding(real: Tensor, node_type: str, shift: int) -> Tensor:
        """Return `real` followed by one end of each padding edge, moved on by `shift` padding nodes."""
        first_padding = graphs.totals[node_type]
        num_padding = shape.slots[node_type] - first_padding
        # Spread the padding edges evenly over the padding nodes, in ascending order.
        padding = first_padding + (padding_edges * num_padding // max(len(padding_edges), 1) + shift) % num_padding
        return torch.cat([real.to(shape.idtype), padding.to(shape.idtype)])

    src_type, _, dst_type = edge_type
    src, dst = graphs.endpoints[edge_type]
    # In a chain, each padding edge leads to the next padding node.
    step = int(shape.has_padding_chains(edge_type))
    return with_padding(src, src_type, 0), with_padding(dst, dst_type, step)


def _padded(shape: PaddedShape, graphs: GraphBlock, column: Column) -> Tensor:
    """Return a feature or label with its padding; indices count the nodes (edges) of the batch, not of each graph."""
    values = graphs.shifted(column, shape.schema.index_columns.get(column))
    return torch.cat([values, shape.padding_of(column, graphs.totals, graphs.device)])


def _per_graph(shape: PaddedShape, graphs: GraphBlock, t: GraphType) -> Tensor:
    """Return the number of nodes (edges) of type t in each graph slot; the last slot has all padding nodes (edges)."""
    counts = torch.zeros(shape.num_graphs, dtype=torch.int64, device=graphs.device)
    counts[: graphs.totals[None]] = graphs.lengths[t]
    counts[-1] = shape.slots[t] - graphs.totals[t]
    return counts


class CollatedView:
    """View of a dataset: ``view[ids]`` is the batch that `collate` makes of the items at the positions `ids`.

    The epoch and the shape that the `ids` of a sampler carry are passed on with the items. The `graph_ids` of a batch
    are ``self.ids[position]``, or with "own" the ids that items have; None adds no ids.
    """

    def __init__(self, dataset: Any, collate: Callable[[Any], Any], ids: IntArray | str | None = None) -> None:
        self.dataset, self.collate, self.ids = dataset, collate, ids
        # Called in place of `collate`, with `collate`, the items and their positions; for loaders that check sizes.
        self.collated: Callable[[Any, Any, Any], Any] | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, ids: Any) -> Any:
        items, epoch = fetched(self.dataset, ids, ids), epoch_of(ids)
        given = [self._identified(i, item, epoch) for i, item in zip(ids, items, strict=True)]
        shape_index = shape_index_of(ids)
        items = given if shape_index is None else BatchItems(given, shape_index)
        return self.collate(items) if self.collated is None else self.collated(self.collate, items, ids)

    def _identified(self, position: int, item: Any, epoch: int | None) -> Any:
        """Return an item with its id and the epoch; an item that gets no id is returned unchanged."""
        if isinstance(self.ids, np.ndarray):
            return Identified(int(self.ids[position]), item, epoch)
        if isinstance(item, Identified):
            # The item may lack the epoch: a torch `Subset` of a `with_ids` dataset passes on ids without their epoch.
            return replace(item, epoch=epoch)
        own = parts_of(item, f"item {position}").id if self.ids == "own" else None
        return item if own is None else Identified(own, item, epoch)


def sorted_by_destination(schema: Schema, given: Mapping[Key, Tensor]) -> dict[Key, Tensor]:
    """Return the tensors of a batch with the edges of each type sorted by destination, their order and row pointers.

    Nodes are in the order of graphs, so each edge stays within the slots of its graph; masks and counts do not change.
    No operation makes the CPU wait for the GPU.
    """
    tensors, tied = dict(given), {e: t for t, e in schema.tied.items()}
    indexed = {*tied, *schema.index_columns.values()}
    # positions[t][i]: new position of the node (edge) of type t that was at position i.
    positions: dict[Any, Tensor] = {}
    # Edge types with tied nodes come first: the endpoints of other edges need the new positions of these nodes.
    for e in sorting_order(schema.edge_types, schema.tied):
        _renumber(tensors, _targets_of_ends(e), positions)
        order = torch.argsort(tensors["destinations", e], stable=True)
        _reorder(tensors, e, order)
        dst, number = tensors["destinations", e], len(tensors["mask", e[2]])
        # order[j]: old position of the edge that is now at position j. pointers[v]: position of the first edge to v.
        pointers = torch.searchsorted(dst, torch.arange(number + 1, dtype=dst.dtype, device=dst.device))
        tensors |= {("edge_order", e): order, ("row_pointers", e): pointers}
        if e in indexed:
            positions[e] = inverse(order)
        if e in tied:
            _reorder(tensors, tied[e], order)
            positions[tied[e]] = positions[e]
    _renumber(tensors, schema.index_columns, positions)
    return tensors


def _in_order_of_graphs(batch: PaddedBatch) -> dict[Key, Tensor]:
    """Return endpoints, features and labels of a batch, with nodes and edges in the order of the original graphs."""
    tensors: dict[Key, Tensor] = dict(batch.columns())
    for end, by_type in zip(ENDS, (batch.src_by_type, batch.dst_by_type), strict=True):
        tensors |= {(end, e): ends for e, ends in by_type.items()}
    if batch.edge_orders is not None:
        # orders[t][j]: original position of the node (edge) of type t that is now at position j.
        orders: dict[Any, Tensor] = {**batch.edge_orders, **{t: batch.edge_orders[e] for t, e in batch.ties.items()}}
        for t, order in orders.items():
            _reorder(tensors, t, inverse(order))
        for e in batch.edge_types:
            _renumber(tensors, _targets_of_ends(e), orders)
        _renumber(tensors, batch.indices, orders)
    return tensors


def _targets_of_ends(e: EdgeType) -> dict[Key, GraphType]:
    """Return the node type that the sources, and that the destinations of edges refer to."""
    return {(ENDS[0], e): e[0], (ENDS[1], e): e[2]}


def _reorder(tensors: dict[Key, Tensor], t: GraphType, order: Tensor) -> None:
    """Move node (edge) ``order[j]`` of type `t` to position j, for each j."""
    moved = [key for key in tensors if key[1] == t and key[0] in (*ENDS, "node_feature", "edge_feature")]
    tensors.update({key: tensors[key][order] for key in moved})


def _renumber(tensors: dict[Key, Tensor], targets: Mapping[Any, GraphType], positions: Mapping[Any, Tensor]) -> None:
    """Renumber indices: i becomes ``positions[t][i]``; `targets` has the type t that each tensor indexes."""
    for key, t in targets.items():
        # The user may have deleted a feature or label, or replaced its indices.
        if t in positions and key in tensors and tensors[key].dtype in INDEX_TYPES:
            tensors[key] = positions[t][tensors[key].long()].to(tensors[key].dtype)


def inverse(order: Tensor) -> Tensor:
    """Return the inverse `positions` of the permutation `order`: ``positions[order[j]] = j``."""
    positions = torch.empty_like(order)
    positions[order] = torch.arange(len(order), device=order.device)
    return positions


def unpad(batch: PaddedBatch, with_labels: bool = False) -> list[Any]:
    """Return the real graphs of a batch, in the order of the batch, with the features that ``batch.graph`` has now.

    Parameters
    ----------
    batch
        A batch from `PaddedCollate` or a store.
    with_labels
        Return pairs (graph, label) instead of graphs.

    Returns
    -------
    list
        DGLGraphs (or pairs), or dicts of DGLGraphs for named graphs, with the index type that they had before padding.
        Features and labels are views of the batch, with two exceptions. Features of sorted edges, and of nodes tied to
        them, are copies in the original order. Node and edge indices are copies, renumbered from 0 in each graph.

    Raises
    ------
    SchemaError
        `batch` is not a padded batch, or the number of nodes or edges of its graph was changed in place.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits, PaddedCollate
    >>> pair = dgl.graph(([0, 1], [1, 0]))
    >>> [g.num_nodes() for g in unpad(PaddedCollate(Limits(6, 8, graphs=4), example=pair)([pair, pair]))]
    [2, 2]
    """
    if not isinstance(batch, PaddedBatch):
        raise SchemaError(f"unpad needs a PaddedBatch, but got {type(batch).__name__}; for a DGLGraph use dgl.unbatch.")
    with_labels = true_or_false("with_labels", with_labels)
    number = batch.num_real_graphs
    if not number:
        return []
    batch.sync_with_graph()
    tensors = _in_order_of_graphs(batch)
    # counts[t][i]: number of nodes (edges) of type t in the real graph i.
    counts = {t: each[:number].tolist() for t, each in batch.per_graph_by_type.items()}
    src, dst = ({e: tensors[end, e].to(batch.idtype) for e in batch.edge_types} for end in ENDS)
    # The features of each type, and the labels (None).
    columns: dict[Any, _Columns] = {t: [] for t in (*counts, None)}
    for column in batch.columns():
        columns[column[1]].append((column[2], tensors[column], batch.indexed_by(column, tensors[column])))
    # first[t]: first node (edge) of type t of graph `index`. spans[t]: slice of that graph's nodes (edges) of type t.
    first = dict.fromkeys(counts, 0)
    items = []
    for index in range(number):
        spans = {t: slice(first[t], first[t] + each[index]) for t, each in counts.items()}
        graph = build_item(
            batch.graph_names,
            {e: (src[e][spans[e]] - first[e[0]], dst[e][spans[e]] - first[e[2]]) for e in batch.edge_types},
            {t: counts[t][index] for t in batch.node_types},
            {t: _rows(columns[t], spans[t], first) for t in counts},
        )
        items.append((graph, as_label(_rows(columns[None], index, first))) if with_labels else graph)
        first = {t: span.stop for t, span in spans.items()}
    return items


# Name, values, and the type that the values index (None if they are not indices).
_Columns = list[tuple[str, Tensor, Any]]


def _rows(columns: _Columns, rows: slice | int, first: dict[Any, int]) -> dict[str, Tensor]:
    """Return some rows of all columns; subtract ``first[t]`` from indices of the type t, so that they count from 0."""
    return {name: values[rows] if target is None else values[rows] - first[target] for name, values, target in columns}
