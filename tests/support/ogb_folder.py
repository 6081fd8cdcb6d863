"""A small dataset in OGB's raw layout, made of synthetic molecules, for what reads OGB folders."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import torch

from dgl_tuplepack.graphs.blocks import EDGE_TYPE
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.tools.demo.run import Molecules


def write_ogb_folder(root: Path, sizes: GraphSizes, seed: int = 0) -> Path:
    """Write ``root/ogbg_molhiv`` with a molecule for each size; three quarters train, then valid, then test."""
    folder = root / "ogbg_molhiv"
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "scaffold").mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()
    ends = np.stack(Molecules(sizes, seed).block().endpoints[EDGE_TYPE], axis=1)
    rng = np.random.default_rng(seed)
    # OGB stores each bond once and adds the opposite edge while reading.
    bonds = [edges[::2] for edges in np.split(ends, np.cumsum(sizes.num_edges)[:-1])]
    tables = {
        "num-node-list": sizes.num_nodes[:, None],
        "num-edge-list": np.array([[len(bond)] for bond in bonds]),
        "edge": np.concatenate(bonds),
        "node-feat": rng.integers(0, 2, (int(sizes.num_nodes.sum()), 9)),
        "edge-feat": rng.integers(0, 2, (sum(map(len, bonds)), 3)),
        "graph-label": np.arange(len(sizes))[:, None] % 2,
    }
    for name, table in tables.items():
        np.savetxt(folder / "raw" / f"{name}.csv.gz", table, fmt="%d", delimiter=",")
    ids = np.arange(len(sizes))
    cuts = np.split(ids, [len(ids) * 3 // 4, len(ids) * 7 // 8])
    for part, chosen in zip(("train", "valid", "test"), cuts, strict=True):
        np.savetxt(folder / "split" / "scaffold" / f"{part}.csv.gz", chosen, fmt="%d")
    return root


def write_raw_folder(
    folder: Path,
    nodes: list[int],
    edges: list[np.ndarray],
    labels: np.ndarray,
    tables: dict[str, np.ndarray],
    splits: dict[str, dict[str, list[int]]] | None = None,
    binary: bool = False,
    fortran: bool = False,
) -> Path:
    """Write a dataset in OGB's raw layout, as CSV or (`binary`) as npz.

    `edges` has ``[n, 2]`` for each graph; `tables` are named as files are, such as "node-feat" or "edge_kind".
    """
    (folder / "raw").mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()
    rows = np.concatenate([*edges, np.empty((0, 2), np.int64)]).astype(np.int64)
    counts = np.array([len(pairs) for pairs in edges])
    if binary:
        as_stored = np.asfortranarray if fortran else np.ascontiguousarray
        arrays = {name.replace("-", "_"): as_stored(table) for name, table in tables.items()}
        ends = np.asfortranarray(rows.T) if fortran else np.ascontiguousarray(rows.T)
        sizes = {"num_nodes_list": np.array(nodes), "num_edges_list": counts}
        np.savez_compressed(folder / "raw" / "data.npz", edge_index=ends, **sizes, **arrays)
        np.savez_compressed(folder / "raw" / "graph-label.npz", graph_label=labels)
    else:
        lists = {"num-node-list": np.array(nodes)[:, None], "num-edge-list": counts[:, None], "edge": rows}
        for name, table in {**lists, "graph-label": labels, **tables}.items():
            write_table(folder / "raw" / f"{name}.csv.gz", table)
    for name, parts in (splits or {}).items():
        (folder / "split" / name).mkdir(parents=True)
        if binary:
            ids = {part: np.array(chosen, np.int64) for part, chosen in parts.items()}
            torch.save(ids, folder / "split" / name / "split_dict.pt")
        else:
            for part, chosen in parts.items():
                write_table(folder / "split" / name / f"{part}.csv.gz", np.array(chosen)[:, None])
    return folder


def write_table(path: Path, table: np.ndarray) -> None:
    """Write a table as OGB has them: no header, missing values as empty fields."""
    with gzip.open(path, "wt") as file:
        for row in table.tolist():
            file.write(",".join("" if value != value else str(value) for value in row) + "\n")
