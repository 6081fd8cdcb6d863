"""Graph sizes: what is accepted, what is refused, and that sums are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack import GraphSizes
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.planning.sizes import (
    INT64_MAX,
    as_int64,
    component_names,
    components_of_kind,
    edge_component,
    exact_sum,
    node_component,
)
from tests.support.messages import refused


def test_columns_and_totals() -> None:
    sizes = GraphSizes([[3, 4], [2, 2], [0, 0]])
    assert len(sizes) == 3
    assert sizes.components == ("nodes", "edges")
    assert sizes.num_nodes.tolist() == [3, 2, 0]
    assert sizes.num_edges.tolist() == [4, 2, 0]
    assert sizes.totals() == {"nodes": 5, "edges": 6}
    assert sizes.take([1, 0, 1]).array.tolist() == [[2, 2], [3, 4], [2, 2]]


def test_one_column_counts_nodes_and_no_graphs_have_sizes() -> None:
    sizes = GraphSizes([3, 2])
    assert sizes.components == ("nodes",)
    assert sizes.num_edges.tolist() == [0, 0]
    assert GraphSizes(np.zeros((0, 2), dtype=np.int64)).totals() == {"nodes": 0, "edges": 0}


def test_types_of_a_heterograph_add_up() -> None:
    sizes = GraphSizes([[1, 2, 4, 8]], ("nodes:a", "edges:a:x:b", "nodes:b", "edges:b:y:a"))
    assert sizes.num_nodes.tolist() == [5]
    assert sizes.num_edges.tolist() == [10]


def test_the_array_is_a_read_only_copy() -> None:
    given_array = np.array([[3, 4]])
    sizes = GraphSizes(given_array)
    given_array[0, 0] = 99
    assert sizes.array.tolist() == [[3, 4]]
    with pytest.raises(ValueError, match="read-only"):
        sizes.array[0, 0] = 1


@pytest.mark.parametrize("dtype", ["int8", "uint64", ">i4"])
def test_every_integer_type_is_accepted(dtype: str) -> None:
    array = GraphSizes(np.array([[100, 0], [1, 7]], dtype=dtype)).array
    assert array.dtype == np.dtype(np.int64)
    assert array.tolist() == [[100, 0], [1, 7]]


@pytest.mark.parametrize(
    ("values", "parts"),
    [
        ([[3, 4], [2, -1]], ("index (1, 1)", "-1", "0..2**63-1")),
        (np.array([2**63, 1], dtype=np.uint64), ("index 0", str(2**63), "0..2**63-1")),
        ([[1.0, 2.0]], ("integers", "float64", "1.0", "astype")),
        ([[float("nan"), 1]], ("integers", "float64", "nan")),
        ([[True, False]], ("integers", "bool", "True")),
        (None, ("integers", "None")),
    ],
)
def test_bad_values_are_named(values: Any, parts: tuple[str, ...]) -> None:
    with refused(SizesError, "graph sizes must", *parts):
        GraphSizes(values)


@pytest.mark.parametrize(
    ("names", "k"), [((), 3), (("nodes",), 2), (("a", "b", "c"), 2), (("a", "a"), 2), (("a", ""), 2), (("a", 3), 2)]
)
def test_bad_component_names_are_refused(names: tuple[Any, ...], k: int) -> None:
    with refused(SizesError, f"{k} components need {k} distinct component names", repr(names), "components="):
        component_names(names, k)


def test_names_of_components() -> None:
    assert node_component("atom") == "nodes:atom"
    assert edge_component("bond") == "edges:bond"
    assert edge_component(("atom", "bond", "atom")) == "edges:atom:bond:atom"
    assert components_of_kind(("nodes:a", "nodesque", "edges", "nodes"), "nodes") == [0, 3]


@given(st.lists(st.tuples(st.integers(0, INT64_MAX), st.integers(1, INT64_MAX)), max_size=6))
def test_sums_are_exact_at_any_magnitude(pairs: list[tuple[int, int]]) -> None:
    values = as_int64([v for v, _ in pairs], "values")
    weights = as_int64([w for _, w in pairs], "weights")
    assert exact_sum(values) == sum(v for v, _ in pairs)
    assert exact_sum(values, weights) == sum(v * w for v, w in pairs)
