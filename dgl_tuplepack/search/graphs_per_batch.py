"""Limits for a batch size: packs that hold about so many graphs on average."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.exploration import explore
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.search.way import PLANS, Way
from dgl_tuplepack.sizes import FloatArray, IntArray

# Mean graphs of a pack may differ from the batch size by this fraction of it.
TOLERANCE = 0.05
# Packs are never quite full, so limits hold more mean graphs than the batch size; few plans are less than half full.
_FIRST, _LAST = 0.98, 2.0


@dataclass(frozen=True, kw_only=True)
class GraphsPerBatch(Way):
    """Advise the highest harmonic mean among limits whose packs hold about so many graphs on average."""

    name = "graphs_per_batch"
    graphs_per_batch: int
    plans: int = PLANS

    def for_histogram(self, histogram: SizeHistogram) -> GraphsPerBatch:
        """Return the way; refuse more graphs than the histogram has."""
        whole_number("graphs_per_batch", self.graphs_per_batch, 1, histogram.num_graphs, SearchError)
        return self

    def smallest(self, space: Space, drop: bool) -> Row | None:
        """Return limits that hold so many mean graphs, if larger graphs may be dropped."""
        return space.rounded_down(self.graphs_per_batch * mean for mean in space.mean) if drop else None

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Explore limits around so many mean graphs."""
        number, cap = self.graphs_per_batch, evaluation.cap
        if cap is not None and cap < (1 - TOLERANCE) * number:
            raise SearchError(
                f"graphs_per_batch={number} is out of reach with at most {cap} graphs in a pack; raise graphs= to "
                f"{number} or more, leave it out, or lower graphs_per_batch."
            )
        smallest = space.rounded(space.smallest)
        explore(evaluation, space, self, _FIRST * number, _LAST * number, self.plans, (smallest,))
        candidate = evaluation.candidate(smallest)
        # The smallest limits need fewer packs than batches of this size would.
        if candidate.packs < evaluation.histogram.num_graphs // ((1 + TOLERANCE) * number):
            raise SearchError(
                f"graphs_per_batch={number} is out of reach: the smallest limits that hold every graph, "
                f"{candidate.limits!r}, hold {candidate.graphs_per_pack:.1f} graphs on average; ask for that many, "
                "drop the largest graphs (oversize='drop', --oversize drop), or set a cap (graphs=, --graphs)."
            )

    def order(self, evaluation: Evaluation) -> IntArray:
        """Sort candidates within the tolerance first, then by distance; equal ones by harmonic mean, then by slots."""
        beyond = np.maximum(self._off(evaluation), TOLERANCE)
        return evaluation.sorted_by(beyond, -evaluation.harmonic_means, evaluation.slots)

    def may_improve(self, evaluation: Evaluation, rows: list[Row]) -> Iterable[bool]:
        """Return True for all limits until a candidate is within the tolerance; then for those that can be fuller."""
        first = self.order(evaluation)[0]
        if self._off(evaluation)[first] > TOLERANCE:
            return super().may_improve(evaluation, rows)
        best = float(evaluation.harmonic_means[first])
        return evaluation.bounds_on_harmonic_means(rows) >= best

    def _off(self, evaluation: Evaluation) -> FloatArray:
        """Return how far the mean graphs of each candidate are from the batch size, as a fraction of it, ``[M]``."""
        graphs = evaluation.histogram.num_graphs / evaluation.packs
        return np.asarray(np.abs(graphs / self.graphs_per_batch - 1), dtype=np.float64)
