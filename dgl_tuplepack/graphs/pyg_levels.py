"""What attributes of PyG's graphs belong to: nodes or edges of a type, or graphs; and the schema that follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import GraphType, components_of
from dgl_tuplepack.graphs.pyg_attributes import Attribute, Sizes
from dgl_tuplepack.graphs.pyg_form import EDGE, EDGE_KEYS, GRAPH, NODE, NODE_KEYS, NUMBER, Form
from dgl_tuplepack.graphs.pyg_layout import ENDPOINTS, LABEL, Column, Levels, PygLayout
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.sizes import IntArray

# What an attribute belongs to: the content of its column, and the type, None for graphs.
Home = tuple[str, GraphType | None]
_GRAPH: Home = ("label", None)
_CALLED = {"node_feature": NODE, "edge_feature": EDGE, "label": GRAPH}


def home_of(attribute: Attribute, form: Form, sizes: Sizes, levels: Levels) -> Home | None:
    """Return what an attribute belongs to in the light of all graphs; None if several are possible."""
    key, t = attribute.key, attribute.type
    possible: dict[Home, IntArray] = {}
    for of_type in form.types_in(t):
        is_node = isinstance(of_type, str)
        counts = sizes.nodes[str(of_type)] if is_node else sizes.edges[of_type]  # type: ignore[index]
        possible["node_feature" if is_node else "edge_feature", of_type] = counts
    if t is None:
        possible[_GRAPH] = np.ones_like(attribute.rows)
    if attribute.dim is None and t is None:
        possible = {_GRAPH: possible[_GRAPH]}
    chosen = _chosen(attribute, possible, form, levels)
    if len(chosen) == 1:
        (home,) = chosen
        _check_rows(attribute, home, possible[home], sizes, levels)
        return home
    fitting = [home for home in chosen if np.array_equal(attribute.rows, possible[home])]
    if not fitting and _GRAPH in chosen:
        _check_rows(attribute, _GRAPH, possible[_GRAPH], sizes, levels)
        return _GRAPH
    if not fitting:
        _check_rows(attribute, chosen[0], possible[chosen[0]], sizes, levels)
    # PyG tells nodes from edges by the name, too, where a graph has as many of both.
    for is_hinted in (_is_called, _is_namesake, _is_alike):
        hinted = [home for home in fitting if is_hinted(home, key, form)]
        fitting = hinted or fitting
    return fitting[0] if len(fitting) == 1 else None


def _chosen(attribute: Attribute, possible: dict[Home, IntArray], form: Form, levels: Levels) -> list[Home]:
    """Return what an attribute may belong to, by the levels or by its name."""
    key, level = attribute.key, levels.get(attribute.key)
    own = {place: home for home in possible for place in [_place_of(home, form)]}
    if level is not None:
        found = [home for home in possible if level == _CALLED[home[0]]]
        found = found or [home for (_, name), home in own.items() if level == name]
        if not found:
            named = [*dict.fromkeys(_CALLED[content] for content, _ in possible)]
            named += [name for _, name in own if name not in (NUMBER, "")]
            raise SchemaError(
                f"levels say {level!r} of {attribute}, but levels must be {' or '.join(map(repr, named))} for it, or "
                "None to leave it out; correct levels."
            )
        return found
    name = key if (attribute.type, key) in own else NUMBER if key in NODE_KEYS else ENDPOINTS
    is_named = name == key or key in NODE_KEYS or key in EDGE_KEYS
    if is_named and (attribute.type, name) in own and possible.keys() != {_GRAPH}:
        return [own[attribute.type, name]]
    return list(possible)


def _place_of(home: Home, form: Form) -> tuple[GraphType | None, str]:
    """Return the storage and the attribute that a type is counted by."""
    content, t = home
    return (None, "") if content == "label" else form.nodes[str(t)] if isinstance(t, str) else form.edges[t]  # type: ignore[index]


def _is_called(home: Home, key: str, form: Form) -> bool:
    return _CALLED[home[0]] in key or (home == _GRAPH and key == LABEL)


def _is_namesake(home: Home, key: str, form: Form) -> bool:
    """Whether an attribute is called as the one that counts a type, apart from "_index": `edge_label`."""
    return not form.is_plain and key == _place_of(home, form)[1].replace("_index", "")


def _is_alike(home: Home, key: str, form: Form) -> bool:
    """Whether an attribute ends as the one that counts a type: `z_s` as `x_s`."""
    name = _place_of(home, form)[1].replace("_index", "")
    return not form.is_plain and "_" in name and "_" in key and key.split("_")[-1] == name.split("_")[-1]


def _check_rows(attribute: Attribute, home: Home, counts: IntArray, sizes: Sizes, levels: Levels) -> None:
    """Refuse an attribute that does not have one row for each node or edge, or equally many for each graph."""
    rows, kind = attribute.rows, _CALLED[home[0]]
    if home != _GRAPH:
        differ = np.flatnonzero(rows != counts) if attribute.dim is not None else np.arange(len(counts))
        if len(differ):
            i = int(differ[0])
            raise SchemaError(
                f"{attribute} has {rows[i]} rows in {sizes.where(i)}, which has {counts[i]} {kind}s, but it "
                f"belongs to {kind}s by its name, its place or levels; correct it, or move what belongs to the graph "
                "to another attribute of the graph."
            )
        return
    differ = np.flatnonzero(rows != rows[0])
    if len(differ):
        i, key = int(differ[0]), attribute.key
        raise SchemaError(
            f"{attribute} has {rows[0]} rows in {sizes.where(0)} and {rows[i]} in {sizes.where(i)}: neither one for "
            "each node or edge, nor equally many for each graph; pad it, make it a feature, let limits count its rows: "
            f'levels={{"{key}": "{key}"}}, or leave it out: levels={{"{key}": None}}.'
        )


def schema_of_attributes(
    attributes: Sequence[Attribute], form: Form, sizes: Sizes, levels: Levels, idtype: torch.dtype,
    counted: tuple[str, ...], left_out: set[str], has_ids: bool,
) -> tuple[Schema, list[Attribute]]:  # fmt: skip
    """Return the schema of graphs, and the attributes whose level is not certain, which the schema lacks."""
    # Also what only later graphs have.
    left_out = left_out | {key for key, level in levels.items() if level is None}
    known = {attribute.key for attribute in attributes} | left_out | {key for _, key in form.edges.values()}
    if unknown := set(levels) - known:
        raise SchemaError(
            f"levels name {sorted(unknown)}, but the graphs have {sorted(known - {ENDPOINTS})}; correct the names."
        )
    for _, key in form.edges.values():
        if levels.get(key, key) not in (key, EDGE):
            raise SchemaError(
                f"levels say {levels[key]!r} of {key!r}, but it is the endpoints of edges, which graphs need; leave it "
                "out of levels."
            )
    found = [(attribute, home_of(attribute, form, sizes, levels)) for attribute in attributes]
    open_ones = [attribute for attribute, home in found if home is None]
    features: dict[Any, dict[str, ArraySpec]] = {t: {} for t in (*sizes.nodes, *sizes.edges)}
    of_graphs = [attribute.key for attribute, home in found if home == _GRAPH]
    labels: dict[str, ArraySpec] = {}
    dims: dict[Column, int | None] = {}
    rows: dict[Column, int] = {}
    indexed: dict[Column, GraphType] = {}
    for attribute, home in found:
        if home is None:
            continue
        spec, name = attribute.spec, attribute.key
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
        if (target := form.indices.get((attribute.type, attribute.key))) is not None:
            indexed[*home, name] = target
    layout = PygLayout(dims, rows, counted, form.ends, tuple(sorted(left_out)), tuple(indexed))
    types = tuple(sizes.nodes), tuple(sizes.edges)
    by_type = {t: features[t] for t in types[0]}, {t: features[t] for t in types[1]}
    indices = _indices(indexed, types)
    return Schema(*types, *by_type, labels, idtype, has_ids, indices=indices, pyg=layout), open_ones


def _indices(indexed: dict[Column, GraphType], types: tuple[tuple[str, ...], Any]) -> dict[str, str]:
    """Return the component that indices number by their name; SchemaError if they number several."""
    components = dict(zip((*types[0], *types[1]), components_of(*types), strict=True))
    indices: dict[str, str] = {}
    for (_, _, name), target in indexed.items():
        if indices.setdefault(name, components[target]) != components[target]:
            raise SchemaError(
                f"the attribute {name!r} numbers {indices[name]} and {components[target]}; indices of one name number "
                "one thing: rename one."
            )
    return indices


def refuse_open(attributes: Sequence[Attribute], number: int) -> NoReturn:
    """Raise the error for attributes whose level the `number` graphs that were read do not tell."""
    key = attributes[0].key
    raise SchemaError(
        f"{attributes[0]} may belong to nodes, edges or graphs: each fits the {number} graphs that were read; say "
        f'which, by levels={{"{key}": "node"}}, "edge" or "graph", or by the name of the attribute that counts its '
        'nodes or is endpoints of its edges, such as "edge_index_s".'
    )
