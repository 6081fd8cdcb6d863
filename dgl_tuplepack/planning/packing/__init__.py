"""Packing methods behind one function and one registry.

The methods are in `auto` and `fit`; a new method gets its own file. `stages/` has the algorithms of "auto".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import choice
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds import check_sizes
from dgl_tuplepack.planning.buckets import Buckets, Shapes, as_shapes
from dgl_tuplepack.planning.histogram import SizeHistogram, as_histogram
from dgl_tuplepack.planning.packing.auto import auto
from dgl_tuplepack.planning.packing.fit import FITS, Heuristic, Method, Settings, as_plan
from dgl_tuplepack.planning.plan import PackPlan, Patterns, joined
from dgl_tuplepack.planning.sizes import GraphSizes

# The `method` of a plan begins with its key below. A size class may have 2**40 graphs, so a method makes patterns (see
# `as_plan`). `tools/` lists methods in `report/findings.py`, `demo/comparison.py` and `cli/pictures.py`.
METHODS: dict[str, Method] = {"auto": auto, **FITS}


def pack(
    sizes: SizeHistogram | GraphSizes | Any, limits: Shapes, method: str = "auto", *, heuristic: Heuristic = "product",
    seed: int = 0, random_ties: bool = False, effort: float = 1.0, time_limit: float | None = None,
) -> PackPlan:  # fmt: skip
    """Plan packs for every graph of a histogram, within the limits.

    Parameters
    ----------
    sizes
        A histogram, or anything that `sizes_of` reads; the sizes of its graphs are then counted first.
    limits
        Inclusive maxima of one pack, one for each component of the sizes. A list of two to four limits, in ascending
        order, gives shape buckets: each pack has the smallest shape that holds it.
    method
        "auto" (ours: near-optimal; its plan names the stage that made it); "best_fit" or "first_fit" (as in the paper's
        code); "first_fit_by_text" (as in the paper's text, which differs from the code); "none" (one graph in each
        pack), "node_only" or "edge_only" (the paper's baselines: they keep only the limits on nodes, or on edges, and
        raise the other limits to what the packs need); or "next_fit" (random order).
    heuristic
        Only for best fit and first fit: the rule that orders sizes and open packs. "product", "sum", "maximum",
        "minimum", "node", "edge", or a tuple of k weights, one for each component.
    seed
        0..2**64-1; determines all random choices. Equal seeds give equal plans with equal versions of HiGHS, the solver
        of linear programs; on another type of machine, it may round differently.
    random_ties
        Only for best fit and first fit: order sizes and packs of equal priority at random, instead of as in the paper.
    effort
        Work that "auto" may do, >= 0. 1 is at most about a second of work; most histograms need far less. With 10,
        random sizes are packed up to 2 % tighter. Work is counted, not timed, so the speed of a machine does not change
        the plan. More effort never gives more packs.
    time_limit
        Also stop "auto" after this many seconds, >= 0. The plan then depends on the machine, and its `method` includes
        "time limit".

    Returns
    -------
    PackPlan
        Valid and complete; see its `num_packs`, `gap` and `efficiency`.

    Raises
    ------
    SizesError, SchemaError, FormatError
        The histogram is empty, or sizes are malformed; or as in `sizes_of`.
    GraphTooLargeError
        A single graph exceeds the limits; the message names up to ten such graphs.
    LimitsError
        The limits and the sizes have different components, or several limits do not ascend.
    MethodError
        The method or the heuristic is unknown or cannot be used, or another setting is out of range.

    Notes
    -----
    With several limits, each pack of a larger shape has a graph that needs this shape. "node_only" and "edge_only"
    cannot be used with several limits, since their packs exceed limits.

    Examples
    --------
    >>> from dgl_tuplepack import Limits, load_example
    >>> histogram, limits = load_example("ogbg-molhiv"), Limits(222, 502)
    >>> plan = pack(histogram, limits)
    >>> plan.num_packs, plan.lower_bound, plan.is_optimal
    (3744, 3744, True)
    >>> pack(histogram, [Limits(100, 220), limits]).packs_of_shapes
    (8159, 68)
    """
    choice("method", method, METHODS, MethodError)
    settings = Settings(heuristic, seed, random_ties, effort, time_limit)
    histogram, shapes = as_histogram(sizes), as_shapes(limits)
    if isinstance(shapes, Buckets):
        if method in ("node_only", "edge_only"):
            raise MethodError(
                f"packs of the method {method!r} exceed limits, so no shape holds them; choose another method."
            )
        check_sizes(histogram, shapes.largest)
        return pack_buckets(histogram, shapes, METHODS[method], settings)
    limits = shapes.filled(histogram.components, histogram.totals())
    check_sizes(histogram, limits)
    return METHODS[method](histogram, limits, settings)


def pack_buckets(histogram: SizeHistogram, buckets: Buckets, method: Method, settings: Settings) -> PackPlan:
    """Plan packs of several buckets, from the largest bucket to the smallest.

    For each bucket, `method` packs all remaining graphs, so that small graphs fill the room next to large graphs. Only
    packs with a graph that needs the bucket are kept. Only the smallest bucket has an effort above 0.
    """
    buckets = buckets.filled(histogram.components, histogram.totals())
    # smallest[c]: index of the smallest bucket that holds a graph of class c.
    smallest = buckets.smallest_for(histogram.sizes, np.ones(len(histogram), dtype=np.int64))
    left, kept, plan = histogram.counts.copy(), list[Patterns](), None
    for bucket in reversed(range(len(buckets))):
        # needs[c]: whether class c fits this bucket, but no smaller bucket. Bucket 0 packs all graphs that are left.
        needs = smallest == bucket
        if not (left[needs] if bucket else left).any():
            continue
        classes = np.flatnonzero(left)
        remaining = SizeHistogram(histogram.sizes[classes], left[classes], histogram.components)
        plan = method(remaining, buckets[bucket], replace(settings, effort=0.0) if bucket else settings)
        patterns = plan.patterns.with_classes(classes[plan.classes])
        if bucket:
            chosen = np.flatnonzero(np.logical_or.reduceat(needs[patterns.classes], patterns.offsets[:-1]))
            patterns = patterns.take(chosen, patterns.repeats[chosen])
        kept.append(patterns)
        left -= patterns.packed(len(left))
    assert plan is not None
    made_by, heuristic = plan.method, plan.heuristic
    return as_plan(joined(kept), histogram, buckets.largest, made_by, settings, heuristic=heuristic, buckets=buckets)
