from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dgl_tuplepack import GraphSizes, Limits, SizeHistogram, lower_bound
from dgl_tuplepack._core.kernels.knapsack import fill_table
from dgl_tuplepack.errors import GraphTooLargeError
from dgl_tuplepack.planning.bounds.instance import Instance, as_instance, large_bound, projected, quick_bound
from dgl_tuplepack.planning.bounds.pattern_lp import Effort, PatternLP, lifted, price, pricing_work, starting_point
from dgl_tuplepack.planning.sizes import INT64_MAX
from tests.support.engine_helpers import exact_optimum, small_instances
from tests.support.messages import refused


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


def literal_quick_bound(instance):
    """The best L2 of every component and of the even mixture of each pair, in Python's integers."""
    sizes, limits = instance.sizes.tolist(), instance.limits.tolist()
    ways = [([row[i] for row in sizes], limit) for i, limit in enumerate(limits)]
    for i, j in itertools.combinations(range(len(limits)), 2):
        mixed = [row[i] * limits[j] + row[j] * limits[i] for row in sizes]
        ways.append((mixed, 2 * limits[i] * limits[j]))
    counts = instance.counts.tolist()
    return max(1, *(literal_large_bound(np.array(column), counts, limit) for column, limit in ways))


@given(small_instances())
def test_quick_bound_takes_every_component_and_every_mixture(case):
    histogram, limits = case
    instance = as_instance(histogram, limits)
    assert quick_bound(instance) == literal_quick_bound(instance)


@settings(max_examples=25)
@given(st.integers(9, 14), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_of_many_components_the_eight_scarcest_are_mixed(components, graphs, seed):
    random = np.random.default_rng(seed)
    sizes, limits = random.integers(0, 9, (graphs, components)), random.integers(9, 30, components)
    instance = Instance(sizes, np.ones(graphs, dtype=np.int64), limits)
    scarcest = np.argsort(-(sizes / limits).sum(axis=0), kind="stable")[:8]
    mixed = literal_quick_bound(Instance(sizes[:, scarcest], instance.counts, limits[scarcest]))
    alone = max(large_bound(column, instance.counts, limit) for column, limit in zip(sizes.T, limits, strict=True))
    assert quick_bound(instance) == max(mixed, alone)


@given(st.integers(1, 12), st.integers(1, 30), st.sampled_from([1, 2**33]), st.integers(0, 2**32 - 1))
def test_exactly_the_limits_that_another_limit_implies_are_left_out(components, graphs, unit, seed):
    random = np.random.default_rng(seed)
    # Few different sizes, so that limits often imply each other.
    sizes, limits = random.integers(0, 3, (graphs, components)), random.integers(2, 5, components)
    kept = list(range(components))
    for column in reversed(range(components)):
        implied = any(
            all(row[column] * limits[other] <= row[other] * limits[column] for row in sizes.tolist())
            for other in kept if other != column
        )  # fmt: skip
        if len(kept) > 1 and (implied or sizes[:, column].sum() <= limits[column]):
            kept.remove(column)
    names = tuple(f"edges:e:r{i}:e" for i in range(components))
    histogram = SizeHistogram.from_sizes(GraphSizes(sizes * unit, names))
    named = dict(zip(names, (limits * unit).tolist(), strict=True))
    assert as_instance(histogram, Limits.from_components(named)).limits.tolist() == (limits[kept] * unit).tolist()


@given(small_instances(), st.integers(1, 2**57))
def test_sizes_of_any_unit_give_a_bound_that_holds(case, unit):
    histogram, limits = case
    instance = as_instance(histogram, limits)
    assume(unit * max(*instance.totals(), *instance.limits.tolist()) < 2**62)
    large = Instance(instance.sizes * unit, instance.counts, instance.limits * unit)
    components = max(large_bound(column, large.counts, limit) for column, limit in
                     zip(large.sizes.T, large.limits.tolist(), strict=True))  # fmt: skip
    assert components <= quick_bound(large) <= quick_bound(instance)


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
    rows = dict(zip(histogram.to_counts(), relaxation.classes.tolist(), strict=True))
    assert rows == {(1, 0): -1, (2, 4): 0, (3, 4): 0, (3, 8): 1}
    assert not relaxation.whole


@pytest.mark.parametrize(
    ("counts", "limits", "expected"),
    [
        ({(0, 0): 7}, Limits(9, 9, 3), 3),  # graphs / cap
        ({(0, 0): 7}, Limits(9, 9), 1),  # nothing to hold is still one pack
        ({(3, 0): 5, (1, 0): 1}, Limits(5, 9), 5),  # more than half of an odd limit: one a pack
        ({(2, 0): 4, (1, 0): 1}, Limits(4, 9), 3),  # exactly half: two a pack
        ({(INT64_MAX, 0): 1}, Limits(INT64_MAX, 1), 1),
        ({(1, 0): INT64_MAX}, Limits(2, 1), 2**62),
    ],
)
def test_bounds_by_hand(counts, limits, expected):
    assert lower_bound(SizeHistogram.from_counts(counts), limits) == expected


def test_without_ids_graphs_are_counted_and_not_size_classes():
    with refused(GraphTooLargeError, "5 of 7 graphs", "5 with 9 nodes, 2 edges"):
        lower_bound(SizeHistogram.from_counts({(1, 1): 2, (9, 2): 5}), Limits(5, 5))


def relaxed_of(histogram, limits):
    instance = as_instance(histogram, limits)
    return projected(instance, list(range(len(instance.limits)))).instance


def literal_best_pack(sizes, values, room):
    """Largest value of a multiset of sizes within `room`, by plain recursion."""
    return max(
        (
            value + literal_best_pack(sizes, values, tuple(r - s for r, s in zip(room, size, strict=True)))
            for size, value in zip(sizes, values, strict=True)
            if all(s <= r for s, r in zip(size, room, strict=True))
        ),
        default=0,
    )


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=4, unique=True),
    st.data(),
)
@settings(max_examples=40)
def test_the_table_holds_the_best_pack_for_every_room(sizes, data):
    values = data.draw(st.lists(st.integers(1, 20), min_size=len(sizes), max_size=len(sizes)))
    for k in (1, 2, 3):
        limits, part = np.array([4, 3, 5][3 - k :]), [size[3 - k :] for size in sizes]
        table = np.zeros(int(np.prod(limits + 1)), dtype=np.int64)
        fill_table(table, np.array(part), np.array(values), limits, False, 0, len(part))
        room = data.draw(st.tuples(*[st.integers(0, limit) for limit in limits.tolist()]))
        assert table[np.ravel_multi_index(room, tuple(limits + 1))] == literal_best_pack(part, values, room)


@given(small_instances(most_graphs=6), st.data())
def test_any_duals_give_a_valid_bound(case, data):
    histogram, limits = case
    relaxed = relaxed_of(histogram, limits)
    size = len(relaxed.counts)
    duals = np.array(data.draw(st.lists(st.floats(0, 3), min_size=size, max_size=size)))
    priced = price(relaxed, duals, Effort(1 << 62))
    optimum = exact_optimum(histogram, limits)
    assert priced.bound <= optimum
    raised = lifted(priced, Effort(1 << 62))
    assert priced.bound <= raised.bound <= optimum
    assert (raised.duals >= priced.duals).all()


@given(small_instances(most_graphs=7))
@settings(max_examples=40)
def test_the_lp_bound_never_exceeds_the_optimum(case):
    histogram, limits = case
    relaxed = relaxed_of(histogram, limits)
    point = starting_point(relaxed, Effort(1 << 62))
    program = PatternLP(np.zeros((0, len(relaxed.counts)), dtype=np.int64), point, price)
    program.solve(10**9, Effort(10**7))
    assert program.bound <= exact_optimum(histogram, limits)
    columns, repeats = program.solution()
    assert (columns @ relaxed.sizes[:, 0] <= relaxed.limits[0]).all()
    if program.converged and len(columns):
        assert (repeats @ columns >= relaxed.counts - 1e-6).all()


def test_a_stopped_lp_still_gives_a_valid_bound_and_no_table_beyond_its_limit_is_made():
    histogram = SizeHistogram.from_counts({(7, 3): 50, (5, 9): 40, (11, 2): 30})
    assert lower_bound(histogram, Limits(20, 20), time_limit=0) <= lower_bound(histogram, Limits(20, 20))
    assert pricing_work(as_instance(histogram, Limits(10**7, 10**7))) == 1 << 62
