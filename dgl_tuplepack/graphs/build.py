"""Join items to blocks, make DGLGraphs from tensors that are already checked, and read the schema of an example."""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import InputError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock
from dgl_tuplepack.graphs.items import Examples, Parts, WithIds, begins_with_pyg, parts_in_blocks, parts_of
from dgl_tuplepack.graphs.named import (
    by_name,
    check_alike,
    count,
    features_of,
    graph_names,
    is_pyg,
    located_types,
    of_graph,
    types_in,
)
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import Column, Indices, Ties
from dgl_tuplepack.graphs.schema import (
    ArraySpec,
    Schema,
    as_array,
    as_label,
    as_tensor,
    as_tensors,
    check_specs,
    feature_column,
    found_features,
    refuse_levels,
    specs_of,
)
from dgl_tuplepack.planning.sizes import IntArray


@functools.cache
def dgl_and_formats() -> tuple[Any, Any]:
    """Return DGL and its object for all sparse formats. Getting both takes as long as making a small graph."""
    dgl = load("dgl")
    return dgl, dgl.container.convert_to_object(["coo", "csr", "csc"])


@functools.lru_cache(maxsize=64)
def graph_of_types(node_types: tuple[str, ...], edge_types: tuple[EdgeType, ...]) -> Any:
    """Return DGL's metagraph; None if there is only one node type and one edge type."""
    if len(node_types) == len(edge_types) == 1:
        return None
    ends = [[node_types.index(e[end]) for e in edge_types] for end in (0, 2)]
    return load("dgl").graph_index.from_coo(len(node_types), *ends, True)


def build_graph(
    endpoints: Mapping[EdgeType, tuple[Tensor, Tensor]],
    num_nodes: Mapping[str, int],
    features: Mapping[Any, Mapping[str, Tensor]],
    row_pointers: Mapping[EdgeType, Tensor] | None = None,
) -> Any:
    """Return a DGLGraph with the given types, in the given order. The graph shares the memory of the features.

    `row_pointers` may be given if the edges of each type are sorted by destination. For each edge type, it is int64
    ``[V + 1]``: the index of the first edge into each of the V destination nodes, then the number of edges. DGL then
    sums over incoming edges without a conversion to another sparse format.

    The caller must check endpoints and lengths; `dgl.graph` would check them again, which waits for the device.
    """
    dgl, _ = dgl_and_formats()
    relations = [
        relation(ends, edge_type, num_nodes, None if row_pointers is None else row_pointers[edge_type])
        for edge_type, ends in endpoints.items()
    ]
    index = _joined_relations(relations, graph_of_types(tuple(num_nodes), tuple(endpoints)), num_nodes)
    frame = dgl.frame.Frame
    nodes = [frame(features[t], num_rows=number) for t, number in num_nodes.items()]
    edges = [frame(features[e], num_rows=len(src)) for e, (src, _) in endpoints.items()]
    return dgl.DGLGraph(index, list(num_nodes), [e[1] for e in endpoints], nodes, edges)


def relation(
    ends: tuple[Tensor, Tensor], edge_type: EdgeType, num_nodes: Mapping[str, int], pointers: Tensor | None = None
) -> Any:
    """Return DGL's index of the edges of one type; for `pointers` see `row_pointers` of `build_graph`."""
    dgl, formats = dgl_and_formats()
    (src, dst), (source, _, destination) = ends, edge_type
    # DGL's arguments: the numbers of node types, source nodes and destination nodes.
    sizes = 1 if source == destination else 2, num_nodes[source], num_nodes[destination]
    if pointers is None:
        return dgl.heterograph_index.create_unitgraph_from_coo(*sizes, src, dst, formats)
    # Edge ids are optional in DGL 1.1, but sums with edge features fail without them.
    ids = torch.arange(len(src), dtype=src.dtype, device=src.device)
    # The argument True means that the pointers belong to destination nodes (CSC).
    return dgl.heterograph_index.create_unitgraph_from_csr(*sizes, pointers.to(src.dtype), src, ids, formats, True)


def _joined_relations(relations: list[Any], types: Any, num_nodes: Mapping[str, int]) -> Any:
    """Return DGL's index of the edges of all types; `types` is the result of `graph_of_types`."""
    if types is None:
        return relations[0]
    dgl, _ = dgl_and_formats()
    numbers = dgl.utils.toindex(list(num_nodes.values()), "int64")
    return dgl.heterograph_index.create_heterograph_from_relations(types, relations, numbers)


def build_batch(
    endpoints: Mapping[EdgeType, tuple[Tensor, Tensor]],
    num_nodes: Mapping[str, int],
    features: Mapping[Any, Mapping[str, Tensor]],
    per_graph: Mapping[Any, Tensor],
    row_pointers: Mapping[EdgeType, Tensor] | None = None,
) -> Any:
    """Return a batched DGLGraph, see `build_graph`; the numbers per graph are ``[B]`` for each type."""
    graph = build_graph(endpoints, num_nodes, features, row_pointers)
    idtype = next(iter(endpoints.values()))[0].dtype if endpoints else torch.int64
    edges_per_graph = {e: per_graph[e] for e in endpoints}
    _set_batch(graph, {t: per_graph[t] for t in num_nodes}, edges_per_graph, idtype)
    return graph


def _set_batch(graph: Any, nodes: dict[str, Tensor], edges: dict[EdgeType, Tensor], idtype: torch.dtype) -> None:
    """Set the number of nodes and edges of each type in each graph of a batch. The batch keeps the two dicts."""
    # DGL 2 needs the counts in the index type of the graph.
    if idtype != torch.int64:
        nodes = {t: number.to(idtype) for t, number in nodes.items()}
        edges = {e: number.to(idtype) for e, number in edges.items()}
    graph.set_batch_num_nodes(nodes)
    graph.set_batch_num_edges(edges)


def build_item(names: Sequence[str], *by_type: Mapping[Any, Any], build: Callable[..., Any] = build_graph) -> Any:
    """Return a DGLGraph or, if there are `names`, a dict of named graphs.

    `by_type` are arguments of `build`: `build_graph`, or `build_batch` for batched graphs.
    """
    if not names:
        return build(*by_type)
    return {name: build(*(of_graph(name, each) for each in by_type)) for name in names}


class BatchBuilder:
    """Build batches of one schema, without padding.

    With `build_batch`, this would take half as long again, 7 % of a small batch, so only named graphs use it.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._short_types = [e[1] for e in schema.edge_types]
        self._types = graph_of_types(schema.node_types, schema.edge_types)
        # Names of the features of each node type, then of each edge type.
        self._features = [[*specs] for specs in schema.features.values()]
        dgl, _ = dgl_and_formats()
        self._new_frame, self._new_graph = dgl.frame.Frame, dgl.DGLGraph

    def batch(self, totals: list[int], tensors: Sequence[Tensor]) -> Any:
        """Return ``(DGLGraph, labels)`` or, without labels, the DGLGraph (for named graphs, a dict of DGLGraphs).

        `totals` has, in this order: the number of nodes of each type, the number of edges of each type, the number of
        graphs. `tensors` has, in this order: the nodes per graph, for each node type; the edges per graph, for each
        edge type; the sources and destinations of each edge type; all features and labels, as in `Schema.columns`.
        """
        schema, rest, number = self._schema, iter(tensors), len(self._schema.node_types)
        num_nodes = dict(zip(schema.node_types, totals, strict=False))
        # `rest` comes last in each zip, which would otherwise read and lose one more tensor after the last type.
        nodes_per_graph = dict(zip(schema.node_types, rest, strict=False))
        edges_per_graph = dict(zip(schema.edge_types, rest, strict=False))
        ends = {e: (next(rest), next(rest)) for e in schema.edge_types}
        if schema.graph_names:
            features, labels = schema.arranged(lambda _: next(rest))
            per_graph: dict[Any, Tensor] = {**nodes_per_graph, **edges_per_graph}
            graph = build_item(schema.graph_names, ends, num_nodes, features, per_graph, build=build_batch)
        else:
            frames = [
                self._new_frame(dict(zip(names, rest, strict=False)), rows)
                for names, rows in zip(self._features, totals, strict=False)
            ]
            index = _joined_relations([relation(ends[e], e, num_nodes) for e in ends], self._types, num_nodes)
            graph = self._new_graph(index, [*schema.node_types], [*self._short_types], frames[:number], frames[number:])
            _set_batch(graph, nodes_per_graph, edges_per_graph, schema.idtype)
            labels = dict(zip(schema.labels, rest, strict=True))
        return (graph, as_label(labels)) if labels else graph


# Blocks from items ----------------------------------------------------------------------------------------------------


def joined(schema: Schema, parts: Sequence[Parts], where: Sequence[str]) -> GraphBlock:
    """Join the graphs and labels of items; raise SchemaError if an item has another schema."""
    if not parts:
        return _nothing(schema)
    graphs = [part.graph for part in parts]
    if schema.pyg is not None or any(map(is_pyg, graphs)):
        from dgl_tuplepack.graphs.pyg_read import batch_of

        return batch_of(schema, graphs, where)
    batches = _batched(schema, graphs, where)
    labels = [as_tensors(part.label) for part in parts]
    for label, item_name in zip(labels, where, strict=True):
        found = {name: ArraySpec(tuple(value.shape), value.dtype) for name, value in label.items()}
        check_specs(found, schema.labels, f"{item_name}, labels", "in the dataset")
    return tensors_of(schema, batches, {name: torch.stack([label[name] for label in labels]) for name in schema.labels})


def tensors_of(schema: Schema, batches: Any, labels: Mapping[str, Tensor]) -> GraphBlock:
    """Return the tensors of `batches`: a result of `dgl.batch`, or a dict with such a result for each name."""
    totals: dict[Any, int] = {}
    lengths: dict[Any, Tensor] = {}
    endpoints: dict[EdgeType, tuple[Tensor, Tensor]] = {}
    columns: dict[Column, Tensor] = {}
    device = next(iter(by_name(batches).values())).device
    for t, graph, type_in_graph in located_types(batches):
        is_nodes = isinstance(t, str)
        totals[t] = number = count(graph, type_in_graph)
        numbers = graph.batch_num_nodes if is_nodes else graph.batch_num_edges
        lengths[t] = numbers(type_in_graph).long()
        if not is_nodes:
            # In the order of edge ids: with some sparse formats, DGL returns edges in another order.
            src, dst, ids = graph.edges(form="all", order=None, etype=type_in_graph)
            src, dst = (torch.empty_like(end).index_put_((ids,), end) for end in (src, dst))
            endpoints[t] = src, dst
        data = features_of(graph, type_in_graph)
        for name, spec in schema.features[t].items():
            # If no graph has a node (edge) of the type, the feature may be missing.
            values = data[name] if number else spec.filled(0, 0).to(device)
            columns[feature_column(t, name)] = values
    totals[None] = next(iter(by_name(batches).values())).batch_size
    columns |= {("label", None, name): value.to(device) for name, value in labels.items()}
    return schema.block(lengths, endpoints, columns.__getitem__, totals=totals)


def _nothing(schema: Schema) -> GraphBlock:
    """Return the result of `joined` for no items."""
    none, types = torch.empty(0, dtype=torch.int64, device="cpu"), [*schema.types.values()]
    columns = {column: spec.filled(0, 0) for column, spec in schema.columns()}
    ends = dict.fromkeys(schema.edge_types, (none, none))
    return schema.block(dict.fromkeys(types, none), ends, columns.__getitem__, totals=dict.fromkeys([*types, None], 0))


def _batched(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> Any:
    """Return the batch of graphs; for named graphs, a dict with the batch of each name."""
    dgl = load("dgl")
    try:
        # `dgl.batch` compares the features of graphs, but not their types. So check the types of each graph, but the
        # features only once, for the whole batch.
        for graph, item_name in zip(graphs, where, strict=True):
            schema.check_types(graph, item_name)
        batches = _by_dgl(dgl, graphs)
        check_alike(batches, "the batch")
        batch = next(iter(by_name(batches).values()))
        are_equal = all(specs == schema.features[t] for t, specs in found_features(batches).items())
        if are_equal and batch.batch_size == len(graphs) and batch.idtype == schema.idtype:
            return batches
    except (dgl.DGLError, SchemaError):
        # The second loop raises an error that names the item.
        pass
    for graph, item_name in zip(graphs, where, strict=True):
        schema.check_graph(graph, item_name)
    # The first try fails if a graph has no nodes (edges) of a type, but other features for that type. Such features are
    # allowed, and left out here.
    return _by_dgl(dgl, [_without_empty_features(graph) for graph in graphs])


def _by_dgl(dgl: Any, graphs: Sequence[Any]) -> Any:
    names = graph_names(graphs[0])
    return {name: dgl.batch([graph[name] for graph in graphs]) for name in names} if names else dgl.batch(graphs)


def _without_empty_features(graphs: Any) -> Any:
    """Return a view of the graph, or of each named graph, without the features of types that have no nodes (edges)."""
    if isinstance(graphs, dict):
        return {name: _without_empty_features(each) for name, each in graphs.items()}
    graph = graphs.local_var()
    for t, _, _ in located_types(graph):
        if not count(graph, t):
            features_of(graph, t).clear()
    return graph


def graph_blocks(
    items: Iterable[Any],
    ties: Ties | None = None,
    indices: Indices | None = None,
    levels: Levels | None = None,
    number: int | None = None,
) -> tuple[Schema, Iterator[GraphBlock]]:
    """Return the schema of the items (see `items.parts_of`), and blocks of all items.

    For DGLGraphs, the first item determines the schema, apart from the features of types without nodes (edges): they
    are those of the first graph that has any. If it comes late, its block has the `schema` from there on. For PyG
    graphs, the first block determines the schema or, if the `number` of items is known, all items.
    """
    iterator = iter(items)
    try:
        first = next(iterator)
    except StopIteration:
        raise SizesError("the source has no graphs; at least one is needed.") from None
    if begins_with_pyg(first):
        from dgl_tuplepack.graphs.pyg_read import read

        return read(itertools.chain([first], iterator), levels or {}, ties, indices, number)
    schema = schema_of(first, levels=levels)
    blocks = _blocks(schema, (ties, indices), itertools.chain([first], iterator))
    block = next(blocks)
    return block.schema, itertools.chain([block], blocks)


def _blocks(schema: Schema, declared: tuple[Any, Any], items: Iterable[Any]) -> Iterator[GraphBlock]:
    """Yield blocks of the items; `declared` has the ties and indices."""
    for parts, where in parts_in_blocks(items):
        for part in parts:
            if schema.empty and not is_pyg(part.graph):
                schema = schema.settled(found_features(part.graph, schema.empty))
        of_block = schema.with_declared(*declared)
        yield _as_arrays(of_block, joined(of_block, parts, where))


def _as_arrays(schema: Schema, block: GraphBlock) -> GraphBlock:
    """Return a block of tensors as arrays, in which endpoints are counted from 0 in each graph."""
    lengths = {t: as_array(each) for t, each in block.lengths.items()}

    def from_zero(end: Tensor, e: EdgeType, t: str) -> Array:
        # For each edge, the number of nodes of type t in all earlier graphs.
        first: Array = np.repeat(np.cumsum(lengths[t]) - lengths[t], lengths[e])
        return as_array(end).astype(np.int64) - first

    ends = {e: (from_zero(src, e, e[0]), from_zero(dst, e, e[2])) for e, (src, dst) in block.endpoints.items()}
    return schema.block(lengths, ends, lambda column: as_array(block.column(column)), schema=schema)


def items_of(schema: Schema, blocks: Iterable[GraphBlock]) -> Iterator[Any]:
    """Yield (graph, label) for each graph of the blocks. Named graphs are a dict; a missing label is None."""
    for block in blocks:
        yield from _items(schema, block)


def _items(schema: Schema, block: GraphBlock) -> Iterator[Any]:
    # numbers[t][i]: number of nodes (edges) of type t in graph i.
    numbers = {t: counts.tolist() for t, counts in block.lengths.items()}

    def column(key: Column) -> Sequence[Tensor]:
        """Return a feature or label as one tensor for each graph; key[1] is its type, None for a label."""
        values = as_tensor(block.column(key), schema.spec_of(key).dtype)
        return values.unbind() if key[1] is None else torch.split(values, numbers[key[1]])

    def endpoints(ends: Array, e: EdgeType) -> Sequence[Tensor]:
        """Return the source (destination) nodes of edges as one tensor for each graph."""
        return torch.split(as_tensor(ends.astype(np.int64, copy=False), schema.idtype), numbers[e])

    features, labels = schema.arranged(column)
    both = {e: (endpoints(src, e), endpoints(dst, e)) for e, (src, dst) in block.endpoints.items()}
    for i in range(len(block)):
        graph = build_item(
            schema.graph_names,
            {e: (src[i], dst[i]) for e, (src, dst) in both.items()},
            {t: numbers[t][i] for t in schema.node_types},
            {t: {name: per_graph[i] for name, per_graph in own.items()} for t, own in features.items()},
        )
        yield graph, as_label({name: values[i] for name, values in labels.items()})


# Examples and subsets of datasets -------------------------------------------------------------------------------------


def schema_of(
    example: Any, ties: Ties | None = None, indices: Indices | None = None, levels: Levels | None = None
) -> Schema:
    """Return the schema of one item, see `items.parts_of`, or of `Examples`."""
    example, *others = example if isinstance(example, Examples) else [example]
    if not begins_with_pyg(example):
        # If DGL is missing, raise the error that says so; `parts_of` would only refuse the item.
        load("dgl")
    graphs, label, graph_id = parts_of(example, "the example")
    if is_pyg(graphs):
        from dgl_tuplepack.graphs.pyg_join import join_graphs
        from dgl_tuplepack.graphs.pyg_read import schema_of_joined

        given = [graphs, *(parts_of(other, "an example").graph for other in others)]
        group = join_graphs(given, ["the example"] * len(given), levels or {})
        return schema_of_joined(group, levels or {}, graph_id is not None, indices).with_declared(ties, indices)
    refuse_levels(levels, "the example")
    check_alike(graphs, "the example")
    located = located_types(graphs)
    features = {t: specs_of(features_of(graph, type_in_graph)) for t, graph, type_in_graph in located}
    node_types, edge_types = types_in(graphs)
    labels = as_tensors(label)
    schema = Schema(
        node_types=node_types,
        edge_types=edge_types,
        features=features,
        labels={name: ArraySpec(tuple(value.shape), value.dtype) for name, value in labels.items()},
        idtype=next(iter(by_name(graphs).values())).idtype,
        has_ids=graph_id is not None,
        graph_names=graph_names(graphs),
        empty=frozenset(features.keys() - found_features(graphs).keys()),
    )
    for other in others:
        schema = schema.settled(found_features(parts_of(other, "an example").graph, schema.empty))
    return schema.with_declared(ties, indices)


class Chosen(NamedTuple):
    """The dataset that a subset chooses from, and the positions of the chosen items, int64 ``[n]``, >= 0."""

    dataset: Any
    positions: IntArray


def ids_in(source: Any, given: Any) -> Any:
    """Return the positions in `source` that a `Subset` of it has; return anything else, such as ids, unchanged."""
    if not (hasattr(given, "indices") and hasattr(given, "dataset")):
        return given
    dataset, chosen = source.dataset if type(source) is WithIds else source, chosen_from(given)
    while chosen is not None and chosen.dataset is not dataset and chosen.dataset is not source:
        inner = chosen_from(chosen.dataset)
        chosen = None if inner is None else Chosen(inner.dataset, inner.positions[chosen.positions])
    if chosen is None:
        raise InputError("a split is a Subset, but not of the source; make it from the source, or give ids.")
    return chosen.positions


def chosen_from(given: Any) -> Chosen | None:
    """Return the dataset and the positions of a `Subset` of torch or DGL; None for other objects and wrong indices."""
    modules = (sys.modules.get(name) for name in ("torch.utils.data", "dgl.data.utils"))
    # A subclass may change items.
    if type(given) not in [module.Subset for module in modules if module is not None]:
        return None
    # Other types, such as a pandas Series, may look up indices in another way.
    if type(given.indices) not in (list, tuple, range, np.ndarray, Tensor):
        return None
    try:
        positions, number = np.asarray(given.indices), len(given.dataset)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        # The indices are no numbers, or are on a device; or the dataset has no length.
        return None
    if positions.ndim != 1 or (len(positions) and positions.dtype.kind not in "iu"):
        return None
    if len(positions) and not -number <= int(positions.min()) <= int(positions.max()) < number:
        return None
    positions = positions.astype(np.int64)
    return Chosen(given.dataset, np.where(positions < 0, positions + number, positions))
