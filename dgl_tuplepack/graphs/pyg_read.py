"""Read PyG graphs: as blocks of a store, as joined batches, or only their sizes."""

from __future__ import annotations

import pickle
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from dgl_tuplepack._core.files import writing
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphBlock, GraphType, components_of
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
    EDGE,
    ENDPOINTS,
    GRAPH,
    NODE,
    Attribute,
    Column,
    Levels,
    Types,
    attribute_names,
    named,
    refuse_unknown,
    refuse_without_ends,
)
from dgl_tuplepack.graphs.pyg_schema import (
    check_ends,
    check_rows,
    check_shifts,
    refuse_without_types,
    schema_of_joined,
    types_of,
    warn_of_texts,
)
from dgl_tuplepack.graphs.relations import Indices, Ties, check_endpoints
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_array
from dgl_tuplepack.planning.sizes import IntArray

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
                        f"the attribute {key!r} of {named(f'{where[0]} or a graph after it', t)} belongs to nodes or "
                        f"edges, but the first {len(first.where)} graphs have none, and they decide the attributes of "
                        "an iterator; put a graph with such nodes or edges first, or give a list or dataset, of which "
                        "all graphs decide."
                    )
            group = group.completed(first.attributes)
        yield group, parts[0].id is not None
        last = group.without_values()
        first = first or last


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
    storages = dict(storages_of(data))
    counts: dict[GraphType, int] = {}
    node_types, edge_types = types_in(data)
    types = Types(False, tuple(node_types), {e: (e, ENDPOINTS) for e in edge_types})
    if not isinstance(data, HeteroData):
        types = Types(True, (NODE_TYPE,), {EDGE_TYPE: (None, ENDPOINTS)})
    if not types.edges:
        refuse_without_types(where)
    check_ends(types, where)
    for t in types.all:
        storage, what = storages[types.storage_of(t)], named(where, types.storage_of(t))
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


def sizes_of_graphs(graphs: Iterable[tuple[Any, str]], levels: Levels) -> tuple[tuple[str, ...], IntArray]:
    """Return the components of sizes, and the sizes of pairs (graph, display name), int64 ``[N, k]``."""
    iterator, groups = iter(graphs), list[JoinedData]()
    while pairs := list(islice(iterator, _GRAPHS)):
        given, where = zip(*pairs, strict=True)
        groups.append(join_graphs(given, where, levels, groups[-1] if groups else None).without_values())
    group = merged(groups)
    types = types_of(group, levels)
    # Endpoints are always checked; None skips the check of the other attributes.
    check_shifts(group, types, dict.fromkeys(group.attributes))
    return components_of(types.nodes, [*types.edges]), np.stack([*group.counts(types).values()], axis=1)


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
