"""A small dataset in OGB's raw layout, made of synthetic molecules, for what reads OGB folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dgl_tuplepack.sizes import GraphSizes
from dgl_tuplepack.sources.molecules import random_molecules


def write_ogb_folder(root: Path, sizes: GraphSizes, seed: int = 0) -> Path:
    """Write ``root/ogbg_molhiv`` with a molecule for each size; three quarters train, then valid, then test."""
    folder = root / "ogbg_molhiv"
    (folder / "raw").mkdir(parents=True)
    (folder / "split" / "scaffold").mkdir(parents=True)
    (folder / "RELEASE_v1.txt").touch()
    items = random_molecules(sizes, seed)
    rng = np.random.default_rng(seed)
    # OGB stores each bond once and adds the opposite edge while reading.
    bonds = [np.stack([end.numpy()[::2] for end in graph.edges()], axis=1) for graph, _ in items]
    tables = {
        "num-node-list": sizes.num_nodes[:, None],
        "num-edge-list": np.array([[len(bond)] for bond in bonds]),
        "edge": np.concatenate(bonds),
        "node-feat": rng.integers(0, 2, (int(sizes.num_nodes.sum()), 9)),
        "edge-feat": rng.integers(0, 2, (sum(map(len, bonds)), 3)),
        "graph-label": np.arange(len(items))[:, None] % 2,
    }
    for name, table in tables.items():
        np.savetxt(folder / "raw" / f"{name}.csv.gz", table, fmt="%d", delimiter=",")
    ids = np.arange(len(items))
    cuts = np.split(ids, [len(ids) * 3 // 4, len(ids) * 7 // 8])
    for part, chosen in zip(("train", "valid", "test"), cuts, strict=True):
        np.savetxt(folder / "split" / "scaffold" / f"{part}.csv.gz", chosen, fmt="%d")
    return root
