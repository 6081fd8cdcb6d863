"""One contract for every packing method, agreement with the pure-Python twin, and plans to follow by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from dgl_tuplepack import GraphSizes, Limits, PackPlan, SizeHistogram, lower_bound, pack
from dgl_tuplepack._core.kernels.histogram_fit import priorities
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, MethodError, SizesError
from dgl_tuplepack.planning.packing import METHODS
from dgl_tuplepack.planning.packing.fit import as_priority
from dgl_tuplepack.planning.sizes import INT64_MAX
from tests.support import reference
from tests.support.messages import refused
from tests.support.strategies import Problem, caps, heuristics, methods, problems, tiny_problems, usable

SEEDS = st.integers(0, 2**64 - 1)


def assert_sound(plan: PackPlan, problem: Problem) -> None:
    """Every graph is packed once and no limit of the plan is exceeded; counted anew, without `validate`."""
    packed: Counter[reference.Size] = Counter()
    maxima, cap = plan.limits.values, plan.limits.graphs
    for (pattern, packs), times in reference.patterns_of(plan).items():
        assert packs >= 1
        content = [size for size, number in pattern for _ in range(number)]
        assert content
        for component, maximum in zip(zip(*content, strict=True), maxima, strict=True):
            assert sum(component) <= maximum
        assert cap is None or len(content) <= cap
        for size in content:
            packed[size] += packs * times
    assert packed == problem.counts


@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize("random_ties", [False, True])
@given(problem=problems(), seed=SEEDS, data=st.data())
def test_every_method_keeps_the_contract(
    method: str, random_ties: bool, problem: Problem, seed: int, data: st.DataObject
) -> None:
    assume(usable(method, problem))
    rule = data.draw(heuristics(of=problem))
    plan = pack(problem.histogram, problem.limits, method, heuristic=rule.given, seed=seed, random_ties=random_ties)
    event(f"{len(problem.maxima)} components, cap {'no' if problem.cap is None else min(problem.cap, 2)}")
    assert_sound(plan, problem)
    assert plan.method.partition(":")[0] == method
    assert plan.limits.graphs == problem.cap
    if method.endswith("_only"):
        # Limits that it heeds stay; the others are raised to what the packs hold, and no further.
        heeded = method.removesuffix("_only") + "s"
        for name, asked, has, used in zip(
            problem.components, problem.maxima, plan.limits.values, plan.effective_limits.values, strict=True
        ):
            assert has == (asked if name.split(":")[0] == heeded else max(asked, used))
    else:
        assert plan.limits.values == problem.maxima
    quick = lower_bound(problem.histogram, plan.limits, effort=0)
    assert plan.lower_bound >= quick if method == "auto" else plan.lower_bound == quick
    assert plan.num_packs >= lower_bound(problem.histogram, plan.limits)
    assert plan.num_packs >= plan.lower_bound


@pytest.mark.parametrize("method", list(METHODS))
@given(problem=tiny_problems(), data=st.data())
def test_no_method_beats_the_optimum_and_the_bound_never_exceeds_it(
    method: str, problem: Problem, data: st.DataObject
) -> None:
    assume(usable(method, problem))
    plan = pack(problem.histogram, problem.limits, method, heuristic=data.draw(heuristics(of=problem)).given)
    optimum = reference.fewest_packs(problem.graphs, plan.limits.values, problem.cap)
    assert plan.lower_bound <= optimum <= plan.num_packs
    alone = problem.cap == 1 or method == "none"
    assert not alone or plan.num_packs == len(problem.graphs)


@given(problem=problems(), seed=SEEDS, random_ties=st.booleans(), data=st.data())
def test_the_same_seed_gives_the_same_plan(problem: Problem, seed: int, random_ties: bool, data: st.DataObject) -> None:
    method = data.draw(methods(of=problem))
    rule = data.draw(heuristics(of=problem))
    one, two = (
        pack(problem.histogram, problem.limits, method, heuristic=rule.given, seed=seed, random_ties=random_ties)
        for _ in range(2)
    )
    assert one.fingerprint == two.fingerprint
    assert one.seed == two.seed == seed


@pytest.mark.parametrize("components", range(1, 7))
@pytest.mark.parametrize("method", ["best_fit", "first_fit", "first_fit_by_text"])
@given(data=st.data())
def test_histogram_packers_equal_the_reference_where_groups_are_many(
    method: str, components: int, data: st.DataObject
) -> None:
    # Every number of components gets its share, with counts that split groups.
    problem = data.draw(problems(components=st.just(components), cap=caps(most=5), most_classes=20, most_graphs=40))
    rule = data.draw(heuristics(of=problem))
    expected = reference.histogram_packs(
        problem.counts, problem.maxima, problem.cap, rule.obvious,
        fullest_first=method == "best_fit", by_the_text=method == "first_fit_by_text",
    )  # fmt: skip
    assert reference.patterns_of(pack(problem.histogram, problem.limits, method, heuristic=rule.given)) == expected


# --- the function in front of all methods


def test_the_baselines_ignore_other_limits_and_carry_raised_ones() -> None:
    histogram = SizeHistogram.from_counts({(5, 9): 1, (4, 9): 1, (1, 1): 1})
    plan = pack(histogram, Limits(10, 10, 8), method="node_only")
    assert plan.num_packs == 1
    assert plan.limits == Limits(10, 19, 8)
    assert (plan.lower_bound, plan.method, plan.heuristic) == (1, "node_only", None)
    flipped = SizeHistogram.from_counts({(9, 5): 1, (9, 4): 1, (1, 1): 1})
    assert pack(flipped, Limits(10, 10, 8), method="edge_only").limits == Limits(19, 10, 8)
    # Where nothing is exceeded the limits stay as they were asked for.
    assert pack(histogram, Limits(10, 30), method="node_only").limits == Limits(10, 30)
    # The cap on graphs is heeded by every method.
    assert pack(histogram, Limits(10, 10, 1), method="node_only").num_packs == 3


def test_random_ties_vary_with_the_seed_and_only_when_asked_for() -> None:
    rows = np.random.default_rng(0).integers(1, 9, (200, 2))
    for method, ties, different in (("best_fit", False, 1), ("best_fit", True, 5), ("next_fit", False, 5)):
        settings: Any = {"heuristic": "maximum", "random_ties": ties}
        plans = [pack(rows, Limits(30, 30), method, seed=seed, **settings) for seed in range(5)]
        assert len({plan.fingerprint for plan in plans}) == different
        assert plans[0].random_ties is ties


@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_refuses_what_cannot_be_packed(method: str) -> None:
    # A typo must not go unnoticed just because the method has no use for it.
    with refused(MethodError, "unknown heuristic 'produkt'", "product"):
        pack([[1, 1]], Limits(5, 5), method=method, heuristic="produkt")
    with refused(SizesError, "no graphs"):
        pack(np.zeros((0, 2), dtype=np.int64), Limits(5, 5), method=method)
    with refused(GraphTooLargeError, "1 of 3 graphs", "graph 2 (3 nodes, 6 edges)", "5 nodes, 6 edges"):
        pack([[1, 1], [5, 5], [3, 6]], Limits(5, 5), method=method)
    with refused(LimitsError, "['edges']", "['nodes', 'edges']"):
        pack([[1, 1]], Limits.from_components({"edges": 5}), method=method)
    plan = pack([[1, 1], [4, 50], [3, 7]], Limits(5), method=method)
    assert plan.effective_limits.nodes <= (8 if method == "edge_only" else 5)
    assert plan.histogram.num_graphs == 3


@pytest.mark.parametrize(("method", "component"), [("edge_only", "nodes"), ("node_only", "edges")])
def test_a_baseline_needs_its_component(method: str, component: str) -> None:
    histogram = SizeHistogram.from_counts({(1,): 1}, (component,))
    with refused(MethodError, repr(method), str([component]), "another method"):
        pack(histogram, Limits.from_components({component: 5}), method=method)


@pytest.mark.parametrize("given", [(np.array([3, 2]), np.array([4, 2])), ["graph"], (), "molhiv", object()])
def test_what_sizes_of_reads_is_not_taken_for_rows(given: Any) -> None:
    # A pair of arrays (num_nodes, num_edges) would otherwise be counted as two graphs of other sizes.
    with refused(SizesError, f"but are {type(given).__name__}", "call sizes_of(source) first"):
        SizeHistogram.from_sizes(given)
    rows = [[3, 4], [1, 2], [3, 4]]
    pair = np.array([3, 1, 3]), np.array([4, 2, 4])
    forms = [rows, np.array(rows, dtype=np.int32), pair, GraphSizes(rows), SizeHistogram.from_sizes(rows)]
    assert len({pack(form, Limits(5, 6), "none").fingerprint for form in forms}) == 1


GIANT = SizeHistogram([[1, 3], [4, 2], [5, 5]], [2**40, 2**39 + 1, 2**41])


@pytest.mark.parametrize("method", ["auto", "none", "best_fit"])
@pytest.mark.parametrize("limits", [Limits(9, 9), Limits(9, 9, 2), Limits(10**9, 10**9), Limits(2**62, 2**62)])
def test_giant_counts_are_packed_or_refused_at_once(method: str, limits: Limits) -> None:
    # Best fit adds one graph at a time to all packs of a group: many graphs in a pack take long.
    if method != "best_fit" or limits.values[0] == 9:
        assert pack(GIANT, limits, method, effort=0.05).num_patterns < 1000


def test_next_fit_refuses_more_graphs_than_memory_may_hold() -> None:
    with refused(MethodError, "33,554,432", "33,554,433", "'auto'"):
        pack(SizeHistogram.from_counts({(1, 1): 2**25 + 1}), Limits(5, 5), "next_fit")


LIMITS = Limits(10, 20)
SIZES = np.array([[0, 0], [3, 4], [4, 3], [10, 20]])


@given(problems(), st.data())
def test_every_heuristic_is_monotone_and_orders_sizes_as_the_reference(problem: Problem, data: st.DataObject) -> None:
    rule = data.draw(heuristics(of=problem))
    _, priority = as_priority(rule.given, problem.limits)
    sizes = [*problem.counts, problem.maxima, (0,) * len(problem.maxima)]
    ours = priorities(priority, np.array(sizes)).tolist()
    theirs = [rule.obvious(size) for size in sizes]
    assert ours[-1] == 0
    assert max(ours) == ours[-2]
    assert [(a > b, a == b) for a in ours for b in ours] == [(a > b, a == b) for a in theirs for b in theirs]


@pytest.mark.parametrize(
    ("heuristic", "name", "expected"),
    [
        ("product", "product", [0, 12, 12, 200]), ("sum", "sum", [0, 7, 7, 30]), ("maximum", "maximum", [0, 4, 4, 20]),
        ("minimum", "minimum", [0, 3, 3, 10]),  # a true minimum, unlike the paper's companion code
        ("node", "node", [0, 3, 4, 10]), ("edge", "edge", [0, 4, 3, 20]),
        ((0, 3), "weights (0, 1)", [0, 4, 3, 20]),  # a common factor changes nothing
        ((0.5, 0.25), "weights (2, 1)", [0, 10, 11, 40]),
        (np.array([0.1, 0.3]), "weights (1, 3)", [0, 15, 13, 70]),
    ],
)  # fmt: skip
def test_values_and_the_name_that_a_plan_records(heuristic: Any, name: str, expected: list[int]) -> None:
    assert priorities(as_priority(heuristic, LIMITS)[1], SIZES).tolist() == expected
    assert pack([[1, 2]], LIMITS, "best_fit", heuristic=heuristic).heuristic == name


HUGE = Limits(2**63 - 1, 2**63 - 1)
UNKNOWN, WEIGHTS, OVERFLOW = "unknown heuristic", "2 finite numbers >= 0", "overflows int64"


@pytest.mark.parametrize(
    ("heuristic", "limits", "reason"),
    [
        *((wrong, LIMITS, UNKNOWN) for wrong in ("produkt", "", {1, 2}, max, b"ab")),
        *((wrong, LIMITS, WEIGHTS) for wrong in ((), (1, 2, 3), (0, 0), (-1, 2), (1, float("nan")), (1, "2"))),
        *((name, HUGE, OVERFLOW) for name in ("product", "sum", "maximum", "minimum", "node", (3, 1), (1, 1e300))),
        ("product", Limits(2**32, 2**31), OVERFLOW),
        ("edge", Limits(5), "counts edges"),
    ],
)
def test_what_is_no_heuristic_is_refused(heuristic: Any, limits: Limits, reason: str) -> None:
    with refused(MethodError, reason):
        as_priority(heuristic, limits)


def test_a_priority_may_reach_all_but_the_largest_integer() -> None:
    # The kernels count up from a priority; from the largest one they would wrap around and lose the order of packs.
    assert as_priority("product", Limits(INT64_MAX - 1, 1))[0] == "product"
    histogram = SizeHistogram.from_counts({(5, 2): 1, (0, 5): 1, (0, 1): 1})
    assert pack(histogram, Limits(2**63 - 2, 6), "best_fit", heuristic="node").num_packs == 2
