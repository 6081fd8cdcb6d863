"""Folders in DGL's chunked graph format as other programs write them, and what they hold, by the simplest means."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import torch

EdgeType = tuple[str, str, str]


@dataclass
class Large:
    """One large graph: numbers of nodes, endpoints by edge type, features, and the small graph of each node."""

    num_nodes: dict[str, int]
    ends: dict[EdgeType, np.ndarray]
    node_data: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    edge_data: dict[EdgeType, dict[str, np.ndarray]] = field(default_factory=dict)
    graph_of: dict[str, np.ndarray] = field(default_factory=dict)


def random_large(seed: int, hetero: bool, graphs: int = 4) -> Large:
    """Small random graphs whose nodes and edges lie in a random order among those of the others."""
    rng = np.random.default_rng(seed)
    types = ("a", "b") if hetero else ("_N",)
    edge_types = (("a", "r", "b"), ("a", "t", "a"), ("b", "s", "a")) if hetero else (("_N", "_E", "_N"),)
    number = {t: int(rng.integers(graphs, 5 * graphs)) for t in types}
    # Each graph has a node of the first type, so that numbers without nodes do not vanish.
    graph_of = {
        t: rng.permutation(np.append(np.arange(graphs), rng.integers(0, graphs, n))[:n]) for t, n in number.items()
    }
    ends = {}
    for e in edge_types:
        pairs = [
            (s, d) for s in range(number[e[0]]) for d in range(number[e[2]]) if graph_of[e[0]][s] == graph_of[e[2]][d]
        ]
        chosen = rng.integers(0, len(pairs), rng.integers(0, 12)) if pairs else []
        ends[e] = np.array([pairs[i] for i in chosen], np.int64).reshape(-1, 2)
    node_data = {t: {"x": rng.random((n, 2)), "mask": rng.random(n) > 0.5} for t, n in number.items()}
    edge_data = {e: {"w": rng.integers(0, 9, len(pairs))} for e, pairs in ends.items()}
    return Large(number, ends, node_data, edge_data, graph_of)


def with_components(large: Large) -> Large:
    """The same large graph with its connected components as graphs, numbered by their first nodes."""
    keys = [(t, i) for t, n in large.num_nodes.items() for i in range(n)]
    root = {key: key for key in keys}

    def find(key: Any) -> Any:
        return key if root[key] == key else find(root[key])

    for (s, _, d), pairs in large.ends.items():
        for i, j in pairs.tolist():
            root[find((s, i))] = find((d, j))
    numbers: dict[Any, int] = {}
    found = {key: numbers.setdefault(find(key), len(numbers)) for key in keys}
    graph_of = {t: np.array([found[t, i] for i in range(n)], np.int64) for t, n in large.num_nodes.items()}
    return Large(large.num_nodes, large.ends, large.node_data, large.edge_data, graph_of)


def items_of(large: Large) -> list[Any]:
    """The small graphs: nodes and edges in the order that they have in the large one."""
    known = sorted({int(g) for ids in large.graph_of.values() for g in ids})
    return [_item(large, g) for g in known]


def _item(large: Large, g: int) -> Any:
    nodes = {t: [i for i in range(n) if large.graph_of[t][i] == g] for t, n in large.num_nodes.items()}
    local = {t: {node: i for i, node in enumerate(ids)} for t, ids in nodes.items()}
    edges = {e: [i for i, (s, _) in enumerate(p.tolist()) if s in local[e[0]]] for e, p in large.ends.items()}
    ends = {
        (s, r, d): (
            torch.tensor([local[s][large.ends[s, r, d][i, 0]] for i in ids], dtype=torch.int64),
            torch.tensor([local[d][large.ends[s, r, d][i, 1]] for i in ids], dtype=torch.int64),
        )
        for (s, r, d), ids in edges.items()
    }
    graph = dgl.heterograph(ends, {t: len(ids) for t, ids in nodes.items()})
    for t, data in large.node_data.items():
        graph.nodes[t].data.update({name: torch.from_numpy(values[nodes[t]]) for name, values in data.items()})
    for e, data in large.edge_data.items():
        graph.edges[e].data.update({name: torch.from_numpy(values[edges[e]]) for name, values in data.items()})
    return graph


def write_large(
    folder: Path, large: Large, chunks: int = 2, *, edges_as: str = "csv", with_ids: bool = True,
    absolute: bool = False, delimiter: str = " ", files: Sequence[int] = (3, 2),
) -> Path:  # fmt: skip
    """Write a folder, with `files[0]` files of edges and `files[1]` of data, whatever the number of chunks."""
    folder.mkdir(parents=True)
    data = {t: dict(columns) for t, columns in large.node_data.items()}
    if with_ids:
        for t, ids in large.graph_of.items():
            data.setdefault(t, {})["graph_id"] = ids

    def saved(name: str, array: np.ndarray, form: str, number: int) -> dict[str, Any]:
        paths = []
        for i, piece in enumerate(np.array_split(array, number)):
            path = folder / f"{name}-{i}.{form}"
            if form == "csv":
                np.savetxt(path, piece, "%d", delimiter=delimiter)
            else:
                np.save(path.with_suffix(".npy"), piece)
                path = path.with_suffix(".npy")
            paths.append(str(path) if absolute else path.name)
        return {"format": {"name": form, **({"delimiter": delimiter} if form == "csv" else {})}, "data": paths}

    def numbers(counts: Sequence[int]) -> list[list[int]]:
        return [[len(part) for part in np.array_split(np.arange(n), chunks)] for n in counts]

    document = {
        "graph_name": "theirs",
        "node_type": list(large.num_nodes),
        "num_nodes_per_chunk": numbers(list(large.num_nodes.values())),
        "edge_type": [":".join(e) for e in large.ends],
        "num_edges_per_chunk": numbers([len(pairs) for pairs in large.ends.values()]),
        "edges": {":".join(e): saved("_".join(e), pairs, edges_as, files[0]) for e, pairs in large.ends.items()},
        "node_data": {
            t: {n: saved(f"{t}_{n}", v, "numpy", files[1]) for n, v in columns.items()} for t, columns in data.items()
        },
        "edge_data": {
            ":".join(e): {n: saved(f"{'_'.join(e)}_{n}", v, "numpy", files[1]) for n, v in columns.items()}
            for e, columns in large.edge_data.items()
        },
    }  # fmt: skip
    (folder / "metadata.json").write_text(json.dumps(document))
    return folder


def change(folder: Path, edit: Any) -> None:
    """Let `edit` change the document in ``metadata.json``."""
    document = json.loads((folder / "metadata.json").read_text())
    edit(document)
    (folder / "metadata.json").write_text(json.dumps(document))
