"""What attributes of PyG's graphs are: types of nodes and edges, indices, features or labels; and the schema.

PyG's `collate` gives the rows of each attribute in each graph, and by how much PyG shifts it. A shift counts the type
that has as many nodes (edges) in every graph. If several node types have equal numbers in all graphs, any of them
gives the same batches, and a later graph with other numbers is an error.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of
from dgl_tuplepack.graphs.pyg_chunk import (
    Chunk,
    Joined,
    named_attribute,
    or_left_out,
    refuse_unknown,
    refuse_without_ends,
    two_columns,
)
from dgl_tuplepack.graphs.pyg_layout import (
    EDGE,
    EDGE_KEYS,
    ENDPOINTS,
    LABEL,
    LEVELS,
    NODE,
    NODE_KEYS,
    NUMBER,
    Column,
    Levels,
    Place,
    PygLayout,
    Types,
)
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.sizes import IntArray

# What an attribute belongs to: the content of its column, and the type, None for graphs.
_Home = tuple[str, GraphType | None]
_GRAPH: _Home = ("label", None)
_ARROW = "->"


def plain_types(node_types: Sequence[str], edge_types: Sequence[EdgeType], is_flat: bool) -> Types:
    """Return the types of graphs in which nothing is shifted but `edge_index`."""
    if is_flat:
        return Types(True, (NODE_TYPE,), {EDGE_TYPE: (None, ENDPOINTS)})
    return Types(False, tuple(node_types), {e: (e, ENDPOINTS) for e in edge_types})


def types_of(chunk: Chunk, levels: Levels) -> Types:
    """Return the types of graphs; SchemaError if PyG shifts endpoints by something else than numbers of nodes."""
    where = chunk.where[0]
    if [*chunk.node_types, *chunk.edge_types] == [NODE_TYPE, EDGE_TYPE]:
        raise SchemaError(
            f"{where} is a HeteroData whose types are {NODE_TYPE!r} and {EDGE_TYPE}, which a Data has; give "
            "a Data, or rename the types."
        )
    level = levels.get(ENDPOINTS, ENDPOINTS)
    if level not in (ENDPOINTS, EDGE) and _ARROW not in (level or ""):
        raise SchemaError(
            f"levels say {level!r} of {ENDPOINTS!r}, but it is the endpoints of edges, which graphs need; leave it "
            "out of levels."
        )
    ends = {p: a for p, a in chunk.attributes.items() if _is_ends(p, a, levels)}
    # The edge_index of a line graph counts edges, so it is indices, and no edge type.
    asked = {place: _targets(place, ends, chunk, levels) for place in ends}
    targets = {place: found for place, found in asked.items() if found is not None}
    for e in chunk.edge_types:
        if (e, ENDPOINTS) not in targets:
            refuse_without_ends(f"{where}, type {e!r}")
    if not targets:
        refuse_without_ends(where) if chunk.is_flat else refuse_without_types(where)
    types = _flat(chunk, targets, levels) if chunk.is_flat else _hetero(chunk, targets)
    unknown = {t for e in types.edges for t in (e[0], e[2])} - {*types.nodes}
    if unknown:
        raise SchemaError(
            f"{where} has edges to nodes of the types {sorted(unknown)}, but nodes of the types "
            f"{list(types.nodes)}; set num_nodes of these types."
        )
    chunk.counts(types)
    return types


def refuse_without_types(where: str) -> NoReturn:
    """Raise the error for a HeteroData without edge types."""
    raise SchemaError(
        f"{where} has no edge types; set the edge_index of one, for no edges "
        'data["a", "to", "a"].edge_index = torch.empty(2, 0, dtype=torch.long).'
    )


def _is_ends(place: Place, attribute: Joined, levels: Levels) -> bool:
    """Whether an attribute may be endpoints of edges, and levels do not say that it is something else."""
    key = place[1]
    is_free = levels.get(key, key) == key or _ARROW in (levels[key] or "")
    return key == ENDPOINTS or (attribute.is_ends and attribute.shifts is not None and is_free)


def _targets(place: Place, ends: Mapping[Place, Any], chunk: Chunk, levels: Levels) -> tuple[str, str] | None:
    """Return the node types of both ends of edges; None if they are no nodes, but edges."""
    t, key = place
    level = levels.get(key) or ""
    if _ARROW in level:
        both = [
            NODE_TYPE if name.strip() in (NODE, NUMBER) and chunk.is_flat else name.strip()
            for name in level.split(_ARROW)
        ]
        known = [*chunk.node_types] if not chunk.is_flat else [k for _, k in chunk.attributes] + [NODE_TYPE]
        if len(both) != 2 or not {*both} <= {*known}:
            raise SchemaError(
                f"levels say {level!r} of {key!r}, but must name what counts the nodes of both ends, of "
                f"{', '.join(sorted(known))}, such as 'x_s -> x_t'; correct levels."
            )
        return both[0], both[1]
    if chunk.follows_pyg or (not chunk.is_flat and key == ENDPOINTS):
        return (t[0], t[2]) if isinstance(t, tuple) else (NODE_TYPE, NODE_TYPE) if chunk.is_flat else None
    shifts = chunk.attributes[place].shifts
    columns = two_columns(np.zeros_like(chunk.attributes[place].rows) if shifts is None else shifts).T
    found = [_node_type(place, side, column, ends, chunk, levels) for side, column in enumerate(columns)]
    return None if None in found else (str(found[0]), str(found[1]))


def _node_type(
    place: Place, side: int, shifts: IntArray, ends: Mapping[Place, Any], chunk: Chunk, levels: Levels
) -> str | None:
    """Return the node type that shifts count, by numbers and then by names; None if it is edges that they count."""
    t, key = place
    fits = [p for p, a in chunk.attributes.items() if np.array_equal(a.rows, shifts) and a.dim is not None]
    counted = [of for of, nodes in chunk.nodes.items() if nodes is not None and np.array_equal(nodes, shifts)]
    if not chunk.is_flat:
        own = [t[0], t[2]][side] if isinstance(t, tuple) else t
        types = [str(of) for of in counted]
        if types:
            return str(own) if own in types else types[0]
        _check_counted(place, shifts, fits, ends, chunk)
        return None
    names = [k for p in fits for k in [p[1]] if p not in ends and levels.get(k, k) == k]
    declared = [k for k in names if k in levels]
    # One row in each graph is what labels have.
    usable = declared or [k for k in names if EDGE not in k and not (shifts == 1).all()]
    if alike := [k for k in usable if _is_alike(k, key)]:
        return _first(alike)
    other_ends = [p for p, a in ends.items() if p != place and np.array_equal(a.rows, shifts)]
    if key != ENDPOINTS and (counted or usable) and other_ends:
        # With sorted edges, it makes a difference.
        arrow = f"{NODE} {_ARROW} {NODE}" if counted else f"{_first(usable)} {_ARROW} {_first(usable)}"
        raise SchemaError(
            f"{named_attribute(key, chunk.where[0], t)} may count nodes or the edges of {other_ends[0][1]!r}: each "
            f'fits the {len(chunk.where)} graphs that were read; say levels={{"{key}": "{arrow}"}} if it is edges '
            f'between nodes, or levels={{"{key}": "graph"}}, "node" or "edge" with indices={{"{key}": ...}} if not.'
        )
    if counted:
        return NODE_TYPE
    if usable:
        return _first(usable)
    _check_counted(place, shifts, fits, ends, chunk)
    return None


def _first(names: Sequence[str]) -> str:
    return min(names, key=lambda name: (not name.startswith("x"), name))


def _check_counted(
    place: Place, shifts: IntArray, fits: Sequence[Place], ends: Mapping[Place, Any], chunk: Chunk
) -> None:
    """Refuse endpoints that count neither nodes nor edges."""
    if fits or any(np.array_equal(a.rows, shifts) for p, a in ends.items() if p != place):
        return
    if chunk.is_flat and chunk.nodes[None] is None and place[1] == ENDPOINTS:
        refuse_unknown(chunk.where[0])
    refuse_shift(place, chunk)


def _is_alike(name: str, other: str) -> bool:
    """Whether two names end alike: `z_s` as `x_s`."""
    return "_" in name and "_" in other and name.split("_")[-1] == other.split("_")[-1] != "index"


def refuse_shift(place: Place, chunk: Chunk, expected: Any = None) -> NoReturn:
    """Raise the error for an attribute whose shifts are not `expected`, or none of the numbers of rows."""
    (t, key), shifts = place, chunk.attributes[place].shifts
    if expected is None and shifts is not None and shifts.ndim == 1:
        # Numbers that most graphs are shifted by tell which graph is wrong.
        known = [n for n in chunk.nodes.values() if n is not None] + [a.rows for a in chunk.attributes.values()]
        best = max(known, key=lambda n: int((n == shifts).sum()))
        expected = best if len(best) > (best == shifts).sum() > len(best) // 2 else None
    rows = np.zeros_like(chunk.attributes[place].rows) if shifts is None else shifts
    wrong = 0 if expected is None else int(np.argmax((two_columns(rows) != two_columns(expected)).any(axis=1)))
    what = named_attribute(key, chunk.where[wrong], t)
    if expected is None:
        raise SchemaError(
            f"{what} is shifted by __inc__, which is {rows[wrong].tolist()} here, but must be the number of rows of an "
            f"attribute, such as self.num_nodes or self.x_s.size(0); correct __inc__ or set num_nodes"
            f"{or_left_out(key)}."
        )
    arrow = f', or say what it counts: levels={{"{key}": "x_s -> x_t"}}' if chunk.attributes[place].is_ends else ""
    raise SchemaError(
        f"{what} is shifted by {rows[wrong].reshape(-1).tolist()}, which __inc__ returns, but it counts "
        f"{' and '.join(map(str, dict.fromkeys(expected[wrong].reshape(-1).tolist())))}, as the graphs before tell; "
        f"correct __inc__{arrow}{or_left_out(key)}."
    )


def _hetero(chunk: Chunk, targets: Mapping[Place, tuple[str, str]]) -> Types:
    edges: dict[EdgeType, Place] = {}
    # Those that are edge types of the graph come first.
    for place in sorted(targets, key=lambda p: p[1] != ENDPOINTS):
        (t, key), (source, target) = place, targets[place]
        edge_type = t if key == ENDPOINTS and isinstance(t, tuple) else None
        edge_type = edge_type or (source, key if not isinstance(t, tuple) else f"{t[1]}/{key}", target)
        if edge_type in edges:
            raise SchemaError(
                f"{named_attribute(key, chunk.where[0], t)} would be the edge type {edge_type}, which is another one "
                "already; rename it."
            )
        edges[edge_type] = place
    return Types(False, tuple(chunk.node_types), {e: edges[e] for e in sorted(edges)})


def _flat(chunk: Chunk, targets: Mapping[Place, tuple[str, str]], levels: Levels) -> Types:
    edges: dict[EdgeType, Place] = {(a, p[1], b): p for p, (a, b) in targets.items()}
    keys = {key for _, key in chunk.attributes} - {key for _, key in targets}
    nodes = {t for e in edges for t in (e[0], e[2])} | {key for key, level in levels.items() if level == key in keys}
    nodes |= {NODE_TYPE} if chunk.nodes[None] is not None else set()
    if nodes == {NODE_TYPE} and {*targets} == {(None, ENDPOINTS)}:
        return plain_types((), (), True)
    if NODE_TYPE in nodes and chunk.nodes[None] is None:
        refuse_unknown(chunk.where[0])
    return Types(True, tuple(sorted(nodes)), {e: edges[e] for e in sorted(edges)})


def check_shifts(chunk: Chunk, types: Types, targets: Mapping[Place, GraphType | None], declared: Any = ()) -> None:
    """Refuse graphs that PyG shifts in another way than by the numbers of nodes or edges of types.

    `targets` has what indices count, None if that is open. PyG need not shift those whose names are `declared`.
    """
    counts = chunk.counts(types)
    for e, place in types.edges.items():
        expected = np.stack([counts[e[0]], counts[e[2]]], axis=1)
        shifts = chunk.attributes[place].shifts
        found = np.zeros_like(expected) if shifts is None else two_columns(shifts)
        if not np.array_equal(found, expected):
            refuse_shift(place, chunk, expected)
    for place, attribute in chunk.attributes.items():
        if place in types.edges.values() or (attribute.shifts is None and place[1] in declared):
            continue
        target = targets.get(place)
        found = np.zeros_like(attribute.rows) if attribute.shifts is None else attribute.shifts
        if target is None and attribute.shifts is not None and place not in targets:
            raise SchemaError(
                f"{chunk.where[0]} shifts the attribute {place[1]!r} by {shown(found[0].tolist())}, but the graphs "
                "before do not; give graphs of one class, or correct __inc__."
            )
        if target is not None and not np.array_equal(found, counts[target]):
            refuse_shift(place, chunk, counts[target])


def _indexed(place: Place, chunk: Chunk, types: Types, declared: Mapping[str, str]) -> GraphType | None:
    """Return the type that indices count; None if it is declared. SchemaError if it is open, or none."""
    (t, key), counts = place, chunk.counts(types)
    shifts = chunk.attributes[place].shifts
    assert shifts is not None
    if key in declared:
        return None
    if chunk.follows_pyg and shifts.ndim == 1 and chunk.is_flat:
        return NODE_TYPE
    if shifts.ndim == 2 and (shifts[:, 0] != shifts[:, 1]).any():
        raise SchemaError(
            f"{named_attribute(key, chunk.where[0], t)} is shifted by {shifts[0].tolist()}, but indices count one "
            f"type; correct __inc__{or_left_out(key)}."
        )
    shifts = shifts[:, 0] if shifts.ndim == 2 else shifts
    fits = [of for of, number in counts.items() if np.array_equal(number, shifts)]
    if all(isinstance(of, str) for of in fits):
        fits = fits[:1]
    if len(fits) > 1:
        components = dict(zip(counts, components_of(types.nodes, [*types.edges]), strict=True))
        lines = " or ".join(f'indices={{"{key}": "{components[of]}"}}' for of in fits)
        raise SchemaError(
            f"{named_attribute(key, chunk.where[0], t)} may count nodes or edges: each fits the {len(chunk.where)} "
            f"graphs that were read; say which, by {lines}."
        )
    if not fits:
        refuse_shift(place, chunk)
    return fits[0]


def learnt(chunk: Chunk, levels: Levels, has_ids: bool, declared: Mapping[str, str] | None = None) -> Schema:
    """Return the schema of graphs, of which `chunk` has all; SchemaError names what they do not tell.

    `declared` are the indices that the user declares.
    """
    types = types_of(chunk, levels)
    for key in sorted(key for key in chunk.left_out if levels.get(key, "") is not None):
        warnings.warn(
            f"the attribute {key!r} is text, which batches cannot hold, and is left out; name it to leave it "
            f'out without this warning: levels={{"{key}": None}}.',
            stacklevel=2,
        )
    indexed = {
        place: _indexed(place, chunk, types, declared or {})
        for place, attribute in chunk.attributes.items()
        if attribute.shifts is not None and place not in types.edges.values()
    }
    check_shifts(chunk, types, indexed)
    return _schema(chunk, types, levels, indexed, has_ids)


def _schema(
    chunk: Chunk, types: Types, levels: Levels, indexed: Mapping[Place, GraphType | None], has_ids: bool
) -> Schema:
    left_out = chunk.left_out | {key for key, level in levels.items() if level is None}
    known = {key for _, key in chunk.attributes} | left_out
    if unknown := set(levels) - known:
        raise SchemaError(
            f"levels name {sorted(unknown)}, but the graphs have {sorted(known - {ENDPOINTS})}; correct the names."
        )
    counts = chunk.counts(types)
    rest = {place: a for place, a in chunk.attributes.items() if place not in types.edges.values()}
    homes = {place: _home(place, a, types, counts, chunk, levels) for place, a in rest.items()}
    features: dict[Any, dict[str, ArraySpec]] = {t: {} for t in counts}
    of_graphs = [key for (_, key), home in homes.items() if home == _GRAPH]
    labels: dict[str, ArraySpec] = {}
    dims: dict[Column, int | None] = {}
    rows: dict[Column, int] = {}
    indices: dict[Column, GraphType | None] = {}
    for place, home in homes.items():
        attribute, name = rest[place], place[1]
        spec = attribute.spec
        if home == _GRAPH:
            name = "" if of_graphs == [LABEL] else name
            number = int(attribute.rows[0])
            if number != 1:
                rows["label", None, name] = number
                spec = ArraySpec((number, *spec.shape), spec.dtype)
            labels[name] = spec
        else:
            features[home[1]][name] = spec
        if attribute.dim != 0:
            dims[*home, name] = attribute.dim
        if place in indexed:
            indices[*home, name] = indexed[place]
    ends = {chunk.attributes[place].dtype for place in types.edges.values()}
    counted = tuple(t for t in types.nodes if types.place_of(t)[1] == NUMBER and types.storage_of(t) in chunk.numbered)
    layout = PygLayout(dims, rows, counted, types.ends, tuple(sorted(left_out)), tuple(indices))
    by_type = {t: features[t] for t in types.nodes}, {e: features[e] for e in types.edges}
    idtype = torch.int32 if ends == {torch.int32} else torch.int64
    components = dict(zip(counts, components_of(types.nodes, [*types.edges]), strict=True))
    return Schema(
        types.nodes, tuple(types.edges), *by_type, labels, idtype, has_ids, indices=_by_name(indices, components),
        pyg=layout,
    )  # fmt: skip


def _by_name(indices: Mapping[Column, GraphType | None], components: Mapping[GraphType, str]) -> dict[str, str]:
    """Return the component that indices count by their name; SchemaError if they count several."""
    found: dict[str, str] = {}
    for (_, _, name), target in indices.items():
        if target is not None and found.setdefault(name, components[target]) != components[target]:
            raise SchemaError(
                f"the attribute {name!r} numbers {found[name]} and {components[target]}; indices of one name number "
                "one thing: rename one."
            )
    return found


def _home(
    place: Place, attribute: Joined, types: Types, counts: Mapping[GraphType, IntArray], chunk: Chunk, levels: Levels
) -> _Home:
    """Return what an attribute belongs to, considering all graphs; SchemaError if several are possible, or none."""
    t, key = place
    possible: dict[_Home, IntArray] = {
        ("node_feature" if isinstance(of, str) else "edge_feature", of): number
        for of, number in counts.items()
        if types.storage_of(of) == t and not (attribute.dim is None and t is None)
    }
    if t is None:
        possible[_GRAPH] = np.ones_like(attribute.rows)
    chosen = _chosen(place, possible, types, levels)
    fitting = [home for home in chosen if np.array_equal(attribute.rows, possible[home]) and _has_rows(attribute, home)]
    if not fitting or len(chosen) == 1:
        home = chosen[0] if len(chosen) == 1 or _GRAPH not in chosen else _GRAPH
        _check_rows(place, attribute, home, possible[home], chunk.where)
        return home
    is_plain = types.edges.keys() == {EDGE_TYPE}
    # PyG tells nodes from edges by the name, too, where a graph has as many of both.
    names = {home: "" if is_plain else _counter(home, types).replace("_index", "") for home in fitting}
    for hinted in (
        [home for home in fitting if LEVELS[home[0]] in key or (home == _GRAPH and key == LABEL)],
        [home for home, name in names.items() if key == name],
        [home for home, name in names.items() if _is_alike(key, name)],
    ):
        fitting = [home for home in fitting if home in hinted] or fitting
    if len(fitting) > 1:
        raise SchemaError(
            f"the attribute {key!r}{'' if t is None else f' of {t!r}'} may belong to nodes, edges or graphs: each "
            f'fits the {len(chunk.where)} graphs that were read; say which, by levels={{"{key}": "node"}}, "edge" or '
            '"graph", or by the name of the attribute that counts its nodes or is endpoints of its edges, such as '
            '"edge_index_s".'
        )
    return fitting[0]


def _has_rows(attribute: Joined, home: _Home) -> bool:
    return attribute.dim is not None or home == _GRAPH


def _counter(home: _Home, types: Types) -> str:
    """Return the name of the attribute that counts a type."""
    return "" if home[1] is None else types.place_of(home[1])[1]


def _chosen(place: Place, possible: Mapping[_Home, Any], types: Types, levels: Levels) -> list[_Home]:
    """Return what an attribute may belong to, by the levels or by its name."""
    key, level = place[1], levels.get(place[1])
    own = {_counter(home, types): home for home in possible}
    if level is not None:
        found = [home for home in possible if level == LEVELS[home[0]]] or ([own[level]] if level in own else [])
        if not found:
            names = [*dict.fromkeys(LEVELS[content] for content, _ in possible)]
            names += [name for name in own if name not in (NUMBER, "")]
            raise SchemaError(
                f"levels say {level!r} of the attribute {key!r}, but levels must be "
                f"{' or '.join(map(repr, names))} for it, or None to leave it out; correct levels."
            )
        return found
    name = key if key in own else NUMBER if key in NODE_KEYS else ENDPOINTS if key in EDGE_KEYS else ""
    return [own[name]] if name in own and name else list(possible)


def _check_rows(place: Place, attribute: Joined, home: _Home, counts: IntArray, where: Sequence[str]) -> None:
    """Refuse an attribute that does not have one row for each node or edge, or equally many for each graph."""
    rows, kind, key = attribute.rows, LEVELS[home[0]], place[1]
    what = f"the attribute {key!r}" + ("" if place[0] is None else f" of {place[0]!r}")
    if home != _GRAPH:
        differ = np.flatnonzero(rows != counts) if attribute.dim is not None else np.arange(len(counts))
        if len(differ):
            i = int(differ[0])
            raise SchemaError(
                f"{what} has {rows[i]} rows in {where[i]}, which has {counts[i]} {kind}s, but it belongs to {kind}s by "
                "its name, its place or levels; correct it, or move what belongs to the graph to another attribute of "
                "the graph."
            )
    elif len(differ := np.flatnonzero(rows != rows[0])):
        i = int(differ[0])
        raise SchemaError(
            f"{what} has {rows[0]} rows in {where[0]} and {rows[i]} in {where[i]}: neither one for "
            "each node or edge, nor equally many for each graph; pad it, make it a feature, let limits count its rows: "
            f'levels={{"{key}": "{key}"}}, or leave it out: levels={{"{key}": None}}.'
        )
