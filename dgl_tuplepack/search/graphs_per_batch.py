"""Limits for about so many graphs in a batch: for those who think in batch sizes."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.exploration import explore
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.sizes import IntArray

# Mean graphs of a pack may be off by this part.
TOLERANCE = 0.05
# Packs are never quite full, so limits are larger than B mean graphs; few plans are less than half full.
_FIRST, _LAST = 0.98, 2.0


def search_graphs_per_batch(evaluation: Evaluation, space: Space, number: int, plans: int) -> int:
    """Search limits around `number` mean graphs.

    Raises
    ------
    SearchError
        The largest graph needs limits that hold more graphs than that.
    """
    rule = About(space, number)
    smallest = space.rounded(space.smallest)
    explore(evaluation, space, _FIRST * number, _LAST * number, plans, rule, (smallest,))
    candidate = evaluation.candidate(smallest)
    # Fewer packs than the fewest that would do.
    if candidate.packs < evaluation.histogram.num_graphs // ((1 + TOLERANCE) * number):
        raise SearchError(
            f"graphs_per_batch={number} is out of reach: the smallest limits that hold every graph, "
            f"{candidate.limits!r}, hold {candidate.graphs_per_pack:.1f} graphs on average; ask for as many, leave the "
            "largest graphs out (oversize='drop', --oversize drop), or set a cap (graphs=, --graphs)."
        )
    return int(rule.order(evaluation)[0])


class About:
    """The highest harmonic mean among limits whose packs hold about so many graphs on average."""

    def __init__(self, space: Space, number: int) -> None:
        self._space, self._number = space, number

    def order(self, evaluation: Evaluation) -> IntArray:
        """Candidates by how far off they are, beyond the tolerance, then by harmonic mean, then by slots."""
        graphs = evaluation.histogram.num_graphs / evaluation.packs
        off = np.maximum(np.abs(graphs / self._number - 1), TOLERANCE)
        limits = evaluation.limits
        return np.lexsort((*limits.T[::-1], limits.sum(axis=1), -evaluation.harmonic_means, off))

    def promising(self, evaluation: Evaluation, rows: list[Row]) -> list[Row]:
        """Limits that may be fuller than what is known, by the bound on their packs."""
        if not evaluation.found:
            return rows
        best = float(evaluation.harmonic_means[self.order(evaluation)[0]])
        bounds = evaluation.bounds_on_harmonic_means(rows).tolist()
        return [row for row, bound in zip(rows, bounds, strict=True) if bound >= best]

    def proposals(self, row: Row, scale: float) -> list[Row]:
        """All neighbours."""
        return self._space.neighbours(row, scale)
