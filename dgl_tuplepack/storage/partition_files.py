"""The files of one part of a partition, as `dgl.distributed.partition_graph` of DGL 1.1.3 writes them."""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.graphs.blocks import Array, GraphBlock, GraphType
from dgl_tuplepack.graphs.readers.graph_record import GraphRecord, text_of
from dgl_tuplepack.graphs.readers.partition import GRAPH_FILE, PART_FILE, RECORD, checksum_of
from dgl_tuplepack.graphs.values import as_tensor
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.folder import writing_to
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.reader import chosen_block
from dgl_tuplepack.storage.write import plain_name

# The part of each graph, int64 ``[N]``.
ASSIGNED = "graph_parts.npy"
NODE_FEATURES, EDGE_FEATURES = "node_feat.dgl", "edge_feat.dgl"
ORIGINAL_NODES, ORIGINAL_EDGES = "orig_nids.dgl", "orig_eids.dgl"
# DGL cannot read empty tensors of these dtypes.
_NOT_EMPTY = (torch.bfloat16, torch.complex64, torch.complex128)


@dataclass(frozen=True)
class PartTask:
    """One part to write: its number, and the first global node and edge of the part.

    `identity` identifies the content of the source and the assignment. `fresh`: write the part even if it is there.
    """

    store: StoredGraphs
    out: Path
    part: int
    first_node: int
    first_edge: int
    identity: str
    fresh: bool


def write_part(task: PartTask) -> bool:
    """Write the folder of a part, complete or not at all; return False if an intact one exists.

    Raises FormatError if it cannot be written, or if DGL reads other numbers than were written.
    """
    folder = task.out / f"part{task.part}"
    if not task.fresh and is_finished(folder, task.identity):
        return False
    ids = np.flatnonzero(np.load(task.out / ASSIGNED, mmap_mode="r") == task.part)
    partial = task.out / f".part{task.part}.{secrets.token_hex(8)}.partial"
    try:
        with writing_to(folder):
            partial.mkdir()
            _write(task, ids, partial)
            if folder.exists():
                os.replace(folder, task.out / f"{partial.name}.old")
            os.replace(partial, folder)
    finally:
        for leftover in task.out.glob(f".part{task.part}.*"):
            shutil.rmtree(leftover, ignore_errors=True)
    return True


def is_finished(folder: Path, identity: str) -> bool:
    """Return whether a part was written from the same source and assignment, and every byte of it is as it was."""
    try:
        with PART_FILE.reading(folder / RECORD) as document:
            return bool(document["identity"] == identity) and all(
                checksum_of(folder / file) == sha256 for file, sha256 in document["files"].items()
            )
    except (InputError, OSError):
        return False


def _write(task: PartTask, ids: IntArray, folder: Path) -> None:
    block = chosen_block(task.store, task.store.ids_in_store(ids))
    _save_graph(task, block, folder / GRAPH_FILE)
    schema, data = task.store.schema, load("dgl.data")

    def tensor(values: Array, spec: Any) -> Any:
        # The rows were gathered for this part, so they need no copy.
        return torch.from_numpy(values) if values.dtype != np.uint16 else as_tensor(values, spec.dtype)

    nodes = {
        f"{t}/{name}": tensor(block.node_features[t][name], spec)
        for t, specs in schema.node_features.items() for name, spec in specs.items()
    }  # fmt: skip
    edges = {
        f"{text_of(e)}/{name}": tensor(block.edge_features[e][name], spec)
        for e, specs in schema.edge_features.items() for name, spec in specs.items()
    }  # fmt: skip
    originals = _original_ids(task.store, ids)
    for file, tensors in (
        (NODE_FEATURES, nodes),
        (EDGE_FEATURES, edges),
        (ORIGINAL_NODES, {t: originals[t] for t in schema.node_types}),
        (ORIGINAL_EDGES, {text_of(e): originals[e] for e in schema.edge_types}),
    ):
        kept = {n: v for n, v in tensors.items() if v.numel() or v.dtype not in _NOT_EMPTY}
        data.save_tensors(str(folder / file), kept)
    _save_record(task, ids, block, folder)
    _check(folder, block)


def _save_graph(task: PartTask, block: GraphBlock, file: Path) -> None:
    """Save the part as one graph without types, whose nodes and edges are sorted by type."""
    dgl = load("dgl")
    number = {t: int(counts.sum()) for t, counts in (*block.num_nodes.items(), *block.num_edges.items())}
    first = dict(zip(block.num_nodes, np.cumsum([0, *(number[t] for t in block.num_nodes)]).tolist(), strict=False))
    ends = []
    for e, pair in block.endpoints.items():
        begins = {t: np.cumsum(block.num_nodes[t]) - block.num_nodes[t] + first[t] for t in (e[0], e[2])}
        counts = block.num_edges[e]
        ends.append([end + np.repeat(begins[t], counts) for t, end in zip((e[0], e[2]), pair, strict=True)])
    src, dst = (torch.from_numpy(np.concatenate([np.empty(0, np.int64), *each])) for each in zip(*ends, strict=True))
    nodes, edges = sum(number[t] for t in block.num_nodes), len(src)
    graph = dgl.graph((src, dst), num_nodes=nodes)
    has_types = len(block.num_nodes) + len(block.num_edges) > 2
    for frame, rows, begin, types, inner in (
        (graph.ndata, nodes, task.first_node, block.num_nodes, "inner_node"),
        (graph.edata, edges, task.first_edge, block.num_edges, "inner_edge"),
    ):
        frame[dgl.NID] = torch.arange(begin, begin + rows)
        frame[inner] = torch.ones(rows, dtype=torch.uint8)
        if has_types:
            of_type = [torch.full((number[t],), i, dtype=torch.int32) for i, t in enumerate(types)]
            frame[dgl.NTYPE] = torch.cat(of_type)
    graph.ndata["part_id"] = torch.full((nodes,), task.part)
    dgl.save_graphs(str(file), [graph])


def _original_ids(store: StoredGraphs, ids: IntArray) -> dict[GraphType, Any]:
    """Return the numbers that nodes and edges of some graphs have in the large graph of all graphs, by type."""
    found: dict[GraphType, Any] = {}
    types: tuple[GraphType, ...] = (*store.schema.node_types, *store.schema.edge_types)
    for t, column in zip(types, store.sizes.array.T, strict=True):
        counts, first = column[ids], (np.cumsum(column) - column)[ids]
        inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        found[t] = torch.from_numpy(np.repeat(first, counts) + inside)
    return found


def _save_record(task: PartTask, ids: IntArray, block: GraphBlock, folder: Path) -> None:
    """Save the facts about graphs that DGL's files lack, and last a record with the checksums of all files."""
    (folder / "graphs").mkdir()
    position = np.full(len(task.store), -1)
    position[ids] = np.arange(len(ids))
    splits = {name: (found := position[chosen])[found >= 0] for name, chosen in task.store.splits.items()}
    files: dict[str, dict[str, str]] = {}
    for content, arrays in (("labels", block.labels), ("splits", splits)):
        files[content] = {}
        for number, (name, array) in enumerate(arrays.items()):
            files[content][name] = f"graphs/{content}_{number:02d}_{plain_name([name]) or 'y'}.npy"
            np.save(folder / files[content][name], array)
    counts = [*block.num_nodes.values(), *block.num_edges.values()]
    np.save(folder / "graphs/sizes.npy", np.stack(counts, axis=1).astype(np.int64))
    np.save(folder / "graphs/ids.npy", ids)
    record = GraphRecord(len(ids), task.store.schema, files["labels"], files["splits"])
    written = sorted(file for file in folder.rglob("*") if file.is_file())
    checksums = {str(file.relative_to(folder)): checksum_of(file) for file in written}
    PART_FILE.write(
        folder / RECORD,
        {"identity": task.identity, "part": task.part, "graphs": record.as_document(), "files": checksums},
        indent=1,
    )


def _check(folder: Path, block: GraphBlock) -> None:
    """Compare the numbers of nodes and edges that DGL reads with the numbers that were written."""
    (graph,), _ = load("dgl").load_graphs(str(folder / GRAPH_FILE))
    expected = [int(sum(c.sum() for c in counts.values())) for counts in (block.num_nodes, block.num_edges)]
    if [graph.num_nodes(), graph.num_edges()] != expected:
        raise FormatError(f"{folder} was not written as expected; check the disk and run again.")
