"""Random content of packs whose graphs nearly all differ in size: deal graphs at random, then repair the packs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dgl_tuplepack._core.seeds import key_of, random_fractions
from dgl_tuplepack.planning.bounds.instance import as_instance
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.repair import OpenPacks, dealt_evenly
from dgl_tuplepack.sampling.plans import Packs

# Graphs are dealt in descending order of their size times a random factor between 1 - _NOISE and 1.
_NOISE = 0.5
# Most units of work (see `Effort`) of the repair, for each graph and component.
_WORK, _LEAST_WORK = 100, 5_000_000
_MOST_STIRRING = 1000
# Unused places in each pack, which let graphs move.
_FREE = 16
# Identifiers of random streams; `epochs.py` and `plans.py` have the others.
_DEAL, _REPAIR, _STIR = 6, 7, 8


class ExchangedPacks:
    """The packs of each epoch: as many as in the plan, within the same limits, with random graphs.

    All graphs are dealt to packs in a random order, and packs that exceed a limit are repaired. If that fails, graphs
    are exchanged between the packs of the plan, within the limits.

    Parameters
    ----------
    packs
        The packs of the plan.
    limits
        Limits of each pack, with a cap on graphs.
    seed
        Random seed. Packs depend only on the parameters and on the epoch.
    """

    def __init__(self, packs: Packs, limits: Limits, seed: int) -> None:
        self._packs, self._seed = packs, seed
        histogram = packs.plan.histogram
        instance = as_instance(histogram, limits)
        # Of each graph: its size as `instance` counts it, and its nodes and edges.
        self._sizes, self._limits = np.repeat(instance.sizes, histogram.counts, axis=0), instance.limits
        self._work = np.repeat(histogram.sizes.sum(axis=1, dtype=np.float64), histogram.counts)
        # The latest epoch, and its packs.
        self._latest: tuple[int, Packs] = (-1, packs)

    def of(self, epoch: int) -> Packs:
        """Return the packs of an epoch. Time O(N P k) for N graphs and P packs, at most 2,000; plus the repair."""
        if self._latest[0] != epoch:
            packs = self._dealt(epoch) or self._stirred(epoch)
            offsets, graphs = np.append(0, np.cumsum(packs.counts)), packs.graphs
            work = np.add.reduceat(self._work[graphs], offsets[:-1])
            self._latest = epoch, replace(self._packs, offsets=offsets, graphs=graphs, work=work)
        return self._latest[1]

    def _dealt(self, epoch: int) -> OpenPacks | None:
        """Return packs of graphs that were dealt in random order; None if some packs cannot be repaired."""
        shares, graphs = self._sizes / self._limits, np.arange(len(self._sizes))
        factors = 1 - _NOISE * random_fractions(key_of(self._seed, epoch, _DEAL), len(graphs))
        order = np.argsort(-shares.max(axis=1) * factors, kind="stable")
        number = self._packs.plan.num_packs
        assigned = dealt_evenly(shares, graphs, order, number)
        packs = OpenPacks.of(self._sizes, self._limits, assigned, graphs, number, _FREE)
        packs.repair(moves=True, key=key_of(self._seed, epoch, _REPAIR), budget=_WORK * self._sizes.size + _LEAST_WORK)
        return None if len(packs.exceeding()) or not packs.counts.all() else packs

    def _stirred(self, epoch: int) -> OpenPacks:
        """Return the packs of the plan, after random exchanges."""
        counts = np.diff(self._packs.offsets)
        assigned = np.repeat(np.arange(len(counts)), counts)
        packs = OpenPacks.of(self._sizes, self._limits, assigned, self._packs.graphs, len(counts), 0)
        # Each graph is exchanged about twice.
        rounds = 2 * -(-len(assigned) // len(counts))
        packs.stir(key=key_of(self._seed, epoch, _STIR), rounds=rounds, budget=_MOST_STIRRING * self._sizes.size)
        return packs
