"""Take the emptiest packs apart, together with some others, and pack their graphs again."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._random import key_of, shuffled
from dgl_tuplepack.bounds.effort import Effort
from dgl_tuplepack.bounds.instance import Instance, scarcity
from dgl_tuplepack.packing.minimum_bin_slack import Tuning, minimum_bin_slack
from dgl_tuplepack.packing.patterns import Patterns
from dgl_tuplepack.packing.subproblems import packed_again
from dgl_tuplepack.sizes import IntArray


def repacked(instance: Instance, patterns: Patterns, tuning: Tuning, trial: int, effort: Effort) -> Patterns | None:
    """The patterns with some packs packed again, at least as well; None if that failed.

    The packs are enough of the emptiest that their room makes 1.5 packs or more, and about as many others at random.

    Time O(Q log Q) for Q patterns and that of minimum bin slack on the packs chosen.

    Source: the principle "ruin and recreate" of Schrimpf et al. 2000; emptiest bins first as in Alvim et al. 2004,
    "A hybrid improvement heuristic for the one-dimensional bin packing problem".
    """

    def search(subproblem: Instance, _: Patterns, target: int) -> Patterns | None:
        return minimum_bin_slack(subproblem, target, tuning, effort)

    chosen = _chosen(instance, patterns, trial)
    return None if chosen is None else packed_again(instance, patterns, chosen, search)


def _chosen(instance: Instance, patterns: Patterns, trial: int) -> IntArray | None:
    """Packs to take apart of each pattern, int64 ``[Q]``; None if all of them together have too little room left."""
    scarce = scarcity(instance.sizes, instance.counts, instance.limits)
    # Room in the component with the least of it, among the scarce ones.
    room = np.where(scarce >= 0.9 * scarce.max(), patterns.room(instance), 1.0).min(axis=1)
    emptiest = np.argsort(-room, kind="stable")
    drawn = shuffled(np.arange(len(patterns)), key_of(trial, 0, 2))
    # Enough of the emptiest for their room to make a pack and a half, more in later trials, and as many others.
    wanted = 1.5 + trial % 7
    most = np.full(len(patterns), 64, dtype=np.int64) << min(trial % 5, 5)
    offered = np.minimum(patterns.repeats, most)
    gained = np.cumsum((room * offered)[emptiest])
    if gained[-1] < 1:
        return None
    first = emptiest[: int(np.searchsorted(gained, wanted)) + 1]
    chosen = np.zeros(len(patterns), dtype=np.int64)
    chosen[first] = offered[first]
    packs = np.cumsum(offered[drawn])
    others = drawn[: int(np.searchsorted(packs, max(16, int(chosen.sum())))) + 1]
    chosen[others] = offered[others]
    return chosen
