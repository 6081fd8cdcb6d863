"""Choose limits, the number of packs of a batch, and plans that the parts of a split share."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import OVERSIZE, choice, shown, whole_number
from dgl_tuplepack.errors import InputError, PlanError, SamplerError, SearchError
from dgl_tuplepack.planning.buckets import Buckets, Shapes, as_shapes, steps_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import PackPlan, static_limits
from dgl_tuplepack.planning.search import LimitsSearch, search_limits
from dgl_tuplepack.planning.search.graphs_per_batch import TOLERANCE
from dgl_tuplepack.planning.sizes import GraphSizes


@dataclass(frozen=True)
class Asked:
    """What a caller asks of the batches; None where it leaves the choice to us."""

    graphs_per_batch: int | None
    limits: Shapes | None
    packs_per_batch: int | None
    plans: Mapping[str, PackPlan]
    multiple_of: int
    seed: int
    oversize: str
    shapes: int | None = None

    def __post_init__(self) -> None:
        for name in ("graphs_per_batch", "packs_per_batch"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, whole_number(name, value, 1, error=SamplerError))
        whole_number("multiple_of", self.multiple_of, 1, 2**31, SearchError)
        choice("oversize", self.oversize, OVERSIZE, SamplerError)
        for plan in self.plans.values():
            if not isinstance(plan, PackPlan):
                raise PlanError(f"a plan must be a PackPlan, but is {shown(plan)}; make one with pack().")
        given = "limits" if self.limits is not None else "a plan" if self.plans else None
        if self.graphs_per_batch is None and given is None:
            raise InputError(
                "the size of batches is open: give graphs_per_batch, the number that plain batches have as batch_size "
                "(such as 64), or limits."
            )
        if given is not None and self.graphs_per_batch is not None and self.packs_per_batch is not None:
            raise InputError(
                f"graphs_per_batch={self.graphs_per_batch} and packs_per_batch={self.packs_per_batch} contradict each "
                f"other where {given} says how many graphs a pack holds; leave one of them out."
            )
        for name, value in (("multiple_of", self.multiple_of), ("shapes", self.shapes)):
            if given is not None and value not in (1, None):
                raise InputError(
                    f"{name}={shown(value)} is for limits that are searched, but {given} says them; leave one out."
                )


@dataclass(frozen=True)
class Choice:
    """Limits that all parts are padded to, packs of a batch, the plan of each part, and the search, or None."""

    limits: Limits | Buckets
    packs_per_batch: int
    plans: Mapping[str, PackPlan]
    search: LimitsSearch | None


def choose(sizes: Mapping[str, GraphSizes], leading: Sequence[str], asked: Asked) -> Choice:
    """Choose one shape for all parts; the number of graphs in a batch is met by the parts `leading`."""
    histograms = {name: SizeHistogram.from_sizes(of_part) for name, of_part in sizes.items()}
    search: LimitsSearch | None = None
    limits: Limits | Buckets
    if asked.limits is not None:
        limits = as_shapes(asked.limits)
    elif asked.plans:
        limits = _limits_of(asked.plans)
    else:
        search = _search(histograms, leading, asked)
        limits = search.best.limits
    plans = dict(asked.plans)
    for name, of_part in sizes.items():
        if name not in plans:
            plans[name] = pack(_kept(of_part, limits, asked.oversize), limits, seed=asked.seed)
    if search is not None:
        packs = search.packs_per_batch
    elif asked.graphs_per_batch is not None:
        packs = _packs_for(asked.graphs_per_batch, [plans[name] for name in leading])
    else:
        packs = asked.packs_per_batch or 1
    return Choice(static_limits(limits, list(plans.values())), packs, plans, search)


def _limits_of(plans: Mapping[str, PackPlan]) -> Limits | Buckets:
    """Return the limits of all plans, which must be the same."""
    (name, first), *others = plans.items()
    for other, plan in others:
        if plan.made_for != first.made_for:
            raise PlanError(
                f"the plan {other!r} is for {plan.made_for!r}, but the plan {name!r} for {first.made_for!r}; batches "
                "of all parts have one shape, so give limits that all plans keep, or plans of the same limits."
            )
    return first.made_for


def _search(histograms: Mapping[str, SizeHistogram], leading: Sequence[str], asked: Asked) -> LimitsSearch:
    """Search limits for the leading parts that hold the graphs of all parts."""
    packed = functools.reduce(SizeHistogram.__add__, (histograms[name] for name in leading))
    rest = [histogram for name, histogram in histograms.items() if name not in leading]
    # Where large graphs are dropped, those of other parts are too.
    holding = functools.reduce(SizeHistogram.__add__, rest) if rest and asked.oversize == "error" else None
    assert asked.graphs_per_batch is not None
    settings: dict[str, Any] = {
        "graphs_per_batch": min(asked.graphs_per_batch, packed.num_graphs),
        "packs_per_batch": asked.packs_per_batch or "auto",
        "multiple_of": asked.multiple_of,
        "shapes": asked.shapes,
        "oversize": asked.oversize,
        "holding": holding,
    }
    with warnings.catch_warnings():
        # The sampler tells of graphs that are dropped, once the limits are known.
        warnings.filterwarnings("ignore", message=".* graphs exceed .* and are left out")
        return search_limits(packed, **settings)


def _kept(sizes: GraphSizes, limits: Limits | Buckets, oversize: str) -> SizeHistogram:
    """Return the histogram that a sampler packs; it is the sampler that warns of what it drops."""
    fits = limits.fits(sizes)
    if not fits.all() and (oversize == "error" or not fits.any()):
        limits.check(sizes)
    return SizeHistogram.from_sizes(sizes if fits.all() else sizes.take(np.flatnonzero(fits))).without_ids()


def _packs_for(graphs: int, plans: Sequence[PackPlan]) -> int:
    """Return the packs of a batch of about so many graphs; refuse a number that no number of packs comes close to."""
    number, packs = sum(plan.histogram.num_graphs for plan in plans), sum(plan.num_packs for plan in plans)
    of_shapes = [sum(of_shape) for of_shape in zip(*(plan.packs_of_shapes for plan in plans), strict=True)]
    chosen = max(1, round(graphs * packs / number))
    batches = sum(steps_of(of_shapes, chosen, drop_last=False))
    # With few graphs, the last batch, which is not full, decides the mean; plain batches have one too.
    close = abs(number / batches / graphs - 1) <= TOLERANCE or batches in (number // graphs, -(-number // graphs))
    if not close:
        around = sorted({max(1, int(graphs * packs / number)), int(graphs * packs / number) + 1})
        means = {p: number / sum(steps_of(of_shapes, p, drop_last=False)) for p in around}
        offered = " or ".join(f"{mean:.0f} ({p} pack{'s' if p > 1 else ''} a batch)" for p, mean in means.items())
        raise SamplerError(
            f"graphs_per_batch={graphs} cannot be met by whole packs, which hold {number / packs:.1f} graphs on "
            f"average within these limits; ask for {offered}, or leave limits and plans out, so that they are chosen "
            "for it."
        )
    return chosen
