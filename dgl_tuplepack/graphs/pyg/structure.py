"""Find the node and edge types of PyG graphs, and the type that indices refer to, from the shifts of attributes.

For shifts, see `graphs.pyg.join`. An attribute refers to a type if, in every graph, its shift equals the number
of nodes (edges) of that type. If several node types have equal numbers of nodes in all graphs, each choice among them
gives the same batches. A later graph in which these numbers differ raises an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of
from dgl_tuplepack.graphs.pyg.join import Joined, JoinedData, two_columns
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
    named_attribute,
    or_left_out,
    refuse_unknown,
    refuse_without_ends,
)
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
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


# The owner of an attribute is what the attribute belongs to: (content, type). The content is "node_feature",
# "edge_feature" or, for graphs, "label"; the type is None for graphs.
_Owner = tuple[str, GraphType | None]
_GRAPH: _Owner = ("label", None)


def schema_of_joined(
    group: JoinedData, levels: Levels, has_ids: bool, declared: Mapping[str, str] | None = None
) -> Schema:
    """Return the schema of the graphs in `group`; raise SchemaError if it is unclear.

    `declared` has the indices that the user declares: name of an attribute -> component.
    """
    types = types_of(group, levels)
    warn_of_texts(group.left_out, levels)
    # Attribute that PyG shifts (except endpoints) -> type that it indexes; None if the user declares the indices.
    indexed = {
        attribute: index_target(attribute, group, types, declared or {})
        for attribute, joined in group.attributes.items()
        if joined.shifts is not None and attribute not in types.edges.values()
    }
    check_shifts(group, types, indexed)
    return _schema(group, types, levels, indexed, has_ids)


def warn_of_texts(left_out: Iterable[str], levels: Levels) -> None:
    """Warn of attributes that are left out because they are text, not by `levels`."""
    for key in sorted(key for key in left_out if levels.get(key, "") is not None):
        warnings.warn(
            f"the attribute {key!r} is text, which batches cannot hold, and is left out; to avoid this warning, pass "
            f'levels={{"{key}": None}}.',
            stacklevel=3,
        )


def _schema(
    group: JoinedData, types: Types, levels: Levels, indexed: Mapping[Attribute, GraphType | None], has_ids: bool
) -> Schema:
    """Return the schema of a group; `indexed` maps attributes that hold indices to the types that they index."""
    left_out = group.left_out | {key for key, level in levels.items() if level is None}
    known = {key for _, key in group.attributes} | left_out
    if unknown := set(levels) - known:
        raise SchemaError(
            f"levels have entries for {sorted(unknown)}, but the graphs have {sorted(known - {ENDPOINTS})}; "
            "correct the names."
        )
    counts = group.counts(types)
    # All attributes except endpoints.
    rest = {attribute: a for attribute, a in group.attributes.items() if attribute not in types.edges.values()}
    owners = {attribute: _owner(attribute, a, types, counts, group, levels) for attribute, a in rest.items()}
    # If there is only one label and it is called `y`, it has the empty name.
    has_single_label = [key for (_, key), owner in owners.items() if owner == _GRAPH] == [LABEL]
    columns: dict[Column, Attribute] = {}
    for attribute, owner in owners.items():
        name = "" if has_single_label and owner == _GRAPH else attribute[1]
        columns[*owner, name] = attribute
    # For `rows` and `dims`, see `PygLayout`.
    rows = {c: int(rest[p].rows[0]) for c, p in columns.items() if c[0] == "label" and rest[p].rows[0] != 1}
    dims = {c: rest[p].dim for c, p in columns.items() if rest[p].dim != 0}
    indices = {c: indexed[p] for c, p in columns.items() if p in indexed}
    specs = {column: rest[attribute].spec for column, attribute in columns.items()}
    specs |= {c: ArraySpec((number, *specs[c].shape), specs[c].dtype) for c, number in rows.items()}
    # Node types that are counted by the number `num_nodes` in their storage, and not by another attribute.
    counted = tuple(
        t for t in types.nodes if types.attribute_of(t)[1] == NUMBER and types.storage_of(t) in group.numbered
    )
    layout = PygLayout(dims, rows, counted, types.ends, tuple(sorted(left_out)), tuple(indices))
    dtypes = {group.attributes[attribute].dtype for attribute in types.edges.values()}
    idtype = torch.int32 if dtypes == {torch.int32} else torch.int64
    # `counts` has the node types, then the edge types.
    components = dict(zip(counts, components_of(types.nodes, [*types.edges]), strict=True))
    return Schema.of_columns(
        types.nodes, [*types.edges], specs.items(), idtype=idtype, has_ids=has_ids,
        indices=_by_name(indices, components), pyg=layout, empty=frozenset(t for t, n in counts.items() if not n.any()),
    )  # fmt: skip


def _by_name(indices: Mapping[Column, GraphType | None], components: Mapping[GraphType, str]) -> dict[str, str]:
    """Map the name of each attribute that holds indices to the component that it indexes.

    Raise SchemaError if attributes of one name index several components.
    """
    found: dict[str, str] = {}
    for (_, _, name), target in indices.items():
        # `target` is None if the user declares the component.
        if target is not None and found.setdefault(name, components[target]) != components[target]:
            raise SchemaError(
                f"the attribute {name!r} indexes {found[name]} and {components[target]}; indices of one name must "
                "index one component: rename one."
            )
    return found


def _owner(
    attribute: Attribute,
    joined: Joined,
    types: Types,
    counts: Mapping[GraphType, IntArray],
    group: JoinedData,
    levels: Levels,
) -> _Owner:
    """Return the owner of an attribute, considering all graphs; raise SchemaError if it is unclear."""
    t, key = attribute
    # Possible owner (its storage has the attribute) -> number of rows that the attribute needs in each graph, [B]. If
    # PyG adds an axis to an attribute of a `Data` (`dim` is None), the attribute can only belong to graphs.
    possible: dict[_Owner, IntArray] = {
        ("node_feature" if isinstance(of, str) else "edge_feature", of): number
        for of, number in counts.items()
        if types.storage_of(of) == t and not (joined.dim is None and t is None)
    }
    if t is None:
        possible[_GRAPH] = np.ones_like(joined.rows)
    chosen = _chosen(attribute, possible, types, levels)
    fitting = [owner for owner in chosen if np.array_equal(joined.rows, possible[owner])]
    if joined.dim is None:
        fitting = [owner for owner in fitting if owner == _GRAPH]
    if not fitting or len(chosen) == 1:
        # An attribute of graphs may also have several rows, if the number is the same in all graphs.
        owner = _GRAPH if _GRAPH in chosen else chosen[0]
        _check_rows(attribute, joined, owner, possible[owner], group.where)
        return owner
    suggested = _suggested(key, fitting, types)
    if len(suggested) > 1:
        raise SchemaError(
            f"the attribute {key!r}{'' if t is None else f' of {t!r}'} may belong to nodes, edges or graphs: several "
            f'choices fit the {len(group.where)} graphs that were read; declare the right one: levels={{"{key}": '
            '"node"}, or "edge" or "graph" in place of "node". If there are several node types or edge types, give the '
            "name of the attribute that counts the nodes, or holds the endpoints, of the right type, such as "
            '"edge_index_s".'
        )
    return suggested[0]


def _suggested(key: str, owners: list[_Owner], types: Types) -> list[_Owner]:
    """Return those owners that the name of an attribute suggests, or all owners if it suggests none."""
    is_plain = types.edges.keys() == {EDGE_TYPE}
    names = {owner: "" if is_plain else _counter(owner, types).replace("_index", "") for owner in owners}
    by_level = [owner for owner in owners if LEVELS[owner[0]] in key or (owner == _GRAPH and key == LABEL)]
    by_name = [owner for owner, name in names.items() if key == name]
    by_suffix = [owner for owner, name in names.items() if is_alike(key, name)]
    # The first hint counts most. A hint that suggests none of the remaining owners has no effect.
    for hinted in (by_level, by_name, by_suffix):
        owners = [owner for owner in owners if owner in hinted] or owners
    return owners


def _counter(owner: _Owner, types: Types) -> str:
    """Return the name of the attribute that counts the nodes or edges of an owner; empty for graphs."""
    return "" if owner[1] is None else types.attribute_of(owner[1])[1]


def _chosen(attribute: Attribute, possible: Mapping[_Owner, Any], types: Types, levels: Levels) -> list[_Owner]:
    """Return the possible owners that fit the level of the attribute or, if it has no level, its name."""
    key, level = attribute[1], levels.get(attribute[1])
    own = {_counter(owner, types): owner for owner in possible}
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


def _check_rows(attribute: Attribute, joined: Joined, owner: _Owner, counts: IntArray, where: Sequence[str]) -> None:
    """Refuse (SchemaError) a number of rows that is wrong for the owner of an attribute."""
    rows, level, key = joined.rows, LEVELS[owner[0]], attribute[1]
    what = f"the attribute {key!r}" + ("" if attribute[0] is None else f" of {attribute[0]!r}")
    if owner != _GRAPH:
        # If PyG adds an axis, every graph is wrong.
        differ = np.flatnonzero(rows != counts) if joined.dim is not None else np.arange(len(counts))
        if len(differ):
            i = int(differ[0])
            raise SchemaError(
                f"{what} has {rows[i]} rows in {where[i]}, but needs one for each of the {counts[i]} {level}s, since "
                f"its name, its storage or levels assign it to {level}s; correct it, or move values that describe the "
                "whole graph to another attribute."
            )
    elif len(differ := np.flatnonzero(rows != rows[0])):
        i = int(differ[0])
        raise SchemaError(
            f"{what} has {rows[0]} rows in {where[0]} and {rows[i]} in {where[i]}: neither one for each node or "
            "edge, nor the same number for each graph; pad it, make it a feature, let limits count its rows: "
            f'levels={{"{key}": "{key}"}}, or leave it out: levels={{"{key}": None}}.'
        )
