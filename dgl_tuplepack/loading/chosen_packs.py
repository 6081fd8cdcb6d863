"""Limits, packs per batch and plans of a loader of packs, chosen for all splits together."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dgl_tuplepack._core.checks import OVERSIZE, choice, shown, whole_number
from dgl_tuplepack.errors import InputError, PlanError, SamplerError, SearchError
from dgl_tuplepack.planning.buckets import Buckets, Shapes, as_shapes, steps_of
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import PackPlan, static_limits
from dgl_tuplepack.planning.search import LimitsSearch, search_limits
from dgl_tuplepack.planning.search.strategies import TOLERANCE
from dgl_tuplepack.sampling.epoch_sampler import split_oversize

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Request:
    """The user's settings of batches; `choose` chooses the value of each setting that is None.

    `plans` are the user's plans, by split name. `stored` are the plans of a store; they are used if they fit.
    """

    graphs_per_batch: int | None
    limits: Shapes | None
    packs_per_batch: int | None
    plans: Mapping[str, PackPlan]
    multiple_of: int
    seed: int
    oversize: str
    shapes: int | None = None
    stored: Mapping[str, PackPlan] = field(default_factory=dict)

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
        if self.graphs_per_batch is None and given is None and not self.stored:
            raise InputError(
                "the batch size is not set: give batch_size, such as batch_size=64, or for packs graphs_per_batch, the "
                "mean number of graphs in a batch, or limits."
            )
        if given is not None and self.graphs_per_batch is not None and self.packs_per_batch is not None:
            raise InputError(
                f"graphs_per_batch={self.graphs_per_batch} and packs_per_batch={self.packs_per_batch} contradict each "
                f"other, since the number of graphs in a pack already follows from {given}; leave one of them out."
            )
        for name, value in (("multiple_of", self.multiple_of), ("shapes", self.shapes)):
            if given is not None and value not in (1, None):
                raise InputError(
                    f"{name}={shown(value)} is for limits that are searched, but this call gives {given}; leave one of "
                    "them out."
                )


@dataclass(frozen=True)
class Choice:
    """Limits and packs per batch of all splits, the plan of each split, and the search for limits, if there was one."""

    limits: Limits | Buckets
    packs_per_batch: int
    plans: Mapping[str, PackPlan]
    search: LimitsSearch | None


def choose(histograms: Mapping[str, SizeHistogram], leading: Sequence[str], request: Request) -> Choice:
    """Choose one shape for all splits; `graphs_per_batch` applies only to the batches of the splits in `leading`.

    `histograms` have the size class of each graph, by name of the split.
    """
    # Plans of a store fit only if no setting asks for other limits or other plans.
    if request.stored and (request.limits, request.plans, request.multiple_of, request.shapes) == (None, {}, 1, None):
        try:
            chosen = _chosen(histograms, leading, replace(request, plans=request.stored, stored={}))
        except InputError as error:
            # Other limits can be searched only if `graphs_per_batch` is given.
            if request.graphs_per_batch is None:
                raise
            _log.info("the plans of the store do not fit: %s", error)
        else:
            _log.info("used the plans of the store")
            return chosen
    return _chosen(histograms, leading, replace(request, stored={}))


def _chosen(histograms: Mapping[str, SizeHistogram], leading: Sequence[str], request: Request) -> Choice:
    """Make the choice; use the given limits, or else the limits of the given plans, or else search limits."""
    search: LimitsSearch | None = None
    limits: Limits | Buckets
    if request.limits is not None:
        limits = as_shapes(request.limits)
    elif request.plans:
        limits = _limits_of(request.plans)
    else:
        search = _search(histograms, leading, request)
        limits = search.best.limits
    plans = dict(request.plans)
    for name, histogram in histograms.items():
        if name not in plans:
            # The sampler itself warns about graphs that it drops.
            kept, _, _ = split_oversize(histogram, limits, request.oversize)
            plans[name] = pack(kept.without_ids(), limits, seed=request.seed)
    if search is not None:
        packs = search.packs_per_batch
    elif request.graphs_per_batch is not None:
        packs = _packs_for(request.graphs_per_batch, [plans[name] for name in leading])
    else:
        packs = request.packs_per_batch or 1
    how = "given" if search is None else f"searched among {len(search)} candidates"
    _log.info("limits of a pack: %r, %s; packs per batch: %d", limits, how, packs)
    for name, plan in plans.items():
        title = f"split {name!r}: " if name else ""
        graphs = plan.histogram.num_graphs
        _log.info("%s%d graphs in %d packs (lower bound: %d)", title, graphs, plan.num_packs, plan.lower_bound)
    return Choice(static_limits(limits, list(plans.values())), packs, plans, search)


def _limits_of(plans: Mapping[str, PackPlan]) -> Limits | Buckets:
    """Return the limits that all plans were made for; raise PlanError if the limits of two plans differ."""
    (name, first), *others = plans.items()
    for other, plan in others:
        if plan.made_for != first.made_for:
            raise PlanError(
                f"the plan {other!r} is for {plan.made_for!r}, but the plan {name!r} for {first.made_for!r}; batches "
                "of all splits have one shape, so give limits that no pack of any plan exceeds, or plans for equal "
                "limits."
            )
    return first.made_for


def _search(histograms: Mapping[str, SizeHistogram], leading: Sequence[str], request: Request) -> LimitsSearch:
    """Search for limits for the leading splits; every graph of the other splits must fit into a pack too."""
    packed = functools.reduce(SizeHistogram.__add__, (histograms[name] for name in leading))
    rest = [histogram for name, histogram in histograms.items() if name not in leading]
    # With oversize="drop", large graphs of the other splits are dropped too, so they need not fit.
    holding = functools.reduce(SizeHistogram.__add__, rest) if rest and request.oversize == "error" else None
    assert request.graphs_per_batch is not None
    with warnings.catch_warnings():
        # The sampler warns about dropped graphs itself, once the limits are known.
        warnings.filterwarnings("ignore", message=".* graphs exceed .* and are left out")
        return search_limits(
            packed, graphs_per_batch=min(request.graphs_per_batch, packed.num_graphs), holding=holding,
            packs_per_batch=request.packs_per_batch or "auto", multiple_of=request.multiple_of, shapes=request.shapes,
            oversize=request.oversize,
        )  # fmt: skip


def _packs_for(graphs: int, plans: Sequence[PackPlan]) -> int:
    """Return the packs per batch for a mean of about `graphs` graphs; SamplerError if no number comes close."""
    total, packs = sum(plan.histogram.num_graphs for plan in plans), sum(plan.num_packs for plan in plans)
    # The number of packs of each shape bucket, over all plans.
    of_shapes = [sum(of_shape) for of_shape in zip(*(plan.packs_of_shapes for plan in plans), strict=True)]
    chosen = max(1, round(graphs * packs / total))
    batches = sum(steps_of(of_shapes, chosen, drop_last=False))
    # With few graphs, a partial last batch can move the mean beyond the tolerance. So also accept the number of batches
    # that a loader with batch_size=`graphs` makes, with or without a partial last batch.
    close = abs(total / batches / graphs - 1) <= TOLERANCE or batches in (total // graphs, -(-total // graphs))
    if not close:
        around = sorted({max(1, int(graphs * packs / total)), int(graphs * packs / total) + 1})
        # Packs per batch -> mean number of graphs per batch.
        means = {p: total / sum(steps_of(of_shapes, p, drop_last=False)) for p in around}
        offered = " or ".join(f"{mean:.0f} ({p} pack{'s' if p > 1 else ''} per batch)" for p, mean in means.items())
        raise SamplerError(
            f"graphs_per_batch={graphs} cannot be met by whole packs, which hold {total / packs:.1f} graphs on "
            f"average within these limits; ask for {offered}, or leave out limits and plans, so that suitable ones "
            "are chosen."
        )
    return chosen
