"""Items that are graphs of PyG, Data or HeteroData: their sizes, their schema, and many of them joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.items import parts_of
from dgl_tuplepack.graphs.named import is_pyg
from dgl_tuplepack.graphs.plain_graph import PlainGraph
from dgl_tuplepack.graphs.pyg_attributes import (
    Attribute,
    Sizes,
    check_endpoints,
    check_increment,
    check_known,
    described,
    keys_of,
    plain_tensor,
    whole_nodes,
)
from dgl_tuplepack.graphs.pyg_form import NUMBER, Form, form_of, increment_of, nodes_key, told
from dgl_tuplepack.graphs.pyg_layout import LABEL, Column, Levels, Place, PygLayout
from dgl_tuplepack.graphs.pyg_levels import refuse_open, schema_of_attributes
from dgl_tuplepack.graphs.schema import BY_TRANSFORM, ArraySpec, Schema, check_specs, differing_names

# Graphs that are read at most until the levels of all attributes are certain.
_MOST_READ = 10_000


class PygGraph:
    """The part of the interface of a DGLGraph that sizes are read by, of a graph of PyG that messages call `where`.

    `form` is that of the graphs before it, with which it is compared.
    """

    def __init__(self, data: Any, where: str, levels: Levels | None = None, form: Form | None = None) -> None:
        self.data, self.where = data, where
        if hasattr(type(data), "to_data_list"):
            raise SchemaError(f"{where} is a batch of graphs; give its graphs, batch.to_data_list().")
        self.is_hetero = hasattr(type(data), "node_types")
        if form is None or form.is_hetero != self.is_hetero:
            form = form_of(data, where, levels or {})
        self.form = form
        self.ntypes, self.canonical_etypes = list(form.nodes), list(form.edges)
        if self.is_hetero:
            own = set(data.edge_types)
            self.ntypes, self.canonical_etypes = sorted(data.node_types), sorted(own | {*form.ends} if own else ())
        if not self.canonical_etypes:
            raise SchemaError(
                f"{where} has no edge types; set the edge_index of one, for no edges "
                'data["a", "to", "a"].edge_index = torch.empty(2, 0, dtype=torch.long).'
            )
        ends = {t for e in self.canonical_etypes for t in (e[0], e[2])}
        if not ends <= set(self.ntypes):
            raise SchemaError(
                f"{where} has edges to nodes of the types {sorted(ends - set(self.ntypes))}, but nodes of the types "
                f"{self.ntypes}; set num_nodes of these types."
            )

    def storage(self, t: GraphType | None) -> Any:
        """Return the storage with a key; None is that of the graph. A `Data` has one storage for all."""
        if not self.is_hetero:
            return self.data._store
        return self.data._global_store if t is None else self.data[t]

    @property
    def types(self) -> list[GraphType | None]:
        """The keys of all storages."""
        return [None, *sorted(self.data.node_types), *sorted(self.data.edge_types)] if self.is_hetero else [None]

    def place_of(self, column: Column) -> Place:
        """Return the storage and the name of the attribute that a feature or label is."""
        _, t, name = column
        if t is None:
            return None, name or LABEL
        return (self.form.nodes[t] if isinstance(t, str) else self.form.edges[t])[0], name

    def keys(self, t: GraphType | None, levels: Levels, left_out: set[str]) -> list[str]:
        """Return the names of the attributes of a storage that are read, sorted; others are added to `left_out`."""
        ends = {key for storage, key in self.form.edges.values() if storage == t}
        return sorted(keys_of(self.storage(t), ends, levels, left_out, self.where))

    def num_nodes(self, ntype: str | None = None) -> int:
        """Return the number of nodes of a type, or of the only one; SchemaError if nothing tells it."""
        t, key = self.form.nodes[self.ntypes[0] if ntype is None else ntype]
        storage, what = self.storage(t), self._named(t)
        if key != NUMBER:
            if key not in storage:
                raise SchemaError(f"{what} has no attribute {key!r}, which counts nodes of the graphs before; set it.")
            return self.described((t, key))[2]
        key = check_known(nodes_key(storage), what)
        if key == NUMBER:
            return whole_nodes(storage[NUMBER], what)
        shape, dim = storage[key].shape, told(self.data, "__cat_dim__", key, storage, f"the {key} of {what}")
        if type(dim) is not int or not -len(shape) <= dim < len(shape):
            check_known(None, what)
        return int(shape[dim])

    def endpoints(self, etype: EdgeType) -> Tensor:
        """Return the endpoints of a type, ``[2, E]``."""
        t, key = self.form.edges[etype]
        return check_endpoints(self.storage(t).get(key), key, self._named(t))

    def num_edges(self, etype: EdgeType | None = None) -> int:
        """Return the number of edges of a type, or of the only one."""
        return int(self.endpoints(self.canonical_etypes[0] if etype is None else etype).shape[1])

    def described(self, place: Place) -> tuple[int | None, ArraySpec, int]:
        """Return the axis, a row, and the number of rows of an attribute."""
        storage, what = self.storage(place[0]), f"the attribute {place[1]!r} of {self.where}"
        value = plain_tensor(storage[place[1]], what)
        dim, spec = described(self.data, storage, place[1], value, what)
        return dim, spec, 1 if dim is None or value.ndim == 0 else int(value.shape[dim])

    def check_joining(self, counts: Mapping[GraphType, int], indices: Mapping[Place, GraphType]) -> None:
        """Refuse a graph that PyG would shift in another way than by the `counts` of its nodes and edges."""
        for e, (t, key) in self.form.edges.items():
            what = f"the {key} of {self._named(t)}"
            self.endpoints(e)
            dim = told(self.data, "__cat_dim__", key, self.storage(t), what)
            if dim not in (-1, 1):
                raise SchemaError(
                    f"{what} is joined along {dim} by __cat_dim__, but edges along the last axis; correct it."
                )
            check_increment(self.data, self.storage(t), key, (counts[e[0]], counts[e[2]]), what)
        for (t, key), target in indices.items():
            check_increment(
                self.data, self.storage(t), key, (counts[target],), f"the attribute {key!r} of {self._named(t)}"
            )

    def _named(self, t: GraphType | None) -> str:
        return self.where if t is None else f"{self.where}, type {t!r}"


def _attributes(graphs: Sequence[PygGraph], levels: Levels, left_out: set[str]) -> list[Attribute]:
    """Return all attributes of graphs, which must have the same ones."""
    first = graphs[0]
    attributes = []
    places = [_places(graph, levels, left_out) for graph in graphs]
    for graph, found in zip(graphs, places, strict=True):
        if found != places[0]:
            _refuse_names(graph.where, found, places[0])
    for t, key in places[0]:
        dim, spec, rows = first.described((t, key))
        others = [graph.described((t, key)) for graph in graphs[1:]]
        for graph, (_, found_spec, _) in zip(graphs[1:], others, strict=True):
            _check_spec(found_spec, spec, (t, key), graph.where)
        counts = np.array([rows, *(number for _, _, number in others)], np.int64)
        attributes.append(Attribute(t, key, dim, spec, counts))
    return attributes


def _places(graph: PygGraph, levels: Levels, left_out: set[str]) -> list[Place]:
    return [(t, key) for t in graph.types for key in graph.keys(t, levels, left_out)]


def _name(place: Place) -> str:
    t, key = place
    return key if t is None else f"{key} of {t}"


def _refuse_names(where: str, found: Sequence[Place], expected: Sequence[Place]) -> None:
    names, right = (list(map(_name, places)) for places in (found, expected))
    steps = " and ".join(map(" ".join, differing_names(names, right)))
    levels = ", ".join(sorted({f"{key!r}: None" for _, key in {*found} ^ {*expected}}))
    raise SchemaError(
        f"{where} has the attributes {', '.join(names) or 'none'}, but the first one has {', '.join(right) or 'none'}; "
        f"every graph needs the same ones: {steps} {BY_TRANSFORM}, or leave them out of all by levels={{{levels}}}."
    )


def _check_spec(found: ArraySpec, expected: ArraySpec, place: Place, where: str) -> None:
    name = _name(place)
    check_specs({name: found}, {name: expected}, f"{where}, rows of attributes", BY_TRANSFORM)


def schema_of(
    graphs: Sequence[PygGraph], levels: Levels, has_ids: bool, left_out: set[str]
) -> tuple[Schema, list[Attribute]]:
    """Return the schema of graphs, and the attributes whose level these graphs do not tell."""
    first = graphs[0]
    for graph in graphs[1:]:
        _check_types(graph, first.ntypes, first.canonical_etypes)
    sizes = Sizes(
        {t: np.array([graph.num_nodes(t) for graph in graphs], np.int64) for t in first.ntypes},
        {e: np.array([graph.num_edges(e) for graph in graphs], np.int64) for e in first.canonical_etypes},
        [graph.where for graph in graphs],
    )
    attributes = _attributes(graphs, levels, left_out)
    for i, graph in enumerate(graphs):
        counts: dict[GraphType, int] = {t: int(own[i]) for t, own in sizes.nodes.items()}
        graph.check_joining(counts | {e: int(own[i]) for e, own in sizes.edges.items()}, first.form.indices)
    idtypes = {graph.endpoints(e).dtype for graph in graphs for e in graph.canonical_etypes}
    idtype = torch.int32 if idtypes == {torch.int32} else torch.int64
    counted = tuple(
        t for t, (storage, key) in first.form.nodes.items() if key == NUMBER and key in first.storage(storage)
    )
    return schema_of_attributes(attributes, first.form, sizes, levels, idtype, counted, left_out, has_ids)


def example_schema(data: Any, levels: Levels, has_ids: bool) -> Schema:
    """Return the schema of one graph; SchemaError if it does not tell the level of an attribute."""
    schema, open_ones = schema_of([PygGraph(data, "the example", levels)], levels, has_ids, set())
    if open_ones:
        refuse_open(open_ones, 1)
    return schema


def settled(first: Any, others: Iterator[Any], levels: Levels) -> tuple[Schema, Iterator[Any]]:
    """Return the schema of items, which is certain after as many items as it needs, and all items again."""
    read, more, left_out = [first], 15, set[str]()
    while True:
        graphs = [_graph_of(first, "item 0", levels, None)]
        graphs += [_graph_of(item, f"item {i}", levels, graphs[0].form) for i, item in enumerate(read) if i]
        has_ids = parts_of(first, "item 0").id is not None
        schema, open_ones = schema_of(graphs[:1] if len(read) == 1 else graphs, levels, has_ids, left_out)
        if len(read) > 1 and not open_ones:
            return schema, chain(read, others)
        following = list(islice(others, more))
        if not following or len(read) >= _MOST_READ:
            if open_ones:
                refuse_open(open_ones, len(read))
            return schema, chain(read, following, others)
        read, more = read + following, 2 * more


def _graph_of(item: Any, where: str, levels: Levels, form: Form | None) -> PygGraph:
    data = parts_of(item, where).graph
    if not is_pyg(data):
        _refuse_mixed(where, data)
    return PygGraph(data, where, levels, form)


def _refuse_mixed(where: str, graph: Any) -> None:
    kinds = ("a DGLGraph", "of PyG") if not is_pyg(graph) else ("of PyG", "a DGLGraph")
    raise SchemaError(
        f"{where} is {kinds[0]}, but the graphs before it, or the example, are {kinds[1]}; give graphs of one kind."
    )


def _check_types(graph: PygGraph, node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> None:
    if [*graph.ntypes, *graph.canonical_etypes] != [*node_types, *edge_types]:
        raise SchemaError(
            f"{graph.where} has node types {graph.ntypes} and edge types {graph.canonical_etypes}, but the example has "
            f"{list(node_types)} and {list(edge_types)}; all graphs must have the same types."
        )


def joined_data(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> PlainGraph:
    """Join graphs of PyG, with their labels; SchemaError names, by `where`, one that the schema does not fit."""
    layout = schema.pyg
    for graph, place in zip(graphs, where, strict=True):
        if is_pyg(graph) != (layout is not None):
            _refuse_mixed(place, graph)
    assert layout is not None
    form = Form.of_layout(schema.node_types, schema.edge_types, layout)
    views = [PygGraph(data, place, form=form) for data, place in zip(graphs, where, strict=True)]
    _check_names(schema, layout, views)
    nodes = {t: _counted([view.num_nodes(t) for view in views], views) for t in schema.node_types}
    edges = {e: _counted([view.num_edges(e) for view in views], views) for e in schema.edge_types}
    counts: dict[Any, Tensor] = {**nodes, **edges}
    _check_joining(schema, views, counts)
    columns = {column: _rows(column, spec, layout, views, counts) for column, spec in schema.columns()}
    return PlainGraph(
        (nodes, edges),
        {e: _joined_ends(e, schema.idtype, views, nodes, edges[e]) for e in schema.edge_types},
        {t: {n: columns["node_feature", t, n] for n in own} for t, own in schema.node_features.items()},
        {e: {n: columns["edge_feature", e, n] for n in own} for e, own in schema.edge_features.items()},
        {n: columns["label", None, n] for n in schema.labels},
    )


def _counted(numbers: list[int], views: Sequence[PygGraph]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int64, device=views[0].endpoints(views[0].canonical_etypes[0]).device)


def _check_names(schema: Schema, layout: PygLayout, views: Sequence[PygGraph]) -> None:
    levels: Levels = dict.fromkeys(layout.left_out)
    for view in views:
        _check_types(view, schema.node_types, schema.edge_types)
        found, expected = _places(view, levels, set()), [view.place_of(column) for column, _ in schema.columns()]
        if {*found} != {*expected}:
            _refuse_names(view.where, found, expected)


def _check_joining(schema: Schema, views: Sequence[PygGraph], counts: Mapping[GraphType, Tensor]) -> None:
    """Refuse graphs that PyG would shift in another way than batches are."""
    each = {t: own.tolist() for t, own in counts.items()}
    columns = [(column, schema.index_columns.get(column)) for column, _ in schema.columns()]
    shifted = () if schema.pyg is None else schema.pyg.shifted
    for i, view in enumerate(views):
        indices = {}
        for column, target in columns:
            t, key = place = view.place_of(column)
            increment = increment_of(view.data, view.storage(t), key, f"the attribute {key!r} of {view.where}")
            if column in shifted or np.any(increment != 0):
                if target is None:
                    raise SchemaError(
                        f"{view.where} shifts the attribute {key!r} by {shown(increment.tolist())}, but the graphs "
                        "before do not; give graphs of one class, or correct __inc__."
                    )
                indices[place] = target
        view.check_joining({t: own[i] for t, own in each.items()}, indices)


def _rows(
    column: Column,
    spec: ArraySpec,
    layout: PygLayout,
    views: Sequence[PygGraph],
    counts: dict[GraphType | None, Tensor],
) -> Tensor:
    """Join the rows of one attribute of all graphs: ``[rows, ...]``, for labels ``[B, ...]``."""
    content, t, name = column
    key, dim, number = name or LABEL, layout.dim(column), layout.rows.get(column, 1)
    is_label = content == "label"
    row = ArraySpec(spec.shape[1:], spec.dtype) if is_label and number != 1 else spec
    expected = [number] * len(views) if is_label else counts[t].tolist()
    values = []
    for view, rows in zip(views, expected, strict=True):
        place = view.place_of(column)
        storage = view.storage(place[0])
        found_dim, found, found_rows = view.described(place)
        value = plain_tensor(storage[key], key)
        if (found_dim is None) != (dim is None):
            raise SchemaError(
                f"{view.where}: the attribute {key!r} is joined along {found_dim}, before along {dim}; correct "
                "__cat_dim__."
            )
        _check_spec(found, row, place, view.where)
        if found_rows != rows:
            raise SchemaError(
                f"{view.where}: the attribute {key!r} has {found_rows} rows, but must have {rows}, one for each "
                f"{content.partition('_')[0]}, as the graphs before tell; correct it, or say what it belongs to: "
                f'levels={{"{key}": "node"}}, "edge" or "graph"; "{key}" lets limits count its rows.'
            )
        whole = dim is None or value.ndim == 0
        values.append(value if whole else value.movedim(dim or 0, 0))
        if is_label and not whole and number == 1:
            values[-1] = values[-1][0]
    return torch.stack(values) if is_label else torch.cat(values)


def _joined_ends(
    edge_type: EdgeType, idtype: torch.dtype, views: Sequence[PygGraph], nodes: dict[str, Tensor], edges: Tensor
) -> tuple[Tensor, Tensor]:
    ends = torch.cat([view.endpoints(edge_type) for view in views], dim=1)
    shifted = []
    for end, t in zip(ends, (edge_type[0], edge_type[2]), strict=True):
        number = torch.repeat_interleave(nodes[t], edges)
        outside = (end < 0) | (end >= number)
        if outside.any():
            edge = int(torch.argmax(outside.to(torch.uint8)))
            i = int(torch.searchsorted(edges.cumsum(0), edge, right=True))
            raise SchemaError(
                f"{views[i].where} has an edge at node {int(end[edge])}, but its nodes are 0..{int(nodes[t][i]) - 1}; "
                f"correct {views[i].form.edges[edge_type][1]}, or num_nodes."
            )
        first = torch.repeat_interleave(nodes[t].cumsum(0) - nodes[t], edges)
        shifted.append(end.to(idtype) + first.to(idtype))
    return shifted[0], shifted[1]
