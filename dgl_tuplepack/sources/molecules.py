"""Synthetic molecules: random graphs of exactly given sizes, for demonstrations and benchmarks."""

from __future__ import annotations

from typing import Any

import numpy as np

from dgl_tuplepack._optional import load
from dgl_tuplepack._progress import progress_bar
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.kernels.molecules import draw_bonds, draw_kinds
from dgl_tuplepack.kernels.random import derive_key
from dgl_tuplepack.sizes import HOMOGENEOUS, GraphSizes

# Shares in thousandths, roughly those of drug-like molecules: C, N, O, S, halogens, others.
_ATOMS = np.cumsum([740, 100, 120, 20, 15, 5])
# Aromatic, single, double, triple.
_BONDS = np.cumsum([480, 420, 95, 5])
_NITROGEN, _OXYGEN = 1, 2

NUM_ATOM_KINDS, NUM_BOND_KINDS = len(_ATOMS), len(_BONDS)


def random_molecules(sizes: GraphSizes, seed: int = 0) -> list[tuple[Any, Any]]:
    """Make one random molecule-like graph for each size; only the sizes are real.

    `sizes` have the components ("nodes", "edges"), and a graph with edges needs a node (else SizesError). `seed` is in
    0..2**64-1; equal seeds give equal graphs on every platform. The result is pairs (DGLGraph, label): node and edge
    feature ``"kind"``, int64 ``[V]`` and ``[E]``; the label, float32 ``[1]``, is 1 if a nitrogen is bound to an oxygen,
    so that there is something to learn.
    """
    if sizes.components != HOMOGENEOUS:
        raise SizesError(f"molecules need the components {HOMOGENEOUS}, but got {sizes.components}.")
    impossible = np.flatnonzero((sizes.num_nodes == 0) & (sizes.num_edges > 0))
    if len(impossible):
        raise SizesError(f"graph {impossible[0]} has edges but no nodes; give it at least one node.")
    dgl, torch = load("dgl"), load("torch")
    offsets = np.concatenate([np.zeros((1, 2), dtype=np.int64), np.cumsum(sizes.array, axis=0)])
    ends = np.empty((2, offsets[-1, 1]), dtype=np.int64)
    atoms, bonds = np.empty(offsets[-1, 0], dtype=np.int64), np.empty(offsets[-1, 1], dtype=np.int64)
    keys = [np.uint64(derive_key(np.uint64(seed), np.uint64(0), np.uint64(purpose))) for purpose in range(3)]
    draw_bonds(sizes.array, np.ascontiguousarray(offsets[:, 1]), ends, keys[0])
    draw_kinds(_ATOMS, atoms, keys[1])
    draw_kinds(_BONDS, bonds, keys[2])

    items = []
    for graph in progress_bar(range(len(sizes)), desc="molecules", unit=" graphs"):
        nodes = slice(offsets[graph, 0], offsets[graph + 1, 0])
        edges = slice(offsets[graph, 1], offsets[graph + 1, 1])
        src, dst = ends[:, edges]
        molecule = dgl.graph((torch.from_numpy(src), torch.from_numpy(dst)), num_nodes=nodes.stop - nodes.start)
        molecule.ndata["kind"] = torch.from_numpy(atoms[nodes])
        molecule.edata["kind"] = torch.from_numpy(bonds[edges])
        bound = (atoms[nodes][src] == _NITROGEN) & (atoms[nodes][dst] == _OXYGEN)
        items.append((molecule, torch.tensor([float(bound.any())])))
    return items
