"""Find limits whose batches hold about a requested number of graphs on average."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.search.evaluation import Evaluation, harmonic_means
from dgl_tuplepack.planning.search.space import Point, Space
from dgl_tuplepack.planning.search.strategy import AUTO, Strategy, explore
from dgl_tuplepack.planning.sizes import FloatArray, IntArray

# The mean number of graphs in a batch may differ from `graphs_per_batch` by this fraction.
TOLERANCE = 0.05
# The limits tried have room for _FIRST to _LAST times as many graphs of mean size as a pack should hold. Packs are
# never quite full, and rarely less than half full.
_FIRST, _LAST = 0.98, 2.0


@dataclass(frozen=True, kw_only=True)
class GraphsPerBatch(Strategy):
    """Advise the limits with the fullest packs among limits whose batches hold about `graphs_per_batch` graphs."""

    name = "graphs_per_batch"
    graphs_per_batch: int
    # Number of packs in a batch; AUTO: `for_space` chooses it.
    packs_per_batch: int | str = 1

    def for_histogram(self, histogram: SizeHistogram) -> GraphsPerBatch:
        """Return the strategy; raise SearchError if the histogram has fewer than `graphs_per_batch` graphs."""
        whole_number("graphs_per_batch", self.graphs_per_batch, 1, histogram.num_graphs, SearchError)
        return self

    def for_space(self, space: Space, cap: int | None) -> GraphsPerBatch:
        """Return the strategy; if `packs_per_batch` is "auto", choose the number of packs in a batch.

        Two packs are preferred because the packs of a plan hold the same sizes in every epoch: with one pack in a
        batch, two graphs never meet if no pack holds both sizes.
        """
        if self.packs_per_batch != AUTO:
            return self
        number, cap = self.graphs_per_batch, cap or space.num_graphs
        held = min(space.graphs_in(space.rounded(space.smallest)), cap)
        several = 2 * held <= number < space.num_graphs
        return replace(self, packs_per_batch=max(1 + several, -(-number // cap)))

    @property
    def packs(self) -> int:
        """Number of packs in a batch; 1 until `for_space` chooses it."""
        return 1 if self.packs_per_batch == AUTO else int(self.packs_per_batch)

    @property
    def _graphs_per_pack(self) -> float:
        return self.graphs_per_batch / self.packs

    def largest_allowed(self, space: Space) -> Point:
        """Return limits for as many graphs of mean size as a pack should hold."""
        return space.rounded_down(self._graphs_per_pack * mean for mean in space.mean)

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Explore limits that hold about as many graphs of mean size as a pack should hold."""
        number, cap = self._graphs_per_pack, evaluation.cap
        batches = f" in {self.packs} packs" if self.packs > 1 else ""
        if cap is not None and cap < (1 - TOLERANCE) * number:
            raise SearchError(
                f"graphs_per_batch={self.graphs_per_batch}{batches} is out of reach with at most {cap} graphs in a "
                f"pack; raise graphs= to {math.ceil(number)} or more, leave it out, or lower graphs_per_batch."
            )
        smallest = space.rounded(space.smallest)
        explore(evaluation, space, self, _FIRST * number, _LAST * number, (smallest,))
        candidate = evaluation.candidate(smallest)
        # With fewer batches than this, even the batches of the smallest limits hold too many graphs.
        fewest = evaluation.histogram.num_graphs // ((1 + TOLERANCE) * self.graphs_per_batch)
        if -(-candidate.packs // self.packs) < fewest:
            raise SearchError(
                f"graphs_per_batch={self.graphs_per_batch}{batches} is out of reach: the smallest limits that hold "
                f"every graph, {candidate.limits!r}, hold {candidate.graphs_per_pack * self.packs:.1f} graphs on "
                "average; use that number, drop the largest graphs (oversize='drop', --oversize drop), set a cap "
                "(graphs=, `dgl-tuplepack limits --max-graphs`), or search several shapes (shapes=2, "
                "`dgl-tuplepack limits --shapes 2`)."
            )

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates by distance from `graphs_per_batch`, then by harmonic mean, then by slots per pack.

        The distance is the same for all candidates within the tolerance.
        """
        beyond = np.maximum(self._off(evaluation), TOLERANCE)
        return evaluation.sorted_by(beyond, -evaluation.harmonic_means, evaluation.slots)

    def may_improve(self, evaluation: Evaluation, points: list[Point]) -> Iterable[bool]:
        """Return, for each of `points`, whether its packs can be as full as the packs of the best candidate."""
        first = self.order(evaluation)[0]
        if self._off(evaluation)[first] > TOLERANCE:
            return super().may_improve(evaluation, points)
        best = float(evaluation.harmonic_means[first])
        return harmonic_means(evaluation.bounds(points)) >= best

    def _off(self, evaluation: Evaluation) -> FloatArray:
        """Return how far each candidate's graphs per batch are from `graphs_per_batch`, as a fraction, ``[M]``."""
        graphs = evaluation.histogram.num_graphs / -(-evaluation.packs // self.packs)
        return np.asarray(np.abs(graphs / self.graphs_per_batch - 1), dtype=np.float64)
