from __future__ import annotations

import numpy as np
from hypothesis import given

from dgl_tuplepack import Limits, SizeHistogram, lower_bound
from dgl_tuplepack.bounds.instance import as_instance, projected
from dgl_tuplepack.bounds.quick import large_bound, quick_bound
from tests.engine_helpers import exact_optimum, small_instances


def literal_large_bound(sizes, counts, limit):
    """Martello & Toth's L2, threshold by threshold, as the book states it."""
    items = np.repeat(sizes, counts).tolist()
    best = -(-sum(items) // limit)
    for threshold in range(limit // 2 + 1):
        first = [s for s in items if s > limit - threshold]
        second = [s for s in items if limit // 2 < s <= limit - threshold]
        third = [s for s in items if threshold <= s <= limit // 2]
        rest = sum(third) - sum(limit - s for s in second)
        best = max(best, len(first) + len(second) + max(0, -(-rest // limit)))
    return best


@given(small_instances())
def test_large_bound_is_the_literal_formula(case):
    histogram, limits = case
    for column, limit in enumerate(limits.values):
        sizes = histogram.sizes[:, column]
        assert large_bound(sizes, histogram.counts, limit) == literal_large_bound(sizes, histogram.counts, limit)


@given(small_instances())
def test_quick_bound_never_exceeds_the_optimum(case):
    histogram, limits = case
    assert 1 <= quick_bound(as_instance(histogram, limits)) <= exact_optimum(histogram, limits)


@given(small_instances())
def test_instances_keep_the_optimum(case):
    histogram, limits = case
    instance = as_instance(histogram, limits)
    names = [f"component {i}" for i in range(len(instance.limits))]
    sizes, members = np.unique(instance.sizes, axis=0, return_inverse=True)
    counts = np.bincount(members.reshape(-1), weights=instance.counts).astype(np.int64)
    same = SizeHistogram(sizes, counts, tuple(names))
    free = Limits.from_components(dict(zip(names, instance.limits.tolist(), strict=True)))
    assert exact_optimum(same, free) == exact_optimum(histogram, limits)


def test_a_cap_that_never_binds_and_an_implied_component_are_left_out():
    trees = SizeHistogram.from_counts({(n, n - 1): 3 for n in range(5, 30)})
    instance = as_instance(trees, Limits(100, 99, graphs=14))
    assert instance.limits.tolist() == [100]
    assert as_instance(trees, Limits(100, 99, graphs=13)).limits.tolist() == [100, 13]


def test_projection_merges_equal_sizes_and_divides_by_the_common_divisor():
    histogram = SizeHistogram.from_counts({(2, 4): 1, (3, 4): 2, (3, 8): 5, (1, 0): 9})
    relaxation = projected(as_instance(histogram, Limits(7, 13)), [1])
    relaxed = relaxation.instance
    assert relaxed.sizes.tolist() == [[1], [2]]
    assert relaxed.counts.tolist() == [3, 5]
    assert relaxed.limits.tolist() == [3]
    rows = dict(zip(histogram.to_counts(), relaxation.rows.tolist(), strict=True))
    assert rows == {(1, 0): -1, (2, 4): 0, (3, 4): 0, (3, 8): 1}
    assert not relaxation.whole


def test_bounds_of_huge_limits_do_not_overflow():
    histogram = SizeHistogram.from_counts({(2**61, 2**60): 2, (2**60 + 1, 5): 1})
    assert lower_bound(histogram, Limits(2**62, 2**63 - 1)) == 2
