"""Find what each attribute of PyG graphs belongs to (nodes or edges of a type, or graphs), and return the schema.

For shifts and storages, see `graphs.pyg.joined_data`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, GraphType, components_of
from dgl_tuplepack.graphs.pyg.joined_data import Joined, JoinedData
from dgl_tuplepack.graphs.pyg.structure import check_shifts, index_target, is_alike, types_of
from dgl_tuplepack.graphs.pyg_layout import (
    EDGE_KEYS,
    ENDPOINTS,
    LABEL,
    LEVELS,
    NODE_KEYS,
    NUMBER,
    Attribute,
    Column,
    Levels,
    PygLayout,
    Types,
)  # fmt: skip
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.planning.sizes import IntArray

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
