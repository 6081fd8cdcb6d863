"""One contract for every registered packing method, and exact agreement with the pure-Python twin."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from dgl_tuplepack import PackPlan, lower_bound, pack
from dgl_tuplepack.planning.packing import METHODS
from tests.support import reference
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
