"""Histograms and sizes: counting, merging, files, exact sums, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack import GraphSizes, SizeHistogram
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.planning.histogram import quantiles
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
    assert merged == whole == whole.without_ids()
    assert (merged + merged).graph_classes is whole.without_ids().graph_classes is None


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
        (lambda: SizeHistogram([[1, 1], [2, 2]], [3, 0]), ("index 1 has no graphs", "left out")),
        (lambda: SizeHistogram([[1, 2], [3, 4], [1, 2]], [1, 1, 1]), ("(1, 2)", "twice", "add up its counts")),
        (lambda: SizeHistogram([[3, 4], [1, 2]], [1, 1], graph_classes=np.array([0, 1])), ("ascending", "from_sizes")),
        (lambda: SizeHistogram([[1, 2], [3, 4]], [1, 1], graph_classes=np.array([0, 7])), ("graph_classes",)),
        (lambda: HALF + HALF, (f"{2**63} graphs", "above 2**63-1")),
        (lambda: SizeHistogram.from_counts({(3, 4): 0}), ("no graphs", "empty dataset")),
        (lambda: SizeHistogram.from_counts({(1, 2): -3}), ("counts", "index 0", "-3", "0..2**63-1")),
        (lambda: SizeHistogram.from_counts({(1, -2): 3}), ("sizes", "index (0, 1)", "-2")),
        (lambda: SizeHistogram.from_counts({(1.0, 2): 1}), ("sizes", "integers", "1.0")),
        (lambda: SizeHistogram.from_counts({(1, 2): 1, (1,): 1}), ("same number of components", "(1,)")),
        (lambda: SizeHistogram.from_counts({(1, 2, 3): 1}), ("3 distinct component names", "components=")),
        (lambda: SizeHistogram.from_counts({(INT64_MAX, 1): 1, (1, 1): 1}), ("nodes", str(2**63), "split")),
    ],
)
def test_what_is_no_histogram_is_refused(call: Callable[[], object], parts: tuple[str, ...]) -> None:
    with refused(SizesError, *parts):
        call()


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


HISTOGRAM = SizeHistogram.from_counts({(1, 0): 7, (3, 4): 2, (12, 30): 1})


@pytest.mark.parametrize("name", ["h.json", "h.csv", "h.CSV"])
@pytest.mark.parametrize("component", ["edges:u:a,b:v", 'say "x"', "count"])
def test_round_trip_of_awkward_names(tmp_path: Path, name: str, component: str) -> None:
    histogram = SizeHistogram.from_counts({(1, 2**40): 3}, (component, "n"))
    histogram.save(tmp_path / name)
    assert SizeHistogram.load(tmp_path / name) == histogram


def test_a_csv_file_is_a_plain_table(tmp_path: Path) -> None:
    HISTOGRAM.save(tmp_path / "h.csv")
    assert (tmp_path / "h.csv").read_text() == "nodes,edges,count\n1,0,7\n3,4,2\n12,30,1\n"


@pytest.mark.parametrize(
    "text",
    [
        "nodes, edges, count\r\n3, 4, 2\r\n12,30,1\r\n1,0,7",
        "nodes , edges\t, count \n 3 , 4 , 2 \n12,30,1\n1,0,7\n",
        "\ufeff\ufeffnodes,edges,count\r\n3,4,2\r\n12,30,1\r\n1,0,7\r\n\r\n\n",
    ],
)
def test_blanks_marks_and_empty_lines_at_the_end_are_not_part_of_a_table(text: str) -> None:
    assert SizeHistogram.from_csv(text) == HISTOGRAM


@pytest.mark.parametrize("name", ["h.json", "h.csv"])
def test_a_byte_order_mark_is_not_part_of_a_file_and_another_encoding_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    HISTOGRAM.save(path)
    text = path.read_text("utf-8")
    path.write_text("\ufeff" + text, "utf-8")
    assert SizeHistogram.load(path) == HISTOGRAM
    # A text that the caller read begins with the mark too.
    read = SizeHistogram.from_json if name == "h.json" else SizeHistogram.from_csv
    assert read("\ufeff" + text) == HISTOGRAM
    path.write_text(text, "utf-16")
    with refused(FormatError, "cannot read", name, "save it as UTF-8"):
        SizeHistogram.load(path)


def test_a_bare_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text("[[3, 4, 2], [1, 0, 7], [12, 30, 1]]")
    assert SizeHistogram.load(tmp_path / "h.json") == HISTOGRAM


@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1),
    components=st.sampled_from([("nodes", "edges"), ("nodes:atom", "edges:atom:bond:atom"), ("edges", "nodes")]),
    count=st.sampled_from([None, 1, 3]), as_excel=st.booleans(),
)  # fmt: skip
def test_rows_of_equal_sizes_are_added_up(
    sizes: list[tuple[int, int]], components: tuple[str, str], count: int | None, as_excel: bool
) -> None:
    rows = [(*components, "count"), *((*size, count) for size in sizes)]
    lines = [",".join(map(str, row if count else row[:2])) for row in rows]
    text = "\ufeff" + "\r\n".join(lines) + "\r\n" if as_excel else "\n".join(lines)
    expected = {size: number * (count or 1) for size, number in Counter(sizes).items()}
    assert SizeHistogram.from_csv(text) == SizeHistogram.from_counts(expected, components)


def test_totals_of_repeated_sizes_must_fit() -> None:
    with refused(FormatError, "no valid histogram", "2**63-1"):
        SizeHistogram.from_csv(f"nodes,edges,count\n0,0,{2**62}\n0,0,{2**62}\n")


@pytest.mark.parametrize("line", ["3,4,x", "3,4.0,2", "3,4,-2", f"3,{2**63},2", "3,4,0", "3,4,2,1", "3,4", "3", ""])
def test_a_bad_line_of_a_table_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "h.csv"
    path.write_text(f"nodes,edges,count\n1,1,1\n{line}\n5,5,5\n")
    with refused(FormatError, "line 3", str(path), line):
        SizeHistogram.load(path)
    with refused(FormatError, "line 2", "x,1", "2 whole numbers in 0..2**63-1; correct"):
        SizeHistogram.from_csv("nodes,edges\nx,1\n")


@pytest.mark.parametrize(
    "text",
    [
        "", "count\n1\n", "count,nodes\n1,2\n", "\x89PNG\r\n", "a;b;count\n1;2;3\n", "nodes;edges\n1;2\n",
        "nodes,edges,counts\n1,2,3\n", "nodes,edges,Count\n1,2,3\n", "atoms,bonds\n1,2\n", "3,4\n1,2\n",
    ],
)  # fmt: skip
def test_a_table_without_its_first_line_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "h.csv").write_text(text)
    with refused(FormatError, "h.csv", "nodes,edges,count"):
        SizeHistogram.load(tmp_path / "h.csv")


@pytest.mark.parametrize(
    "text", ["nodes,edges,count\n", "nodes,nodes,count\n1,2,3\n", "nodes,edges\n", "nodes,nodes\n1,2\n"]
)
def test_a_table_that_is_no_histogram_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "h.csv").write_text(text)
    with refused(FormatError, "h.csv", "no valid histogram"):
        SizeHistogram.load(tmp_path / "h.csv")


@pytest.mark.parametrize("name", ["h.txt", "h", "h.json.gz"])
def test_another_ending_is_refused(tmp_path: Path, name: str) -> None:
    with refused(FormatError, ".json or .csv", name):
        HISTOGRAM.save(tmp_path / name)
    with refused(FormatError, ".json or .csv", name):
        SizeHistogram.load(tmp_path / name)


# --- sizes


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
