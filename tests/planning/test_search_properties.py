"""Searches for limits, each against the obvious: plans made one by one, and choices made by looking at every row."""

from __future__ import annotations

import math
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_tuplepack import SizeHistogram, pack, search_limits
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.planning.search import Candidate, LimitsSearch, evaluation
from dgl_tuplepack.planning.search.evaluation import space_of
from dgl_tuplepack.planning.search.strategies import Strategy
from tests.support.strategies import Problem, problems

FEW = st.integers(1, 3)
WAYS: dict[str, Any] = {
    "smallest": {},
    "target": {"target": 0.3},
    "graphs_per_batch": {"graphs_per_batch": 2},
    "budget": {"budget": 500},
}


def found_or_refused(problem: Problem, plans: int, cores: int = 2, **asked: Any) -> LimitsSearch | str:
    """A search of at most so many plans, or why there is none."""
    with (
        mock.patch.object(Strategy, "plans", plans),
        mock.patch.object(evaluation, "available_cores", return_value=cores),
    ):
        try:
            return search_limits(problem.histogram, **asked)
        except SearchError as error:
            return str(error)


def mean_of(candidate: Candidate) -> float:
    values = [v for v in candidate.efficiency.values() if v]
    return len(values) / math.fsum(1 / v for v in values) if values else 0.0


SIZE = st.tuples(*[st.integers(0, 6).map(lambda n: 3 * n)] * 2)


@given(sizes=st.lists(SIZE, min_size=1, max_size=5), multiple_of=st.sampled_from([1, 4, 7]), data=st.data())
def test_values_are_rounded_to_the_nearest_limits_of_the_lattice(
    sizes: list[tuple[int, ...]], multiple_of: int, data: st.DataObject
) -> None:
    """The reference looks at every limit; node limits leave room for the reserved node if a multiple is asked for."""
    space = space_of(SizeHistogram.from_counts(dict.fromkeys(sizes, 2)), multiple_of)
    values = data.draw(st.tuples(*[st.floats(0, 200)] * 2))
    up, down = space.rounded(values), space.rounded_down(values)
    for i, (value, column) in enumerate(zip(values, zip(*sizes, strict=True), strict=True)):
        step = multiple_of if multiple_of > 1 else math.gcd(*column) or 1
        reserved = int(multiple_of > 1 and i == 0)
        lattice = [limit for limit in range(1, 300) if (limit + reserved) % step == 0]
        # From the largest graph to all graphs in one pack.
        clamped = min(max(value, 1, *column), max(1, 2 * sum(size[i] for size in {*sizes})))
        assert up[i] == min(limit for limit in lattice if limit >= clamped)
        assert down[i] == max([lattice[0], *(limit for limit in lattice if limit <= value)])


@pytest.mark.parametrize("way", list(WAYS))
@settings(max_examples=40)
@given(problem=problems(components=FEW), multiple_of=st.sampled_from([1, 1, 4, 7]))
def test_every_way_keeps_its_promises(way: str, problem: Problem, multiple_of: int) -> None:
    search = found_or_refused(problem, 30, multiple_of=multiple_of, graphs=problem.cap, **WAYS[way])
    if isinstance(search, str):
        assert way != "smallest"
        assert any(reason in search for reason in ("out of reach", "too small", "graphs_per_batch must be"))
        return
    assert search.way == way
    assert 1 <= len(search) <= 30
    best = search.best
    for candidate in search:
        assert candidate.limits.fits([list(size) for size in problem.counts]).all()
        assert candidate.limits.graphs == problem.cap
        for name, limit in candidate.limits.maxima.items():
            padded = limit + (multiple_of > 1 and name.startswith("nodes"))
            assert padded % multiple_of == 0
        assert candidate.slots == sum(candidate.limits.values)
        assert math.isclose(candidate.harmonic_mean, mean_of(candidate), abs_tol=1e-12)
        if way == "budget":
            nodes = sum(name.startswith("nodes") for name in problem.components)
            assert candidate.slots + nodes <= 500
            assert best.packs <= candidate.packs
        if way == "target" and candidate.harmonic_mean >= 0.3:
            assert best.slots <= candidate.slots
    if way == "target":
        assert best.harmonic_mean >= 0.3
    if way == "smallest":
        full = [c for c in search if c.harmonic_mean >= 0.995 * max(map(mean_of, search)) - 1e-12]
        assert best.slots == min(c.slots for c in full)


@given(problem=problems(components=FEW), data=st.data())
def test_candidates_count_the_packs_of_their_plans(problem: Problem, data: st.DataObject) -> None:
    search = found_or_refused(problem, 30, graphs=problem.cap)
    assert not isinstance(search, str)
    candidate = data.draw(st.sampled_from(list(search)))
    plan = pack(problem.histogram, candidate.limits, effort=0)
    assert candidate.packs == plan.num_packs
    assert candidate.efficiency == plan.efficiency
    totals = problem.histogram.totals()
    slots = {name: plan.num_packs * limit for name, limit in candidate.limits.maxima.items()}
    assert candidate.empty_slots == {name: slots[name] - totals[name] for name in slots}
    nodes = sum(name.startswith("nodes") for name in problem.components)
    assert candidate.padded_slots == sum(slots.values()) + nodes * plan.num_packs
    assert candidate.graphs_per_pack == candidate.graphs_per_batch == len(problem.graphs) / plan.num_packs


@settings(max_examples=40)
@given(problem=problems(components=st.just(2)), more=st.integers(0, 40), nodes=st.sampled_from([1, 1, 3]))
def test_of_few_limits_that_spend_a_budget_none_needs_fewer_packs(problem: Problem, more: int, nodes: int) -> None:
    least = [max(1, *column) for column in zip(*problem.counts, strict=True)]
    cost = dict(zip(problem.components, (nodes, 1), strict=True))
    budget = nodes * (least[0] + 1) + least[1] + more
    totals = [max(1, total) for total in problem.histogram.totals().values()]
    every = range(least[0], min(least[0] + more // nodes, totals[0]) + 1)
    found = found_or_refused(problem, 2 * len(every), budget=budget, cost=cost, graphs=problem.cap)
    assert not isinstance(found, str)
    for first in every:
        second = min(budget - nodes * (first + 1), totals[1])
        limits = type(problem)(problem.counts, (first, second), problem.cap).limits
        assert found.best.packs <= pack(problem.histogram, limits, effort=0).num_packs


@pytest.mark.parametrize("way", list(WAYS))
@settings(max_examples=15)
@given(problem=problems(components=FEW))
def test_the_number_of_threads_changes_nothing(way: str, problem: Problem) -> None:
    searches = [found_or_refused(problem, 40, cores, **WAYS[way]) for cores in (1, 5)]
    one, five = (search if isinstance(search, str) else search.to_dict() for search in searches)
    assert one == five


@given(problem=problems(components=FEW))
def test_the_pareto_front_holds_what_nothing_beats(problem: Problem) -> None:
    search = found_or_refused(problem, 30)
    assert not isinstance(search, str)
    front = search.pareto
    for c in search:
        beaten = any(
            (o.slots <= c.slots and o.harmonic_mean > c.harmonic_mean)
            or (o.slots < c.slots and o.harmonic_mean >= c.harmonic_mean)
            for o in search
        )
        assert beaten or any((o.slots, o.harmonic_mean) == (c.slots, c.harmonic_mean) for o in front)
        assert not (beaten and c in front)
    assert front == sorted(front, key=lambda c: c.slots)
