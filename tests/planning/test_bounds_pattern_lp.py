from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_tuplepack import Limits, SizeHistogram, lower_bound
from dgl_tuplepack._core.kernels.knapsack import fill_table
from dgl_tuplepack.planning.bounds.instance import as_instance, projected
from dgl_tuplepack.planning.bounds.pattern_lp import Effort, PatternLP, lifted, price, pricing_work, starting_point
from tests.support.engine_helpers import exact_optimum, small_instances


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
