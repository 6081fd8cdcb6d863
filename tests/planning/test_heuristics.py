"""Heuristics: what each of them computes, and which ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack import Limits, SizeHistogram, pack
from dgl_tuplepack._core.kernels.priority import priorities
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.planning.packing.heuristics import as_priority
from dgl_tuplepack.planning.sizes import INT64_MAX
from tests.support.messages import refused
from tests.support.strategies import Problem, heuristics, problems

LIMITS = Limits(10, 20)
SIZES = np.array([[0, 0], [3, 4], [4, 3], [10, 20]])


@given(problems(), st.data())
def test_every_heuristic_is_monotone_and_orders_sizes_as_the_reference(problem: Problem, data: st.DataObject) -> None:
    rule = data.draw(heuristics(of=problem))
    priority = as_priority(rule.given, problem.limits)
    sizes = [*problem.counts, problem.maxima, (0,) * len(problem.maxima)]
    ours = priorities(priority.rule, np.array(sizes)).tolist()
    theirs = [rule.obvious(size) for size in sizes]
    assert ours[-1] == 0
    assert max(ours) == ours[-2]
    assert [(a > b, a == b) for a in ours for b in ours] == [(a > b, a == b) for a in theirs for b in theirs]


@pytest.mark.parametrize(
    ("heuristic", "name", "expected"),
    [
        ("product", "product", [0, 12, 12, 200]),
        ("sum", "sum", [0, 7, 7, 30]),
        ("maximum", "maximum", [0, 4, 4, 20]),
        ("minimum", "minimum", [0, 3, 3, 10]),  # a true minimum, unlike the paper's companion code
        ("node", "node", [0, 3, 4, 10]),
        ("edge", "edge", [0, 4, 3, 20]),
        ((0, 3), "weights (0, 1)", [0, 4, 3, 20]),  # a common factor changes nothing
        ((0.5, 0.25), "weights (2, 1)", [0, 10, 11, 40]),
        (np.array([0.1, 0.3]), "weights (1, 3)", [0, 15, 13, 70]),
    ],
)
def test_values_and_the_name_that_a_plan_records(heuristic: Any, name: str, expected: list[int]) -> None:
    assert priorities(as_priority(heuristic, LIMITS).rule, SIZES).tolist() == expected
    assert pack([[1, 2]], LIMITS, "best_fit", heuristic=heuristic).heuristic == name


HUGE = Limits(2**63 - 1, 2**63 - 1)
UNKNOWN, WEIGHTS, OVERFLOW = "unknown heuristic", "2 finite numbers >= 0", "overflows int64"


@pytest.mark.parametrize(
    ("heuristic", "limits", "reason"),
    [
        *((wrong, LIMITS, UNKNOWN) for wrong in ("produkt", "", "Product", "nodes", {1, 2}, {1: 2, 3: 4}, max, b"ab")),
        *((wrong, LIMITS, WEIGHTS) for wrong in ((), (1,), (1, 2, 3), (0, 0), (-1, 2), (1, float("nan")), (1, "2"))),
        *((name, HUGE, OVERFLOW) for name in ("product", "sum", "maximum", "minimum", "node", (3, 1), (1, 1e300))),
        ("product", Limits(2**32, 2**31), OVERFLOW),
        ("node", Limits(2**63 - 1, 6), OVERFLOW),
        ("edge", Limits(5), "counts edges"),
        ("node", Limits.from_components({"edges": 5}), "counts nodes"),
    ],
)
def test_what_is_no_heuristic_is_refused(heuristic: Any, limits: Limits, reason: str) -> None:
    with refused(MethodError, reason):
        as_priority(heuristic, limits)


def test_a_priority_may_reach_all_but_the_largest_integer() -> None:
    # The kernels count up from a priority; from the largest one they would wrap around and lose the order of packs.
    assert as_priority("product", Limits(INT64_MAX - 1, 1)).name == "product"
    histogram = SizeHistogram.from_counts({(5, 2): 1, (0, 5): 1, (0, 1): 1})
    assert pack(histogram, Limits(2**63 - 2, 6), "best_fit", heuristic="node").num_packs == 2
