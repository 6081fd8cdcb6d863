"""Whole graphs in balanced parts, against bounds, exhaustive search and the targets for real sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.planning.balance import balanced_parts, imbalance_bound, imbalance_of, totals_of
from tests.support.messages import refused

ROWS = st.integers(1, 3).flatmap(
    lambda k: st.lists(st.tuples(*[st.integers(0, 50) | st.integers(0, 10**6)] * k), max_size=40).map(
        lambda rows: np.array(rows, np.int64).reshape(-1, k)
    )
)


def sizes_of(rows: np.ndarray) -> tp.GraphSizes:
    return tp.GraphSizes(rows, tuple(f"c{i}" for i in range(rows.shape[1])))


@given(ROWS, st.integers(1, 9))
def test_every_graph_has_a_part_and_equal_arguments_give_equal_parts(rows: np.ndarray, parts: int) -> None:
    sizes = sizes_of(rows)
    found = balanced_parts(sizes, parts)
    assert found.dtype == np.int64
    assert found.shape == (len(rows),)
    assert ((found >= 0) & (found < parts)).all()
    assert found.tolist() == balanced_parts(sizes, parts).tolist()
    totals = totals_of(rows, found, parts)
    assert totals.tolist() == [[int(rows[found == p, c].sum()) for c in range(rows.shape[1])] for p in range(parts)]
    assert (imbalance_of(totals) >= imbalance_bound(sizes, parts) - 1e-12).all()


@given(st.lists(st.integers(0, 30), min_size=1, max_size=7), st.integers(1, 3))
def test_the_bound_holds_for_every_assignment(values: list[int], parts: int) -> None:
    rows = np.array(values)[:, None]
    best = min(
        imbalance_of(totals_of(rows, np.array(assigned), parts))[0]
        for assigned in itertools.product(range(parts), repeat=len(values))
    )
    assert best >= imbalance_bound(sizes_of(rows), parts)[0] - 1e-12


@given(st.tuples(st.integers(1, 9), st.integers(0, 9)), st.integers(1, 5), st.integers(1, 6))
def test_equal_graphs_are_divided_evenly(size: tuple[int, int], each: int, parts: int) -> None:
    found = balanced_parts(tp.GraphSizes([size] * (each * parts)), parts)
    assert np.bincount(found).tolist() == [each] * parts


@pytest.mark.parametrize("parts", [2, 64])
def test_molecules_are_balanced_in_nodes_and_edges_at_once(parts: int) -> None:
    histogram = tp.load_example("ogbg-molhiv")
    rows = np.repeat(histogram.sizes, histogram.counts, axis=0)
    assert imbalance_of(totals_of(rows, balanced_parts(tp.GraphSizes(rows), parts), parts)).max() <= 1.001


def test_the_number_of_parts_is_checked() -> None:
    for parts in (0, -1, 2**21, 1.5, True):
        with refused(SizesError, "number of parts", "1..1048576"):
            balanced_parts(tp.GraphSizes([[1, 1]]), parts)  # type: ignore[arg-type]
    assert balanced_parts(tp.GraphSizes(np.empty((0, 2), int)), 3).tolist() == []
