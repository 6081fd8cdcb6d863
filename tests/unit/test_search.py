"""What a search says and refuses; the paper's grid; results that the eye can check."""

from __future__ import annotations

import csv
import io
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import dgl_tuplepack as tp
from dgl_tuplepack import Limits, SizeHistogram, search_limits
from dgl_tuplepack.errors import GraphTooLargeError, InputError, MethodError, SearchError
from dgl_tuplepack.kernels.histogram_fit import Placing
from dgl_tuplepack.kernels.pack_counts import count_packs
from dgl_tuplepack.packing.fit import order_of
from dgl_tuplepack.packing.heuristics import as_priority
from dgl_tuplepack.search import evaluation, target
from scripts.benchmarks import shapes
from tests.messages import refused

MOLHIV = tp.load_example("ogbg-molhiv")
SMALL = SizeHistogram.from_counts({(3, 4): 5, (2, 2): 4, (6, 10): 1})
PAPER = {"nodes": range(20, 60), "edges": range(54, 161, 2)}


@pytest.mark.parametrize("settings", [{"heuristic": "product"}, {}])
def test_auto_finds_the_best_of_the_papers_grid_with_a_tenth_of_its_plans(settings: dict[str, Any]) -> None:
    histogram = shapes.pcqm4mv2()
    every = search_limits(histogram, ranges=PAPER, **settings)
    found = search_limits(histogram, **settings)
    assert len(every) == 2160
    assert len(found) <= 216
    assert found.harmonic_mean.max() >= every.harmonic_mean.max()
    assert found.best.slots <= every.best.slots
    assert found.best.harmonic_mean >= 0.995 * every.harmonic_mean.max()


@pytest.mark.parametrize(
    "histogram",
    [
        SMALL,
        SizeHistogram.from_counts({(4, 7): 50, (9, 11): 20, (7, 16): 9, (5, 2): 33}),
        shapes.uniform(30, (20, 30), 9),
    ],
    ids=["small", "few classes", "many classes"],
)
def test_a_search_of_few_finds_what_a_search_of_all_finds(histogram: SizeHistogram) -> None:
    found = search_limits(histogram)
    names = histogram.components
    first, last = histogram.maxima(), dict(zip(names, found.limits.max(axis=0).tolist(), strict=True))
    everything = {name: range(first[name], last[name] + 1) for name in names}
    every = search_limits(histogram, ranges=everything)
    assert len(found) < len(every) / 4
    assert found.best.limits == every.best.limits
    for wanted in (0.7, 0.8, 0.9, 0.95):
        smallest = search_limits(histogram, ranges=everything, target=wanted).best
        assert search_limits(histogram, target=wanted).best.slots == smallest.slots


def test_a_callable_is_prepared_for_limits_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    # One candidate after the other, from small to large; a table for the first would be too small for the others.
    monkeypatch.setattr(target, "_WAVE", 1)
    wanted = {"ranges": {"nodes": range(6, 30), "edges": range(10, 45)}, "target": {"nodes": 0.96}}
    found = search_limits(SMALL, heuristic=lambda nodes, edges: 2 * nodes + edges, **wanted)
    assert len(found) > 9
    assert [c.packs for c in found] == [c.packs for c in search_limits(SMALL, heuristic=(2, 1), **wanted)]
    assert found.heuristic == "callable <lambda>"


def test_the_paper_s_packs_of_molhiv_come_out() -> None:
    named = {"product": 3917, "sum": 3838, "maximum": 3800, "minimum": 3789, "node": 3789, "edge": 3800}
    for heuristic, packs in named.items():
        search = search_limits(MOLHIV, ranges={"nodes": [222], "edges": [502]}, graphs=256, heuristic=heuristic)
        assert search.best.packs == packs
        assert (search.method, search.heuristic) == ("best_fit", heuristic)


def test_the_kernel_counts_as_its_python_does() -> None:
    limits = np.array([[6, 10], [7, 12], [20, 30]])
    priority = as_priority("product", Limits(20, 30))
    placing = Placing(True, False, False, np.uint64(0))
    arguments = (SMALL.sizes, SMALL.counts, order_of(SMALL, priority), limits, 3, priority.rule, placing)
    assert count_packs.py_func(*arguments).tolist() == count_packs(*arguments).tolist()


@pytest.mark.parametrize("number", [16, 32, 100, 1000])
def test_a_batch_size_is_met(number: int) -> None:
    search = search_limits(MOLHIV, graphs_per_batch=number)
    near = [c for c in search if abs(c.graphs_per_pack / number - 1) <= 0.05]
    assert search.best in near
    assert search.best.harmonic_mean == max(c.harmonic_mean for c in near) > 0.99


def test_a_batch_size_comes_before_full_packs() -> None:
    # The fullest limits hold 4.2 graphs; those that hold 3.8 to 4.2 must be found among less full ones.
    histogram = SizeHistogram.from_counts({(4, 10): 27, (10, 18): 32})
    best = search_limits(histogram, graphs_per_batch=4).best
    every = search_limits(histogram, ranges={"nodes": range(10, 80), "edges": range(18, 160, 2)})
    near = [c for c in every if abs(c.graphs_per_pack / 4 - 1) <= 0.05]
    assert abs(best.graphs_per_pack / 4 - 1) <= 0.05
    assert best.harmonic_mean == max(c.harmonic_mean for c in near)


def test_a_cap_may_be_a_little_below_the_batch_size() -> None:
    best = search_limits(MOLHIV, graphs_per_batch=32, graphs=31).best
    assert best.limits.graphs == 31
    assert abs(best.graphs_per_pack / 32 - 1) <= 0.05


def test_a_budget_is_spent() -> None:
    search = search_limits(MOLHIV, budget=2**20, cost={"nodes": 1000, "edges": 100})
    spent = [1000 * (c.limits.nodes + 1) + 100 * c.limits.edges for c in search]
    assert max(spent) <= 2**20
    assert 1000 * (search.best.limits.nodes + 1) + 100 * search.best.limits.edges > 0.99 * 2**20
    assert search.best.packs == search.packs.min()


def test_of_two_components_all_that_spend_a_small_budget_are_tried() -> None:
    histogram = SizeHistogram.from_counts({(7, 14): 3, (4, 9): 11, (5, 3): 20, (2, 1): 9})
    for multiple_of, budget in ((1, 52), (4, 120)):
        search = search_limits(histogram, budget=budget, multiple_of=multiple_of)
        least = histogram.maxima()
        rows = {
            (padded - 1, spent)
            for padded in range(least["nodes"] + 1, budget)
            for spent in [(budget - padded) // multiple_of * multiple_of]
            if padded % multiple_of == 0 and spent >= least["edges"]
        }
        assert len(rows) > 15
        totals = histogram.totals()
        spending = {row for row in rows if row[0] <= totals["nodes"] and row[1] <= totals["edges"]}
        assert spending <= {c.limits.values for c in search}


def test_a_budget_tries_nothing_that_cannot_be_better() -> None:
    search = search_limits(SizeHistogram.from_counts({(3, 4): 40, (5, 7): 30, (2, 9): 20}), budget=200)
    # The bound on packs of the best is reached: the others are from before it was known, or have fewer slots.
    assert len(search) < 120


def test_a_budget_of_three_components_is_spent_around_the_leaders_too() -> None:
    counts = {(2, 12, 8): 11, (11, 3, 2): 18, (12, 4, 12): 15, (4, 11, 11): 12, (8, 8, 2): 19}
    histogram = SizeHistogram.from_counts(counts, ("nodes", "edges", "triplets"))
    assert search_limits(histogram, budget=65).best.packs == 35


def test_one_pack_is_enough_for_a_budget_of_everything() -> None:
    best = search_limits(SMALL, budget=10**9).best
    assert best.packs == 1
    assert best.limits == Limits(29, 38)


def test_a_cost_of_nothing_is_no_limit() -> None:
    best = search_limits(SMALL, budget=13, cost={"nodes": 1, "edges": 0}).best
    assert best.limits.nodes <= 12
    assert best.packs == 3


def test_padded_shapes_are_multiples() -> None:
    search = search_limits(MOLHIV, multiple_of=64)
    assert all((c.limits.nodes + 1) % 64 == 0 and c.limits.edges % 64 == 0 for c in search)
    assert search.best.harmonic_mean > 0.99
    # Ranges are rounded up, and fall together where they meet.
    ranges = {"nodes": [222, 250, 256], "edges": [502, 512]}
    rounded = search_limits(MOLHIV, ranges=ranges, multiple_of=64)
    assert [c.limits.values for c in rounded] == [(255, 512), (319, 512)]


def test_limits_that_sizes_cannot_reach_are_not_tried() -> None:
    # All molecules have an even number of edges.
    assert all(c.limits.edges % 2 == 0 for c in search_limits(MOLHIV))


def test_an_objective_takes_the_place_of_the_harmonic_mean() -> None:
    search = search_limits(SMALL, objective=lambda c: -abs(c.graphs_per_pack - 2.5), tolerance=0)
    assert search.best.packs == 4
    assert search.scores.max() == search.best.score == 0
    ranges = {"nodes": range(6, 12), "edges": range(10, 20)}
    few = search_limits(SMALL, ranges=ranges, objective=lambda c: -c.packs)
    assert few.best.packs == few.packs.min()


@pytest.mark.parametrize("value", [math.nan, math.inf, None, "0.5", True])
def test_an_objective_that_is_no_number_is_refused(value: Any) -> None:
    with refused(SearchError, "objective", repr(value), "Limits(nodes="):
        search_limits(SMALL, objective=lambda c: value)


def test_a_cap_on_graphs_holds_for_all_candidates() -> None:
    search = search_limits(SMALL, graphs=2)
    assert search.most_graphs.max() <= 2
    assert search.packs.min() >= 5
    assert search.best.limits.graphs == 2


def test_graphs_without_edges_are_searched_by_their_nodes() -> None:
    search = search_limits(SizeHistogram.from_counts({(3, 0): 60, (7, 0): 30}))
    assert search.best.harmonic_mean == search.best.efficiency["nodes"] == 1.0
    assert search.best.limits.values == (13, 1)


def test_several_graphs_of_nearly_equal_sizes_share_a_pack() -> None:
    # One 75-node graph fills its own pack; with the reserved node that is worse than no packing.
    histogram = SizeHistogram.from_counts({(75, 1380 + more): 50 for more in range(20)})
    best = search_limits(histogram).best
    assert best.graphs_per_pack >= 7.9
    assert best.harmonic_mean > 0.995
    alone = search_limits(histogram, objective=lambda c: -c.slots).best
    assert alone.limits == Limits(75, 1399), "an objective may prefer packs of one graph"


@pytest.mark.parametrize(
    ("settings", "limits"),
    [({}, (40, 160)), ({"graphs": 3}, (15, 60)), ({"graphs": 1}, (5, 20)), ({"multiple_of": 64}, (127, 512))],
)
def test_several_graphs_as_far_as_the_cap_allows(settings: dict[str, int], limits: tuple[int, int]) -> None:
    assert search_limits(SizeHistogram.from_counts({(5, 20): 960}), **settings).best.limits.values == limits


def test_auto_ends_at_its_reach() -> None:
    for reach in (1.0, 1.5):
        search = search_limits(MOLHIV, reach=reach, plans=60)
        means = [total / search.num_graphs for total in search.totals.tolist()]
        scale = max(largest / mean for largest, mean in zip(MOLHIV.maxima().values(), means, strict=True))
        assert (search.limits <= np.ceil(np.array(means) * scale * reach / 2) * 2).all()


def test_sizes_that_differ_are_searched_from_the_largest_graph_on() -> None:
    # The largest graph is just 1.5 times as large as the mean one; a pack of it is full, and so are those of two.
    histogram = SizeHistogram.from_counts({(10, 10): 100, (20, 20): 50})
    assert search_limits(histogram).best.limits == Limits(20, 20)


def test_graphs_without_any_size() -> None:
    search = search_limits(SizeHistogram.from_counts({(0, 0): 5}))
    assert search.best.limits == Limits(1, 1)
    assert search.best.packs == 1
    assert search.best.harmonic_mean == 0


def test_huge_sizes_do_not_overflow() -> None:
    histogram = SizeHistogram.from_counts({(2**60, 2**59): 3, (1, 0): 4})
    search = search_limits(histogram, heuristic="sum")
    assert search.best.limits.nodes >= 2**60
    assert sum(search.best.empty_slots.values()) >= 0
    with refused(SearchError, "slots in all", "64-bit"):
        search_limits(SizeHistogram.from_counts({(2**62, 2**62): 1}))
    with refused(MethodError, "overflows int64"):
        search_limits(histogram, heuristic="product")


def test_the_table_as_csv() -> None:
    search = search_limits(SMALL, ranges={"nodes": [6, 12], "edges": [10, 20]})
    rows = list(csv.DictReader(io.StringIO(search.to_csv())))
    assert len(rows) == 4
    for row, candidate in zip(rows, search, strict=True):
        assert (int(row["limit_nodes"]), int(row["limit_edges"])) == candidate.limits.values
        assert int(row["packs"]) == candidate.packs
        assert float(row["efficiency_edges"]) == candidate.efficiency["edges"]
        assert float(row["harmonic_mean"]) == candidate.harmonic_mean
        assert float(row["graphs_per_pack"]) == 10 / candidate.packs
        assert int(row["empty_slots_nodes"]) == candidate.packs * candidate.limits.nodes - 29
        assert (row["best"] == "1") == (candidate == search.best)
        assert (row["pareto"] == "1") == (candidate in search.pareto)


def test_a_search_says_what_it_found() -> None:
    text = repr(search_limits(SMALL, ranges={"nodes": [6, 12], "edges": [10, 20]}))
    for part in ("'grid'", "4 candidates", "Limits(nodes=", "packs", "harmonic mean", "%"):
        assert part in text


def test_a_search_is_a_sequence() -> None:
    search = search_limits(SMALL, ranges={"nodes": [6, 12], "edges": [10, 20]})
    assert [c.limits.values for c in search[1:3]] == [(6, 20), (12, 10)]
    assert search[-1].limits.values == (12, 20)
    with pytest.raises(IndexError):
        search[4]
    with pytest.raises(ValueError, match="read-only"):
        search.packs[0] = 1


@pytest.mark.parametrize(
    ("settings", "error", "parts"),
    [
        ({"ranges": {"nodes": [], "edges": [10]}}, SearchError, ("range of nodes", "empty", "[]")),
        ({"ranges": {"nodes": range(9, 3), "edges": [10]}}, SearchError, ("range of nodes", "empty", "range(9, 3)")),
        ({"ranges": {"nodes": [10]}}, SearchError, ("ranges", "but edges is missing", "nodes, edges")),
        ({"ranges": {"nodes": [10], "edges": [9], "x": [1]}}, SearchError, ("ranges", "there is no 'x'")),
        ({"ranges": [10, 20]}, SearchError, ("ranges", "by its name")),
        ({"ranges": {"nodes": 10, "edges": [10]}}, SearchError, ("range of nodes", "10")),
        ({"ranges": {"nodes": "10", "edges": [10]}}, SearchError, ("range of nodes", "'10'")),
        ({"ranges": {"nodes": [0], "edges": [10]}}, SearchError, ("range of nodes", "1..2**63-1", "0")),
        ({"ranges": {"nodes": [6.5], "edges": [10]}}, SearchError, ("range of nodes", "6.5")),
        ({"ranges": {"nodes": [math.nan], "edges": [10]}}, SearchError, ("range of nodes", "nan")),
        ({"ranges": {"nodes": range(6, 10**9), "edges": [10]}}, SearchError, ("range of nodes", "larger steps")),
        ({"ranges": {"nodes": range(6, 10**4), "edges": range(6, 10**4)}}, SearchError, ("combinations", "steps")),
        ({"ranges": {"nodes": [2**63 - 1], "edges": [2**63 - 1]}}, SearchError, ("2**63-1",)),
        ({"ranges": {"nodes": [5], "edges": [9]}}, GraphTooLargeError, ("1 of 6 nodes, 10 edges",)),
        ({"ranges": {"nodes": [1], "edges": [1]}, "oversize": "drop"}, GraphTooLargeError, ("10 of 10 graphs",)),
        ({"target": 1.5}, SearchError, ("target", "1.5", "0.95 for 95 %")),
        ({"target": 0}, SearchError, ("target", "0")),
        ({"target": math.nan}, SearchError, ("target", "nan")),
        ({"target": "high"}, SearchError, ("target", "'high'")),
        ({"target": {"nodes": 95}}, SearchError, ("target of nodes", "95")),
        ({"target": {"atoms": 0.9}}, SearchError, ("targets", "atoms", "nodes, edges")),
        ({"target": {}}, SearchError, ("targets", "{}")),
        ({"target": 1.0}, SearchError, ("out of reach", "the best is nodes 0.", "harmonic mean 0.", "Limits(")),
        ({"graphs_per_batch": 0}, SearchError, ("graphs_per_batch", "1..", "0")),
        ({"graphs_per_batch": 11}, SearchError, ("graphs_per_batch", "1..10", "11")),
        ({"graphs_per_batch": 2.5}, SearchError, ("graphs_per_batch", "2.5")),
        ({"graphs_per_batch": 1}, SearchError, ("graphs_per_batch=1 is out of reach", "hold 2.0 graphs", "drop")),
        ({"graphs_per_batch": 5, "graphs": 4}, SearchError, ("graphs_per_batch=5 is out of reach", "4 graphs")),
        ({"budget": 0}, SearchError, ("budget", "above 0")),
        ({"budget": -3}, SearchError, ("budget", "above 0", "-3", "slots, or bytes")),
        ({"budget": math.inf}, SearchError, ("budget", "inf")),
        ({"budget": "4 GB"}, SearchError, ("budget", "4 GB")),
        ({"budget": 16}, SearchError, ("budget of 16 is too small", "'nodes': 6, 'edges': 10", "cost 17")),
        ({"budget": 90, "cost": {"nodes": 1}}, SearchError, ("costs", "edges is missing", "nodes, edges")),
        ({"budget": 90, "cost": {"x": 1, "y": 1}}, SearchError, ("costs", "there is no 'x' and no 'y'")),
        ({"budget": 90, "cost": {}}, SearchError, ("costs", "they are {}", "write {'nodes'")),
        ({"budget": 90, "cost": {"nodes": 1, "edges": "1"}}, SearchError, ("cost of edges", ">= 0", "'1'")),
        ({"budget": 90, "cost": {"nodes": 1, "edges": -1}}, SearchError, ("cost of edges", "-1")),
        ({"budget": 90, "cost": {"nodes": 0, "edges": 0}}, SearchError, ("at least one cost",)),
        ({"cost": {"nodes": 1, "edges": 1}}, SearchError, ("cost", "'auto'")),
        ({"target": 0.9, "budget": 90}, SearchError, ("budget", "'target'")),
        ({"ranges": PAPER, "plans": 10}, SearchError, ("plans", "'grid'")),
        ({"target": 0.5, "objective": len}, SearchError, ("objective", "'target'")),
        ({"objective": "score"}, SearchError, ("objective", "'score'")),
        ({"tolerance": 1}, SearchError, ("tolerance", "below 1")),
        ({"tolerance": -0.1}, SearchError, ("tolerance", "-0.1")),
        ({"reach": 0.5}, SearchError, ("reach", ">= 1")),
        ({"plans": 0}, SearchError, ("plans", "0")),
        ({"multiple_of": 0}, SearchError, ("multiple_of", "0")),
        ({"graphs": 0}, SearchError, ("graphs", "0")),
        ({"oversize": "ignore"}, SearchError, ("oversize", "'error' or 'drop'")),
        ({"oversize": ["drop"]}, SearchError, ("oversize ['drop']", "'error' or 'drop'")),
        ({"method": "node_only"}, MethodError, ("node_only", "best_fit", "auto")),
        ({"heuristic": "volume"}, MethodError, ("volume", "product")),
        ({"method": "auto", "heuristic": "sum"}, MethodError, ("heuristic", "best_fit", "'auto'")),
        ({"seed": -1}, MethodError, ("seed", "-1")),
        ({"executor": 4}, SearchError, ("executor", "concurrent.futures.Executor", "4")),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], error: type[InputError], parts: tuple[str, ...]) -> None:
    with refused(error, *parts):
        search_limits(SMALL, **settings)


def test_graphs_are_named_where_they_are_known() -> None:
    sizes = tp.sizes_of(([3, 9, 2], [4, 1, 2]))
    with refused(GraphTooLargeError, "graph 1 (9 nodes, 1 edges)"):
        search_limits(sizes, ranges={"nodes": [5, 6], "edges": [4]})


def test_generators_of_values_are_kept() -> None:
    search = search_limits(SMALL, ranges={"nodes": (n for n in (6, 8)), "edges": iter([10])})
    assert len(search) == 2
    assert search.aim["ranges"] == {"nodes": [6, 8], "edges": [10]}


def test_numbers_of_numpy_are_kept_as_whole_numbers_or_fractions() -> None:
    found = search_limits(MOLHIV, graphs_per_batch=np.int64(32), plans=10)
    assert repr(found.aim["graphs_per_batch"]) == "32"
    search = search_limits(SMALL, budget=np.float32(90.5), cost={"nodes": np.int32(1), "edges": np.float64(2)})
    assert repr(search.aim["budget"]) == "90.5"
    assert repr(search.aim["cost"]) == "{'nodes': 1, 'edges': 2.0}"


def test_a_target_of_ranges_stops_early_and_plans_nothing_hopeless() -> None:
    search = search_limits(shapes.pcqm4mv2(), ranges=PAPER, target=0.95)
    assert len(search) <= 256
    assert search.best.harmonic_mean >= 0.95


def test_an_error_cancels_what_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    planned, stopped = [], threading.Event()

    def broken(self: evaluation.Task, rows: Any) -> Any:
        planned.append(rows)
        if len(planned) > 1:
            stopped.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation.Task, "__call__", broken)
    monkeypatch.setattr(evaluation, "_MOST_ROWS_PER_PIECE", 1)
    with ThreadPoolExecutor(1) as one:
        with pytest.raises(KeyboardInterrupt):
            search_limits(shapes.pcqm4mv2(), ranges=PAPER, executor=one)
        stopped.set()
    # The one that failed, and the one that was under way.
    assert len(planned) <= 2


def test_no_progress_bar_shows_outside_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    search_limits(SMALL)
    assert capsys.readouterr() == ("", "")
