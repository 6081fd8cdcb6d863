"""Figures of merit of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgl_tuplepack.plan import PackPlan


def harmonic_mean(efficiency: Mapping[str, float]) -> float:
    """Harmonic mean of the efficiencies above 0; 0 if there are none.

    An efficiency is 0 only if a component is 0 in every graph, and then for every plan.

    Examples
    --------
    >>> round(harmonic_mean({"nodes": 0.9, "edges": 0.6}), 2)
    0.72
    """
    values = [value for value in efficiency.values() if value > 0]
    return len(values) / sum(1 / value for value in values) if values else 0.0


def empty_slots(plan: PackPlan) -> dict[str, int]:
    """Slots of each component that hold padding in one epoch, relative to the limits of the plan."""
    totals = plan.histogram.totals()
    return {name: plan.num_packs * limit - totals[name] for name, limit in plan.limits.maxima.items()}


def summarise(plan: PackPlan) -> dict[str, Any]:
    """Plain data for tables and JSON: packs, bound, gap, both efficiencies, empty slots."""
    return {
        "method": plan.method,
        "heuristic": plan.heuristic,
        "graphs": plan.histogram.num_graphs,
        "packs": plan.num_packs,
        "lower_bound": plan.lower_bound,
        "gap": plan.gap,
        "efficiency": plan.efficiency,
        "effective_limits": plan.effective_limits.to_dict(),
        "effective_efficiency": plan.effective_efficiency,
        "harmonic_mean": harmonic_mean(plan.efficiency),
        "empty_slots": empty_slots(plan),
        "max_graphs": plan.max_graphs,
    }
