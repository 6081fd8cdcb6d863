"""Searches for limits, each against the obvious: plans made one by one, and choices made by looking at every row."""

from __future__ import annotations

import itertools
import math
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dgl_tuplepack import Limits, LimitsSearch, pack, search_limits
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search import Candidate
from tests.strategies import Problem, heuristics, problems

FEW = st.integers(1, 3)
WAYS: dict[str, Any] = {
    "auto": {},
    "target": {"target": 0.3},
    "graphs_per_batch": {"graphs_per_batch": 2},
    "budget": {"budget": 500},
}


@st.composite
def ranges(draw: st.DrawFn, *, of: Problem, most: int = 3) -> dict[str, list[int]]:
    """A few limits for each component, none below the largest size."""
    values = {}
    for name, column in zip(of.components, zip(*of.counts, strict=True), strict=True):
        least = max(1, *column)
        values[name] = draw(st.lists(st.integers(least, least + 30), min_size=1, max_size=most))
    return values


def rows_of(search: LimitsSearch) -> list[tuple[Any, ...]]:
    """Everything of a search that users see, row by row."""
    return [
        (c.limits, c.packs, c.most_graphs, c.effective_limits, c.score, row == search.best_index)
        for row, c in enumerate(search)
    ]


def found_or_refused(problem: Problem, **settings: Any) -> LimitsSearch | str:
    """A search, or why there is none."""
    try:
        return search_limits(problem.histogram, **settings)
    except SearchError as error:
        return str(error)


def mean_of(candidate: Candidate) -> float:
    values = [v for v in candidate.efficiency.values() if v]
    return len(values) / math.fsum(1 / v for v in values) if values else 0.0


@given(problem=problems(components=FEW), data=st.data(), method=st.sampled_from(["best_fit", "first_fit"]))
def test_a_grid_counts_the_packs_of_every_plan(problem: Problem, data: st.DataObject, method: str) -> None:
    rule, tried = data.draw(heuristics(of=problem)), data.draw(ranges(of=problem))
    search = search_limits(
        problem.histogram, ranges=tried, graphs=problem.cap, method=method, heuristic=rule.given, tolerance=0
    )
    expected = set(itertools.product(*tried.values()))
    assert [c.limits.values for c in search] == sorted(expected)
    for candidate in search:
        plan = pack(problem.histogram, candidate.limits, method, heuristic=rule.given)
        assert candidate.packs == plan.num_packs
        assert candidate.most_graphs == plan.max_graphs
        assert candidate.effective_limits == plan.effective_limits
        assert candidate.efficiency == plan.efficiency
        assert candidate.graphs_per_pack == len(problem.graphs) / plan.num_packs
        assert candidate.limits.graphs == problem.cap
    highest = max(mean_of(c) for c in search)
    assert math.isclose(search.best.harmonic_mean, highest)


@given(problem=problems(components=FEW), data=st.data(), seed=st.integers(0, 3))
@pytest.mark.parametrize(("method", "effort"), [("auto", 0.0), ("auto", 0.001), ("next_fit", 0.0)])
def test_other_methods_count_their_packs_too(
    method: str, effort: float, problem: Problem, data: st.DataObject, seed: int
) -> None:
    tried = data.draw(ranges(of=problem, most=2))
    search = search_limits(problem.histogram, ranges=tried, graphs=problem.cap, method=method, seed=seed, effort=effort)
    for candidate in search:
        plan = pack(problem.histogram, candidate.limits, method, seed=seed, effort=effort)
        assert (candidate.packs, candidate.most_graphs) == (plan.num_packs, plan.max_graphs)
        assert candidate.effective_limits == plan.effective_limits


@given(problem=problems(components=FEW), data=st.data(), tolerance=st.sampled_from([0, 0.005, 0.2]))
def test_the_best_has_the_fewest_slots_of_those_that_are_full_enough(
    problem: Problem, data: st.DataObject, tolerance: float
) -> None:
    search = search_limits(problem.histogram, ranges=data.draw(ranges(of=problem)), tolerance=tolerance)
    full = [c for c in search if c.score >= max(search.scores) * (1 - tolerance) - 1e-12]
    assert search.best.slots == min(c.slots for c in full)
    for c in search:
        assert math.isclose(c.score, mean_of(c), abs_tol=1e-12)
        assert c.slots == sum(c.limits.values)


@given(problem=problems(components=FEW), data=st.data(), wanted=st.sampled_from([0.2, 0.5, 0.8, 0.95]))
def test_a_target_among_ranges_is_reached_by_the_smallest(problem: Problem, data: st.DataObject, wanted: float) -> None:
    tried = data.draw(ranges(of=problem))
    every = search_limits(problem.histogram, ranges=tried)
    component = data.draw(st.sampled_from([None, *problem.components]))
    target = wanted if component is None else {component: wanted}
    reached = [c for c in every if (c.harmonic_mean if component is None else c.efficiency[component]) >= wanted]
    if reached:
        found = search_limits(problem.histogram, ranges=tried, target=target)
        assert found.best.slots == min(c.slots for c in reached)
        assert found.best.limits in [c.limits for c in reached]
    else:
        closest = max(c.harmonic_mean if component is None else c.efficiency[component] for c in every)
        with pytest.raises(SearchError) as caught:
            search_limits(problem.histogram, ranges=tried, target=target)
        assert f"{closest:.4f}" in str(caught.value)


@pytest.mark.parametrize("way", list(WAYS))
@given(problem=problems(components=FEW), multiple_of=st.sampled_from([1, 1, 4, 7]), heuristic=st.booleans())
def test_every_way_keeps_its_promises(way: str, problem: Problem, multiple_of: int, heuristic: bool) -> None:
    settings = dict(WAYS[way])
    if heuristic:
        settings["heuristic"] = "sum"
    search = found_or_refused(problem, plans=30, multiple_of=multiple_of, graphs=problem.cap, **settings)
    if isinstance(search, str):
        assert way != "auto"
        assert any(reason in search for reason in ("out of reach", "too small", "graphs_per_batch must be"))
        return
    assert search.way == way
    assert 1 <= len(search) <= 30
    best = search.best
    for candidate in search:
        assert candidate.limits.fits([list(size) for size in problem.counts]).all()
        for name, limit in candidate.limits.maxima.items():
            padded = limit + (multiple_of > 1 and name.startswith("nodes"))
            assert padded % multiple_of == 0
        if way == "budget":
            nodes = sum(name.startswith("nodes") for name in problem.components)
            assert candidate.slots + nodes <= 500
            assert best.packs <= candidate.packs
        if way == "target" and candidate.harmonic_mean >= 0.3:
            assert best.slots <= candidate.slots
    if way == "target":
        assert best.harmonic_mean >= 0.3
    if way == "auto":
        assert best.score >= 0.995 * max(search.scores) - 1e-12


@given(
    size=st.tuples(st.integers(1, 40), st.integers(0, 200)),
    more=st.integers(0, 9),
    number=st.integers(1, 300),
    cap=st.none() | st.integers(1, 12),
)
def test_graphs_of_nearly_equal_sizes_are_packed_several_at_a_time(
    size: tuple[int, int], more: int, number: int, cap: int | None
) -> None:
    counts = {size: number, (size[0], size[1] + more * size[1] // 40): number}
    histogram = Problem(counts, size, None).histogram
    best = search_limits(histogram, graphs=cap, plans=40).best
    assert best.limits.fits([list(size) for size in counts]).all()
    assert best.packs <= max(1, math.ceil(histogram.num_graphs / min(8, cap or 8) * 1.25))


@given(problem=problems(components=st.just(2)), more=st.integers(0, 40), nodes=st.sampled_from([1, 1, 3]))
def test_of_few_limits_that_spend_a_budget_none_needs_fewer_packs(problem: Problem, more: int, nodes: int) -> None:
    least = [max(1, *column) for column in zip(*problem.counts, strict=True)]
    cost = dict(zip(problem.components, (nodes, 1), strict=True))
    budget = nodes * (least[0] + 1) + least[1] + more
    totals = [max(1, total) for total in problem.histogram.totals().values()]
    every = range(least[0], min(least[0] + more // nodes, totals[0]) + 1)
    found = search_limits(problem.histogram, budget=budget, cost=cost, graphs=problem.cap, plans=2 * len(every))
    for first in every:
        second = min(budget - nodes * (first + 1), totals[1])
        tried = {problem.components[0]: [first], problem.components[1]: [second]}
        assert found.best.packs <= search_limits(problem.histogram, ranges=tried, graphs=problem.cap).best.packs


class Backwards(Executor):
    """Does the work only when it is asked for, the last piece first."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        owner = self

        class Lazy(Future[Any]):
            def result(self, timeout: float | None = None) -> Any:
                while owner.waiting:
                    future, function, arguments = owner.waiting.pop()
                    if not future.cancelled():
                        future.set_result(function(*arguments))
                return super().result(timeout)

        future: Future[Any] = Lazy()
        self.waiting.append((future, fn, args))
        return future


@pytest.mark.parametrize("way", list(WAYS))
@given(problem=problems(components=FEW))
def test_the_executor_and_its_workers_change_nothing(way: str, problem: Problem) -> None:
    def found(executor: Executor | None) -> object:
        search = found_or_refused(problem, plans=40, executor=executor, **WAYS[way])
        return search if isinstance(search, str) else rows_of(search)

    expected = found(None)
    assert found(Backwards()) == expected
    with ThreadPoolExecutor(5) as five:
        assert found(five) == expected


@given(problem=problems(components=FEW), data=st.data())
def test_the_pareto_front_holds_what_nothing_beats(problem: Problem, data: st.DataObject) -> None:
    search = search_limits(problem.histogram, ranges=data.draw(ranges(of=problem)), heuristic="product")
    front = search.pareto
    for c in search:
        beaten = any(
            (o.slots <= c.slots and o.score > c.score) or (o.slots < c.slots and o.score >= c.score) for o in search
        )
        assert beaten or any((o.slots, o.score) == (c.slots, c.score) for o in front)
        assert not (beaten and c in front)
    assert front == sorted(front, key=lambda c: c.slots)
    assert search.best.score <= front[-1].score


@given(problem=problems(components=FEW), data=st.data())
def test_graphs_are_left_out_only_where_they_exceed_the_smallest_limits(problem: Problem, data: st.DataObject) -> None:
    most = tuple(map(max, zip(*problem.counts, strict=True)))
    values = [data.draw(st.lists(st.integers(1, m + 2), min_size=1, max_size=2)) for m in most]
    least = tuple(map(min, values))
    over = sum(n for size, n in problem.counts.items() if any(s > m for s, m in zip(size, least, strict=True)))
    assume(0 < over < len(problem.graphs))
    tried = dict(zip(problem.components, values, strict=True))
    with pytest.warns(UserWarning, match=f"^{over} of {len(problem.graphs)} graphs exceed"):
        search = search_limits(problem.histogram, ranges=tried, oversize="drop")
    assert (search.dropped, search.num_graphs) == (over, len(problem.graphs) - over)
    left = {s: n for s, n in problem.counts.items() if all(a <= b for a, b in zip(s, least, strict=True))}
    kept = Problem(left, least, None).histogram
    assert search.totals.tolist() == list(kept.totals().values())
    assert search.best.packs == pack(kept, search.best.limits, effort=0).num_packs


@given(problem=problems(components=FEW), data=st.data())
def test_the_same_graphs_counted_twice_need_at_most_twice_the_packs(problem: Problem, data: st.DataObject) -> None:
    # No candidate may depend on more than the histogram and its own limits.
    tried = data.draw(ranges(of=problem))
    one = search_limits(problem.histogram, ranges=tried, heuristic="product")
    row = data.draw(st.sampled_from(list(one)))
    alone = search_limits(problem.histogram, ranges={n: [v] for n, v in row.limits.maxima.items()}, heuristic="product")
    assert (alone.best.packs, alone.best.limits) == (row.packs, row.limits)
    assert np.array_equal(alone.used[0], one.used[one.limits.tolist().index(list(row.limits.values))])


def test_limits_of_heterographs_go_by_short_names() -> None:
    limits = Limits({"u": 9, "v": 9}, {("u", "likes", "v"): 9})
    histogram = Problem({(1, 2, 3): 5, (2, 1, 1): 4}, (9, 9, 9), None).histogram
    named = type(histogram)(histogram.sizes, histogram.counts, limits.components)
    tried = {"nodes:u": [4, 6], "nodes:v": [5], "edges:likes": range(5, 8)}
    search = search_limits(named, ranges=tried)
    assert search.components == limits.components
    assert len(search) == 6
    assert pack(named, search.best.limits, effort=0).num_packs == search.best.packs
