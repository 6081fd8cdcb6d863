"""Metrics of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgl_tuplepack.planning.plan import PackPlan


def harmonic_mean(efficiency: Mapping[str, float]) -> float:
    """Return the harmonic mean of the efficiencies above 0, or 0 if no efficiency is above 0.

    The efficiency of a component is 0 only if every graph has 0 of this component.

    Examples
    --------
    >>> round(harmonic_mean({"nodes": 0.9, "edges": 0.6}), 2)
    0.72
    """
    values = [value for value in efficiency.values() if value > 0]
    return len(values) / sum(1 / value for value in values) if values else 0.0


def empty_slots(plan: PackPlan) -> dict[str, int]:
    """Return how many slots of each component stay empty in all packs of a plan together.

    Slots that are reserved for padding are not counted.
    """
    totals = plan.histogram.totals()
    return {name: slots - totals[name] for name, slots in plan.slots.items()}


def summarise(plan: PackPlan) -> dict[str, Any]:
    """Return plain data about a plan, for tables and JSON."""
    of_shapes = (
        {}
        if plan.buckets is None
        else {"packs_of_shapes": list(plan.packs_of_shapes), "padded_slots": plan.padded_slots}
    )
    return {
        "method": plan.method,
        "heuristic": plan.heuristic,
        "graphs": plan.histogram.num_graphs,
        "packs": plan.num_packs,
        **of_shapes,
        "lower_bound": plan.lower_bound,
        "gap": plan.gap,
        "efficiency": plan.efficiency,
        "effective_limits": plan.effective_limits.to_dict(),
        "effective_efficiency": plan.effective_efficiency,
        "harmonic_mean": harmonic_mean(plan.efficiency),
        "empty_slots": empty_slots(plan),
        "max_graphs": plan.max_graphs,
    }
