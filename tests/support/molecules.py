"""Synthetic molecules as DGLGraphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.tools.demo.run import Molecules


def random_molecules(sizes: GraphSizes, seed: int = 0) -> list[tuple[Any, Any]]:
    """Return the graphs of `Molecules` as pairs (DGLGraph, label)."""
    block = Molecules(sizes, seed).block()
    # Some tests run without DGL.
    import dgl

    offsets = np.concatenate([np.zeros((1, 2), dtype=np.int64), np.cumsum(sizes.array, axis=0)])
    src, dst = (torch.from_numpy(end) for end in block.endpoints[EDGE_TYPE])
    atoms = torch.from_numpy(block.features[NODE_TYPE]["kind"])
    bonds = torch.from_numpy(block.features[EDGE_TYPE]["kind"])
    items = []
    for graph in range(len(sizes)):
        nodes = slice(offsets[graph, 0], offsets[graph + 1, 0])
        edges = slice(offsets[graph, 1], offsets[graph + 1, 1])
        molecule = dgl.graph((src[edges], dst[edges]), num_nodes=nodes.stop - nodes.start)
        molecule.ndata["kind"] = atoms[nodes]
        molecule.edata["kind"] = bonds[edges]
        items.append((molecule, torch.from_numpy(block.labels[""][graph])))
    return items
