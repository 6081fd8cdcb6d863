"""Read PyG graphs: their sizes, their schema, blocks for a store, and joined batches.

All graphs of a group decide the schema together. A feature belongs to nodes (edges) if it has one row for each of them
in every graph. Indices refer to nodes (edges) if PyG shifts them by the number of these in every graph (see
`graphs.pyg_join`). Where several choices fit, names decide; where names do not decide either, users declare `levels`
or `indices`.
"""

from __future__ import annotations

import pickle
import tempfile
import warnings
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from dgl_tuplepack._core.files import writing
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphBlock, GraphType
from dgl_tuplepack.graphs.items import parts_in_blocks
from dgl_tuplepack.graphs.pyg_join import (
    Expected,
    JoinedData,
    check_library,
    described,
    follows_pyg,
    join_graphs,
    known_nodes,
    merged,
    storages_of,
    types_in,
)
from dgl_tuplepack.graphs.pyg_layout import (
    ARROW,
    EDGE,
    EDGE_KEYS,
    ENDPOINTS,
    GRAPH,
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
    attribute_names,
    attribute_title,
    or_left_out,
    refuse_unknown,
    refuse_without_ends,
    title_of,
)
from dgl_tuplepack.graphs.relations import Indices, Ties, check_endpoints
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_array
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

# The number of graphs that are joined at once to read their sizes.
_GRAPHS = 512
# Up to this number of bytes, joined graphs are kept in memory; above it, in a temporary file.
_IN_MEMORY = 2**26
# The name of this file in messages.
_FILE = "a temporary file"


def read(
    items: Iterable[Any], levels: Levels, ties: Ties | None, indices: Indices | None, number: int | None
) -> tuple[Schema, Iterator[GraphBlock]]:
    """Return the schema of the items, and blocks of all items.

    If their `number` is known, all items are read, once, before the schema is decided, since one graph may not show
    what an attribute belongs to. If it is None, the first block decides, and only one block is in memory at a time.
    """
    groups = _joined(items, levels, number is None)
    if number is None:
        first, has_ids = next(groups)
        schema = schema_of_joined(first, levels, has_ids, indices).with_declared(ties, indices)
        return schema, (block_of(schema, group) for group, _ in chain([(first, has_ids)], groups))
    seen, any_ids = list[JoinedData](), False
    with writing(_FILE):
        file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
    try:
        with progress_bar(desc="graphs read", total=number, unit=" graphs") as progress:
            for group, has_ids in groups:
                with writing(_FILE):
                    pickle.dump(group, file)
                seen.append(group.without_values())
                any_ids = any_ids or has_ids
                progress.update(len(group.where))
        whole = merged(seen)
        schema = schema_of_joined(whole, levels, any_ids, indices).with_declared(ties, indices)
        with writing(_FILE):
            file.seek(0)
    except BaseException:
        # Closing writes what is in the buffer, and fails again on a full disk.
        with suppress(OSError):
            file.close()
        raise
    blocks = (block_of(schema, pickle.load(file).completed(whole.attributes)) for _ in seen)
    weakref.finalize(blocks, file.close)
    return schema, blocks


def _joined(items: Iterable[Any], levels: Levels, is_settled: bool) -> Iterator[tuple[JoinedData, bool]]:
    """Join a few hundred items at a time; yield each group, and whether its items have ids.

    With `is_settled`, the first group decides all attributes; later groups may not decide those of types without rows.
    """
    first: JoinedData | None = None
    last: JoinedData | None = None
    for parts, where in parts_in_blocks(items):
        group = join_graphs([part.graph for part in parts], where, levels, last)
        # Text attributes of the first group are reported together with the schema.
        warn_of_texts(group.left_out - (last or group).left_out, levels)
        if is_settled and first is not None:
            known = {p: a.spec for p, a in first.attributes.items()}
            for (t, key), joined in group.attributes.items():
                if key != ENDPOINTS and known.get((t, key)) != joined.spec:
                    raise SchemaError(
                        f"the attribute {key!r} of {title_of(f'{where[0]} or a graph after it', t)} belongs to nodes "
                        f"or edges, but the first {len(first.where)} graphs have none, and they decide the attributes "
                        "of an iterator; put a graph with such nodes or edges first, or give a list or dataset, of "
                        "which all graphs decide."
                    )
            group = group.completed(first.attributes)
        yield group, parts[0].id is not None
        last = group.without_values()
        first = first or last


def batch_of(schema: Schema, graphs: Sequence[Any], where: Sequence[str]) -> GraphBlock:
    """Join PyG graphs and their labels as tensors; raise SchemaError if a graph has another schema."""
    for data, item_name in zip(graphs, where, strict=True):
        check_library(data, item_name, schema.pyg is not None)
    assert schema.pyg is not None
    types = schema.pyg.types(schema.node_types, schema.edge_types)
    # The expected spec of a row of each attribute; None for endpoints.
    specs: dict[Attribute, ArraySpec | None] = dict.fromkeys(types.edges.values())
    for column, attribute in _attributes(schema).items():
        spec = schema.spec_of(column)
        # If a label has several rows in each graph, its spec describes all rows of a graph, not one row.
        has_rows = column[0] == "label" and column in schema.pyg.rows
        specs[attribute] = ArraySpec(spec.shape[1:], spec.dtype) if has_rows else spec
    storages = {t for t in map(types.storage_of, types.edges) if isinstance(t, tuple)}
    expected = Expected([] if types.is_flat else [*types.nodes], sorted(storages), specs)
    try:
        # The level None leaves an attribute out.
        group = join_graphs(graphs, where, dict.fromkeys(schema.pyg.left_out), expected)
    except SchemaError as error:
        if not schema.empty:
            raise
        empty = ", ".join(map(str, schema.empty))
        raise SchemaError(
            f"{str(error).split('; ')[0]}. The example has no rows of {empty}, so it cannot show their attributes; "
            "give an example that has some, or correct the attributes of other types."
        ) from error
    counts, ends, columns = _unpacked(schema, group)
    device = next(iter(ends.values())).device
    lengths = {t: torch.from_numpy(np.ascontiguousarray(number)).to(device) for t, number in counts.items()}

    def across_graphs(values: Tensor, e: EdgeType, t: str) -> Tensor:
        """Return endpoints as numbers of nodes of the whole batch; in `values`, each graph numbers its nodes from 0."""
        # For each edge, the number of nodes of type t in all earlier graphs.
        first = torch.repeat_interleave(lengths[t].cumsum(0) - lengths[t], lengths[e])
        return values.to(schema.idtype) + first.to(schema.idtype)

    return schema.block(
        lengths,
        {e: (across_graphs(both[:, 0], e, e[0]), across_graphs(both[:, 1], e, e[2])) for e, both in ends.items()},
        lambda column: columns[column].to(device),
        totals={**{t: int(number.sum()) for t, number in counts.items()}, None: len(graphs)},
    )


def block_of(schema: Schema, group: JoinedData) -> GraphBlock:
    """Return the graphs of a group as a block of arrays; raise SchemaError if they have another schema."""
    counts, ends, columns = _unpacked(schema, group)
    arrays = {e: (as_array(both[:, 0]), as_array(both[:, 1])) for e, both in ends.items()}
    return schema.block(counts, arrays, lambda column: as_array(columns[column]))


def _attributes(schema: Schema) -> dict[Column, Attribute]:
    """Return, for each feature and label, its attribute: (key of the storage, name)."""
    columns = [column for column, _ in schema.columns()]
    names = attribute_names(schema.node_types, schema.edge_types, columns, schema.pyg)
    return {column: (t, key) for column, t, key in names.columns}


def _unpacked(
    schema: Schema, group: JoinedData
) -> tuple[dict[GraphType, IntArray], dict[EdgeType, Tensor], dict[Column, Tensor]]:
    """Return the counts ``[B]`` by type, endpoints ``[E, 2]`` by edge type, and features and labels by column.

    Raise SchemaError for graphs of another schema.
    """
    assert schema.pyg is not None
    types = schema.pyg.types(schema.node_types, schema.edge_types)
    counts, number_of_graphs = group.counts(types), len(group.where)
    attributes = _attributes(schema)
    indexed = {attributes[column]: target for column, target in schema.index_columns.items()}
    # Indices that the user declared; PyG did not shift them when the schema was found.
    declared = {attributes[column][1] for column in schema.index_columns if column not in schema.pyg.shifted}
    check_shifts(group, types, indexed, declared)
    values: dict[Column, Tensor] = {}
    for column, attribute in attributes.items():
        joined, t = group.attributes[attribute], column[1]
        rows_of_label = schema.pyg.rows.get(column, 1)
        expected = np.full(number_of_graphs, rows_of_label) if t is None else counts[t]
        check_rows(attribute, column[:2], joined.rows, expected, group.where)
        value = joined.value
        if t is None and rows_of_label != 1:
            value = value.reshape(number_of_graphs, rows_of_label, *value.shape[1:])
        values[column] = value
    ends = {e: group.attributes[attribute].value for e, attribute in types.edges.items()}
    for e, both in ends.items():
        remedy = f"correct {types.edges[e][1]}, or num_nodes."
        for end, node_type in zip(both.T, (e[0], e[2]), strict=True):
            check_endpoints(end.numpy(force=True), counts[e], counts[node_type], group.where.__getitem__, remedy)
    return counts, ends, values


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
    rest = {p: a for p, a in group.attributes.items() if p not in types.edges.values()}
    # Attributes that PyG shifts. PyG itself shifts indices of a Data by its nodes; of other indices, users declare
    # what they refer to.
    indexed = [p for p, a in rest.items() if a.is_shifted]
    for t, key in indexed:
        if key not in (declared or {}) and not (group.follows_pyg and group.is_flat):
            raise SchemaError(
                f"{attribute_title(key, group.where[0], t)} is shifted by __inc__; declare what its indices refer to, "
                f'indices={{"{key}": "nodes"}} (or "edges", or another of the components '
                f"{', '.join(types.components)}){or_left_out(key)}."
            )
    known = {key for _, key in group.attributes} | group.left_out
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
    specs = {c: rest[p].spec for c, p in columns.items()}
    specs |= {c: ArraySpec((number, *specs[c].shape), specs[c].dtype) for c, number in rows.items()}
    # Node types that are counted by the number `num_nodes` in their storage, and not by another attribute.
    counted = tuple(
        t for t in types.nodes if types.attribute_of(t)[1] == NUMBER and types.storage_of(t) in group.numbered
    )
    shifted = tuple(c for c, p in columns.items() if p in indexed)
    layout = PygLayout(dims, rows, counted, types.ends, tuple(sorted(group.left_out)), shifted)
    dtypes = {group.attributes[attribute].value.dtype for attribute in types.edges.values()}
    of_nodes = dict(zip(counts, types.components, strict=True)).get(NODE_TYPE, "")
    indices = {column[2]: of_nodes for column in shifted if column[2] not in (declared or {})}
    return Schema.of_columns(
        types.nodes, [*types.edges], specs.items(),
        idtype=torch.int32 if dtypes == {torch.int32} else torch.int64, has_ids=has_ids, indices=indices, pyg=layout,
        empty=frozenset(t for t, n in counts.items() if not n.any()),
    )  # fmt: skip


def warn_of_texts(left_out: Iterable[str], levels: Levels) -> None:
    """Warn of attributes that are left out because they are text, not by `levels`."""
    for key in sorted(key for key in left_out if levels.get(key, "") is not None):
        warnings.warn(
            f"the attribute {key!r} is text, which stores cannot hold, and is left out; packed_loader(..., "
            f'in_memory=False) keeps it in ordinary batches, and levels={{"{key}": None}} avoids this warning.',
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
            f"{attribute_title(key, group.where[0], t)} has no axis of rows, since __cat_dim__ returns None; correct "
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
        f"{title_of(where[i], t)}: the attribute {key!r} has {rows[i]} rows, but must have {expected[i]}, {reason}; "
        f'correct it, or declare what it belongs to, levels={{"{key}": "node"}} (or "edge", "graph"), or let limits '
        f'count its rows, levels={{"{key}": "{key}"}}{or_left_out(key)}.'
    )


# Types ---------------------------------------------------------------------------------------------------------------


def types_of(group: JoinedData, levels: Levels) -> Types:
    """Return the node and edge types of the graphs of a group; raise SchemaError if they are unclear."""
    where = group.where[0]
    if [*group.node_types, *group.edge_types] == [NODE_TYPE, EDGE_TYPE]:
        raise SchemaError(
            f"{where} is a HeteroData whose types are {NODE_TYPE!r} and {EDGE_TYPE}, the names of the types of a Data; "
            "give a Data, or rename the types."
        )
    ends = {p: both for p in group.attributes if (both := _node_types(p, group, levels)) is not None}
    for e in group.edge_types:
        if (e, ENDPOINTS) not in ends:
            refuse_without_ends(f"{where}, type {e!r}")
    if not ends:
        refuse_without_ends(where) if group.is_flat else refuse_without_types(where)
    types = _types(group, ends, levels)
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
    if ARROW in level and (joined.is_ends or key == ENDPOINTS):
        # In a Data, "node" and "num_nodes" stand for the node type `_N`.
        names = [name.strip() for name in level.split(ARROW)]
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
    if key != ENDPOINTS and not group.follows_pyg:
        raise SchemaError(
            f"{attribute_title(key, group.where[0], t)} has the form of endpoints, and the class of the graph has an "
            "__inc__ of its own, so it may refer to anything; if it holds edges between nodes, declare which, "
            f'levels={{"{key}": "node {ARROW} node"}} (or names of attributes, "x_s {ARROW} x_t"), otherwise '
            f'levels={{"{key}": "graph"}} (or "node", "edge") and indices={{"{key}": "nodes"}} (or "edges").'
        )
    return NODE_TYPE, NODE_TYPE


def is_alike(name: str, other: str) -> bool:
    """Return whether two names have the same suffix, such as `z_s` and `x_s`; the suffix `_index` does not count."""
    return "_" in name and "_" in other and name.split("_")[-1] == other.split("_")[-1] != "index"


def _types(group: JoinedData, ends: Mapping[Attribute, tuple[str, str]], levels: Levels) -> Types:
    """Return the types; `ends` maps each attribute of endpoints to the node types of both ends."""
    edges: dict[EdgeType, Attribute] = {}
    # Each edge_index comes first, so an error for two equal edge types names the other attribute.
    for attribute in sorted(ends, key=lambda p: p[1] != ENDPOINTS):
        (t, key), (source, target) = attribute, ends[attribute]
        # In a Data, the relation is the name of the attribute.
        edge_type = (source, f"{t[1]}/{key}" if isinstance(t, tuple) else key, target)
        if key == ENDPOINTS and isinstance(t, tuple):
            edge_type = t
        if edge_type in edges:
            raise SchemaError(
                f"{attribute_title(key, group.where[0], t)} would be the edge type {edge_type}, but that name is in "
                "use already; rename it."
            )
        edges[edge_type] = attribute
    nodes = {*group.node_types}
    if group.is_flat:
        others = {key for _, key in group.attributes} - {key for _, key in ends}
        nodes = {t for e in edges for t in (e[0], e[2])} | {
            key for key, level in levels.items() if level == key in others
        }
        nodes |= {NODE_TYPE} if group.nodes[None] is not None else set()
        if nodes == {NODE_TYPE} and {*ends} == {(None, ENDPOINTS)}:
            return Types(True, (NODE_TYPE,), {EDGE_TYPE: (None, ENDPOINTS)})
        if NODE_TYPE in nodes and group.nodes[None] is None:
            refuse_unknown(group.where[0])
    return Types(group.is_flat, tuple(sorted(nodes)), {e: edges[e] for e in sorted(edges)})


# Sizes ----------------------------------------------------------------------------------------------------------------


def has_usual_types(data: Any, levels: Levels) -> bool:
    """Return whether PyG shifts only `edge_index` (the endpoints), and `levels` define no further types."""
    others = {*data.keys()} - {ENDPOINTS}
    # With any other level, attributes define further node or edge types, see `Levels` in `graphs.pyg_layout`.
    known = (NODE, EDGE, GRAPH, None)
    return (
        follows_pyg(type(data))
        and all(level in known for key, level in levels.items() if key != ENDPOINTS)
        and levels.get(ENDPOINTS, EDGE) == EDGE
        # PyG's `__inc__` shifts attributes with these names.
        and not any("index" in key or "batch" in key or key == "face" for key in others)
    )


def counts_of_graph(data: Any, where: str, levels: Levels) -> dict[GraphType, int]:
    """Return the number of nodes and edges of each type of one graph."""
    check_library(data, where)
    if not has_usual_types(data, levels):
        group = join_graphs([data], [where], levels)
        return {t: int(number[0]) for t, number in group.counts(types_of(group, levels)).items()}
    # Read the numbers of a usual graph from its storages, without joining its attributes.
    storages, counts = dict(storages_of(data)), dict[GraphType, int]()
    types = Types(True, (NODE_TYPE,), {EDGE_TYPE: (None, ENDPOINTS)})
    if isinstance(data, HeteroData):
        node_types, edge_types = types_in(data)
        types = Types(False, tuple(node_types), {e: (e, ENDPOINTS) for e in edge_types})
    if not types.edges:
        refuse_without_types(where)
    check_ends(types, where)
    for t in types.all:
        storage, what = storages[types.storage_of(t)], title_of(where, types.storage_of(t))
        if isinstance(t, str):
            number = known_nodes(storage, what)
            counts[t] = refuse_unknown(what) if number is None else number
        elif ENDPOINTS in storage:
            # Called only for its checks.
            described(storage[ENDPOINTS], ENDPOINTS, data, storage, f"the {ENDPOINTS} of {what}")
            counts[t] = int(storage[ENDPOINTS].shape[1])
        else:
            refuse_without_ends(what)
    return counts


def sizes_of_graphs(graphs: Iterable[tuple[Any, str]], levels: Levels) -> GraphSizes:
    """Return the sizes of pairs (graph, display name)."""
    iterator, groups = iter(graphs), list[JoinedData]()
    while pairs := list(islice(iterator, _GRAPHS)):
        given, where = zip(*pairs, strict=True)
        groups.append(join_graphs(given, where, levels, groups[-1] if groups else None).without_values())
    group = merged(groups)
    types = types_of(group, levels)
    # Endpoints are always checked; None skips the check of the other attributes.
    check_shifts(group, types, dict.fromkeys(group.attributes))
    return sizes_of_joined(group, types)


def sizes_of_joined(group: JoinedData, types: Types) -> GraphSizes:
    """Return the sizes of the graphs of a group."""
    return GraphSizes(np.stack([*group.counts(types).values()], axis=1), types.components)


# Shifts --------------------------------------------------------------------------------------------------------------


def refuse_shift(attribute: Attribute, group: JoinedData, expected: IntArray) -> NoReturn:
    """Raise the error for shifts that differ from the `expected` ones."""
    (t, key), joined = attribute, group.attributes[attribute]
    # The index of the first graph whose shift is wrong.
    wrong = int(np.argmax((joined.shifts != expected).reshape(len(expected), -1).any(axis=1)))
    found, right = (
        " and ".join(map(str, dict.fromkeys(each[wrong].reshape(-1).tolist()))) for each in (joined.shifts, expected)
    )
    remedy = f'indices={{"{key}": "nodes"}} (or "edges", or another component)'
    if joined.is_ends:
        remedy = f'levels={{"{key}": "x_s {ARROW} x_t"}} with the attributes that count the nodes of both ends'
    raise SchemaError(
        f"{attribute_title(key, group.where[wrong], t)} is shifted by {found}, which __inc__ returns, but must be "
        f"shifted by {right}; correct __inc__ or set num_nodes, or declare what it refers to: {remedy}"
        f"{or_left_out(key)}."
    )


def check_shifts(
    group: JoinedData, types: Types, targets: Mapping[Attribute, GraphType | None], declared: Collection[str] = ()
) -> None:
    """Refuse (SchemaError) graphs whose endpoints or indices PyG does not shift by the right number of nodes or edges.

    `targets` maps each attribute that holds indices to the type that it refers to; None skips the check of an
    attribute. PyG need not shift the attributes whose names are in `declared`.
    """
    counts = group.counts(types)
    both_ends: dict[Attribute, list[GraphType]] = {attribute: [e[0], e[2]] for e, attribute in types.edges.items()}
    for attribute, joined in group.attributes.items():
        (t, key), target = attribute, targets.get(attribute)
        if joined.is_shifted and attribute not in (*both_ends, *targets):
            raise SchemaError(
                f"{attribute_title(key, group.where[0], t)} is shifted by {joined.shifts[0].max()}, but not in earlier "
                f"graphs, or not by a number of nodes; give graphs of one class, correct __inc__{or_left_out(key)}."
            )
        both = both_ends.get(attribute, [])
        if not both and target is not None and (joined.is_shifted or key not in declared):
            both = [target, target]
        if both:
            expected = np.stack([counts[of] for of in both], axis=1)
            expected = expected if joined.is_ends else expected[:, 0]
            if not np.array_equal(joined.shifts, expected):
                refuse_shift(attribute, group, expected)
