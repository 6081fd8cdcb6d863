from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_tuplepack import Limits, SizeHistogram, pack
from dgl_tuplepack._core.kernels.pack_search import Classes, search_packs, tails
from dgl_tuplepack._core.kernels.subset import subset_within
from dgl_tuplepack.planning.bounds import pattern_lp
from dgl_tuplepack.planning.bounds.instance import Instance, as_instance, projected
from dgl_tuplepack.planning.bounds.pattern_lp import SHIFT, Effort, PatternLP, by_search, linear_duals
from dgl_tuplepack.planning.packing.stages.closing import closed, closed_by_subproblems, dived
from dgl_tuplepack.planning.packing.stages.exact_split import exactly_split, filled
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, minimum_bin_slack
from dgl_tuplepack.planning.plan import Patterns
from scripts.benchmarks import shapes
from tests.support.engine_helpers import exact_optimum, random_histogram, small_instances


@st.composite
def instances(draw, most_classes: int = 5):
    """Few classes with limits that each keeps; graphs may have nothing of a component, but not of all."""
    d = draw(st.integers(1, 3))
    size = st.tuples(*[st.integers(0, 9)] * d).filter(any)
    sizes = np.array(draw(st.lists(size, min_size=1, max_size=most_classes, unique=True)))
    counts = np.array(draw(st.lists(st.integers(1, 4), min_size=len(sizes), max_size=len(sizes))))
    limits = np.array([draw(st.integers(max(1, most), 20)) for most in sizes.max(axis=0).tolist()])
    return Instance(sizes, counts, limits)


def all_packs(instance: Instance) -> np.ndarray:
    packs = np.array(list(itertools.product(*(range(count + 1) for count in instance.counts.tolist()))))
    return packs[(packs @ instance.sizes <= instance.limits).all(axis=1)]


@given(instances(), st.data())
def test_the_search_finds_the_most_valuable_pack_that_begins_with_each_class(instance, data):
    number = len(instance.counts)
    values = np.array(data.draw(st.lists(st.integers(1, 1000), min_size=number, max_size=number)))
    order = np.argsort(-(values / (instance.sizes / instance.limits).mean(axis=1)), kind="stable")
    sizes, values, counts = np.ascontiguousarray(instance.sizes[order]), values[order], instance.counts[order]
    packs = all_packs(Instance(sizes, counts, instance.limits))
    least = data.draw(st.integers(0, 800))
    contents, worth = np.zeros((number, number), dtype=np.int64), np.zeros(number, dtype=np.int64)
    classes = Classes(sizes, values, counts, tails(sizes, values, instance.limits))
    assert search_packs(classes, instance.limits, 0, number, least, 10**6, contents, worth) > 0
    for row in range(number):
        begins = packs[(packs[:, :row] == 0).all(axis=1) & (packs[:, row] > 0)]
        best = int((begins @ values).max())
        assert worth[row] == max(best, least)
        if best > least:
            assert contents[row] @ values == best
            assert (contents[row] <= counts).all()
            assert (contents[row] @ sizes <= instance.limits).all()


@given(instances(), st.data())
def test_duals_priced_by_search_give_a_valid_bound_and_no_pack_is_worth_more(instance, data):
    number = len(instance.counts)
    duals = np.array(data.draw(st.lists(st.floats(0, 1.5), min_size=number, max_size=number)))
    priced = by_search(instance, duals, Effort(10**9))
    packs = all_packs(instance)
    assert (packs @ priced.duals).max() <= priced.most
    assert (priced.found @ instance.sizes <= instance.limits).all()
    assert all(int(row @ priced.duals) > 1 << SHIFT for row in priced.found)


def test_a_search_that_was_cut_off_proves_nothing(monkeypatch):
    histogram = random_histogram(3, 12, 2, most_size=40, most_count=3)
    instance = as_instance(histogram, Limits.from_components({"a": 100, "b": 100}))
    duals = 0.6 + instance.sizes[:, 0] / 1000
    assert by_search(instance, duals, Effort(10**9)).bound > 0
    monkeypatch.setattr(pattern_lp, "_MOST_STEPS", 5)
    priced = by_search(instance, duals, Effort(10**9))
    assert (priced.most, priced.bound, priced.exact) == (0, 0, 0.0)


def singles(instance: Instance) -> Patterns:
    number = len(instance.counts)
    return Patterns(np.arange(number + 1), np.arange(number), np.ones(number, dtype=np.int64), instance.counts)


@given(small_instances(most_graphs=7))
@settings(max_examples=60)
def test_closing_gives_a_bound_below_and_packs_above_the_optimum(case):
    instance = as_instance(*case)
    relaxed = projected(instance, list(range(len(instance.limits)))).instance
    optimum = exact_optimum(*case)
    bound, patterns = closed(relaxed, singles(relaxed), 1, 0, 20, Effort(10**8))
    assert (patterns.packed(len(relaxed.counts)) == relaxed.counts).all()
    assert bound <= optimum <= patterns.num_packs
    # So few graphs leave no gap between the LP and the optimum.
    assert bound == patterns.num_packs == optimum


@pytest.mark.parametrize("count", [1, 1000, 2**40 - 1])
def test_dives_hold_every_graph_whatever_the_counts(count):
    sizes = np.array([[50, 7], [41, 20], [33, 33], [9, 45], [20, 20]])
    instance = Instance(sizes, np.array([count, count + 3, 2 * count, 7, 1]), np.array([100, 100]))
    centre = linear_duals(instance, Effort(10**9))
    program = PatternLP(centre.found, centre, by_search)
    program.solve(10**15, Effort(10**9))
    found = dived(program, instance.counts, int(1.1 * program.bound) + 3, 0, 0, Effort(10**9))
    assert found is not None
    assert (found.packed(5) == instance.counts).all()
    assert program.bound <= found.num_packs
    packs = found.dense(5, len(found))
    assert (packs @ sizes <= instance.limits).all()


def test_a_pattern_whose_graphs_are_all_packed_is_left_out():
    """Patterns that are nearly whole are rounded up: 25 times 25/26 of a graph, and 25/26 of the last pattern."""
    sizes = np.array([[19, 19]] * 50 + [[501, 499], [499, 501]])
    columns = np.zeros((51, 52), dtype=np.int64)
    columns[range(50), range(50)] = 26
    columns[:25, 50] = columns[25:50, 51] = 1
    columns[50, 50:] = 1
    instance = Instance(sizes, np.full(52, 25), np.array([1000, 1000]))
    no_more = replace(linear_duals(instance, Effort(10**9)), found=columns[:0])
    found = dived(PatternLP(columns, no_more, lambda *_: no_more), instance.counts, 51, 0, 0, Effort(10**9))
    assert found is not None
    assert found.num_packs == 50
    assert (found.packed(52) == 25).all()


@pytest.mark.parametrize("seed", [0, 1])
def test_subproblems_save_packs_and_lose_no_graph(seed):
    sizes = np.random.default_rng(1).integers(20, 101, (300, 2))
    instance = as_instance(SizeHistogram.from_sizes(sizes), Limits(150, 150))
    start = minimum_bin_slack(instance, 1, Tuning(steps=1), Effort(10**9))
    assert start is not None
    found = closed_by_subproblems(instance, start, 1, seed, 3, Effort(30_000_000))
    assert found.num_packs < start.num_packs
    assert (found.packed(len(instance.counts)) == instance.counts).all()
    packs = found.dense(len(instance.counts), len(found))
    assert (packs @ instance.sizes <= instance.limits).all()
    again = closed_by_subproblems(instance, start, 1, seed, 3, Effort(30_000_000))
    assert again.classes.tolist() == found.classes.tolist()


# --- exact splits


@st.composite
def few_graphs(draw, most: int = 9):
    """Sizes int64 ``[n, d]`` and limits that each of them keeps."""
    d = draw(st.integers(1, 3))
    rows = draw(st.lists(st.tuples(*[st.integers(0, 9)] * d), min_size=1, max_size=most))
    sizes = np.array(rows, dtype=np.int64)
    limits = np.array([draw(st.integers(max(1, largest), 30)) for largest in sizes.max(axis=0).tolist()])
    return sizes, limits


def subsets(graphs: int):
    return (np.array(bits) for bits in itertools.product((0, 1), repeat=graphs))


@given(few_graphs(), st.data())
def test_a_subset_within_a_window_is_found_exactly_when_one_exists(case, data):
    sizes, high = case
    low = np.array([data.draw(st.integers(0, limit)) for limit in high.tolist()])
    chosen = np.zeros(len(sizes), dtype=np.int64)
    steps = subset_within(sizes, low, high, 1 << 40, chosen)
    exists = any(((bits @ sizes >= low) & (bits @ sizes <= high)).all() for bits in subsets(len(sizes)))
    assert (steps > 0) == exists
    if exists:
        total = chosen @ sizes
        assert ((total >= low) & (total <= high)).all()


def test_a_scan_gives_up_after_its_steps():
    sizes = np.random.default_rng(0).integers(1, 100, (20, 2))
    # Every pair of sums is within the first window, and none is within the second.
    low, high = np.array([0, 10**6]), np.array([10**6, 10**6])
    sums = 2**10
    taken = [-subset_within(sizes, low, high, most, np.zeros(20, dtype=np.int64)) for most in (100, 1 << 40)]
    assert taken[0] <= 100 + 2 * sums + 2 * (2 * sums)
    assert taken[1] >= sums * sums


@given(few_graphs(12), st.integers(1, 4), st.integers(0, 5))
def test_filled_packs_hold_every_graph_once_within_the_limits(case, packs, seed):
    sizes, limits = case
    contents = filled(sizes, limits, packs, seed, Effort(100_000))
    if contents is not None:
        assert 1 <= len(contents) <= packs
        assert sorted(np.concatenate(contents).tolist()) == list(range(len(sizes)))
        assert all((sizes[members].sum(axis=0) <= limits).all() for members in contents)


@given(few_graphs(), st.integers(0, 5))
def test_two_packs_are_found_exactly_when_they_exist(case, seed):
    sizes, limits = case
    total = sizes.sum(axis=0)
    exists = any(
        (bits @ sizes <= limits).all() and (total - bits @ sizes <= limits).all() for bits in subsets(len(sizes))
    )
    effort = Effort(10_000_000)
    assert (filled(sizes, limits, 2, seed, effort) is not None) == exists
    assert effort.left > 9_000_000


def test_more_than_fits_is_refused_at_once():
    sizes, limits = np.full((5, 1), 4), np.array([5])
    effort = Effort(1000)
    assert filled(sizes, limits, 3, 0, effort) is None
    assert filled(sizes, limits, 0, 0, effort) is None
    assert effort.left == 1000


def test_very_large_sizes_do_not_overflow():
    large = 2**60
    sizes = np.array([[large], [large], [large // 2], [large // 2], [large // 2], [large // 2]])
    contents = filled(sizes, np.array([large]), 4, 0, Effort(10_000_000))
    assert contents is not None
    assert {int(sizes[members].sum()) for members in contents} == {large}


@pytest.mark.parametrize("fewer", [1, 2])
def test_some_packs_become_fewer_and_keep_their_content(fewer):
    made = shapes.planted(300, (1000, 2200, 5000))
    instance = as_instance(made.histogram, made.limits)
    before = minimum_bin_slack(instance, made.packs + fewer, Tuning(steps=20), Effort(1 << 40))
    assert before is not None
    saved = before.num_packs - made.packs
    after = exactly_split(instance, before, saved, 0, Effort(10**9))
    assert saved > 0
    assert after is not None
    assert after.num_packs == made.packs
    assert (after.packed(len(instance.counts)) == instance.counts).all()


@pytest.mark.parametrize("limits", [(1000, 2200), (1000, 2200, 5000)])
@pytest.mark.parametrize("seed", [0, 1])
def test_auto_packs_planted_graphs_without_any_waste(limits, seed):
    made = shapes.planted(200, limits, seed)
    plan = pack(made.histogram, made.limits, seed=seed)
    assert plan.num_packs == plan.lower_bound == made.packs
