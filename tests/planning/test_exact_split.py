from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack import pack
from dgl_tuplepack._core.kernels.subset import subset_within
from dgl_tuplepack.planning.bounds.instance import as_instance
from dgl_tuplepack.planning.bounds.pattern_lp import Effort
from dgl_tuplepack.planning.packing.stages.exact_split import exactly_split, filled
from dgl_tuplepack.planning.packing.stages.minimum_bin_slack import Tuning, minimum_bin_slack
from scripts.benchmarks import shapes


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
