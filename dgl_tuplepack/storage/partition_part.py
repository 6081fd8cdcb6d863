"""Write one part of a partition, as the files that `dgl.distributed.partition_graph` of DGL 1.1.3 writes."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.files import is_there, writing
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import GraphBlock, GraphType, rows_of_spans
from dgl_tuplepack.graphs.readers.graph_record import RECORD, GraphRecord
from dgl_tuplepack.graphs.readers.large_graph import text_of
from dgl_tuplepack.graphs.readers.partition import (
    EDGE_FEATURES,
    GRAPH_FILE,
    NODE_FEATURES,
    PART,
    PART_FILE,
    check_files,
    checksum_of,
)  # fmt: skip
from dgl_tuplepack.graphs.schema import ArraySpec
from dgl_tuplepack.graphs.values import as_tensor
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.reader import chosen_block

# Name of the file with the part of each graph, int64 ``[N]``.
ASSIGNED = "graph_parts.npy"
# DGL cannot read empty tensors of these dtypes.
_NOT_EMPTY = (torch.bfloat16, torch.complex64, torch.complex128)


@dataclass(frozen=True)
class PartTask:
    """One part to write: its index, its first node and edge, and the hash that identifies the partition.

    The first node and edge are ids in the large graph that all parts form. `out` is the folder of the partition.
    """

    store: StoredGraphs
    out: Path
    part: int
    first_node: int
    first_edge: int
    identity: str


def write_part(task: PartTask) -> bool:
    """Write the folder of a part, completely or not at all. If this part exists and is intact, only return False."""
    folder = task.out / f"part{task.part}"
    try:
        if is_there(folder / PART) and check_files(folder) == _identity_of(task):
            return False
    except InputError:
        # A damaged part is written again.
        pass
    partial = task.out / f".part{task.part}.{secrets.token_hex(8)}.partial"
    try:
        with writing(folder):
            partial.mkdir()
            _write(task, partial)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return True


def _identity_of(task: PartTask) -> str:
    """Return the text that identifies the part. Its index is included: one part must not replace another."""
    return f"{task.identity} part {task.part}"


def _write(task: PartTask, folder: Path) -> None:
    store, schema = task.store, task.store.schema
    # Positions in `store`, which may be a subset of the whole store.
    ids = np.flatnonzero(np.load(task.out / ASSIGNED, mmap_mode="r") == task.part)
    block = chosen_block(store, store.ids_in_store(ids))
    types: list[GraphType] = [*schema.node_types, *schema.edge_types]
    # Type -> for each node (edge) of the part, its row among the nodes (edges) of all graphs of `store`.
    originals = {
        t: torch.from_numpy(rows_of_spans((np.cumsum(counts) - counts)[ids], counts[ids]))
        for t, counts in zip(types, store.sizes.array.T, strict=True)
    }
    save_tensors = load("dgl.data").save_tensors
    save_tensors(str(folder / NODE_FEATURES), _features_of(block, "node_feature", schema.node_features))
    save_tensors(str(folder / EDGE_FEATURES), _features_of(block, "edge_feature", schema.edge_features))
    save_tensors(str(folder / "orig_nids.dgl"), {t: originals[t] for t in schema.node_features})
    save_tensors(str(folder / "orig_eids.dgl"), {text_of(e): originals[e] for e in schema.edge_features})
    load("dgl").save_graphs(str(folder / GRAPH_FILE), [_as_one_graph(task, block)])
    # Position of a graph in `store` -> its position in this part; -1 for a graph of another part.
    position = np.full(len(store), -1)
    position[ids] = np.arange(len(ids))
    splits = {}
    for name, chosen in store.splits.items():
        in_part = position[chosen]
        splits[name] = in_part[in_part >= 0]
    GraphRecord(schema, store.sizes.array[ids], ids, block.labels, splits).save(folder / RECORD)
    checksums = {file.name: checksum_of(file) for file in sorted(folder.iterdir())}
    PART_FILE.write(folder / PART, {"identity": _identity_of(task), "files": checksums}, indent=1)


def _features_of(block: GraphBlock, content: str, by_type: Mapping[Any, Mapping[str, ArraySpec]]) -> dict[str, Tensor]:
    """Return the features of nodes or edges (`content`) by type and name, without those that DGL cannot read."""
    features = {}
    for t, specs in by_type.items():
        type_name = t if isinstance(t, str) else text_of(t)
        for name, spec in specs.items():
            values = as_tensor(block.column((content, t, name)), spec.dtype, copy=False)
            if values.numel() or values.dtype not in _NOT_EMPTY:
                features[f"{type_name}/{name}"] = values
    return features


def _as_one_graph(task: PartTask, block: GraphBlock) -> Any:
    """Return the part as one homogeneous DGLGraph, whose nodes and edges are sorted by type."""
    dgl = load("dgl")
    totals = [int(counts.sum()) for counts in block.num_nodes.values()]
    first_of_type = dict(zip(block.num_nodes, np.cumsum([0, *totals]).tolist(), strict=False))
    # Node type -> for each small graph, the id of its first node of this type in the homogeneous graph.
    firsts = {t: np.cumsum(counts) - counts + first_of_type[t] for t, counts in block.num_nodes.items()}
    src, dst = np.empty((2, sum(map(int, map(np.sum, block.num_edges.values())))), np.int64)
    begin = 0
    for e, ends in block.endpoints.items():
        rows = slice(begin, begin + len(ends[0]))
        # `own`: endpoints, counted from 0 in each small graph.
        for end, t, own in zip((src, dst), (e[0], e[2]), ends, strict=True):
            np.add(own, np.repeat(firsts[t], block.num_edges[e]), out=end[rows])
        begin = rows.stop
    graph = dgl.graph((torch.from_numpy(src), torch.from_numpy(dst)), num_nodes=sum(totals))
    has_types = len(block.num_nodes) + len(block.num_edges) > 2
    for frame, first, counts, inner in (
        (graph.ndata, task.first_node, block.num_nodes, "inner_node"),
        (graph.edata, task.first_edge, block.num_edges, "inner_edge"),
    ):
        number = torch.tensor([int(own.sum()) for own in counts.values()], dtype=torch.int64)
        total = int(number.sum())
        # DGL has one key for both nodes and edges: EID equals NID, and ETYPE equals NTYPE.
        frame[dgl.NID] = torch.arange(first, first + total)
        frame[inner] = torch.ones(total, dtype=torch.uint8)
        if has_types:
            frame[dgl.NTYPE] = torch.arange(len(number), dtype=torch.int32).repeat_interleave(number)
    graph.ndata["part_id"] = torch.full((graph.num_nodes(),), task.part)
    return graph
