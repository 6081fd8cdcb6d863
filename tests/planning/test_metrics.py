"""Figures of merit of a plan that is small enough to check by hand."""

from __future__ import annotations

import json

import pytest

from dgl_tuplepack import Limits, SizeHistogram, pack
from dgl_tuplepack.planning.plan import empty_slots, harmonic_mean, summarise

# Three graphs of 2 nodes and 1 edge, two of which fill the 4 nodes of a pack.
PLAN = pack(SizeHistogram.from_counts({(2, 1): 3}), Limits(4, 8), method="best_fit")


def test_harmonic_mean() -> None:
    assert harmonic_mean({"nodes": 0.5, "edges": 1.0}) == pytest.approx(2 / 3)
    assert harmonic_mean({"nodes": 0.3}) == pytest.approx(0.3)
    # Graphs without edges: only nodes count.
    assert harmonic_mean({"nodes": 0.5, "edges": 0.0}) == 0.5
    assert harmonic_mean({"nodes": 0.0, "edges": 0.0}) == 0.0


def test_empty_slots_add_up_with_the_real_content() -> None:
    assert PLAN.num_packs == 3  # the paper's algorithm never joins graphs of the first size
    assert empty_slots(PLAN) == {"nodes": 12 - 6, "edges": 24 - 3}


def test_summary_is_plain_data_with_the_figures_of_the_plan() -> None:
    summary = json.loads(json.dumps(summarise(PLAN)))
    assert summary["graphs"] == 3
    assert (summary["packs"], summary["lower_bound"], summary["gap"]) == (3, 2, 1)
    assert summary["efficiency"] == {"nodes": 0.5, "edges": 0.125}
    assert summary["effective_efficiency"] == {"nodes": 1.0, "edges": 1.0}
    assert summary["effective_limits"] == {"maxima": {"nodes": 2, "edges": 1}, "graphs": 1}
    assert summary["harmonic_mean"] == pytest.approx(0.2)
    assert (summary["method"], summary["heuristic"], summary["max_graphs"]) == ("best_fit", "product", 1)
