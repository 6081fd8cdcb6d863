"""Histograms: counting, merging, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack import GraphSizes, SizeHistogram
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.planning.histogram import quantiles
from dgl_tuplepack.planning.sizes import INT64_MAX
from tests.support.messages import refused

# Small numbers, and some for which one integer key a row would overflow.
ROWS = st.integers(1, 4).flatmap(
    lambda k: st.lists(st.tuples(*[st.one_of(st.integers(0, 4), st.integers(2**31, 2**40))] * k), min_size=1)
)


def sizes_of_rows(rows: list[tuple[int, ...]]) -> GraphSizes:
    return GraphSizes(rows, tuple(f"c{i}" for i in range(len(rows[0]))))


@given(ROWS)
def test_counting_agrees_with_a_dictionary(rows: list[tuple[int, ...]]) -> None:
    histogram = SizeHistogram.from_sizes(sizes_of_rows(rows))
    assert list(histogram.to_counts().items()) == sorted(Counter(rows).items())
    assert histogram.num_graphs == len(rows)
    assert [tuple(row) for row in histogram.sizes[histogram.graph_classes].tolist()] == rows
    assert list(histogram.totals().values()) == [sum(column) for column in zip(*rows, strict=True)]
    assert list(histogram.maxima().values()) == [max(column) for column in zip(*rows, strict=True)]


@given(ROWS, st.data())
def test_shards_counted_apart_add_up_to_the_whole(rows: list[tuple[int, ...]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(rows)))
    whole = SizeHistogram.from_sizes(sizes_of_rows(rows))
    merged = SizeHistogram.from_sizes(sizes_of_rows(rows[:cut]))
    if cut < len(rows):
        merged = merged + SizeHistogram.from_sizes(sizes_of_rows(rows[cut:]))
    assert merged == whole


def test_a_sum_knows_no_ids() -> None:
    one = SizeHistogram.from_sizes([[3, 4], [2, 2]])
    assert (one + one).graph_classes is None
    assert (one + one).to_counts() == {(2, 2): 2, (3, 4): 2}
    assert one.without_ids().graph_classes is None
    assert one.without_ids() == one


def test_equality_looks_at_everything() -> None:
    one = SizeHistogram.from_counts({(1, 2): 3})
    others = [{(1, 2): 4}, {(1, 3): 3}, {(1, 2): 3, (2, 2): 1}]
    assert all(one != SizeHistogram.from_counts(other) for other in others)
    assert one != SizeHistogram.from_counts({(1, 2): 3}, ("a", "b"))
    assert one != {(1, 2): 3}


def test_sizes_of_no_graphs_are_left_out_and_one_component_needs_no_tuple() -> None:
    assert SizeHistogram.from_counts({5: 2, 3: 0, 1: 1}).to_counts() == {(1,): 1, (5,): 2}


def test_a_histogram_cannot_be_changed_from_outside() -> None:
    sizes, counts = np.array([[1, 2]]), np.array([3])
    histogram = SizeHistogram(sizes, counts)
    sizes[0, 0] = counts[0] = 9
    assert histogram.to_counts() == {(1, 2): 3}
    with pytest.raises(ValueError, match="read-only"):
        histogram.counts[0] = 9


HALF = SizeHistogram.from_counts({(0, 0): 2**62})


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: SizeHistogram.from_sizes([]), ("no graphs", "at least one")),
        (lambda: SizeHistogram.from_sizes(np.zeros((0, 2), dtype=np.int64)), ("no graphs", "at least one")),
        (lambda: SizeHistogram([[1, 1], [2, 2]], [3, 0]), ("index 1 has no graphs", "left out")),
        (
            lambda: SizeHistogram([[1, 2], [3, 4], [1, 2]], [1, 1, 1]),
            ("(1, 2) is in the histogram twice", "add up its counts"),
        ),
        (lambda: SizeHistogram([[3, 4], [1, 2]], [1, 1], graph_classes=np.array([0, 1])), ("ascending", "from_sizes")),
        (lambda: SizeHistogram([[1, 2], [3, 4]], [1, 1], graph_classes=np.array([0, 7])), ("graph_classes",)),
        (lambda: HALF + HALF, (f"{2**63} graphs", "above 2**63-1")),
    ],
)
def test_what_is_no_histogram_is_refused(call: Callable[[], object], parts: tuple[str, ...]) -> None:
    with refused(SizesError, *parts):
        call()


@pytest.mark.parametrize(
    ("counts", "parts"),
    [
        ({}, ("no graphs", "empty dataset")),
        ({(3, 4): 0}, ("no graphs", "empty dataset")),
        ({(1, 2): -3}, ("counts", "index 0", "-3", "0..2**63-1")),
        ({(1, -2): 3}, ("sizes", "index (0, 1)", "-2")),
        ({(1.0, 2): 1}, ("sizes", "integers", "1.0")),
        ({(1, 2): 1, (1,): 1}, ("same number of components", "(1,)")),
        ({(1, 2, 3): 1}, ("3 distinct component names", "components=")),
        ({(INT64_MAX, 1): 1, (1, 1): 1}, ("nodes", str(2**63), "split")),
        ({(0, 0): INT64_MAX, (0, 1): 1}, ("graphs", str(2**63), "split")),
    ],
)
def test_bad_counts_are_named(counts: dict[Any, Any], parts: tuple[str, ...]) -> None:
    with refused(SizesError, *parts):
        SizeHistogram.from_counts(counts)


def test_totals_may_reach_the_largest_integer() -> None:
    assert SizeHistogram.from_counts({(INT64_MAX - 1, 0): 1, (1, 0): 1}).totals()["nodes"] == INT64_MAX


def test_only_equal_components_can_be_added() -> None:
    one = SizeHistogram.from_counts({(1, 2): 3})
    with refused(SizesError, "('nodes', 'edges')", "('edges', 'nodes')", "same order"):
        one + SizeHistogram.from_counts({(1, 2): 3}, ("edges", "nodes"))
    with pytest.raises(TypeError, match="unsupported operand"):
        one + {(1, 2): 3}  # type: ignore[operator]


@given(
    counted=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=8),
    levels=st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_a_quantile_is_the_smallest_value_that_a_share_of_all_graphs_does_not_exceed(
    counted: list[tuple[int, int]], levels: list[float]
) -> None:
    values, counts = np.array(counted).T
    every = sorted(np.repeat(values, counts).tolist())
    expected = [next(v for n, v in enumerate(every, start=1) if n >= level * len(every)) for level in levels]
    assert quantiles(values, counts, levels) == expected
