"""Random molecule-like graphs of given sizes: long chains with branches, closed into rings."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.random import random_bits
from dgl_tuplepack._core.kernels.types import ConstIntMatrix, ConstIntVector, IntMatrix, IntVector


@jit
def draw_bonds(sizes: ConstIntMatrix, edge_offsets: ConstIntVector, ends: IntMatrix, key: np.uint64) -> None:
    """Fill `ends` ``[2, E]``, the source and the destination of each edge, for graphs of `sizes` ``[N, 2]``.

    A bond is a pair of opposite edges; an odd last edge has none. The first bonds form a tree that is mostly a chain;
    the later bonds close rings of five or six atoms.
    """
    counter = np.uint64(0)
    for graph in range(len(sizes)):
        nodes = sizes[graph, 0]
        edge = edge_offsets[graph]
        bond = 0
        while edge < edge_offsets[graph + 1]:
            bits = random_bits(key, counter)
            counter += np.uint64(1)
            bond += 1
            if bond < nodes:
                atom = bond
                # With probability 3/4, the bond continues the chain; otherwise it begins a branch.
                back = 1 if bits & np.uint64(3) else 2 + int((bits >> np.uint64(2)) & np.uint64(3))
            else:
                back = 4 + int(bits & np.uint64(1))
                # If the graph is too small, close a smaller ring.
                first = min(back, nodes - 1)
                atom = first + int((bits >> np.uint64(8)) % np.uint64(nodes - first))
            other = max(atom - back, 0)
            ends[0, edge], ends[1, edge] = atom, other
            if edge + 1 < edge_offsets[graph + 1]:
                ends[0, edge + 1], ends[1, edge + 1] = other, atom
            edge += 2


@jit
def draw_kinds(cumulated: ConstIntVector, kinds: IntVector, key: np.uint64) -> None:
    """Fill `kinds` with random kinds 0..K-1; `cumulated` ``[K]`` has running sums of frequencies, in thousandths."""
    for position in range(len(kinds)):
        number = np.int64(random_bits(key, np.uint64(position)) % np.uint64(1000))
        kind = 0
        while cumulated[kind] <= number:
            kind += 1
        kinds[position] = kind
