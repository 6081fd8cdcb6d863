"""The packs of each epoch if weights draw its graphs: always equally many, within the same limits."""

from __future__ import annotations

import math

import numpy as np

from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.planning.bounds.instance import as_instance
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.sampling.epoch_batches import NONE, EpochBatches
from dgl_tuplepack.sampling.exchanged_packs import filled_packs
from dgl_tuplepack.sampling.weights import WeightedDraws, separated

# Draws of other epochs may need more packs than the plan, so there are this fraction more, and one.
_RESERVE = 0.003
# So many draws are tried for an epoch.
_DRAWS = 8
# Identifiers of random streams; other files have others.
_DRAW, _DEAL, _REPAIR, _SEPARATE = 20, 21, 22, 23


class WeightedPacks:
    """Packs of the graphs that `draws` returns for an epoch, out of N graphs with these `sizes`."""

    def __init__(self, draws: WeightedDraws, sizes: GraphSizes, seed: int) -> None:
        self.sizes, self._draws, self._seed, self.checksum = sizes, draws, seed, draws.checksum
        self._latest: tuple[int, IntArray, IntArray] = (-1, np.empty(0, np.int64), np.empty(0, np.int64))

    def histogram(self) -> SizeHistogram:
        """Return the histogram of a draw, for a plan."""
        return SizeHistogram.from_sizes(self.sizes.take(self._draws.of(key_of(0, 0, _DRAW)))).without_ids()

    def number(self, of_plan: int) -> int:
        """Return how many packs each epoch has, if a plan for `histogram` has so many."""
        return of_plan + math.ceil(_RESERVE * of_plan) + 1

    def of(self, epoch: int, limits: Limits, number: int) -> tuple[IntArray, IntArray]:
        """Return the offsets of a number of packs, and their graphs: positions among the N graphs."""
        if self._latest[0] != epoch:
            for attempt in range(_DRAWS):
                key = key_of(int(key_of(self._seed, epoch, _DRAW)), attempt, _DRAW)
                found = self._packed(key, limits, number)
                if found is not None:
                    self._latest = epoch, *found
                    break
            else:
                raise SamplerError(
                    f"none of {_DRAWS} draws of graphs by their weights fits into {number} packs of {limits!r}; give "
                    "larger limits."
                )
        return self._latest[1:]

    def _packed(self, key: np.uint64, limits: Limits, number: int) -> tuple[IntArray, IntArray] | None:
        graphs = self._draws.of(key)
        histogram = SizeHistogram.from_sizes(self.sizes.take(graphs))
        instance = as_instance(histogram.without_ids(), limits)
        assert histogram.graph_classes is not None
        sizes = instance.sizes[histogram.graph_classes]
        keys = key_of(int(key), 0, _DEAL), key_of(int(key), 0, _REPAIR)
        packs = filled_packs(sizes, instance.limits, np.arange(len(sizes)), number, *keys)
        if len(packs.exceeding()) or not packs.counts.all():
            return None
        return np.append(0, np.cumsum(packs.counts)), graphs[packs.graphs]

    def separated(self, batches: EpochBatches, limits: Limits) -> EpochBatches:
        """Exchange graphs, until no batch has a graph twice, where that is possible; `graphs` are positions."""
        units = batches.dealt.reshape(-1, batches.dealt.shape[-1])
        used = units != NONE
        packs = units[used]
        pieces = [batches.graphs[batches.offsets[pack] : batches.offsets[pack + 1]] for pack in packs]
        offsets = np.append(0, np.cumsum([len(piece) for piece in pieces]))
        first_packs = np.append(0, np.cumsum(used.sum(axis=1)))
        dealt = np.full(units.shape, NONE)
        dealt[used] = np.arange(len(packs))
        values, key = limits.aligned(self.sizes.components).array, key_of(self._seed, batches.epoch, _SEPARATE)
        graphs = separated(np.concatenate(pieces), offsets, first_packs, self.sizes.array, values, key)
        return EpochBatches(batches.epoch, offsets, graphs, dealt.reshape(batches.dealt.shape))
