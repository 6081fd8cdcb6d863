"""What a search says and refuses, results that the eye can check, and searches against the obvious."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import sys
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack import Limits, SizeHistogram, pack, search_limits
from dgl_tuplepack.errors import GraphTooLargeError, SearchError
from dgl_tuplepack.planning.plan import harmonic_mean
from dgl_tuplepack.planning.search import Candidate, LimitsSearch, evaluation
from dgl_tuplepack.planning.search.evaluation import space_of
from dgl_tuplepack.planning.search.strategies import Strategy, aim_for, strategy_of
from scripts.benchmarks import shapes
from tests.support.messages import refused
from tests.support.strategies import Problem, problems

MOLHIV = tp.load_example("ogbg-molhiv")
SMALL = SizeHistogram.from_counts({(3, 4): 5, (2, 2): 4, (6, 10): 1})
MORE = SizeHistogram.from_counts({(3, 4): 40, (5, 8): 30, (10, 20): 5})
LIMITS = Limits(6, 10)


@pytest.mark.parametrize("histogram", [SMALL, SizeHistogram.from_counts({(4, 7): 50, (9, 11): 20, (5, 2): 33})])
def test_a_search_of_few_finds_what_a_search_of_all_finds(histogram: SizeHistogram) -> None:
    found = search_limits(histogram)
    last = [max(c.limits.values[i] for c in found) for i in range(2)]
    ranges = [range(a, b + 1) for a, b in zip(histogram.maxima().values(), last, strict=True)]
    plans = {row: pack(histogram, Limits(*row), effort=0) for row in itertools.product(*ranges)}
    grid = {row: harmonic_mean(plan.efficiency) for row, plan in plans.items()}
    assert len(found) < len(grid) / 4
    least = 0.995 * max(grid.values())
    assert found.best.slots == min(sum(row) for row, mean in grid.items() if mean >= least)
    for wanted in (0.7, 0.8, 0.9, 0.95):
        smallest = min(sum(row) for row, mean in grid.items() if mean >= wanted)
        assert search_limits(histogram, target=wanted).best.slots == smallest


def with_relations(relations: int) -> SizeHistogram:
    """Twelve graphs, each with edges of a fifth of the relations."""
    rows = [[3 + i % 4, *[int((k + i) % 5 == 0) for k in range(relations)]] for i in range(12)]
    return SizeHistogram.from_sizes(tp.GraphSizes(rows, ("nodes:e", *[f"edges:e:r{k}:e" for k in range(relations)])))


@pytest.mark.parametrize("k", [1, 2, 3, 4, 30])
def test_near_limits_are_all_exchanges_of_few_components_and_linearly_many_of_many(k: int) -> None:
    space = space_of(SizeHistogram.from_counts({(10,) * k: 50, (11,) * k: 1}, tuple(f"edges:{i}" for i in range(k))), 1)
    near = space.neighbours((40,) * k, 1.0)
    moves = [{i: move} for i in range(k) for move in (-10, 10)]
    moves += [dict.fromkeys(range(k), move) for move in (-10, 10)] if k > 1 else []
    moves += [{a: 10, b: -10} for a in range(k) for b in range(k) if a != b]
    wanted = [tuple(40 + move.get(i, 0) for i in range(k)) for move in moves]
    assert near == wanted if k <= 3 else set(near) < set(wanted)
    assert len(set(near)) == len(near) == (len(wanted) if k <= 3 else 4 * k + 2)


@pytest.mark.parametrize("asked", [{"graphs_per_batch": 4}, {"budget": 400}, {"target": 0.5}, {}], ids=str)
def test_a_search_of_many_relations_looks_at_few_limits(asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    promising = Strategy._promising

    def counted(self: Strategy, points: Any) -> Any:
        looked_at.append(len(points))
        return promising(self, points)

    monkeypatch.setattr(Strategy, "_promising", counted)
    search = search_limits(with_relations(60), **asked)
    assert len(search) <= Strategy.plans
    # A search that tries each pair of components at each leader looks at about 300,000.
    assert sum(looked_at) < 60_000


@pytest.mark.parametrize(("number", "shapes"), [(32, None), (4, 2)])
def test_a_search_that_takes_long_shows_how_many_plans_it_has_made(
    number: int, shapes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setitem(sys.modules["dgl_tuplepack.planning.search"]._PROGRESS, "delay", 0)
    monkeypatch.setattr("sys.stderr", Terminal())
    search = search_limits(MOLHIV, graphs_per_batch=number, shapes=shapes)
    shown = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "limits: 0 plans" in shown
    assert f"limits: {len(search)} plans" in shown


@pytest.mark.parametrize("number", [16, 1000])
def test_a_batch_size_is_met(number: int) -> None:
    search = search_limits(MOLHIV, graphs_per_batch=number)
    near = [c for c in search if abs(c.graphs_per_pack / number - 1) <= 0.05]
    assert search.best in near
    assert search.best.harmonic_mean == max(c.harmonic_mean for c in near) > 0.99
    assert search.packs_per_batch == 1


def test_a_batch_size_comes_before_full_packs() -> None:
    # The fullest limits hold 4.2 graphs; limits that hold 3.8 to 4.2 must be found among less full ones.
    histogram = SizeHistogram.from_counts({(4, 10): 27, (10, 18): 32})
    best = search_limits(histogram, graphs_per_batch=4).best
    # 4 graphs have 29 nodes and 57 edges, on average.
    rows = itertools.product(range(20, 60, 2), range(50, 90, 4))
    plans = [pack(histogram, Limits(*row), effort=0) for row in rows]
    near = [harmonic_mean(plan.efficiency) for plan in plans if abs(59 / plan.num_packs / 4 - 1) <= 0.05]
    assert abs(best.graphs_per_pack / 4 - 1) <= 0.05
    assert best.harmonic_mean >= max(near) - 1e-12


@pytest.mark.parametrize(
    ("graphs", "cap", "packs"),
    [(16, None, 1), (33, None, 2), (64, 20, 4), (32_901, None, 1)],
)
def test_two_packs_make_a_batch_if_half_of_it_holds_every_graph(graphs: int, cap: int | None, packs: int) -> None:
    search = search_limits(MOLHIV, graphs_per_batch=graphs, packs_per_batch="auto", graphs=cap)
    assert search.packs_per_batch == search.aim["packs_per_batch"] == packs
    assert search.graphs_per_batch == MOLHIV.num_graphs / -(-search.best.packs // packs)
    assert abs(search.graphs_per_batch / graphs - 1) <= 0.05
    assert search.best.limits.graphs == cap


def test_a_cap_holds_for_all_candidates_and_may_be_a_little_below_the_batch_size() -> None:
    best = search_limits(MOLHIV, graphs_per_batch=32, graphs=31).best
    assert best.limits.graphs == 31
    assert abs(best.graphs_per_pack / 32 - 1) <= 0.05
    assert all(c.limits.graphs == 2 and c.packs >= 5 for c in search_limits(SMALL, graphs=2))


def test_a_budget_is_spent() -> None:
    search = search_limits(MOLHIV, budget=2**20, cost={"nodes": 1000, "edges": 100})
    spent = [1000 * (c.limits.nodes + 1) + 100 * c.limits.edges for c in search]
    assert max(spent) <= 2**20
    assert spent[search.best_index] > 0.99 * 2**20
    assert search.best.packs == min(c.packs for c in search)


def test_a_budget_of_three_components_is_spent_around_the_leaders_too() -> None:
    counts = {(2, 12, 8): 11, (11, 3, 2): 18, (12, 4, 12): 15, (4, 11, 11): 12, (8, 8, 2): 19}
    histogram = SizeHistogram.from_counts(counts, ("nodes", "edges", "triplets"))
    assert search_limits(histogram, budget=65).best.packs == 35


def test_one_pack_is_enough_for_a_budget_of_everything_and_a_cost_of_nothing_is_no_limit() -> None:
    best = search_limits(SMALL, budget=10**9).best
    assert (best.packs, best.limits) == (1, Limits(29, 38))
    assert search_limits(SMALL, budget=13, cost={"nodes": 1, "edges": 0}).best.packs == 3


def test_graphs_without_edges_or_without_any_size() -> None:
    best = search_limits(SizeHistogram.from_counts({(3, 0): 60, (7, 0): 30})).best
    assert best.harmonic_mean == best.efficiency["nodes"] == 1.0
    assert best.limits.values == (13, 1)
    best = search_limits(SizeHistogram.from_counts({(0, 0): 5})).best
    assert (best.limits, best.packs, best.harmonic_mean) == (Limits(1, 1), 1, 0)


def test_several_graphs_of_nearly_equal_sizes_share_a_pack() -> None:
    # One 75-node graph fills its own pack; with the reserved node that is worse than no packing.
    best = search_limits(SizeHistogram.from_counts({(75, 1380 + more): 50 for more in range(20)})).best
    assert best.graphs_per_pack >= 7.9
    assert best.harmonic_mean > 0.995
    # The largest graph is just 1.5 times as large as the mean one; a pack of it is full.
    assert search_limits(SizeHistogram.from_counts({(10, 10): 100, (20, 20): 50})).best.limits == Limits(20, 20)


@pytest.mark.parametrize(
    ("settings", "limits"),
    [({}, (40, 160)), ({"graphs": 3}, (15, 60)), ({"graphs": 1}, (5, 20)), ({"multiple_of": 64}, (127, 512))],
)
def test_several_graphs_as_far_as_the_cap_allows(settings: dict[str, int], limits: tuple[int, int]) -> None:
    assert search_limits(SizeHistogram.from_counts({(5, 20): 960}), **settings).best.limits.values == limits


def test_huge_sizes_do_not_overflow() -> None:
    search = search_limits(SizeHistogram.from_counts({(2**60, 2**59): 3, (1, 0): 4}))
    assert search.best.limits.nodes >= 2**60
    assert sum(search.best.empty_slots.values()) >= 0
    with refused(SearchError, "nodes and edges in total", "64-bit"):
        search_limits(SizeHistogram.from_counts({(2**62, 2**62): 1}))


@pytest.mark.parametrize("asked", [{}, {"graphs_per_batch": 20}, {"target": 0.5}, {"budget": 300}, {"multiple_of": 8}])
def test_every_candidate_holds_the_other_graphs_too(asked: dict[str, Any]) -> None:
    others = SizeHistogram.from_counts({(50, 60): 1, (1, 90): 2})
    search = search_limits(MORE, holding=others, **asked)
    assert all(c.limits.nodes >= 50 and c.limits.edges >= 90 for c in search)
    assert search.best.num_graphs == MORE.num_graphs
    assert search_limits(MORE, holding=MORE, **asked).best == search_limits(MORE, **asked).best


@pytest.mark.parametrize("asked", [{"graphs_per_batch": 6}, {"budget": 120}], ids=str)
def test_oversize_graphs_are_left_out(asked: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="^1 of 76 graphs exceed .* left out"):
        search = search_limits(MORE + SizeHistogram.from_counts({(99, 300): 1}), oversize="drop", **asked)
    assert (search.dropped, search.best) == (1, search_limits(MORE, **asked).best)
    assert "1 graphs dropped" in repr(search)
    # Those among the other graphs neither stop the search nor raise its limits; the others still do.
    fits = {(4, 5): 2, (11, 6): 1}
    others = SizeHistogram.from_counts({**fits, (99, 300): 1})
    with pytest.warns(UserWarning, match="^1 of 4 graphs exceed .* left out"):
        search = search_limits(MORE, holding=others, oversize="drop", **asked)
    assert all(c.limits.nodes >= 11 and c.limits.edges < 300 for c in search)
    assert search.dropped == 0
    assert search.best == search_limits(MORE, holding=SizeHistogram.from_counts(fits), **asked).best
    with refused(SearchError, "3"):
        search_limits(MORE, holding=others, **asked)


def test_dropping_every_graph_is_refused() -> None:
    with refused(GraphTooLargeError, "3 of 3 graphs"):
        search_limits(SizeHistogram.from_counts({(50, 90): 2, (51, 91): 1}), budget=20, oversize="drop")


def test_the_table_as_csv(tmp_path: Any) -> None:
    search = search_limits(SMALL)
    rows = list(csv.DictReader(io.StringIO(search.to_csv(tmp_path / "table.csv"))))
    for row, candidate in zip(rows, search, strict=True):
        assert (int(row["limit_nodes"]), int(row["limit_edges"])) == candidate.limits.values
        assert int(row["packs"]) == candidate.packs
        assert float(row["efficiency_edges"]) == candidate.efficiency["edges"]
        assert float(row["graphs_per_pack"]) == 10 / candidate.packs
        assert (row["best"] == "1") == (candidate == search.best)
        assert (row["pareto"] == "1") == (candidate in search.pareto)
    assert (tmp_path / "table.csv").read_text() == search.to_csv()


def test_a_search_is_a_sequence_that_says_what_it_found() -> None:
    search = search_limits(SMALL)
    rows = [c.limits.values for c in search]
    assert rows == sorted(set(rows))
    assert [c.limits.values for c in search[1:3]] == rows[1:3]
    for part in ("'smallest'", f"{len(search)} candidates", "Limits(nodes=", "packs", "harmonic mean", "%"):
        assert part in repr(search)
    document = json.loads(json.dumps(search.to_dict()))
    assert document["best"]["limits"] == search.best.limits.to_dict()
    assert len(document["candidates"]) == len(search)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"target": 1.5}, ("target", "1.5", "0.95 for 95 %")),
        ({"target": {"atoms": 0.9}}, ("targets", "atoms", "nodes, edges")),
        ({"target": 1.0}, ("out of reach", "the best is nodes 0.", "harmonic mean 0.", "Limits(")),
        ({"graphs_per_batch": 11}, ("graphs_per_batch", "1..10", "11")),
        ({"graphs_per_batch": 1}, ("graphs_per_batch=1 is out of reach", "hold 2.0 graphs", "drop")),
        ({"graphs_per_batch": 5, "graphs": 4}, ("graphs_per_batch=5 is out of reach", "4 graphs")),
        ({"graphs_per_batch": 8, "packs_per_batch": "many"}, ("packs_per_batch", "'auto'", "'many'")),
        ({"graphs_per_batch": 9, "packs_per_batch": 2, "graphs": 3}, ("at most 3 graphs", "graphs= to 5")),
        ({"holding": SizeHistogram.from_counts({3: 1}, ("nodes",))}, ("['nodes']", "['nodes', 'edges']")),
        ({"budget": 16}, ("budget of 16 is too small", "'nodes': 6, 'edges': 10", "cost 17")),
        ({"budget": 90, "cost": {"nodes": 1}}, ("costs", "edges is missing", "nodes, edges")),
        ({"budget": 90, "cost": {"nodes": 1, "edges": "1"}}, ("cost of edges", ">= 0", "'1'")),
        ({"budget": 90, "cost": {"nodes": 0, "edges": 0}}, ("at least one cost",)),
        ({"target": 0.9, "budget": 90}, ("budget", "'target'", "only target")),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    with refused(SearchError, *parts):
        search_limits(SMALL, **settings)


def test_settings_are_kept_as_plain_data_in_the_order_and_under_the_names_of_the_components() -> None:
    _, aim = strategy_of(budget=np.float32(90.5), cost={"nodes": np.int32(1), "edges": np.float64(2)}, target=None)
    assert repr(aim) == "{'budget': 90.5, 'cost': {'nodes': 1, 'edges': 2.0}}"
    typed = SizeHistogram(np.array([[1, 2], [3, 4]]), np.array([4, 5]), ("nodes:u", "edges:u:likes:u"))
    given = {"edges:likes": 0.5, "nodes:u": 0.4}
    for aim in ({"target": given}, {"budget": 9, "cost": given}):
        *_, values = aim_for(aim, typed).values()
        assert list(values) == list(typed.components)
    assert search_limits(typed, budget=90, cost=given).aim["cost"] == {"nodes:u": 0.4, "edges:u:likes:u": 0.5}


def test_many_size_classes_leave_fewer_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    histogram = shapes.uniform(300)
    usual = search_limits(histogram)
    monkeypatch.setattr(evaluation, "_WORK", 1_000_000)
    few = search_limits(histogram)
    assert evaluation._FEWEST <= len(few) < 60 < len(usual) <= Strategy.plans
    assert few.best.harmonic_mean > 0.97 * usual.best.harmonic_mean
    monkeypatch.setattr(evaluation, "_WORK", 1)
    assert len(search_limits(MOLHIV, graphs_per_batch=4, shapes=2)) <= 2 * evaluation._FEWEST


# --- properties

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
