"""Packs with other graphs in each epoch: as many as a plan has, within the same limits."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dgl_tuplepack._core.kernels.slots import expand_patterns
from dgl_tuplepack._core.seeds import key_of, random_fractions
from dgl_tuplepack.planning.bounds.instance import as_instance
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.stages.dealing import OpenPacks, dealt_evenly
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# Identifiers of the random streams; other files have others.
_DEAL, _REPAIR, _STIR = 6, 7, 8
# Graphs are dealt in descending order of their size times a random factor between 1 - _NOISE and 1.
_NOISE = 0.5
# If its packs cannot be repaired, more and more packs of the plan are kept; after this many attempts, all of them.
_ATTEMPTS = 5
# Most units of work (see `Effort` in planning) of a repair: a number for each graph and component, plus another one.
_REPAIR_WORK = 100, 5_000_000
# The same for stirring, and its rounds. Where packs hold few graphs, most tries of a round find no exchange.
_STIR_WORK, _ROUNDS = (500, 20_000_000), 1000
# Unused places in each pack, which let graphs move.
_FREE = 16


@dataclass(frozen=True)
class Packs:
    """A plan expanded into its packs.

    Pack p holds the graphs ``graphs[offsets[p]:offsets[p + 1]]``, which are positions in the graphs ordered by size
    class, not ids, and has ``work[p]`` real nodes and edges; ``shapes[p]`` is the index of its shape bucket.
    """

    plan: PackPlan
    offsets: IntArray
    graphs: IntArray
    work: FloatArray
    shapes: IntArray

    @classmethod
    def of(cls, plan: PackPlan, class_offsets: IntArray) -> Packs:
        """Expand a plan; graphs of size class c have the indices ``class_offsets[c]:class_offsets[c + 1]``."""
        offsets, graphs = expand_patterns(plan.offsets, plan.classes, plan.multiplicities, plan.repeats, class_offsets)
        # Use floats, since sums over components may exceed int64.
        work = np.repeat(plan.pattern_contents.sum(axis=1, dtype=np.float64), plan.repeats)
        return cls(plan, offsets, graphs, work, np.repeat(plan.pattern_shapes, plan.repeats))


class ExchangedPacks:
    """The packs of each epoch: as many as the `packs` of the plan, within the same limits, with random graphs.

    All graphs are put into packs in a random order, and packs that exceed a limit are repaired. If some of them cannot
    be repaired, the packs that hold their graphs in the plan are kept, and the other packs are filled again. Then
    random graphs of the kept packs are exchanged. All floats are products and quotients of two floats, which are equal
    on every platform.
    """

    def __init__(self, packs: Packs, limits: Limits, seed: int) -> None:
        self._packs, self._limits, self._seed = packs, limits, seed
        # The latest epoch, and its packs.
        self._latest: tuple[int, Packs] = (-1, packs)

    def of(self, epoch: int) -> Packs:
        """Return the packs of an epoch. Time O(N P k) for N graphs and P packs, at most 1,000; plus the repair."""
        if self._latest[0] != epoch:
            histogram = self._packs.plan.histogram
            instance = as_instance(histogram, self._limits)
            packs = self._found(epoch, np.repeat(instance.sizes, histogram.counts, axis=0), instance.limits)
            offsets, graphs = np.append(0, np.cumsum(packs.counts)), packs.graphs
            work = np.repeat(histogram.sizes.sum(axis=1, dtype=np.float64), histogram.counts)[graphs]
            work = np.add.reduceat(work, offsets[:-1])
            self._latest = epoch, replace(self._packs, offsets=offsets, graphs=graphs, work=work)
        return self._latest[1]

    def _found(self, epoch: int, sizes: IntArray, limits: IntArray) -> OpenPacks:
        """Return the packs of an epoch for graphs of these sizes, ``[N, d]``."""
        counts = np.diff(self._packs.offsets)
        # The pack of each graph: as in the plan, until other packs are found.
        assigned = np.empty(len(sizes), dtype=np.int64)
        assigned[self._packs.graphs] = np.repeat(np.arange(len(counts)), counts)
        kept = np.zeros(len(counts), dtype=bool)
        for _ in range(_ATTEMPTS):
            graphs, free = np.flatnonzero(~kept[assigned]), np.flatnonzero(~kept)
            filled = self._filled(epoch, sizes, limits, graphs, len(free))
            exceeding = filled.exceeding()
            if not len(exceeding) and filled.counts.all():
                assigned[filled.graphs] = np.repeat(free, filled.counts)
                break
            unfit = np.repeat(np.isin(np.arange(len(free)), exceeding), filled.counts)
            kept[assigned[filled.graphs[unfit]]] = True
            if kept.all():
                break
        else:
            kept[:] = True
        packs = OpenPacks.of(sizes, limits, assigned, np.arange(len(sizes)), len(counts), 0)
        budget = _STIR_WORK[0] * sizes.size + _STIR_WORK[1]
        packs.stir(np.flatnonzero(kept), key=key_of(self._seed, epoch, _STIR), rounds=_ROUNDS, budget=budget)
        return packs

    def _filled(self, epoch: int, sizes: IntArray, limits: IntArray, graphs: IntArray, number: int) -> OpenPacks:
        """Fill a number of packs with graphs in random order; return the packs, some of which may exceed a limit."""
        keys = key_of(self._seed, epoch, _DEAL), key_of(self._seed, epoch, _REPAIR)
        return filled_packs(sizes, limits, graphs, number, *keys)


def filled_packs(
    sizes: IntArray, limits: IntArray, graphs: IntArray, number: int, deal_key: np.uint64, repair_key: np.uint64
) -> OpenPacks:
    """Fill a number of packs with graphs in random order, and repair them; some may still exceed a limit."""
    shares = sizes / limits
    factors = 1 - _NOISE * random_fractions(deal_key, len(sizes))
    ordered = graphs[np.argsort(-(shares.max(axis=1) * factors)[graphs], kind="stable")]
    packs = OpenPacks.of(sizes, limits, dealt_evenly(shares, ordered, number), ordered, number, _FREE)
    packs.repair(moves=True, key=repair_key, budget=_REPAIR_WORK[0] * sizes.size + _REPAIR_WORK[1])
    return packs
