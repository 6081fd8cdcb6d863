"""Find the node and edge types of PyG graphs, and the type that indices refer to, from the shifts of attributes.

For shifts, see `graphs.pyg.joined_data`. An attribute refers to a type if, in every graph, its shift equals the number
of nodes (edges) of that type. If several node types have equal numbers of nodes in all graphs, each choice among them
gives the same batches. A later graph in which these numbers differ raises an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of
from dgl_tuplepack.graphs.pyg.joined_data import Joined, JoinedData, two_columns
from dgl_tuplepack.graphs.pyg_layout import (
    EDGE,
    ENDPOINTS,
    NODE,
    NUMBER,
    Attribute,
    Levels,
    Types,
    named_attribute,
    or_left_out,
    refuse_unknown,
    refuse_without_ends,
)
from dgl_tuplepack.planning.sizes import IntArray

_ARROW = "->"


def check_ends(types: Types, where: str) -> None:
    """Refuse (SchemaError) edge types whose node types do not exist."""
    if unknown := {t for e in types.edges for t in (e[0], e[2])} - {*types.nodes}:
        raise SchemaError(
            f"{where} has edges to nodes of the types {sorted(unknown)}, but only nodes of the types "
            f"{list(types.nodes)}; set num_nodes of the missing types."
        )


def types_of(group: JoinedData, levels: Levels) -> Types:
    """Return the node and edge types of the graphs of a group.

    Raise SchemaError if types cannot be found, if PyG does not shift endpoints by numbers of nodes, or if a number of
    nodes or edges is unknown.
    """
    where = group.where[0]
    if [*group.node_types, *group.edge_types] == [NODE_TYPE, EDGE_TYPE]:
        raise SchemaError(
            f"{where} is a HeteroData whose types are {NODE_TYPE!r} and {EDGE_TYPE}, the names that a Data "
            "has; give a Data, or rename the types."
        )
    level = levels.get(ENDPOINTS, ENDPOINTS)
    if level not in (ENDPOINTS, EDGE) and _ARROW not in (level or ""):
        raise SchemaError(
            f"levels map {ENDPOINTS!r} to {level!r}, but this attribute holds the endpoints of edges, which graphs "
            "need; leave it out of levels."
        )
    # An attribute whose values refer to edges holds indices, and is not in `targets`.
    ends = [p for p, a in group.attributes.items() if _is_ends(p, a, levels)]
    found = {attribute: _targets(attribute, ends, group, levels) for attribute in ends}
    targets = {attribute: both for attribute, both in found.items() if both is not None}
    for e in group.edge_types:
        if (e, ENDPOINTS) not in targets:
            refuse_without_ends(f"{where}, type {e!r}")
    if not targets:
        refuse_without_ends(where) if group.is_flat else refuse_without_types(where)
    types = _flat(group, targets, levels) if group.is_flat else _hetero(group, targets)
    check_ends(types, where)
    # Raises SchemaError if a number of nodes or edges is unknown.
    group.counts(types)
    return types


def refuse_without_types(where: str) -> NoReturn:
    """Raise the error for a HeteroData without edge types."""
    raise SchemaError(
        f"{where} has no edge types; set the edge_index of an edge type. If there are no edges, set "
        'data["a", "to", "a"].edge_index = torch.empty(2, 0, dtype=torch.long).'
    )


def _is_ends(attribute: Attribute, joined: Joined, levels: Levels) -> bool:
    """Return whether an attribute may hold endpoints: it is `edge_index`, or its shape, shifts and level fit."""
    key = attribute[1]
    # For endpoints, the level is missing, or it is the attribute's own name, or a level such as "x_s -> x_t".
    is_free = levels.get(key, key) == key or _ARROW in (levels[key] or "")
    return key == ENDPOINTS or (joined.is_ends and joined.shifts is not None and is_free)


def _targets(
    attribute: Attribute, ends: Collection[Attribute], group: JoinedData, levels: Levels
) -> tuple[str, str] | None:
    """Return the node types of both ends of an attribute; None if it holds indices of something else, such as edges.

    `ends` are all attributes that may hold endpoints.
    """
    t, key = attribute
    level = levels.get(key) or ""
    if _ARROW in level:
        # In a Data, "node" and "num_nodes" stand for the node type `_N`.
        both = [
            NODE_TYPE if name.strip() in (NODE, NUMBER) and group.is_flat else name.strip()
            for name in level.split(_ARROW)
        ]
        known = [*group.node_types] if not group.is_flat else [k for _, k in group.attributes] + [NODE_TYPE]
        if len(both) != 2 or not {*both} <= {*known}:
            raise SchemaError(
                f"levels map {key!r} to {level!r}, but must name the attributes that count the nodes of both ends "
                f"(in a HeteroData, node types), as in 'x_s -> x_t'; use only these names: {', '.join(sorted(known))}."
            )
        return both[0], both[1]
    # With PyG's own `__inc__`, and for every `edge_index` of a HeteroData, the storage determines the types.
    if group.follows_pyg or (not group.is_flat and key == ENDPOINTS):
        if isinstance(t, tuple):
            return t[0], t[2]
        return (NODE_TYPE, NODE_TYPE) if group.is_flat else None
    shifts = group.attributes[attribute].shifts
    # [2, B]: the shifts of the sources, then of the destinations.
    columns = two_columns(np.zeros_like(group.attributes[attribute].rows) if shifts is None else shifts).T
    found = [_node_type(attribute, side, column, ends, group, levels) for side, column in enumerate(columns)]
    return None if None in found else (str(found[0]), str(found[1]))


def _node_type(
    attribute: Attribute, side: int, shifts: IntArray, ends: Collection[Attribute], group: JoinedData, levels: Levels
) -> str | None:
    """Return the node type of one end of an attribute: the type whose number of nodes equals `shifts` in every graph.

    If several types fit, their names decide, or in a HeteroData, the storage. Return None if `shifts` equal no numbers
    of nodes, but equal the numbers of rows of an attribute, such as numbers of edges. Raise SchemaError if `shifts`
    equal no numbers of nodes or rows, or if it is unclear whether the attribute refers to nodes or to edges.

    `side` is 0 for sources, 1 for destinations. `shifts`, ``[B]``, has the shift of that end in each graph.
    """
    t, key = attribute
    # The storages whose numbers of nodes equal `shifts`, and the attributes whose numbers of rows do.
    storages = [of for of, nodes in group.nodes.items() if nodes is not None and np.array_equal(nodes, shifts)]
    # If `dim` is None, PyG adds an axis to the attribute, so it has no rows.
    attributes = [p for p, a in group.attributes.items() if np.array_equal(a.rows, shifts) and a.dim is not None]
    if group.is_flat:
        counters = _counters([p for p in attributes if p not in ends], shifts, levels)
        if alike := [name for name in counters if is_alike(name, key)]:
            return _first(alike)
        found = NODE_TYPE if storages else _first(counters) if counters else None
    else:
        suggested = (t[0], t[2])[side] if isinstance(t, tuple) else t
        types = [str(of) for of in storages]
        found = suggested if suggested in types else types[0] if types else None
    if found is None:
        if not attributes and group.is_flat and group.nodes[None] is None and key == ENDPOINTS:
            refuse_unknown(group.where[0])
        if not attributes:
            refuse_shift(attribute, group)
        return None
    other_ends = [p for p in attributes if p in ends and p != attribute]
    if key != ENDPOINTS and other_ends:
        level = NODE if group.is_flat and storages else found
        _refuse_nodes_or_edges(attribute, level, other_ends[0], group)
    return found


def _counters(fits: Sequence[Attribute], shifts: IntArray, levels: Levels) -> list[str]:
    """Return which attributes of a Data may count its nodes; `fits` are those whose numbers of rows equal `shifts`."""
    # If the level of an attribute is its own name, its rows are declared to be nodes of a type of their own.
    names = [key for _, key in fits if levels.get(key, key) == key]
    declared = [key for key in names if key in levels]
    # An attribute with "edge" in its name counts no nodes. An attribute with one row in each graph is probably a label.
    return declared or [key for key in names if EDGE not in key and not (shifts == 1).all()]


def _refuse_nodes_or_edges(attribute: Attribute, nodes: str, edges: Attribute, group: JoinedData) -> NoReturn:
    """Raise the error for an attribute that may refer to nodes, or to the edges of the attribute `edges`.

    The choice matters if a batch sorts its edges: indices of edges then follow the new order, but indices of nodes stay
    unchanged. `nodes` is the name of the nodes in a level such as "node -> node".
    """
    t, key = attribute
    raise SchemaError(
        f"{named_attribute(key, group.where[0], t)} may refer to nodes or to the edges of {edges[1]!r}: both fit the "
        f"{len(group.where)} graphs that were read; if it holds edges between nodes, pass "
        f'levels={{"{key}": "{nodes} {_ARROW} {nodes}"}}, otherwise '
        f'levels={{"{key}": "graph"}} (or "node", "edge") and indices={{"{key}": ...}}.'
    )


def _first(names: Sequence[str]) -> str:
    """Return the first name in alphabetical order; names that begin with "x" come before all other names."""
    return min(names, key=lambda name: (not name.startswith("x"), name))


def is_alike(name: str, other: str) -> bool:
    """Return whether two names have the same suffix, such as `z_s` and `x_s`; the suffix `_index` does not count."""
    return "_" in name and "_" in other and name.split("_")[-1] == other.split("_")[-1] != "index"


def refuse_shift(attribute: Attribute, group: JoinedData, expected: Any = None) -> NoReturn:
    """Raise the error for wrong shifts of an attribute.

    `expected` has the right shifts; None if the shifts equal no numbers of nodes or rows.
    """
    (t, key), shifts = attribute, group.attributes[attribute].shifts
    if expected is None and shifts is not None and shifts.ndim == 1:
        # If numbers of nodes or rows equal the shifts in more than half of the graphs, the other graphs are wrong.
        known = [n for n in group.nodes.values() if n is not None] + [a.rows for a in group.attributes.values()]
        best = max(known, key=lambda n: int((n == shifts).sum()))
        expected = best if len(best) > (best == shifts).sum() > len(best) // 2 else None
    # `wrong`: the index of the first graph whose shift is not the expected one.
    used = np.zeros_like(group.attributes[attribute].rows) if shifts is None else shifts
    wrong = 0 if expected is None else int(np.argmax((two_columns(used) != two_columns(expected)).any(axis=1)))
    what = named_attribute(key, group.where[wrong], t)
    if expected is None:
        raise SchemaError(
            f"{what} is shifted by {used[wrong].tolist()}, which __inc__ returns, but must be shifted by the number of "
            f"rows of an attribute, such as self.num_nodes or self.x_s.size(0); correct __inc__ or set num_nodes"
            f"{or_left_out(key)}."
        )
    arrow = (
        f', or name the attributes that count the nodes of both ends: levels={{"{key}": "x_s -> x_t"}}'
        if group.attributes[attribute].is_ends
        else ""
    )
    raise SchemaError(
        f"{what} is shifted by {used[wrong].reshape(-1).tolist()}, which __inc__ returns, but must be shifted by "
        f"{' and '.join(map(str, dict.fromkeys(expected[wrong].reshape(-1).tolist())))}; "
        f"correct __inc__{arrow}{or_left_out(key)}."
    )


def _hetero(group: JoinedData, targets: Mapping[Attribute, tuple[str, str]]) -> Types:
    """Return the types of HeteroData; `targets` maps each attribute of endpoints to the node types of both ends."""
    edges: dict[EdgeType, Attribute] = {}
    # Each edge_index comes first, so an error for two equal edge types names the other attribute.
    for attribute in sorted(targets, key=lambda p: p[1] != ENDPOINTS):
        (t, key), (source, target) = attribute, targets[attribute]
        edge_type = t if key == ENDPOINTS and isinstance(t, tuple) else None
        edge_type = edge_type or (source, key if not isinstance(t, tuple) else f"{t[1]}/{key}", target)
        if edge_type in edges:
            raise SchemaError(
                f"{named_attribute(key, group.where[0], t)} would be the edge type {edge_type}, but that name is in "
                "use already; rename it."
            )
        edges[edge_type] = attribute
    return Types(False, tuple(group.node_types), {e: edges[e] for e in sorted(edges)})


def _flat(group: JoinedData, targets: Mapping[Attribute, tuple[str, str]], levels: Levels) -> Types:
    """Return the types of `Data`; `targets` maps each attribute of endpoints to the node types of both ends."""
    # The relation of each edge type is the name of the attribute with its endpoints.
    edges: dict[EdgeType, Attribute] = {(a, p[1], b): p for p, (a, b) in targets.items()}
    keys = {key for _, key in group.attributes} - {key for _, key in targets}
    nodes = {t for e in edges for t in (e[0], e[2])} | {key for key, level in levels.items() if level == key in keys}
    nodes |= {NODE_TYPE} if group.nodes[None] is not None else set()
    if nodes == {NODE_TYPE} and {*targets} == {(None, ENDPOINTS)}:
        return Types(True, (NODE_TYPE,), {EDGE_TYPE: (None, ENDPOINTS)})
    if NODE_TYPE in nodes and group.nodes[None] is None:
        refuse_unknown(group.where[0])
    return Types(True, tuple(sorted(nodes)), {e: edges[e] for e in sorted(edges)})


def check_shifts(
    group: JoinedData, types: Types, targets: Mapping[Attribute, GraphType | None], declared: Any = ()
) -> None:
    """Refuse (SchemaError) graphs whose endpoints or indices PyG does not shift by the right number of nodes or edges.

    `targets` maps each attribute that holds indices to the type that it refers to; None skips the check of an
    attribute. PyG need not shift the attributes whose names are in `declared`.
    """
    counts = group.counts(types)
    for e, attribute in types.edges.items():
        expected = np.stack([counts[e[0]], counts[e[2]]], axis=1)
        shifts = group.attributes[attribute].shifts
        found = np.zeros_like(expected) if shifts is None else two_columns(shifts)
        if not np.array_equal(found, expected):
            refuse_shift(attribute, group, expected)
    for attribute, joined in group.attributes.items():
        if attribute in types.edges.values() or (joined.shifts is None and attribute[1] in declared):
            continue
        target = targets.get(attribute)
        found = np.zeros_like(joined.rows) if joined.shifts is None else joined.shifts
        if target is None and joined.shifts is not None and attribute not in targets:
            raise SchemaError(
                f"{group.where[0]} shifts the attribute {attribute[1]!r} by {shown(found[0].tolist())}, but earlier "
                "graphs do not; give graphs of one class, or correct __inc__."
            )
        if target is not None and not np.array_equal(found, counts[target]):
            refuse_shift(attribute, group, counts[target])


def index_target(
    attribute: Attribute, group: JoinedData, types: Types, declared: Mapping[str, str]
) -> GraphType | None:
    """Return the type that the indices in an attribute refer to; None if `declared` has the name of the attribute.

    Raise SchemaError if no type fits, or if several types fit and one of them is an edge type.
    """
    (t, key), counts = attribute, group.counts(types)
    shifts = group.attributes[attribute].shifts
    assert shifts is not None
    if key in declared:
        return None
    # PyG itself shifts the indices of a Data by the number of its nodes.
    if group.follows_pyg and shifts.ndim == 1 and group.is_flat:
        return NODE_TYPE
    if shifts.ndim == 2 and (shifts[:, 0] != shifts[:, 1]).any():
        raise SchemaError(
            f"{named_attribute(key, group.where[0], t)} is shifted by {shifts[0].tolist()}, but indices refer to one "
            f"type; correct __inc__{or_left_out(key)}."
        )
    shifts = shifts[:, 0] if shifts.ndim == 2 else shifts
    fits = [of for of, number in counts.items() if np.array_equal(number, shifts)]
    # If only node types fit, each gives the same batches.
    if all(isinstance(of, str) for of in fits):
        fits = fits[:1]
    if len(fits) > 1:
        components = dict(zip(counts, components_of(types.nodes, [*types.edges]), strict=True))
        lines = " or ".join(f'indices={{"{key}": "{components[of]}"}}' for of in fits)
        raise SchemaError(
            f"{named_attribute(key, group.where[0], t)} may refer to nodes or edges: several types fit the "
            f"{len(group.where)} graphs that were read; declare the right one, by {lines}."
        )
    if not fits:
        refuse_shift(attribute, group)
    return fits[0]
