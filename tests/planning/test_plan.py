"""Plans: figures, fingerprint, and that no damaged plan passes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dgl_tuplepack import Limits, PackPlan, SizeHistogram, pack
from dgl_tuplepack.errors import LimitsError, PlanError
from dgl_tuplepack.planning.plan import harmonic_mean, summarise
from dgl_tuplepack.planning.sizes import INT64_MAX
from tests.support.messages import refused

# Two packs of (3, 4) + 2 x (1, 2), and one pack of a single (1, 2).
FIELDS: dict[str, Any] = {
    "histogram": SizeHistogram.from_counts({(1, 2): 5, (3, 4): 2}),
    "limits": Limits(6, 10, 4),
    "offsets": [0, 2, 3],
    "classes": [1, 0, 0],
    "multiplicities": [1, 2, 1],
    "repeats": [2, 1],
    "lower_bound": 2,
    "method": "by hand",
}


def plan_with(**changes: Any) -> PackPlan:
    return PackPlan(**{**FIELDS, **changes})


def test_figures() -> None:
    plan = plan_with()
    assert (plan.num_packs, plan.num_patterns, plan.lower_bound, plan.gap, plan.max_graphs) == (3, 2, 2, 1, 3)
    assert plan.pattern_contents.tolist() == [[5, 8], [1, 2]]
    assert plan.pattern_graphs.tolist() == [3, 1]
    assert plan.efficiency == {"nodes": 11 / 18, "edges": 18 / 30}
    assert plan.effective_limits == Limits(5, 8, 3)
    assert plan.effective_efficiency == {"nodes": 11 / 15, "edges": 18 / 24}
    assert "7 graphs in 3 packs: 3 of Limits(" in repr(plan)
    assert "lower bound 2" in repr(plan)
    assert "nodes 61.11%, edges 60.00%" in repr(plan)


def test_a_plan_keeps_its_own_read_only_arrays_and_no_ids() -> None:
    plan = plan_with(histogram=SizeHistogram.from_sizes([[3, 4]] * 2 + [[1, 2]] * 5))
    assert plan.histogram.graph_classes is None
    with pytest.raises(ValueError, match="read-only"):
        plan.repeats[0] = 5


def test_limits_take_the_order_of_the_components() -> None:
    plan = plan_with(limits=Limits.from_components({"edges": 10, "nodes": 6}, 4))
    assert plan.limits == Limits(6, 10, 4)
    assert plan.fingerprint == plan_with().fingerprint
    with refused(LimitsError, "one limit for each"):
        plan_with(limits=Limits.from_components({"edges": 10}))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        *(
            (changes, ("do not fit together", "make it again"))
            for changes in (
                {"offsets": [0, 2]}, {"offsets": [0, 3, 2]}, {"offsets": [1, 2, 3]}, {"offsets": []},
                {"classes": [1, 0]}, {"multiplicities": [1, 2]}, {"repeats": [2]}, {"repeats": [[2, 1]]},
                {"offsets": [0], "classes": [], "multiplicities": [], "repeats": []},
            )
        ),
        ({"classes": [1, 0, 2]}, ("size class 2", "histogram has 2")),
        ({"multiplicities": [1, 2, 0]}, ("multiplicity or repeat of 0",)),
        ({"repeats": [2, 0]}, ("multiplicity or repeat of 0",)),
        ({"multiplicities": [1, 1, 1]}, ("packs 3 graphs of size (1, 2)", "has 5", "exactly once")),
        ({"repeats": [1, 1]}, ("graphs of size (1, 2)", "exactly once")),
        # Huge entries do not wrap around.
        ({"repeats": [INT64_MAX, INT64_MAX]}, ("graphs of size (1, 2)", "has 5")),
        ({"lower_bound": 4}, ("3 packs", "1..3, but is 4")),
        *(
            ({"limits": limits}, ("pattern 0", "{'nodes': 5, 'edges': 8} in 3 graphs", repr(limits), "again"))
            for limits in (Limits(4, 8, 3), Limits(5, 7, 3), Limits(5, 8, 2))
        ),
    ],
)  # fmt: skip
def test_a_damaged_plan_is_refused(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    with refused(PlanError, *parts):
        plan_with(**changes)


def test_equal_plans_have_equal_fingerprints_however_they_were_made() -> None:
    plain = plan_with().fingerprint
    assert len(plain) == 64
    assert int(plain, 16) >= 0
    made_otherwise = {"method": "x", "heuristic": "sum", "seed": 5, "lower_bound": 1, "versions": {}}
    assert plan_with(**made_otherwise).fingerprint == plain
    assert set(plan_with().versions) == {"dgl_tuplepack", "python", "numpy", "numba", "highspy"}


@pytest.mark.parametrize(
    "changes",
    [
        {"limits": Limits(7, 10, 4)}, {"limits": Limits(6, 10, 5)}, {"limits": Limits(6, 10)},
        {"histogram": SizeHistogram.from_counts({(1, 1): 5, (3, 4): 2})},
        {"histogram": SizeHistogram.from_counts({(1, 2): 6, (3, 4): 2}), "repeats": [2, 2]},
        {"histogram": SizeHistogram.from_counts({(1, 2): 5, (3, 4): 2}, ("nodes", "angles")),
         "limits": Limits.from_components({"nodes": 6, "angles": 10}, 4)},
        {"classes": [0, 1, 0], "multiplicities": [2, 1, 1]},
        {"offsets": [0, 1, 3], "classes": [0, 1, 0], "multiplicities": [1, 1, 2], "repeats": [1, 2]},
    ],
)  # fmt: skip
def test_the_fingerprint_depends_on_each_ingredient(changes: dict[str, Any]) -> None:
    assert plan_with(**changes).fingerprint != plan_with().fingerprint


def test_the_fingerprint_is_the_same_in_every_release() -> None:
    # Ranks and saved plans compare it; a change of this value is a change of the format.
    assert plan_with().fingerprint == "6825be193784e578b730e784e76c93d97314d265ad3e3b817aa5c74e87b95b1a"


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
    assert summarise(PLAN)["empty_slots"] == {"nodes": 12 - 6, "edges": 24 - 3}


def test_summary_is_plain_data_with_the_figures_of_the_plan() -> None:
    summary = json.loads(json.dumps(summarise(PLAN)))
    assert summary["graphs"] == 3
    assert (summary["packs"], summary["lower_bound"], summary["gap"]) == (3, 2, 1)
    assert summary["efficiency"] == {"nodes": 0.5, "edges": 0.125}
    assert summary["effective_efficiency"] == {"nodes": 1.0, "edges": 1.0}
    assert summary["effective_limits"] == {"maxima": {"nodes": 2, "edges": 1}, "graphs": 1}
    assert summary["harmonic_mean"] == pytest.approx(0.2)
    assert (summary["method"], summary["heuristic"], summary["max_graphs"]) == ("best_fit", "product", 1)
