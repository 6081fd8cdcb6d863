"""Items that are dicts of named graphs (name -> DGLGraph), read as one graph whose types include the graphs' names.

The types of a homogeneous graph "atoms" become "atoms" and ("atoms", "_E", "atoms"); a type "C" of a heterograph "mol"
becomes "mol/C".
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, SEPARATOR, EdgeType, GraphType

Value = TypeVar("Value")

# Component names contain colons, so names of graphs must not.
_NOT_IN_NAMES = (SEPARATOR, ":")


def is_graph(item: Any) -> bool:
    """Return whether an item is a DGLGraph; False if DGL is not imported."""
    dgl = sys.modules.get("dgl")
    return dgl is not None and isinstance(item, dgl.DGLGraph)


def is_pyg(item: Any) -> bool:
    """Return whether an item is a PyG Data or HeteroData; False if PyG is not imported."""
    pyg = sys.modules.get("torch_geometric.data")
    return pyg is not None and isinstance(item, pyg.Data | pyg.HeteroData)


def holds_graphs(item: Any) -> bool:
    """Return whether an item is a DGL or PyG graph, or a dict with at least one."""
    values = item.values() if isinstance(item, Mapping) else [item]
    return any(is_graph(value) or is_pyg(value) for value in values)


def checked_graphs(graphs: Mapping[Any, Any], where: str) -> dict[str, Any]:
    """Return named graphs sorted by name; raise SchemaError if a name or value is not allowed."""
    if not graphs:
        raise SchemaError(f"{where} is an empty dict, but a dict of named graphs needs at least one; give one.")
    for name, graph in graphs.items():
        if not is_graph(graph):
            remedy = "put labels after it: (graphs, {'y': label})"
            if is_pyg(graph):
                remedy = 'give several PyG graphs as one HeteroData, with a node type for each: data["s"].x'
            raise SchemaError(
                f"{where} is a dict that has {shown(graph)} under {shown(name)}, but named graphs must be DGLGraphs; "
                f"{remedy}."
            )
        if not isinstance(name, str) or not name or any(mark in name for mark in _NOT_IN_NAMES):
            raise SchemaError(
                f"{where} has a graph called {shown(name)}, but names of graphs are strings without "
                f"{' and '.join(map(repr, _NOT_IN_NAMES))}, and not empty; choose another name."
            )
    return {name: graphs[name] for name in sorted(graphs)}


def by_name(graphs: Any) -> Mapping[str, Any]:
    """Return a mapping from name to graph; a graph without a name has the empty name."""
    return graphs if isinstance(graphs, dict) else {"": graphs}


def graph_names(graphs: Any) -> tuple[str, ...]:
    """Return the names of named graphs; an empty tuple for a graph without a name."""
    return tuple(graphs) if isinstance(graphs, dict) else ()


def types_in(graphs: Any) -> tuple[tuple[str, ...], tuple[EdgeType, ...]]:
    """Return the node types and edge types of a graph, or of named graphs together."""
    if not isinstance(graphs, dict):
        return tuple(graphs.ntypes), tuple(graphs.canonical_etypes)
    types = [types_of(name, graph) for name, graph in graphs.items()]
    return tuple(t for nodes, _ in types for t in nodes), tuple(e for _, edges in types for e in edges)


def types_of(name: str, graph: Any) -> tuple[list[str], list[EdgeType]]:
    """Return the node types and edge types of a named graph; each includes the name of the graph."""
    node_types, edge_types = graph.ntypes, graph.canonical_etypes
    if node_types == [NODE_TYPE] and edge_types == [EDGE_TYPE]:
        return [name], [(name, EDGE_TYPE[1], name)]
    before = name + SEPARATOR
    return [before + t for t in node_types], [(before + src, each, before + dst) for src, each, dst in edge_types]


def located_types(graphs: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (type, graph, type without the name of the graph) for each type; node types come first."""
    types = [(*(types_of(name, graph) if name else types_in(graph)), graph) for name, graph in by_name(graphs).items()]
    for node_types, _, graph in types:
        yield from zip(node_types, itertools.repeat(graph), graph.ntypes, strict=False)
    for _, edge_types, graph in types:
        yield from zip(edge_types, itertools.repeat(graph), graph.canonical_etypes, strict=False)


def counts_of(graphs: Any) -> dict[Any, int]:
    """Return the number of nodes (edges) of each type of a graph, or of named graphs together."""
    if isinstance(graphs, dict):
        return {t: count(graph, type_in_graph) for t, graph, type_in_graph in located_types(graphs)}
    # Faster for one graph; this function is called once for each item.
    return {t: graphs.num_nodes(t) for t in graphs.ntypes} | {e: graphs.num_edges(e) for e in graphs.canonical_etypes}


def count(graph: Any, t: GraphType) -> int:
    """Return the number of nodes (edges) of a type of a graph."""
    number: int = graph.num_nodes(t) if isinstance(t, str) else graph.num_edges(t)
    return number


def features_of(graph: Any, t: GraphType) -> Any:
    """Return the features of the nodes (edges) of a type of a graph."""
    return (graph.nodes if isinstance(t, str) else graph.edges)[t].data


def check_alike(graphs: Any, where: str) -> None:
    """Refuse (SchemaError) named graphs that differ in index type, device or number of batched graphs."""
    (first, expected), *others = by_name(graphs).items()
    for name, found in others:
        for what, attribute in (("index type", "idtype"), ("device", "device"), ("batch size", "batch_size")):
            theirs, ours = getattr(found, attribute), getattr(expected, attribute)
            if theirs != ours:
                raise SchemaError(
                    f"in {where} the graph {name!r} has the {what} {theirs}, but {first!r} has {ours}; graphs of one "
                    f"item must have the same {what} (g.int() or g.long() sets the index type, g.to() the device)."
                )


def own_type(t: Any) -> Any:
    """Return a type without the name of its graph: "C" for "mol/C"; "_N" for "atoms", a type of a homogeneous graph."""
    if isinstance(t, tuple):
        return own_type(t[0]), t[1], own_type(t[2])
    _, separator, own = t.partition(SEPARATOR)
    return own if separator else NODE_TYPE


def name_of_type(t: GraphType) -> str:
    """Return the name of the named graph that has a type."""
    return (t if isinstance(t, str) else t[0]).partition(SEPARATOR)[0]


def of_graph(name: str, by_type: Mapping[Any, Value]) -> dict[Any, Value]:
    """Return the entries of `by_type` for the types of one named graph; the keys are the graph's own types."""
    return {own_type(t): value for t, value in by_type.items() if name_of_type(t) == name}


def check_types(
    found: tuple[Any, Any],
    expected: tuple[Any, Any],
    where: str,
    other: str,
    names: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> None:
    """Refuse (SchemaError) types that differ, or names of graphs that differ.

    `found` and `expected` are pairs (node types, edge types). `names` has the names of graphs: found, expected.
    """
    if names[0] != names[1]:
        theirs, ours = (f"the graphs {list(each)}" if each else "one graph without a name" for each in names)
        raise SchemaError(f"{where} has {theirs}, but {other} has {ours}; all items must have the same named graphs.")
    # Types may be in lists or in tuples.
    if found != expected and (*found[0], *found[1]) != (*expected[0], *expected[1]):
        raise SchemaError(
            f"{where} has node types {list(found[0])} and edge types {list(found[1])}, but {other} "
            f"has {list(expected[0])} and {list(expected[1])}; all graphs must have the same types."
        )
