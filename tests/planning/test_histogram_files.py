"""Histogram files: what is written is read back, and what is damaged is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgl_tuplepack import SizeHistogram
from dgl_tuplepack.errors import FormatError
from tests.support.messages import refused

HISTOGRAM = SizeHistogram.from_counts({(1, 0): 7, (3, 4): 2, (12, 30): 1})


@pytest.mark.parametrize("name", ["h.json", "h.csv", "h.CSV"])
@pytest.mark.parametrize("component", ["edges:u:a,b:v", 'say "x"', " nodes", "two\nlines", "count"])
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


def test_a_bare_list_is_read(tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text("[[3, 4, 2], [1, 0, 7], [12, 30, 1]]")
    assert SizeHistogram.load(tmp_path / "h.json") == HISTOGRAM


@pytest.mark.parametrize("line", ["3,4", "3,4,2,1", "", "3,4,x", "3,4.0,2", "3,4,-2", f"3,{2**63},2", "3,4,0"])
def test_a_bad_line_of_a_table_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "h.csv"
    path.write_text(f"nodes,edges,count\n1,1,1\n{line}\n5,5,5\n")
    with refused(FormatError, "line 3", str(path), line):
        SizeHistogram.load(path)


@pytest.mark.parametrize(
    "text", ["", "nodes\n1\n", "nodes,edges\n1,2\n", "count,nodes\n1,2\n", "\x89PNG\r\n", "a;b;count\n1;2;3\n"]
)
def test_a_table_without_its_first_line_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "h.csv").write_text(text)
    with refused(FormatError, "h.csv", "nodes,edges,count"):
        SizeHistogram.load(tmp_path / "h.csv")


@pytest.mark.parametrize(
    "text", ["nodes,edges,count\n", "nodes,nodes,count\n1,2,3\n", "nodes,edges,count\n1,2,3\n1,2,4\n"]
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
