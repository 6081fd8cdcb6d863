"""Relations that users declare: components that are tied, and features and labels that hold indices.

A tie declares that the nodes of one node type are the edges of one edge type, in the same order, as in
``{"nodes:bonds": "edges:atoms"}``. Indices declare that the values of a feature or label refer to nodes or edges of
their own graph, counted from 0, as in ``{"root": "nodes:atoms"}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphType
from dgl_tuplepack.graphs.named import name_of_type
from dgl_tuplepack.planning.limits import matching_name
from dgl_tuplepack.planning.sizes import IntArray

# Ties: component of nodes -> component of edges. Indices: name of a feature or label -> component that it indexes.
Ties = Mapping[str, str]
Indices = Mapping[str, str]
# A feature or label: its content ("node_feature", "edge_feature" or "label"), its type (None for a label), its name.
Column = tuple[str, GraphType | None, str]
# Component -> node or edge type.
Types = Mapping[str, GraphType]
# Each name stands for a component of nodes (edges), if there is only one such component.
_NODES_OR_EDGES = ("nodes", "edges")
INDEX_TYPES = (torch.int64, torch.int32)


def tied_types(ties: Ties, types: Types) -> dict[str, EdgeType]:
    """Return the edge type of each tied node type; raise SchemaError if `ties` are malformed or ambiguous."""
    tied: dict[str, EdgeType] = {}
    for nodes, edges in _pairs("ties", ties, 'such as {"nodes:bonds": "edges:atoms"}'):
        node_type, edge_type = types[_component("ties", nodes, types)], types[_component("ties", edges, types)]
        if not isinstance(node_type, str) or isinstance(edge_type, str):
            raise SchemaError(
                f"ties join nodes to edges, but {shown(nodes)} is tied to {shown(edges)}; give the component of nodes "
                'first, such as {"nodes:bonds": "edges:atoms"}.'
            )
        if edge_type in tied.values() or node_type in tied:
            raise SchemaError(
                f"ties name {shown(nodes)} or {shown(edges)} twice, but a component can be tied to only one other; "
                "leave out one of the ties."
            )
        tied[node_type] = edge_type
    return tied


def indexed_types(
    indices: Indices, columns: Iterable[tuple[Column, Any]], types: Types, named: bool
) -> dict[Column, GraphType]:
    """Return the type that each declared column indexes; raise SchemaError if `indices` are malformed or ambiguous.

    `named`: whether `types` are types of named graphs.
    """
    # Features of several types may have the same name.
    by_name: dict[str, list[tuple[Column, Any]]] = {}
    for column, spec in columns:
        by_name.setdefault(column[2], []).append((column, spec))
    indexed: dict[Column, GraphType] = {}
    for name, target in _pairs("indices", indices, 'such as {"root": "nodes"}'):
        if name not in by_name:
            raise SchemaError(
                f"indices name {shown(name)}, but the features and labels are {sorted(by_name)} (a single label has an "
                "empty name); correct the name."
            )
        # A name is ambiguous if, for instance, a node feature and a label have it.
        if len({column[0] for column, _ in by_name[name]}) > 1:
            owners = " and ".join(dict.fromkeys(_called(column) for column, _ in by_name[name]))
            raise SchemaError(
                f"indices name {shown(name)}, which is the name of {owners}; indices need a unique name: rename all "
                "but one."
            )
        for column, spec in by_name[name]:
            if spec.dtype not in INDEX_TYPES:
                raise SchemaError(
                    f"indices are int64 or int32, but {_called(column)} is {spec}; convert it, or leave it out of "
                    "indices."
                )
            of_column = types
            if named and target in _NODES_OR_EDGES and column[1] is not None:
                # In named graphs, "nodes" ("edges") means the nodes (edges) of the graph that has the feature.
                own = name_of_type(column[1])
                of_column = {component: t for component, t in types.items() if name_of_type(t) == own}
            indexed[column] = types[_component("indices", target, of_column)]
    return indexed


def _pairs(what: str, given: Any, example: str) -> Iterator[tuple[str, str]]:
    """Yield the items of a dict of strings; raise SchemaError for anything else."""
    is_good = isinstance(given, Mapping) and all(isinstance(text, str) for pair in given.items() for text in pair)
    if not is_good:
        raise SchemaError(f"{what} must be a dict of strings, but are {shown(given)}; give one, {example}.")
    yield from given.items()


def _component(what: str, name: str, types: Types) -> str:
    """Return the component that `name` means: its name, "nodes", "edges" or "edges:bond"; SchemaError unless one."""
    if name in types:
        return name
    is_general = name in _NODES_OR_EDGES
    found = [c for c in types if (c.startswith(name + ":") if is_general else matching_name(c, {name: 0}) is not None)]
    if len(found) != 1:
        problem = f"which may be {' or '.join(found)}" if found else "which is no component"
        raise SchemaError(f"{what} name {shown(name)}, {problem}; give one of the components {', '.join(types)}.")
    return found[0]


def sorting_order(edge_types: Sequence[EdgeType], tied: Mapping[str, EdgeType]) -> list[EdgeType]:
    """Return the edge types in the order in which their edges must be sorted.

    Sorting the edges of a type also moves the nodes that are tied to these edges. So an edge type comes before all edge
    types whose endpoints are those nodes. Raise SchemaError if the ties form a cycle.
    """
    order: list[EdgeType] = []
    rest = list(edge_types)
    while rest:
        ready = [e for e in rest if not any(tied.get(t) in rest for t in (e[0], e[2]))]
        if not ready:
            raise SchemaError(
                f"the ties {dict(tied)} form a cycle, so that edges cannot be sorted and padding nodes cannot be "
                "covered; leave out sort_edges and cover_padding, or one of the ties."
            )
        order += ready
        rest = [e for e in rest if e not in ready]
    return order


def check_values(
    schema: Any,
    lengths: Callable[[GraphType], IntArray],
    values: Callable[[Column], Array],
    where: Callable[[int], str],
) -> None:
    """Refuse (SchemaError) graphs with unequal numbers in tied components, or with indices out of range.

    `lengths` returns the number of nodes (edges) of a type in each graph. `values` returns the rows of a feature or
    label, one graph after the other. `where` returns the display name of graph i.
    """
    names = {t: component for component, t in schema.types.items()}
    for node_type, edge_type in schema.tied.items():
        nodes, edges = lengths(node_type), lengths(edge_type)
        if len(wrong := np.flatnonzero(nodes != edges)):
            i = int(wrong[0])
            raise SchemaError(
                f"{where(i)} has {nodes[i]} {names[node_type]}, but {edges[i]} {names[edge_type]}; the two are tied, "
                "so their numbers must be equal: correct the graph, or the ties."
            )
    for column, target in schema.index_columns.items():
        # For each graph: `most` nodes (edges) of the type `target`, and `per_graph` rows of the column.
        rows, most = values(column), lengths(target)
        per_graph = np.ones(len(most), np.int64) if column[1] is None else lengths(column[1])
        # `flat`, [R, k]: the k indices in each of the R rows.
        flat = rows.reshape(len(rows), int(np.prod(rows.shape[1:])))
        outside = ((flat < 0) | (flat >= np.repeat(most, per_graph)[:, None])).any(axis=1)
        if outside.any():
            row = int(np.argmax(outside))
            i = int(np.searchsorted(np.cumsum(per_graph), row, side="right"))
            value = next(v for v in flat[row].tolist() if not 0 <= v < most[i])
            raise SchemaError(
                f"{where(i)} has the index {value} in {_called(column)}, but only {most[i]} {names[target]}, counted "
                "from 0; correct the graph, or the declared indices."
            )


def check_endpoints(
    nodes: Array, num_edges: IntArray, num_nodes: IntArray, where: Callable[[int], str], remedy: str
) -> None:
    """Raise SchemaError if an endpoint of an edge is not a node of the edge's graph.

    `nodes` has the source (destination) nodes of all edges, one graph after the other. `num_edges` and `num_nodes` have
    a number for each graph. `where` returns the display name of graph i.
    """
    outside = (nodes < 0) | (nodes >= np.repeat(num_nodes, num_edges))
    if outside.any():
        edge = int(np.argmax(outside))
        i = int(np.searchsorted(np.cumsum(num_edges), edge, side="right"))
        raise SchemaError(
            f"{where(i)} has an edge at node {nodes[edge]}, but only {num_nodes[i]} nodes, counted from 0; {remedy}"
        )


def _called(column: Column) -> str:
    """Return the display name of a feature or label."""
    content, _, name = column
    return f"the {content.replace('_', ' ')} {name!r}" if name else "the label"
