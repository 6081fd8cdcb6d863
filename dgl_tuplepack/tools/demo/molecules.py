"""Synthetic molecules: random graphs of exactly given sizes, for demonstrations and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dgl_tuplepack._core.kernels.molecules import draw_bonds, draw_kinds
from dgl_tuplepack._core.kernels.random import derive_key
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, GraphBlock
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.sizes import HOMOGENEOUS, GraphSizes

# Running sums of the frequencies of atom kinds, in thousandths, roughly as in drug-like molecules: C, N, O, S,
# halogens, others.
_ATOMS = np.cumsum([740, 100, 120, 20, 15, 5])
# Running sums of the frequencies of bond kinds, in thousandths: aromatic, single, double, triple.
_BONDS = np.cumsum([480, 420, 95, 5])
# Indices in _ATOMS.
_NITROGEN, _OXYGEN = 1, 2

NUM_ATOM_KINDS, NUM_BOND_KINDS = len(_ATOMS), len(_BONDS)


class Molecules(Source):
    """One random molecule-like graph for each size, as plain arrays.

    `sizes` must have the components ("nodes", "edges"). A graph with edges must have nodes. Otherwise, SizesError is
    raised. `seed` is in 0..2**64-1; equal seeds give equal graphs on every platform. Nodes and edges have a feature
    ``"kind"``, int64. The label of a graph, float32 ``[1]``, is 1 if the graph has an edge from a nitrogen to an
    oxygen, else 0.
    """

    knows_sizes = True

    def __init__(self, sizes: GraphSizes, seed: int = 0) -> None:
        super().__init__("synthetic molecules")
        if sizes.components != HOMOGENEOUS:
            raise SizesError(f"molecules need the components {HOMOGENEOUS}, but got {sizes.components}.")
        impossible = np.flatnonzero((sizes.num_nodes == 0) & (sizes.num_edges > 0))
        if len(impossible):
            raise SizesError(f"graph {impossible[0]} has edges but no nodes; give it at least one node.")
        self._sizes, self._seed = sizes, seed

    def sizes(self) -> GraphSizes:
        """Return the sizes."""
        return self._sizes

    def num_graphs(self) -> int:
        """Return the number of sizes."""
        return len(self._sizes)

    def block(self) -> GraphBlock:
        """Return all molecules as one block."""
        sizes = self._sizes
        first_nodes, first_edges = (np.cumsum(numbers) - numbers for numbers in sizes.array.T)
        num_nodes, num_edges = sizes.array.sum(axis=0)
        # ends: source and destination of each edge, as indices of nodes within its graph. The kernels fill the arrays.
        ends = np.empty((2, num_edges), dtype=np.int64)
        atoms, bonds = np.empty(num_nodes, dtype=np.int64), np.empty(num_edges, dtype=np.int64)
        keys = [np.uint64(derive_key(np.uint64(self._seed), np.uint64(0), np.uint64(purpose))) for purpose in range(3)]
        draw_bonds(sizes.array, np.append(first_edges, num_edges), ends, keys[0])
        draw_kinds(_ATOMS, atoms, keys[1])
        draw_kinds(_BONDS, bonds, keys[2])

        graph_of_edge = np.repeat(np.arange(len(sizes)), sizes.num_edges)
        # src, dst: kind of the source atom and of the destination atom of each edge.
        src, dst = atoms[ends + first_nodes[graph_of_edge]]
        bound = np.bincount(graph_of_edge[(src == _NITROGEN) & (dst == _OXYGEN)], minlength=len(sizes)) > 0
        return GraphBlock(
            {NODE_TYPE: np.ascontiguousarray(sizes.num_nodes)},
            {EDGE_TYPE: np.ascontiguousarray(sizes.num_edges)},
            {EDGE_TYPE: (ends[0], ends[1])},
            {NODE_TYPE: {"kind": atoms}},
            {EDGE_TYPE: {"kind": bonds}},
            {"": bound.astype(np.float32)[:, None]},
        )

    def blocks(self) -> Iterator[GraphBlock]:
        """Return an iterator over one block, which holds all molecules."""
        return iter([self.block()])
