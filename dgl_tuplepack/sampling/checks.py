"""Checks of a sampler's arguments: `content`, graphs and plan must fit together."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import OVERSIZE, as_array, choice, shown
from dgl_tuplepack.errors import PlanError, SamplerError
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

_log = logging.getLogger(__name__)


def check_no_replanning(what: str, content: Any, replan_every: Any) -> None:
    """Raise SamplerError if `what`, which has these settings, would make new plans in later epochs."""
    if (isinstance(content, str) and content == "repack") or replan_every is not None:
        raise SamplerError(
            f"the {what} have content={content!r} and replan_every={replan_every!r}, but new plans in later epochs "
            "were removed; use content='exchange', which deals all graphs to packs in each epoch, without replan_every."
        )


def check_content(content: str | None, shuffle: bool, limits: Limits | Buckets) -> None:
    """Raise SamplerError if `content` is unknown, or contradicts `shuffle` or the number of shapes."""
    if content is None:
        return
    choice("content", content, ("fixed", "resample", "exchange"), SamplerError)
    if content != "fixed" and not shuffle:
        raise SamplerError(f"content={content!r} is random, but shuffle=False; use content='fixed' or shuffle=True.")
    if content == "exchange" and isinstance(limits, Buckets):
        raise SamplerError(
            f"content='exchange' needs packs of one shape, but the limits are {limits!r}; use content='resample', or "
            "one shape."
        )


def default_content(histogram: SizeHistogram, shuffle: bool, limits: Limits | Buckets) -> str:
    """Return the default of `content` for the graphs of a histogram."""
    if not shuffle:
        return "fixed"
    alone = np.count_nonzero(histogram.counts == 1)
    if 2 * alone <= histogram.num_graphs or isinstance(limits, Buckets):
        return "resample"
    _log.info(
        "content='exchange': %d of %d graphs have a size that no other graph has, so content='resample' would put "
        "the same graphs into a pack in each epoch", alone, histogram.num_graphs,
    )  # fmt: skip
    return "exchange"


def split_oversize(sizes: GraphSizes, limits: Limits | Buckets, oversize: str) -> tuple[IntArray, IntArray]:
    """Return the ids of the graphs within the limits, and the ids of the other graphs, which are dropped.

    Warn if any graph is dropped; raise an error instead if `oversize` is "error", or if no graph would be kept.
    """
    choice("oversize", oversize, OVERSIZE, SamplerError)
    fits = limits.fits(sizes)
    if not fits.all() and (oversize == "error" or not fits.any()):
        # Raises an error that names a graph.
        limits.check(sizes)
    kept, dropped = np.flatnonzero(fits), np.flatnonzero(~fits)
    if len(dropped):
        warnings.warn(f"{len(dropped)} of {len(sizes)} graphs exceed {limits!r} and are dropped.", stacklevel=3)
    return kept, dropped


def check_plan(plan: PackPlan, histogram: SizeHistogram, limits: Limits | Buckets) -> None:
    """Raise PlanError if a plan is for other sizes or other shapes, or exceeds the limits."""
    if not isinstance(plan, PackPlan):
        raise PlanError(f"plan must be a PackPlan, but is {shown(plan)}; make one with pack() or PackPlan.load().")
    if plan.histogram != histogram:
        raise PlanError(
            f"the plan is for {plan.histogram.num_graphs} graphs of {len(plan.histogram)} sizes, totals "
            f"{plan.histogram.totals()}, but the given sizes are {histogram.num_graphs} graphs of {len(histogram)} "
            f"sizes, totals {histogram.totals()}; make a plan for these sizes."
        )
    made_for = plan.made_for
    try:
        plan.check_limits(limits.largest if isinstance(limits, Buckets) else limits)
    except PlanError as error:
        raise PlanError(f"the plan was made for {made_for!r} and exceeds {limits!r}: {error}") from error
    if isinstance(limits, Buckets) != (plan.buckets is not None):
        raise PlanError(
            f"the plan was made for {made_for!r}, but the limits are {limits!r}: one of them has several shapes, "
            "the other a single one; make a plan for these limits."
        )
    if isinstance(limits, Buckets):
        buckets = limits.filled(histogram.components, histogram.totals())
        # For each pattern, the index of its shape in `buckets`; `plan.pattern_shapes`: in the plan's buckets.
        shapes = buckets.smallest_for(plan.pattern_contents, plan.pattern_graphs)
        other = np.flatnonzero(shapes != plan.pattern_shapes)
        if len(other):
            raise PlanError(
                f"the plan was made for {made_for!r}, where its pattern {other[0]} has shape "
                f"{plan.pattern_shapes[other[0]]}, but in {limits!r} it has shape {shapes[other[0]]}; make a plan for "
                "these shapes."
            )


def labels_of_graphs(label_mask: Any, number: int) -> IntArray:
    """Return the number of labels of each graph, int64 ``[N]``, given a mask ``[N]`` or ``[N, T]``; False = missing."""
    mask = as_array(label_mask, "label_mask", SamplerError)
    if mask.dtype != bool or mask.ndim not in (1, 2) or len(mask) != number:
        raise SamplerError(
            f"label_mask must be bool with shape [{number}] or [{number}, tasks], one row for each graph, but is "
            f"{shown(mask.dtype)} with shape {mask.shape}; give ~labels.isnan() for all graphs of this loader "
            "(for a split, only the rows of its ids)."
        )
    return np.asarray(mask.reshape(number, -1).sum(axis=1, dtype=np.int64))
