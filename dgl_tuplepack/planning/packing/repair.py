"""Deal graphs evenly to packs, and exchange graphs between packs until every pack is within the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dgl_tuplepack.planning.sizes import FloatArray, IntArray

if TYPE_CHECKING:
    from dgl_tuplepack._core.kernels.deal_and_repair import Packs

# Sizes are scaled so that each limit is about _SCALE, and equal shares of the limits count alike. If the scaled loads
# could add up to more than _MOST, nothing is exchanged, so that no sum overflows int64.
_SCALE, _MOST = 1 << 26, 1 << 62
# Graphs are dealt to groups of at most this many packs.
GROUP = 1000
# Directions are scaled to _DIRECTION, and loads so that the products of full packs are about _PRODUCT. Packs with up to
# eight times as much still fit into int32.
_DIRECTION, _PRODUCT = 1 << 9, 1 << 28


@dataclass(frozen=True, eq=False)
class OpenPacks:
    """P packs whose graphs may be exchanged, with up to M graphs each.

    Parameters
    ----------
    sizes
        Sizes of graphs or of size classes, int64 ``[N, d]``.
    limits
        Inclusive maxima of a pack, int64 ``[d]``, >= 1.
    members
        Rows of `sizes`, int64 ``[P, M]``; the first ``counts[p]`` entries of row p are the graphs of pack p.
    counts
        Number of graphs of each pack, int64 ``[P]``.
    """

    sizes: IntArray
    limits: IntArray
    members: IntArray
    counts: IntArray

    @classmethod
    def of(
        cls, sizes: IntArray, limits: IntArray, assigned: IntArray, rows: IntArray, packs: int, free: int
    ) -> OpenPacks:
        """Make packs from the pack of each graph, ``assigned[i]``, and its row in `sizes`, ``rows[i]``.

        Each pack has at least `free` unused places.
        """
        counts = np.bincount(assigned, minlength=packs)
        members = np.zeros((packs, int(counts.max()) + free), dtype=np.int64)
        order = np.argsort(assigned, kind="stable")
        places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        members[assigned[order], places] = rows[order]
        return cls(sizes, limits, members, counts)

    @property
    def graphs(self) -> IntArray:
        """The rows of all packs, one pack after the other."""
        return self.members[np.arange(self.members.shape[1]) < self.counts[:, None]]

    @property
    def loads(self) -> IntArray:
        """Total size of each pack, int64 ``[P, d]``."""
        sums = np.zeros((len(self.graphs) + 1, len(self.limits)), dtype=np.int64)
        np.cumsum(self.sizes[self.graphs], axis=0, out=sums[1:])
        ends = np.cumsum(self.counts)
        loads: IntArray = sums[ends] - sums[ends - self.counts]
        return loads

    def exceeding(self) -> IntArray:
        """Return the packs that exceed a limit."""
        return np.flatnonzero((self.loads > self.limits).any(axis=1))

    def repair(self, *, moves: bool, key: np.uint64, budget: int) -> int:
        """Exchange graphs until no pack exceeds a limit, or progress or budget end; return the units of work done.

        With `moves`, a graph may also move to a pack with an unused place.
        """
        from dgl_tuplepack._core.kernels.deal_and_repair import repair

        if (scaled := self._scaled()) is None:
            return 0
        return repair(*scaled, moves, 1, key, budget)[1]

    def stir(self, chosen: IntArray, *, key: np.uint64, rounds: int, budget: int) -> int:
        """Exchange random graphs of the packs `chosen` with all packs, within the limits; return the work done."""
        from dgl_tuplepack._core.kernels.deal_and_repair import stir

        if (scaled := self._scaled()) is None:
            return 0
        return stir(*scaled, chosen, key, rounds, budget)

    def _scaled(self) -> tuple[IntArray, IntArray, Packs] | None:
        """Return the first arguments of the kernels, or None if sums could overflow."""
        from dgl_tuplepack._core.kernels.deal_and_repair import Packs

        scale = max(_SCALE, int(self.limits.max()))
        if scale * len(self.counts) * len(self.limits) > _MOST:
            return None
        factors = scale // self.limits
        nothing = np.zeros((1, len(self.limits)), dtype=np.int64)
        sizes = np.vstack([self.sizes * factors, nothing])
        return sizes, self.limits * factors, Packs(self.members, self.counts, self.loads * factors)


def dealt_evenly(shares: FloatArray, rows: IntArray, packs: int) -> IntArray:
    """Deal graphs to packs so that the loads of all packs are nearly equal; return the pack of each graph.

    Parameters
    ----------
    shares
        Sizes of graphs or of size classes, as shares of the limits, float64 ``[C, d]``, at most 1.
    rows
        Row in `shares` of each graph, int64 ``[N]``, in the order in which they are dealt; large graphs should come
        first.
    packs
        Number of packs P, >= 1.

    Notes
    -----
    Each graph goes to the pack whose load has the smallest scalar product with the size of the graph. Time O(N P d) for
    groups of at most 1,000 packs, where each group gets a sample of the graphs; less if rows repeat.
    """
    from dgl_tuplepack._core.kernels.deal_and_repair import deal

    # A graph of size 0 has the direction 0.
    directions = (shares / np.maximum(shares.max(axis=1), 1e-300)[:, None] * _DIRECTION).astype(np.int32)
    steps = (shares * (_PRODUCT // (_DIRECTION * shares.shape[1]))).astype(np.int32)
    assigned = np.empty(len(rows), dtype=np.int64)
    groups, first = -(-packs // GROUP), 0
    for group in range(groups):
        of_group = np.ascontiguousarray(rows[group::groups])
        number = packs // groups + (group < packs % groups)
        chosen = np.empty(len(of_group), dtype=np.int64)
        deal(directions, steps, of_group, number, chosen)
        assigned[group::groups] = first + chosen
        first += number
    return assigned
