"""The schema of PyG graphs: their types, what each attribute belongs to, and the type that indices refer to.

All graphs of a group decide together. A feature belongs to nodes (edges) if it has one row for each of them in every
graph. Indices refer to nodes (edges) if PyG shifts them by the number of these in every graph (see `graphs.pyg_join`).
Where several choices fit, names decide; where names do not decide either, users declare `levels` or `indices`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of
from dgl_tuplepack.graphs.pyg_join import Joined, JoinedData
from dgl_tuplepack.graphs.pyg_layout import (
    EDGE,
    EDGE_KEYS,
    ENDPOINTS,
    LABEL,
    LEVELS,
    NODE,
    NODE_KEYS,
    NUMBER,
    Attribute,
    Column,
    Levels,
    PygLayout,
    Types,
    named,
    named_attribute,
    or_left_out,
    refuse_unknown,
    refuse_without_ends,
)
from dgl_tuplepack.graphs.relations import Indices
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.planning.sizes import IntArray

_ARROW = "->"


# Types ---------------------------------------------------------------------------------------------------------------


def types_of(group: JoinedData, levels: Levels) -> Types:
    """Return the node and edge types of the graphs of a group; raise SchemaError if they are unclear."""
    where = group.where[0]
    if [*group.node_types, *group.edge_types] == [NODE_TYPE, EDGE_TYPE]:
        raise SchemaError(
            f"{where} is a HeteroData whose types are {NODE_TYPE!r} and {EDGE_TYPE}, the names of the types of a Data; "
            "give a Data, or rename the types."
        )
    level = levels.get(ENDPOINTS, ENDPOINTS)
    if level not in (ENDPOINTS, EDGE) and _ARROW not in (level or ""):
        raise SchemaError(
            f"levels map {ENDPOINTS!r} to {level!r}, but this attribute holds the endpoints of edges, which graphs "
            "need; leave it out of levels."
        )
    found = {attribute: _node_types(attribute, group, levels) for attribute in group.attributes}
    ends = {attribute: both for attribute, both in found.items() if both is not None}
    for e in group.edge_types:
        if (e, ENDPOINTS) not in ends:
            refuse_without_ends(f"{where}, type {e!r}")
    if not ends:
        refuse_without_ends(where) if group.is_flat else refuse_without_types(where)
    types = _flat(group, ends, levels) if group.is_flat else _hetero(group, ends)
    check_ends(types, where)
    # Raises SchemaError if a number of nodes or edges is unknown.
    group.counts(types)
    return types


def check_ends(types: Types, where: str) -> None:
    """Refuse (SchemaError) edge types whose node types do not exist."""
    if unknown := {t for e in types.edges for t in (e[0], e[2])} - {*types.nodes}:
        raise SchemaError(
            f"{where} has edges to nodes of the types {sorted(unknown)}, but only nodes of the types "
            f"{list(types.nodes)}; set num_nodes of the missing types."
        )


def refuse_without_types(where: str) -> NoReturn:
    """Raise the error for a HeteroData without edge types."""
    raise SchemaError(
        f"{where} has no edge types; set the edge_index of an edge type. If there are no edges, set "
        'data["a", "to", "a"].edge_index = torch.empty(2, 0, dtype=torch.long).'
    )


def _node_types(attribute: Attribute, group: JoinedData, levels: Levels) -> tuple[str, str] | None:
    """Return the node types of both ends of an attribute; None if it does not hold endpoints."""
    (t, key), joined = attribute, group.attributes[attribute]
    level = levels.get(key, key) or ""
    if _ARROW in level and (joined.is_ends or key == ENDPOINTS):
        # In a Data, "node" and "num_nodes" stand for the node type `_N`.
        names = [name.strip() for name in level.split(_ARROW)]
        names = [NODE_TYPE if group.is_flat and name in (NODE, NUMBER) else name for name in names]
        known = [k for _, k in group.attributes] + [NODE_TYPE] if group.is_flat else group.node_types
        if len(names) != 2 or not {*names} <= {*known}:
            raise SchemaError(
                f"levels map {key!r} to {level!r}, but must name the attributes that count the nodes of both ends "
                f"(in a HeteroData, node types), as in 'x_s -> x_t'; use only these names: {', '.join(sorted(known))}."
            )
        return names[0], names[1]
    if key != ENDPOINTS and not (joined.is_ends and joined.is_shifted and level == key):
        return None
    if not group.is_flat:
        return (t[0], t[2]) if isinstance(t, tuple) else None
    if group.follows_pyg:
        return NODE_TYPE, NODE_TYPE
    found = [_counted_by(key, shifts, group, levels) for shifts in joined.shifts.T]
    if None in found and key != ENDPOINTS:
        # Indices of something else, such as edges.
        return None
    if None in found:
        refuse_unknown(group.where[0]) if group.nodes[None] is None else refuse_shift(attribute, group)
    both = str(found[0]), str(found[1])
    edges = [p[1] for p, a in group.attributes.items() if a.is_ends and p != attribute and _fits(a, joined.shifts)]
    if edges and key != ENDPOINTS and not all(is_alike(name, key) for name in both):
        level = f" {_ARROW} ".join(both).replace(NODE_TYPE, NODE)
        raise SchemaError(
            f"{named_attribute(key, group.where[0], t)} may refer to nodes or to the edges of {edges[0]!r}: both fit "
            f'the {len(group.where)} graphs that were read; if it holds edges between nodes, pass levels={{"{key}": '
            f'"{level}"}}, otherwise levels={{"{key}": "graph"}} (or "node", "edge") and indices={{"{key}": ...}}.'
        )
    return both


def _fits(joined: Joined, shifts: IntArray) -> bool:
    return any(np.array_equal(joined.rows, column) for column in shifts.T)


def _counted_by(key: str, shifts: IntArray, group: JoinedData, levels: Levels) -> str | None:
    """Return the node type of a Data whose number of nodes equals `shifts`, ``[B]``, in every graph; None if none does.

    `shifts` are those of one end of the attribute `key`. If several types fit, names decide; each gives equal batches.
    """
    # An attribute whose level is its own name, or that has no level, may count nodes.
    names = [
        name for (_, name), a in group.attributes.items()
        if a.dim is not None and not (a.is_ends and a.is_shifted) and np.array_equal(a.rows, shifts)
        and levels.get(name, name) == name
    ]  # fmt: skip
    # An attribute with "edge" in its name counts no nodes. An attribute with one row in each graph is probably a label.
    likely = [name for name in names if EDGE not in name and not (shifts == 1).all()]
    names = [name for name in names if name in levels] or likely
    nodes = group.nodes[None]
    alike = [name for name in names if is_alike(name, key)]
    if not alike and nodes is not None and np.array_equal(nodes, shifts):
        return NODE_TYPE
    # Names that begin with "x" come first.
    return min(alike or names, key=lambda name: (not name.startswith("x"), name), default=None)


def is_alike(name: str, other: str) -> bool:
    """Return whether two names have the same suffix, such as `z_s` and `x_s`; the suffix `_index` does not count."""
    return "_" in name and "_" in other and name.split("_")[-1] == other.split("_")[-1] != "index"


def _hetero(group: JoinedData, ends: Mapping[Attribute, tuple[str, str]]) -> Types:
    """Return the types of HeteroData; `ends` maps each attribute of endpoints to the node types of both ends."""
    edges: dict[EdgeType, Attribute] = {}
    # Each edge_index comes first, so an error for two equal edge types names the other attribute.
    for attribute in sorted(ends, key=lambda p: p[1] != ENDPOINTS):
        (t, key), (source, target) = attribute, ends[attribute]
        edge_type = (source, key if not isinstance(t, tuple) else f"{t[1]}/{key}", target)
        if key == ENDPOINTS and isinstance(t, tuple):
            edge_type = t
        if edge_type in edges:
            raise SchemaError(
                f"{named_attribute(key, group.where[0], t)} would be the edge type {edge_type}, but that name is in "
                "use already; rename it."
            )
        edges[edge_type] = attribute
    return Types(False, tuple(group.node_types), {e: edges[e] for e in sorted(edges)})


def _flat(group: JoinedData, ends: Mapping[Attribute, tuple[str, str]], levels: Levels) -> Types:
    """Return the types of `Data`; `ends` maps each attribute of endpoints to the node types of both ends."""
    # The relation of each edge type is the name of the attribute with its endpoints.
    edges: dict[EdgeType, Attribute] = {(a, p[1], b): p for p, (a, b) in ends.items()}
    keys = {key for _, key in group.attributes} - {key for _, key in ends}
    nodes = {t for e in edges for t in (e[0], e[2])} | {key for key, level in levels.items() if level == key in keys}
    nodes |= {NODE_TYPE} if group.nodes[None] is not None else set()
    if nodes == {NODE_TYPE} and {*ends} == {(None, ENDPOINTS)}:
        return Types(True, (NODE_TYPE,), {EDGE_TYPE: (None, ENDPOINTS)})
    if NODE_TYPE in nodes and group.nodes[None] is None:
        refuse_unknown(group.where[0])
    return Types(True, tuple(sorted(nodes)), {e: edges[e] for e in sorted(edges)})


# Shifts --------------------------------------------------------------------------------------------------------------


def refuse_shift(attribute: Attribute, group: JoinedData, expected: IntArray | None = None) -> NoReturn:
    """Raise the error for wrong shifts; `expected` has the right ones, or is None if no numbers of nodes fit."""
    (t, key), joined = attribute, group.attributes[attribute]
    # The index of the first graph whose shift is wrong.
    differ = np.zeros((1, 1)) if expected is None else (joined.shifts != expected).reshape(len(expected), -1)
    wrong = int(np.argmax(differ.any(axis=1)))
    found = [*dict.fromkeys(joined.shifts[wrong].reshape(-1).tolist())]
    right = "the number of nodes or edges of one type, such as self.num_nodes or self.x_s.size(0)"
    if expected is not None:
        right = " and ".join(map(str, dict.fromkeys(expected[wrong].reshape(-1).tolist())))
    remedy = f'indices={{"{key}": "nodes"}} (or "edges", or another component)'
    if joined.is_ends:
        remedy = f'levels={{"{key}": "x_s {_ARROW} x_t"}} with the attributes that count the nodes of both ends'
    raise SchemaError(
        f"{named_attribute(key, group.where[wrong], t)} is shifted by {' and '.join(map(str, found))}, which __inc__ "
        f"returns, but must be shifted by {right}; correct __inc__ or set num_nodes, or declare what it refers to: "
        f"{remedy}{or_left_out(key)}."
    )


def check_shifts(
    group: JoinedData, types: Types, targets: Mapping[Attribute, GraphType | None], declared: Any = ()
) -> None:
    """Refuse (SchemaError) graphs whose endpoints or indices PyG does not shift by the right number of nodes or edges.

    `targets` maps each attribute that holds indices to the type that it refers to; None skips the check of an
    attribute. PyG need not shift the attributes whose names are in `declared`.
    """
    counts = group.counts(types)
    ends = {attribute: (e[0], e[2]) for e, attribute in types.edges.items()}
    for attribute, joined in group.attributes.items():
        target = targets.get(attribute)
        if attribute not in ends and target is None:
            if joined.is_shifted and attribute not in targets:
                raise SchemaError(
                    f"{named_attribute(attribute[1], group.where[0], attribute[0])} is shifted by "
                    f"{joined.shifts[0].max()}, but not in earlier graphs, or not by a number of nodes; give graphs "
                    f"of one class, correct __inc__{or_left_out(attribute[1])}."
                )
            continue
        both = ends.get(attribute, (target, target))
        expected = np.stack([counts[t] for t in both if t is not None], axis=1)
        expected = expected if joined.is_ends else expected[:, 0]
        is_needed = joined.is_shifted or attribute in ends or attribute[1] not in declared
        if is_needed and not np.array_equal(joined.shifts, expected):
            refuse_shift(attribute, group, expected)


def _indexed_type(attribute: Attribute, group: JoinedData, types: Types) -> GraphType:
    """Return the type that the indices in an attribute refer to; raise SchemaError if it is unclear."""
    (t, key), shifts = attribute, group.attributes[attribute].shifts
    # PyG itself shifts the indices of a Data by the number of its nodes.
    if group.follows_pyg and group.is_flat:
        return NODE_TYPE
    counts = group.counts(types)
    columns = shifts.reshape(len(shifts), -1).T
    fits = [of for of, number in counts.items() if all(np.array_equal(number, column) for column in columns)]
    if not fits:
        refuse_shift(attribute, group)
    # If only node types fit, each gives the same batches.
    if len(fits) > 1 and not all(isinstance(of, str) for of in fits):
        components = dict(zip(counts, components_of(types.nodes, [*types.edges]), strict=True))
        lines = " or ".join(f'indices={{"{key}": "{components[of]}"}}' for of in fits)
        raise SchemaError(
            f"{named_attribute(key, group.where[0], t)} may refer to nodes or edges: several types fit the "
            f"{len(group.where)} graphs that were read; declare the right one, by {lines}."
        )
    return fits[0]


# Schema --------------------------------------------------------------------------------------------------------------

# The owner of an attribute is what the attribute belongs to: (content, type). The content is "node_feature",
# "edge_feature" or, for graphs, "label"; the type is None for graphs.
_Owner = tuple[str, GraphType | None]
_GRAPH: _Owner = ("label", None)


def schema_of_joined(group: JoinedData, levels: Levels, has_ids: bool, declared: Indices | None = None) -> Schema:
    """Return the schema of the graphs in `group`; raise SchemaError if it is unclear. `declared` are the indices."""
    types = types_of(group, levels)
    warn_of_texts(group.left_out, levels)
    counts = group.counts(types)
    # All attributes except endpoints.
    rest = {attribute: a for attribute, a in group.attributes.items() if attribute not in types.edges.values()}
    # Attribute that PyG shifts -> type that it indexes; None if the user declares the indices.
    indexed = {
        attribute: None if attribute[1] in (declared or {}) else _indexed_type(attribute, group, types)
        for attribute, joined in rest.items()
        if joined.is_shifted
    }
    check_shifts(group, types, indexed)
    left_out = group.left_out | {key for key, level in levels.items() if level is None}
    known = {key for _, key in group.attributes} | left_out
    if unknown := set(levels) - known:
        raise SchemaError(
            f"levels have entries for {sorted(unknown)}, but the graphs have {sorted(known - {ENDPOINTS})}; "
            "correct the names."
        )
    owners = {attribute: _owner(attribute, group, types, levels) for attribute in rest}
    # If there is only one label and it is called `y`, it has the empty name.
    has_single_label = [key for (_, key), owner in owners.items() if owner == _GRAPH] == [LABEL]
    columns: dict[Column, Attribute] = {
        (*owner, "" if has_single_label and owner == _GRAPH else attribute[1]): attribute
        for attribute, owner in owners.items()
    }
    # For `rows` and `dims`, see `PygLayout`.
    rows = {c: int(rest[p].rows[0]) for c, p in columns.items() if c[0] == "label" and rest[p].rows[0] != 1}
    dims = {c: rest[p].dim for c, p in columns.items() if rest[p].dim != 0}
    specs = {column: rest[attribute].spec for column, attribute in columns.items()}
    specs |= {c: ArraySpec((number, *specs[c].shape), specs[c].dtype) for c, number in rows.items()}
    # Node types that are counted by the number `num_nodes` in their storage, and not by another attribute.
    counted = tuple(
        t for t in types.nodes if types.attribute_of(t)[1] == NUMBER and types.storage_of(t) in group.numbered
    )
    shifted = tuple(c for c, p in columns.items() if p in indexed)
    layout = PygLayout(dims, rows, counted, types.ends, tuple(sorted(left_out)), shifted)
    dtypes = {group.attributes[attribute].value.dtype for attribute in types.edges.values()}
    # `counts` has the node types, then the edge types.
    components = dict(zip(counts, components_of(types.nodes, [*types.edges]), strict=True))
    indices: dict[str, str] = {}
    for column in shifted:
        target = indexed[columns[column]]
        if target is not None and indices.setdefault(column[2], components[target]) != components[target]:
            raise SchemaError(
                f"the attribute {column[2]!r} indexes {indices[column[2]]} and {components[target]}; indices of one "
                "name must index one component: rename one."
            )
    return Schema.of_columns(
        types.nodes, [*types.edges], specs.items(),
        idtype=torch.int32 if dtypes == {torch.int32} else torch.int64, has_ids=has_ids, indices=indices, pyg=layout,
        empty=frozenset(t for t, n in counts.items() if not n.any()),
    )  # fmt: skip


def warn_of_texts(left_out: Iterable[str], levels: Levels) -> None:
    """Warn of attributes that are left out because they are text, not by `levels`."""
    for key in sorted(key for key in left_out if levels.get(key, "") is not None):
        warnings.warn(
            f"the attribute {key!r} is text, which batches cannot hold, and is left out; to avoid this warning, pass "
            f'levels={{"{key}": None}}.',
            stacklevel=3,
        )


def _owner(attribute: Attribute, group: JoinedData, types: Types, levels: Levels) -> _Owner:
    """Return the owner of an attribute, considering all graphs; raise SchemaError if it is unclear."""
    (t, key), joined = attribute, group.attributes[attribute]
    # Possible owner (its storage has the attribute) -> number of rows that the attribute needs in each graph, [B].
    possible: dict[_Owner, IntArray] = {
        ("node_feature" if isinstance(of, str) else "edge_feature", of): number
        for of, number in group.counts(types).items()
        if types.storage_of(of) == t
    }
    if t is None:
        possible[_GRAPH] = np.ones_like(joined.rows)
    if joined.dim is None:
        # PyG adds an axis, so there is one row for each graph.
        possible = {owner: number for owner, number in possible.items() if owner == _GRAPH}
    if not possible:
        raise SchemaError(
            f"{named_attribute(key, group.where[0], t)} has no axis of rows, since __cat_dim__ returns None; correct "
            "__cat_dim__, or move values that describe the whole graph to the graph itself."
        )
    chosen = _chosen(key, possible, types, levels)
    fitting = [owner for owner in chosen if np.array_equal(joined.rows, possible[owner])]
    if not fitting or len(chosen) == 1:
        # An attribute of graphs may also have several rows, if the number is the same in all graphs.
        owner = _GRAPH if _GRAPH in chosen else chosen[0]
        expected = np.full_like(joined.rows, joined.rows[0]) if owner == _GRAPH else possible[owner]
        check_rows(attribute, owner, joined.rows, expected, group.where)
        return owner
    # What the name suggests. The first hint counts most; a hint that fits none of the remaining owners has no effect.
    is_plain = types.edges.keys() == {EDGE_TYPE}
    names = {owner: "" if is_plain else _counter(owner, types).replace("_index", "") for owner in fitting}
    by_level = [owner for owner in fitting if LEVELS[owner[0]] in key or (owner == _GRAPH and key == LABEL)]
    by_name = [owner for owner, name in names.items() if key == name]
    by_suffix = [owner for owner, name in names.items() if is_alike(key, name)]
    for hinted in (by_level, by_name, by_suffix):
        fitting = [owner for owner in fitting if owner in hinted] or fitting
    if len(fitting) > 1:
        raise SchemaError(
            f"the attribute {key!r}{'' if t is None else f' of {t!r}'} may belong to nodes, edges or graphs: several "
            f'choices fit the {len(group.where)} graphs that were read; declare the right one: levels={{"{key}": '
            '"node"}, or "edge" or "graph" in place of "node". If there are several node types or edge types, give the '
            "name of the attribute that counts the nodes, or holds the endpoints, of the right type, such as "
            '"edge_index_s".'
        )
    return fitting[0]


def _chosen(key: str, possible: Mapping[_Owner, Any], types: Types, levels: Levels) -> list[_Owner]:
    """Return the possible owners that fit the level of the attribute or, if it has no level, its name."""
    level, own = levels.get(key), {_counter(owner, types): owner for owner in possible}
    if level is not None:
        found = [owner for owner in possible if level == LEVELS[owner[0]]] or ([own[level]] if level in own else [])
        if not found:
            names = [*dict.fromkeys(LEVELS[content] for content, _ in possible)]
            names += [name for name in own if name not in (NUMBER, "")]
            raise SchemaError(
                f"levels map the attribute {key!r} to {level!r}, but the level must be "
                f"{' or '.join(map(repr, names))}, or None to leave the attribute out; correct levels."
            )
        return found
    # An attribute that counts the nodes (edges) of a type belongs to this type.
    name = key if key in own else NUMBER if key in NODE_KEYS else ENDPOINTS if key in EDGE_KEYS else ""
    return [own[name]] if name in own and name else list(possible)


def _counter(owner: _Owner, types: Types) -> str:
    """Return the name of the attribute that counts the nodes or edges of an owner; empty for graphs."""
    return "" if owner[1] is None else types.attribute_of(owner[1])[1]


def check_rows(attribute: Attribute, owner: _Owner, rows: IntArray, expected: IntArray, where: Sequence[str]) -> None:
    """Refuse (SchemaError) an attribute whose number of rows differs from the expected number in a graph."""
    differ = np.flatnonzero(rows != expected)
    if not len(differ):
        return
    (t, key), i = attribute, int(differ[0])
    level = LEVELS[owner[0]]
    reason = "as in earlier graphs" if owner == _GRAPH else f"one for each of its {expected[i]} {level}s"
    raise SchemaError(
        f"{named(where[i], t)}: the attribute {key!r} has {rows[i]} rows, but must have {expected[i]}, {reason}; "
        f'correct it, or declare what it belongs to, levels={{"{key}": "node"}} (or "edge", "graph"), or let limits '
        f'count its rows, levels={{"{key}": "{key}"}}{or_left_out(key)}.'
    )
