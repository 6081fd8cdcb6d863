"""Packing methods behind one function and one registry.

The methods are in `auto`, `fit` and `baselines`; a new method gets its own file. `stages/` has the stages of "auto",
and the other files are helpers that methods share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dgl_tuplepack._core.checks import choice
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.bounds import check_sizes
from dgl_tuplepack.planning.buckets import Buckets, Shapes, as_shapes
from dgl_tuplepack.planning.histogram import SizeHistogram, as_histogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.auto import auto
from dgl_tuplepack.planning.packing.buckets import pack_buckets
from dgl_tuplepack.planning.packing.fit import (
    best_fit,
    edge_only,
    first_fit,
    first_fit_by_text,
    next_fit,
    node_only,
    none,
)
from dgl_tuplepack.planning.packing.heuristics import Heuristic
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes

Method = Callable[[SizeHistogram, Limits, Settings], PackPlan]

# The attribute `method` of a plan begins with the key of its packing method below. The plan has the limits that the
# method got ("node_only" and "edge_only" raise the limits that they ignore), and the bound of `quick_bound`, which only
# "auto" improves. A size class may have 2**40 graphs, so a method makes patterns (see `as_plan`), not lists of graphs.
# `report/findings.py`, `demo/comparison.py` and `cli/pictures.py` in `tools/` list the methods that they compare.
METHODS: dict[str, Method] = {
    "auto": auto,
    "best_fit": best_fit,
    "first_fit": first_fit,
    "first_fit_by_text": first_fit_by_text,
    "none": none,
    "node_only": node_only,
    "edge_only": edge_only,
    "next_fit": next_fit,
}

_BEYOND_LIMITS = ("node_only", "edge_only")


def pack(
    sizes: SizeHistogram | GraphSizes | Any,
    limits: Shapes,
    method: str = "auto",
    *,
    heuristic: Heuristic = "product",
    seed: int = 0,
    random_ties: bool = False,
    effort: float = 1.0,
    time_limit: float | None = None,
) -> PackPlan:
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
        code); "first_fit_by_text" (first fit as the paper's text describes it, which differs from the code); "none"
        (one graph in each pack), "node_only" or "edge_only" (the paper's baselines; "node_only" keeps only the
        limits on nodes, "edge_only" only the limits on edges, and both raise the other limits to what the packs need);
        or "next_fit" (random order).
    heuristic
        Only for best fit and first fit: the rule that orders sizes and open packs. "product", "sum", "maximum",
        "minimum", "node", "edge", or a tuple of k weights, one for each component.
    seed
        0..2**64-1; determines all random choices. Equal seeds give equal plans with equal versions of HiGHS, the solver
        of linear programs. On another type of machine, HiGHS may round differently, and then the plan may differ.
    random_ties
        Only for best fit and first fit: order sizes and packs of equal priority at random, instead of as in the paper.
    effort
        Work that "auto" may do, >= 0. 1 is at most about a second of work; most histograms need far less. With an
        effort of 10, random sizes are packed up to 2 % tighter, and more plans are proven optimal. Work is counted, not
        timed, so that the speed of a machine does not change the plan. More effort never gives more packs.
    time_limit
        Also stop "auto" after this many seconds, >= 0. The plan is valid in any case, but with a time limit it depends
        on the machine, so its `method` includes "time limit".

    Returns
    -------
    PackPlan
        Valid and complete; see its `num_packs`, `gap` and `efficiency`.

    Raises
    ------
    SizesError
        The histogram is empty, or sizes are malformed.
    SchemaError, FormatError
        As in `sizes_of`.
    GraphTooLargeError
        A single graph exceeds the limits; the message names up to ten such graphs.
    LimitsError
        The limits and the sizes have different components, or several limits do not ascend.
    MethodError
        The method or the heuristic is unknown or cannot be used, or another setting is out of range.

    Notes
    -----
    With several limits, each pack of a larger shape holds graphs that need this shape, and smaller graphs that fill the
    rest of the pack. `PackPlan.pattern_shapes` has the shape of each pattern. "node_only" and "edge_only" cannot be
    used with several limits, since their packs exceed limits.

    Examples
    --------
    >>> from dgl_tuplepack import Limits, load_example
    >>> histogram, limits = load_example("ogbg-molhiv"), Limits(222, 502)
    >>> plan = pack(histogram, limits)
    >>> plan.num_packs, plan.lower_bound, plan.is_optimal
    (3744, 3744, True)
    >>> pack(histogram, limits, "best_fit", heuristic="node").num_packs
    3789
    >>> pack(histogram, [Limits(100, 220), limits]).packs_of_shapes
    (8159, 68)
    """
    choice("method", method, METHODS, MethodError)
    settings = Settings(heuristic, seed, random_ties, effort, time_limit)
    histogram, shapes = as_histogram(sizes), as_shapes(limits)
    if isinstance(shapes, Buckets):
        if method in _BEYOND_LIMITS:
            raise MethodError(
                f"packs of the method {method!r} exceed limits, so no shape holds them; choose another method."
            )
        check_sizes(histogram, shapes.largest)
        return pack_buckets(histogram, shapes, METHODS[method], settings)
    limits = shapes.filled(histogram.components, histogram.totals())
    check_sizes(histogram, limits)
    return METHODS[method](histogram, limits, settings)
