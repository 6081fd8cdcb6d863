"""Close the gap where packs hold few graphs: the pattern LP with searched packs, and dives from its solution."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.bounds.effort import Effort
from dgl_tuplepack.bounds.instance import Instance
from dgl_tuplepack.bounds.pack_search import by_search, linear_duals
from dgl_tuplepack.bounds.pattern_lp import PatternLP
from dgl_tuplepack.packing.diving import dived
from dgl_tuplepack.packing.patterns import Patterns

_MOST_COLUMNS = 2000


def closed(
    instance: Instance, patterns: Patterns, bound: int, seed: int, dives: int, effort: Effort
) -> tuple[int, Patterns]:
    """Return a bound that is at least `bound`, and patterns with at most as many packs as `patterns`.

    The instance is small, or has few graphs a pack; no graph has size 0. At most `dives` dives are made.

    Time: that of the pattern LP with searched packs, which grows with the number of contents that a pack may have, and
    of the dives.

    Source: see `bounds.pattern_lp`, `bounds.pack_search` and `packing.diving`.
    """
    centre = linear_duals(instance, effort)
    columns = np.concatenate([patterns.dense(len(instance.counts), _MOST_COLUMNS), centre.found])
    program = PatternLP(columns, centre, by_search)
    program.solve(patterns.num_packs, effort)
    bound = max(bound, program.bound)
    for trial in range(dives):
        if bound >= patterns.num_packs or effort.exhausted:
            break
        fewer = dived(program, instance.counts, patterns.num_packs, seed, trial, effort)
        patterns = patterns if fewer is None else fewer
    return bound, patterns
