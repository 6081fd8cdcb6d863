"""Dealing graphs evenly, repairing packs, and what the stage gains where nearly every graph has a size of its own."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack import GraphSizes, Limits, SizeHistogram, pack
from dgl_tuplepack.planning.bounds.instance import Instance, projected
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.packing.auto import STAGES, auto, merged, spread
from dgl_tuplepack.planning.packing.fit import Settings
from dgl_tuplepack.planning.packing.stages.dealing import GROUP, OpenPacks, dealt, dealt_evenly, dealt_near
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, minimum_bin_slack
from dgl_tuplepack.planning.plan import Patterns

KEYS = st.integers(0, 2**64 - 1).map(np.uint64)


def dealt_one_by_one(shares, rows, packs):
    """Each graph, in order, to the first pack whose load has the least product with the graph's direction."""
    # As in `dealt_evenly`, directions and loads are integers.
    directions = (shares / np.maximum(shares.max(axis=1), 1e-300)[:, None] * 2**9).astype(int).tolist()
    steps = (shares * (2**19 // shares.shape[1])).astype(int).tolist()
    loads = [[0] * shares.shape[1] for _ in range(packs)]
    chosen = []
    for row in rows:
        products = [sum(a * b for a, b in zip(directions[row], load, strict=True)) for load in loads]
        best = min(range(packs), key=products.__getitem__)
        loads[best] = [a + b for a, b in zip(loads[best], steps[row], strict=True)]
        chosen.append(best)
    return chosen


@given(st.data(), st.integers(1, 4), st.integers(1, 9))
def test_graphs_go_to_the_pack_whose_load_points_least_in_their_direction(data, components, packs):
    share = st.integers(0, 64).map(lambda number: number / 64)
    shares = np.array(data.draw(st.lists(st.tuples(*[share] * components), min_size=1, max_size=5)))
    # Runs of equal graphs, some longer than the loop that needs no heap.
    runs = st.tuples(st.integers(0, len(shares) - 1), st.integers(1, 25))
    drawn = data.draw(st.lists(runs, min_size=1, max_size=8))
    # More graphs would exceed the range of the integers.
    rows = np.array([row for row, number in drawn for _ in range(number)][: 6 * packs])
    assert dealt_evenly(shares, rows, packs).tolist() == dealt_one_by_one(shares, rows.tolist(), packs)


def test_packs_of_many_groups_get_nearly_equal_loads():
    shares = np.random.default_rng(0).uniform(0.01, 0.2, (20_000, 2))
    shares, packs = shares[np.argsort(-shares.sum(axis=1))], 2 * GROUP + 7
    assigned = dealt_evenly(shares, np.arange(len(shares)), packs)
    loads = np.stack([np.bincount(assigned, column, packs) for column in shares.T], axis=1)
    assert np.abs(loads / loads.mean(axis=0) - 1).max() < 0.1


@st.composite
def open_packs(draw):
    """Packs with random graphs, some above the limits, and with unused places."""
    components, packs = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    size = st.tuples(*[st.integers(0, 12)] * components)
    sizes = np.array(draw(st.lists(size, min_size=1, max_size=40)))
    rows = np.array(draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=60)))
    assigned = np.array(draw(st.lists(st.integers(0, packs - 1), min_size=len(rows), max_size=len(rows))))
    limits = np.array(draw(st.tuples(*[st.integers(12, 80)] * components)))
    return OpenPacks.of(sizes, limits, assigned, rows, packs, draw(st.integers(0, 3)))


def excess(packs: OpenPacks) -> float:
    return float((np.maximum(packs.loads - packs.limits, 0) / packs.limits).sum())


@given(open_packs(), KEYS, st.booleans(), st.integers(0, 5000))
def test_a_repair_only_exchanges_graphs_and_never_adds_excess(packs, key, moves, budget):
    graphs, counts, before = Counter(packs.graphs.tolist()), packs.counts.copy(), excess(packs)
    inside = np.setdiff1d(np.arange(len(counts)), packs.exceeding())
    work = packs.repair(moves=moves, key=key, budget=budget)
    assert Counter(packs.graphs.tolist()) == graphs
    assert moves or (packs.counts == counts).all()
    assert (packs.counts <= packs.members.shape[1]).all()
    assert excess(packs) <= before + 1e-6
    # A single try may exceed the budget.
    assert work == 0 or work <= budget + 20 + 32 * 32 * 3 // 4
    assert before > 0 or work == 0
    if len(inside) == len(counts):
        assert not len(packs.exceeding())


@given(open_packs(), KEYS, st.integers(1, 20))
def test_stirring_keeps_packs_within_the_limits_within_them(packs, key, rounds):
    limits = np.maximum(packs.limits, packs.loads.max(axis=0))
    packs = OpenPacks(packs.sizes, limits, packs.members, packs.counts)
    graphs, counts = Counter(packs.graphs.tolist()), packs.counts.copy()
    packs.stir(np.arange(len(counts)), key=key, rounds=rounds, budget=10**9)
    assert not len(packs.exceeding())
    assert Counter(packs.graphs.tolist()) == graphs
    assert (packs.counts == counts).all()


def test_a_repair_moves_graphs_to_unused_places_and_stirring_changes_most_packs():
    sizes = np.array([[1], [2], [3]])
    full = OpenPacks.of(sizes, np.array([6]), np.array([0, 0, 0, 0, 1]), np.array([2, 2, 1, 0, 0]), 2, 4)
    assert full.loads.tolist() == [[9], [1]]
    full.repair(moves=True, key=np.uint64(1), budget=10**6)
    assert not len(full.exceeding())
    assert sorted(full.counts.tolist()) != [1, 4]
    packs = OpenPacks.of(np.ones((200, 1), dtype=int), np.array([10]), np.arange(200) // 10, np.arange(200), 20, 0)
    before = [set(row) for row in packs.members.tolist()]
    packs.stir(np.arange(20), key=np.uint64(3), rounds=20, budget=10**9)
    assert all(len(old & set(new)) < 6 for old, new in zip(before, packs.members.tolist(), strict=True))


def test_sums_that_could_overflow_are_left_alone():
    sizes = np.array([[2**61], [2**61], [2**60]])
    packs = OpenPacks.of(sizes, np.array([2**61]), np.array([0, 0, 1]), np.arange(3), 3, 2)
    assert packs.repair(moves=True, key=np.uint64(0), budget=10**6) == 0
    assert packs.members[0, :2].tolist() == [0, 1]


@given(st.data(), st.integers(1, 4), KEYS)
def test_dealt_patterns_hold_each_graph_once_and_keep_the_limits(data, components, key):
    size = st.tuples(*[st.integers(0, 9)] * components)
    counts = data.draw(st.dictionaries(size, st.integers(1, 40), min_size=1, max_size=12))
    limits = np.array(data.draw(st.tuples(*[st.integers(9, 200)] * components)))
    instance = Instance(np.array([*counts]), np.array([*counts.values()]), limits)
    patterns = dealt(instance, data.draw(st.integers(1, 30)), key, 10**6, Effort(10**9))
    if patterns is not None:
        assert (patterns.contents(instance.sizes) <= limits).all()
        assert (patterns.packed(len(counts)) == instance.counts).all()


def test_attempts_end_when_one_saves_no_pack_or_the_effort_is_used_up():
    # Packs of two graphs each are possible, fewer are not.
    instance = Instance(np.array([[5, 4]]), np.array([40]), np.array([10, 10]))
    always = Effort(10**9)
    found = dealt_near(instance, [24, 20, 16], 30, np.uint64(1), 40, always)
    assert found is not None
    assert found.num_packs == 20
    assert dealt_near(instance, [24, 20], 19, np.uint64(1), 40, always) is None
    assert dealt_near(instance, [24, 20], 30, np.uint64(1), 40, Effort(10)) is None


def distinct_sizes(number: int, components: int, seed: int) -> GraphSizes:
    """Log-normal sizes of which nearly every one is distinct; the components go together, loosely."""
    rng = np.random.default_rng(seed)
    first = np.clip(rng.lognormal(3.2, 0.6, number), 1, 400)
    rows = [first, *(first * rng.lognormal(3, 0.4, number) for _ in range(components - 1))]
    return GraphSizes(np.stack(rows, axis=1).astype(int).clip(1), ("a", "b", "c", "d", "e", "f")[:components])


@pytest.mark.parametrize("components", [2, 4, 6])
def test_sizes_that_are_nearly_all_distinct_need_hardly_more_packs_than_the_bound(components):
    histogram = SizeHistogram.from_sizes(distinct_sizes(4000, components, 1))
    limits = Limits.from_components({name: total // 100 for name, total in histogram.totals().items()})
    plan = pack(histogram, limits)
    assert plan.num_packs <= 1.01 * plan.lower_bound
    without = tuple(stage for stage in STAGES if stage.__name__ != "deal_and_repair")
    # Without the stage, two components take longer, and more need more packs.
    assert plan.num_packs - (components == 2) < auto(histogram, limits, Settings(), without).num_packs


@pytest.mark.parametrize("effort", [0, 1])
def test_the_first_plan_of_many_classes_is_dealt(effort):
    histogram = SizeHistogram.from_sizes(distinct_sizes(18_000, 3, 2))
    assert len(histogram) > 15_000
    limits = Limits.from_components({name: total // 600 for name, total in histogram.totals().items()})
    plan = pack(histogram, limits, effort=effort)
    assert plan.num_packs <= 1.01 * plan.lower_bound


def test_power_law_sizes_meet_the_bound() -> None:
    rng = np.random.default_rng(0)
    nodes = np.clip((4 * (1 + rng.pareto(1.2, 32_000))).astype(int), 2, 600)
    edges = np.minimum(nodes * (nodes - 1), (nodes * rng.uniform(2, 8, len(nodes))).astype(int)).clip(2)
    # About 120 graphs in a pack.
    plan = pack(np.stack([nodes, edges], axis=1), Limits(int(nodes.mean() * 120), int(edges.mean() * 120), 122))
    assert plan.is_optimal


def test_families_that_dealing_does_not_help_lose_nothing():
    """The packs that the other stages alone need."""
    few = np.random.default_rng(0).choice([7, 11, 13], 5000)
    assert pack(np.stack([few, few], axis=1), Limits(100, 100)).num_packs <= 518
    rng = np.random.default_rng(0)
    small, large = rng.integers(5, 16, (3000, 2)), rng.integers(180, 261, (3000, 2))
    bimodal = np.where(rng.random(3000)[:, None] < 0.7, small, large)
    assert pack(bimodal, Limits(600, 600)).num_packs <= 424


# --- relaxed plans


@st.composite
def instances_with_equal_sizes(draw):
    """Rows in any order, equal ones and ones of nothing among them."""
    d = draw(st.integers(1, 3))
    rows = draw(st.lists(st.tuples(*[st.integers(0, 3)] * d), min_size=1, max_size=8))
    rows.append((2,) * d)
    counts = draw(st.lists(st.integers(1, 40), min_size=len(rows), max_size=len(rows)))
    limits = draw(st.lists(st.integers(3, 9), min_size=d, max_size=d))
    return Instance(np.array(rows), np.array(counts), np.array(limits))


def contents(patterns: Patterns, instance: Instance) -> np.ndarray:
    return patterns.dense(len(instance.counts), len(patterns)) @ instance.sizes


@given(instances_with_equal_sizes())
def test_packs_of_merged_classes_become_packs_of_the_classes_themselves(instance):
    relaxation = projected(instance, list(range(len(instance.limits))))
    relaxed = relaxation.instance
    packed = minimum_bin_slack(relaxed, 1, Tuning(steps=20), Effort(10**9))
    assert relaxation.whole
    assert packed is not None
    found = spread(packed, relaxation, instance.counts)
    assert found.num_packs == packed.num_packs
    assert (found.packed(len(instance.counts)) == instance.counts).all()
    assert (found.multiplicities > 0).all()
    assert (contents(found, instance) <= instance.limits).all()
    again = merged(found, relaxation)
    assert again.num_packs == packed.num_packs
    assert (again.packed(len(relaxed.counts)) == relaxed.counts).all()
    given, back = (set(map(tuple, each.dense(len(relaxed.counts), 10**6).tolist())) for each in (packed, again))
    assert back <= given
