"""Distribute whole graphs over balanced parts, and write the files that `dgl.distributed` opens."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import as_path, shown, true_or_false, whole_number
from dgl_tuplepack._core.files import JsonFormat, is_there, write_bytes, write_text, writing
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, InputError, SizesError
from dgl_tuplepack.graphs.blocks import GraphBlock, GraphType, rows_of_spans
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.readers.large_graph import (
    EDGE_FEATURES,
    GRAPH_FILE,
    NODE_FEATURES,
    PART,
    PART_FILE,
    RECORD,
    GraphRecord,
    check_files,
    checksum_of,
    document_of,
    ends_in_large,
    text_of,
)
from dgl_tuplepack.graphs.schema import ArraySpec, as_tensor
from dgl_tuplepack.planning.balance import MOST_PARTS, balanced_parts, imbalance_bound, imbalance_of, totals_of
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.reader import as_store, chosen_block
from dgl_tuplepack.storage.shards import number_of_processes, pool_of, run_all
from dgl_tuplepack.storage.write import LOCK, locked, names_in, refuse_others

# Names in a partition: its record, the folder of a temporary store, and the file with the part of each graph.
STATE, SOURCE, ASSIGNED = "partition.json", ".source", "graph_parts.npy"
_STATE_FILE = JsonFormat("dgl_tuplepack.partition", 1, "partition", "write the partition again (overwrite=True)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
# DGL cannot read empty tensors of these dtypes.
_NOT_EMPTY = (torch.bfloat16, torch.complex64, torch.complex128)


@dataclass(frozen=True)
class Partitioned:
    """Result of `partition`.

    Attributes
    ----------
    config
        The JSON file that `dgl.distributed.load_partition` and `DistGraph` open.
    imbalance, bound
        For each component (node types, edge types and `balance`): the largest total of a part, divided by the mean; and
        a lower bound of this quotient, for any assignment of whole graphs to parts.
    written, kept
        Indices of the parts that were written, and of the parts that were verified and kept.
    """

    config: Path
    imbalance: Mapping[str, float]
    bound: Mapping[str, float]
    written: tuple[int, ...]
    kept: tuple[int, ...]


def partition(
    source: Any,
    folder: str | os.PathLike[str],
    parts: int,
    *,
    balance: Sequence[str] = (),
    name: str = "graphs",
    overwrite: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    levels: Levels | None = None,
) -> Partitioned:
    """Divide the graphs of a source into parts for `dgl.distributed`; no edge is cut.

    All parts have nearly equal numbers of nodes and edges of each type. `dgl.distributed.load_partition` opens each
    part, and `DistGraph` opens all parts as one graph. The folder of a part, such as ``out/part0``, is a source too.

    Parameters
    ----------
    source, levels
        As in `GraphStore.write`, but the items must not have named graphs.
    folder
        Folder to make, an empty folder, or the folder of the same partition: a second run writes only missing and
        damaged parts. If an executor uses several machines, every machine must have access to the folder.
    parts
        Number of parts, 1..2**20. If there are fewer graphs, some parts are empty.
    balance
        Further components to balance, such as ``["train"]`` or ``["train_mask"]``: all nodes of the graphs of a split,
        or the nodes whose bool or integer feature is not 0.
    name
        Name of the large graph that all parts form, and of the JSON file: at most 100 letters, digits, "_", "." and
        "-"; not "partition", and without "." or "-" at the beginning.
    overwrite
        Replace any partition in the folder, and write all parts again.
    workers, executor
        As in `preprocess_shards`. Each process has one part at a time in memory.

    Returns
    -------
    Partitioned
        The JSON file, the imbalance, a lower bound of the imbalance, and the parts that were written.

    Raises
    ------
    FormatError
        The folder has other content or another partition, or cannot be written; or a file of the source is damaged.
    ShardsError
        Parts could not be written; the message names each failed part and the cause. The other parts are kept.
    SchemaError, SizesError
        Graphs differ in types or features, or have names that DGL's files cannot hold; there are no graphs; or
        `balance` has a name that is neither a split nor a bool or integer node feature.
    InputError
        The value of another argument is not allowed.

    Notes
    -----
    The folder has the files of `dgl.distributed.partition_graph`, also ``orig_nids.dgl`` and ``orig_eids.dgl``, a text
    file for each node type with the part of each node, and records. As in DGL, bool features are saved as uint8.

    Examples
    --------
    >>> import dgl, tempfile
    >>> graphs = [dgl.graph(([0, 1], [1, 2])), dgl.graph(([0], [1]))] * 2
    >>> done = partition(graphs, tempfile.mkdtemp(), 2, workers=1)
    >>> done.config.name, done.imbalance
    ('graphs.json', {'nodes': 1.0, 'edges': 1.0})
    """
    out, parts = as_path(folder).absolute(), whole_number("the number of parts", parts, 1, MOST_PARTS)
    overwrite = true_or_false("overwrite", overwrite)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or f"{name}.json" == STATE:
        raise InputError(
            f"the name of the graph is {shown(name)}; give 1 to 100 letters, digits, '_', '.' and '-', without '.' or "
            "'-' at the beginning; not 'partition'."
        )
    if isinstance(balance, str) or not isinstance(balance, Sequence) or not all(isinstance(n, str) for n in balance):
        raise InputError(f"balance is {shown(balance)}; give a list of names of splits or node features.")
    processes = min(number_of_processes(workers, executor), parts)
    load("dgl")
    with locked(out, functools.partial(_check_folder, out)), as_store(source, out / SOURCE, levels) as store:
        columns = {name: _counted_nodes(store, name) for name in balance}
        sizes = GraphSizes(np.column_stack([store.sizes.array, *columns.values()]), (*store.sizes.components, *columns))
        assigned = balanced_parts(sizes, parts)
        totals = totals_of(sizes.array, assigned, parts)
        types = (*store.schema.node_types, *store.schema.edge_types)
        # int64 [parts, node types] and [parts, edge types], without the columns for `balance`.
        nodes, edges = np.split(totals[:, : len(types)], [len(store.schema.node_types)], axis=1)
        identity = _identity_of(store, assigned)
        text_files = [f"{t}.txt" for t in store.schema.node_types]
        # The file that DGL opens comes first, so it is also removed first.
        files = [f"{name}.json", ASSIGNED, *text_files, *(f"part{part}" for part in range(parts))]
        _prepare_folder(out, {"identity": identity, "files": files}, overwrite)
        _write_assignment(store, out, assigned, parts)
        # The large graph has the nodes and edges part by part.
        first_nodes, first_edges = (np.cumsum(each.sum(axis=1)) - each.sum(axis=1) for each in (nodes, edges))
        tasks = {f"part{part}": (part, int(first_nodes[part]), int(first_edges[part])) for part in range(parts)}
        write = functools.partial(_write_part, store, out, identity)
        with pool_of(processes, executor) as pool:
            is_new = run_all(pool, write, tasks, "parts", "parts").values()
        write_text(out / f"{name}.json", json.dumps(_config(store, name, nodes, edges), indent=1) + "\n")
    return Partitioned(
        out / f"{name}.json",
        imbalance=dict(zip(sizes.components, imbalance_of(totals).tolist(), strict=True)),
        bound=dict(zip(sizes.components, imbalance_bound(sizes, parts).tolist(), strict=True)),
        written=tuple(part for part, new in enumerate(is_new) if new),
        kept=tuple(part for part, new in enumerate(is_new) if not new),
    )


def _counted_nodes(store: StoredGraphs, name: str) -> IntArray:
    """Return the number of nodes of each graph that are counted for `name`, a split or a node feature."""
    if name in store.sizes.components:
        raise SizesError(f"the component {name!r:.100} in balance is always balanced; leave it out.")
    of_types = store.schema.node_features.values()
    specs = [specs[name] for specs in of_types if name in specs]
    if bool(specs) == (name in store.splits):
        known = sorted({*store.splits, *(feature for own in of_types for feature in own)})
        found = "both a split and a node feature" if specs else f"not one of the splits and node features {known}"
        raise SizesError(f"{name!r:.100} in balance is {found}; give a name of a split or a node feature, not of both.")
    if not specs:
        in_split = np.isin(np.arange(len(store)), store.splits[name])
        return np.where(in_split, store.sizes.num_nodes, 0)
    for spec in specs:
        if spec.shape or spec.dtype.is_floating_point or spec.dtype.is_complex:
            raise SizesError(
                f"the node feature {name!r:.100} is {spec}; balance needs one bool or integer for each node."
            )
    counts = []
    for block in resolve(store).blocks() or ():
        counts.append(np.zeros(len(block), np.int64))
        for t in store.schema.node_types:
            if name in (features := block.features[t]):
                graph_of_node = np.repeat(np.arange(len(block)), block.lengths[t])
                counts[-1] += np.bincount(graph_of_node[features[name] != 0], minlength=len(block))
    return np.concatenate(counts)


def _identity_of(store: StoredGraphs, assigned: IntArray) -> str:
    """Return a hash of the graphs, of their schema, and of the part of each graph."""
    arrays = [
        [[e.content, e.type, e.name, e.dtype, e.sha256] for e in segment.metadata.arrays] for segment in store.segments
    ]
    chosen = b"" if store.chosen is None else store.chosen.tobytes()
    facts = json.dumps([arrays, document_of(store.schema)]).encode()
    return hashlib.sha256(facts + chosen + assigned.tobytes()).hexdigest()


def _prepare_folder(out: Path, record: dict[str, Any], overwrite: bool) -> None:
    """Write the record of a partition, before its parts; with `overwrite`, remove an existing partition.

    Without `overwrite`, raise FormatError if the folder has another record, or a damaged one.
    """
    earlier = None
    if is_there(out / STATE):
        with contextlib.suppress(FormatError), _STATE_FILE.reading(out / STATE) as document:
            earlier = {key: document[key] for key in ("identity", "files")}
        if earlier != record and not overwrite:
            raise FormatError(
                f"{out} holds another partition (of other graphs, or with another name, balance or number of parts), "
                "or its record is damaged; choose another folder, or overwrite it (overwrite=True, --overwrite)."
            )
    with writing(out):
        removed = _paths_of_partition(out, earlier["files"] if earlier else ()) if overwrite else []
        for path in (*removed, *out.glob(".*.partial")):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        _STATE_FILE.write(out / STATE, record, indent=1)


def _paths_of_partition(out: Path, files: Sequence[Any]) -> list[Path]:
    """Return the files and folders of the partition in `out`, even if its record is damaged and names no `files`."""
    # Never name anything outside this folder.
    recorded = [path for file in files if file != ".." and (path := out / str(file)).parent == out]
    ours = [file for file in out.glob("*.json") if b'"part_method": "dgl_tuplepack"' in file.read_bytes()]
    return [*recorded, *ours, *(file.parent for file in out.glob(f"part*/{PART}"))]


def _write_assignment(store: StoredGraphs, out: Path, assigned: IntArray, parts: int) -> None:
    """Write the part of each graph and, in a text file for each node type, the part of each node."""
    content = io.BytesIO()
    np.save(content, assigned)
    write_bytes(out / ASSIGNED, content.getvalue())
    lines = [f"{part}\n".encode() for part in range(parts)]
    for t, counts in zip(store.schema.node_types, store.sizes.array.T, strict=False):
        text = b"".join([lines[p] * n for p, n in zip(assigned.tolist(), counts.tolist(), strict=True)])
        write_bytes(out / f"{t}.txt", text)


def _config(store: StoredGraphs, name: str, nodes: IntArray, edges: IntArray) -> dict[str, Any]:
    """Return the JSON file that DGL opens; `nodes` and `edges` ``[parts, types]`` have the numbers in each part."""

    def ranges(types: Iterable[str], numbers: IntArray) -> dict[str, Any]:
        """Return, for each type, the range ``[first, end]`` of its ids in each part."""
        # Ids run part by part, and type by type in a part; without an axis, `cumsum` adds up the flattened array.
        ends = np.cumsum(numbers).reshape(numbers.shape)
        return dict(zip(types, np.stack([ends - numbers, ends], axis=2).transpose(1, 0, 2).tolist(), strict=True))

    node_map = ranges(store.schema.node_types, nodes)
    edge_map = ranges(map(text_of, store.schema.edge_types), edges)
    files = {"node_feats": NODE_FEATURES, "edge_feats": EDGE_FEATURES, "part_graph": GRAPH_FILE}
    return {
        "graph_name": name,
        "num_nodes": int(nodes.sum()),
        "num_edges": int(edges.sum()),
        "part_method": "dgl_tuplepack",
        "num_parts": len(nodes),
        "halo_hops": 1,
        "node_map": node_map,
        "edge_map": edge_map,
        "ntypes": {t: i for i, t in enumerate(node_map)},
        "etypes": {e: i for i, e in enumerate(edge_map)},
        **{f"part-{i}": {key: f"part{i}/{file}" for key, file in files.items()} for i in range(len(nodes))},
    }


def _check_folder(out: Path) -> None:
    """Raise FormatError for a folder that contains something other than a partition, finished or not."""
    names = names_in(out)
    others = [name for name in names if name not in (LOCK, SOURCE) and not name.startswith(f".{STATE}.")]
    if STATE not in names:
        refuse_others(out, others, "partition")


def _write_part(store: StoredGraphs, out: Path, partition: str, task: tuple[int, int, int]) -> bool:
    """Write the folder of a part, completely or not at all; if this part exists and is intact, only return False.

    `partition` is the hash of the partition, `task` the index of the part, and its first node and edge.
    """
    # With the index of the part: one part must not replace another.
    folder, identity = out / f"part{task[0]}", f"{partition} part {task[0]}"
    # A damaged part is written again.
    with contextlib.suppress(InputError):
        if is_there(folder / PART) and check_files(folder) == identity:
            return False
    partial = out / f".{folder.name}.{secrets.token_hex(8)}.partial"
    try:
        with writing(folder):
            partial.mkdir()
            _write(store, out, task, partial)
            checksums = {file.name: checksum_of(file) for file in sorted(partial.iterdir())}
            PART_FILE.write(partial / PART, {"identity": identity, "files": checksums}, indent=1)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def _write(store: StoredGraphs, out: Path, task: tuple[int, int, int], folder: Path) -> None:
    schema = store.schema
    # Positions in `store`, which may be a subset of the whole store.
    ids = np.flatnonzero(np.load(out / ASSIGNED, mmap_mode="r") == task[0])
    block = chosen_block(store, store.ids_in_store(ids))
    types: list[GraphType] = [*schema.node_types, *schema.edge_types]
    # Type -> for each node (edge) of the part, its row among the nodes (edges) of all graphs of `store`.
    originals = {
        t: torch.from_numpy(rows_of_spans((np.cumsum(counts) - counts)[ids], counts[ids]))
        for t, counts in zip(types, store.sizes.array.T, strict=True)
    }
    save_tensors = load("dgl.data").save_tensors
    save_tensors(str(folder / NODE_FEATURES), _features_of(block, schema.node_features))
    save_tensors(str(folder / EDGE_FEATURES), _features_of(block, schema.edge_features))
    save_tensors(str(folder / "orig_nids.dgl"), {t: originals[t] for t in schema.node_types})
    save_tensors(str(folder / "orig_eids.dgl"), {text_of(e): originals[e] for e in schema.edge_types})
    load("dgl").save_graphs(str(folder / GRAPH_FILE), [_as_one_graph(block, *task)])
    # Position of a graph in `store` -> its position in this part; -1 for a graph of another part.
    position = np.full(len(store), -1)
    position[ids] = np.arange(len(ids))
    splits = {}
    for name, chosen in store.splits.items():
        in_part = position[chosen]
        splits[name] = in_part[in_part >= 0]
    GraphRecord(schema, store.sizes.array[ids], ids, block.labels, splits).save(folder / RECORD)


def _features_of(block: GraphBlock, by_type: Mapping[Any, Mapping[str, ArraySpec]]) -> dict[str, Tensor]:
    """Return the features of nodes or edges by type and name, without those that DGL cannot read."""
    features = {}
    for t, specs in by_type.items():
        type_name = t if isinstance(t, str) else text_of(t)
        for name, spec in specs.items():
            values = as_tensor(block.features[t][name], spec.dtype, copy=False)
            if values.numel() or values.dtype not in _NOT_EMPTY:
                features[f"{type_name}/{name}"] = values
    return features


def _as_one_graph(block: GraphBlock, part: int, first_node: int, first_edge: int) -> Any:
    """Return the part as one homogeneous DGLGraph, whose nodes and edges are sorted by type."""
    dgl = load("dgl")
    of_nodes = {t: counts for t, counts in block.lengths.items() if isinstance(t, str)}
    of_edges = {e: block.lengths[e] for e in block.endpoints}
    totals = [int(counts.sum()) for counts in of_nodes.values()]
    first_of_type = dict(zip(of_nodes, np.cumsum([0, *totals]).tolist(), strict=False))
    # Node type -> for each small graph, the id of its first node of this type in the homogeneous graph.
    firsts = {t: np.cumsum(counts) - counts + first_of_type[t] for t, counts in of_nodes.items()}
    no_ends = np.empty((2, 0), np.int64)
    ends = np.concatenate([no_ends, *(ends_in_large(block, e, firsts) for e in block.endpoints)], axis=1)
    graph = dgl.graph(tuple(torch.from_numpy(ends)), num_nodes=sum(totals))
    has_types = len(block.lengths) > 2
    for frame, first, counts, inner in (
        (graph.ndata, first_node, of_nodes, "inner_node"),
        (graph.edata, first_edge, of_edges, "inner_edge"),
    ):
        number = torch.tensor([int(own.sum()) for own in counts.values()], dtype=torch.int64)
        total = int(number.sum())
        # DGL has one key for both nodes and edges: EID equals NID, and ETYPE equals NTYPE.
        frame[dgl.NID] = torch.arange(first, first + total)
        frame[inner] = torch.ones(total, dtype=torch.uint8)
        if has_types:
            frame[dgl.NTYPE] = torch.arange(len(number), dtype=torch.int32).repeat_interleave(number)
    graph.ndata["part_id"] = torch.full((graph.num_nodes(),), part)
    return graph
