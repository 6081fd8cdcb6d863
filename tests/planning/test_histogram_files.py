"""Histogram files: what is written is read back, and what is damaged is refused with its place."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack import SizeHistogram
from dgl_tuplepack.errors import FormatError
from tests.support.messages import refused

HISTOGRAM = SizeHistogram.from_counts({(1, 0): 7, (3, 4): 2, (12, 30): 1})


@pytest.mark.parametrize("name", ["h.json", "h.csv", "h.CSV"])
@pytest.mark.parametrize("component", ["edges:u:a,b:v", 'say "x"', " nodes", "two\nlines", "count", "\ufeffnodes"])
def test_round_trip_of_awkward_names(tmp_path: Path, name: str, component: str) -> None:
    histogram = SizeHistogram.from_counts({(1, 2**40): 3}, (component, "n"))
    histogram.save(tmp_path / name)
    assert SizeHistogram.load(tmp_path / name) == histogram


def test_a_csv_file_is_a_plain_table(tmp_path: Path) -> None:
    HISTOGRAM.save(tmp_path / "h.csv")
    assert (tmp_path / "h.csv").read_text() == "nodes,edges,count\n1,0,7\n3,4,2\n12,30,1\n"


def test_a_table_written_by_hand_is_read(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("nodes, edges, count\r\n3, 4, 2\r\n12,30,1\r\n1,0,7")
    assert SizeHistogram.load(tmp_path / "h.csv") == HISTOGRAM


@pytest.mark.parametrize(
    "text",
    [
        "nodes , edges\t, count \n 3 , 4 , 2 \n12,30,1\n1,0,7\n",
        "\ufeff\ufeffnodes,edges,count\r\n3,4,2\r\n12,30,1\r\n1,0,7\r\n\r\n\n",
    ],
)
def test_blanks_marks_and_empty_lines_at_the_end_are_not_part_of_a_table(text: str) -> None:
    assert SizeHistogram.from_csv(text) == HISTOGRAM


@pytest.mark.parametrize("name", ["h.json", "h.csv"])
def test_another_encoding_is_told(tmp_path: Path, name: str) -> None:
    HISTOGRAM.save(tmp_path / name)
    (tmp_path / name).write_text((tmp_path / name).read_text(), encoding="utf-16")
    with refused(FormatError, "cannot read", name, "save it as UTF-8"):
        SizeHistogram.load(tmp_path / name)


def test_a_bare_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text("[[3, 4, 2], [1, 0, 7], [12, 30, 1]]")
    assert SizeHistogram.load(tmp_path / "h.json") == HISTOGRAM


MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize("name", ["h.json", "h.csv"])
def test_a_byte_order_mark_is_not_part_of_a_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    HISTOGRAM.save(path)
    path.write_bytes(MARK + path.read_bytes())
    assert SizeHistogram.load(path) == HISTOGRAM
    # A text that the caller read begins with the mark too.
    read = SizeHistogram.from_json if name == "h.json" else SizeHistogram.from_csv
    assert read(path.read_text("utf-8")) == HISTOGRAM


@given(
    sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1),
    components=st.sampled_from([("nodes", "edges"), ("nodes:atom", "edges:atom:bond:atom"), ("edges", "nodes")]),
    as_excel=st.booleans(),
)
def test_a_table_with_a_row_for_each_graph_is_counted(
    sizes: list[tuple[int, int]], components: tuple[str, str], as_excel: bool
) -> None:
    lines = [",".join(components), *(f"{a},{b}" for a, b in sizes)]
    text = "\ufeff" + "\r\n".join(lines) + "\r\n" if as_excel else "\n".join(lines)
    assert SizeHistogram.from_csv(text) == SizeHistogram.from_counts(Counter(sizes), components)


@given(counts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 5)), min_size=1))
def test_counts_of_repeated_sizes_are_added_up(counts: list[tuple[int, int, int]]) -> None:
    expected = Counter[tuple[int, ...]]()
    for a, b, count in counts:
        expected[a, b] += count
    text = "nodes,edges,count\n" + "".join(f"{a},{b},{count}\n" for a, b, count in counts)
    assert SizeHistogram.from_csv(text) == SizeHistogram.from_counts(expected)


def test_one_component_without_counts_is_read() -> None:
    assert SizeHistogram.from_csv("nodes\n3\n3\n1\n").to_counts() == {(1,): 1, (3,): 2}


@pytest.mark.parametrize("line", ["3", "3,4,2", "3,x", "3,-1", f"3,{2**63}", ""])
def test_a_bad_line_without_a_count_is_named(line: str) -> None:
    with refused(FormatError, "line 3", line, "2 whole numbers in 0..2**63-1; correct"):
        SizeHistogram.from_csv(f"nodes,edges\n1,1\n{line}\n5,5\n")


def test_totals_of_repeated_sizes_must_fit() -> None:
    with refused(FormatError, "no valid histogram", "2**63-1"):
        SizeHistogram.from_csv(f"nodes,edges,count\n0,0,{2**62}\n0,0,{2**62}\n")


@pytest.mark.parametrize("line", ["3,4", "3,4,2,1", "", "3,4,x", "3,4.0,2", "3,4,-2", f"3,{2**63},2", "3,4,0"])
def test_a_bad_line_of_a_table_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "h.csv"
    path.write_text(f"nodes,edges,count\n1,1,1\n{line}\n5,5,5\n")
    with refused(FormatError, "line 3", str(path), line):
        SizeHistogram.load(path)


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
