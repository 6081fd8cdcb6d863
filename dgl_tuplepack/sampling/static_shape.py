"""Choose the static shape of batches with exact numbers of graphs: the smallest that shuffles meet, and a reserve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray, components_of_kind, exact_sum
from dgl_tuplepack.sampling.exact_batches import Cut, ExactBatches

# Slack is counted in units of 1 / UNIT of a mean batch. For B graphs in a batch, it is at least _LEAST + _LEAST_OF_ONE
# divided by B. Less would often do, but then more graphs would leave their shuffled batch.
UNIT, _LEAST, _LEAST_OF_ONE = 10_000, 30, 800
# The slack is exact to _CLOSE units, or to 1 / _FINE of itself. The reserve is 1 / _RESERVE of the slack, and so on.
_CLOSE, _FINE, _RESERVE = 3, 16, 8
# A shuffle is met if its repair takes this fraction of the work that it may take in an epoch.
_WORK = 0.25
# The slack is chosen by this many shuffles, and the reserve by others, which have about _GRAPHS graphs together.
_SHUFFLES, _GRAPHS, _MOST_SHUFFLES = 2, 300_000, 30
# So many shuffles are tried to find an order that fits.
_TRIED = 8
# Identifier of the random stream of these shuffles. They do not depend on the seed of a sampler.
_SHAPE = 12


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes that batches of N graphs may have, as limits of their content, int64 ``[k]``, by their slack.

    `multiple_of` is as in `StaticBatchSampler`.
    """

    sizes: GraphSizes
    cut: Cut
    multiple_of: int = 1

    @cached_property
    def extremes(self) -> list[tuple[int, int]]:
        """For each component, the content of the largest graph beside the smallest ones, and of the largest graphs."""
        others, first = self.cut.most - 1, len(self.sizes) - self.cut.most
        partitioned = [np.partition(column, [others, first]) for column in self.sizes.array.T]
        return [(exact_sum(p[:others]) + int(p.max()), exact_sum(p[first:])) for p in partitioned]

    @property
    def mean(self) -> list[float]:
        """Mean content of a full batch, for each component."""
        return [total * self.cut.most / len(self.sizes) for total in self.sizes.totals().values()]

    def of(self, slack: int) -> IntArray:
        """Return the limits of a mean batch with `slack`, in units of 1 / 10,000.

        They hold the largest graph beside the smallest ones, and never exceed the largest content of any batch.
        """
        graphs, limits = len(self.sizes), []
        for total, (least, most) in zip(self.sizes.totals().values(), self.extremes, strict=True):
            batch = max(least * graphs, total * self.cut.most)
            limits.append(max(1, min(most, batch * (UNIT + slack) // (graphs * UNIT))))
        return self.rounded(np.array(limits, dtype=np.int64))

    def rounded(self, limits: IntArray) -> IntArray:
        """Return the smallest limits, at least `limits`, whose padded shape is a multiple of `multiple_of`."""
        reserved = np.zeros(len(limits), dtype=np.int64)
        reserved[components_of_kind(self.sizes.components, "nodes")] = int(self.multiple_of > 1)
        return -(-(limits + reserved) // self.multiple_of) * self.multiple_of - reserved

    def met(self, slack: int, shuffle: int) -> bool:
        """Return whether a shuffle can be repaired within the limits, with little work."""
        batches = ExactBatches(self.sizes.array, self.of(slack), self.cut)
        return batches.repaired(key_of(0, shuffle, _SHAPE), _WORK) is not None


def known_order(batches: ExactBatches) -> IntArray | None:
    """Return an order that fits, ``[N]``; None if none is found."""
    found = (batches.repaired(key_of(0, shuffle, _SHAPE)) for shuffle in range(_TRIED))
    return next((order for order in found if order is not None), None)


def chosen(shapes: Shapes) -> IntArray:
    """Return the limits that shuffled batches meet in at least 99 % of epochs, int64 ``[k]``.

    Double the slack until shuffles are met, then bisect; then add to it until other shuffles are met, too. Time: that
    of some ten epochs, of more for fewer than 100,000 graphs.
    """
    first = _LEAST + _LEAST_OF_ONE // shapes.cut.most
    least = _smallest(first, lambda slack: all(shapes.met(slack, shuffle) for shuffle in range(_SHUFFLES)))
    number = min(max(_GRAPHS // len(shapes.sizes), _SHUFFLES), _MOST_SHUFFLES)
    slack, shuffle, met = least, _SHUFFLES, 0
    while met < number:
        if shapes.met(slack, shuffle):
            met += 1
        else:
            slack, met = slack + max(_CLOSE, slack // _RESERVE), 0
        shuffle += 1
    return shapes.of(slack)


def shape_of(sizes: GraphSizes, batch_size: int) -> Limits:
    """Return the limits that `StaticBatchSampler` chooses for shuffled batches on a single rank."""
    limits = chosen(Shapes(sizes, Cut.of(len(sizes), batch_size, 1, drop_last=False)))
    return Limits.from_components(dict(zip(sizes.components, limits.tolist(), strict=True)), batch_size)


def _smallest(first: int, suffices: Callable[[int], bool]) -> int:
    """Return the least slack that suffices, at least `first`, nearly exactly."""
    failed, slack = 0, first
    while not suffices(slack):
        failed, slack = slack, 2 * slack
    while failed and slack - failed > max(_CLOSE, slack // _FINE):
        middle = (failed + slack) // 2
        failed, slack = (failed, middle) if suffices(middle) else (middle, slack)
    return slack
