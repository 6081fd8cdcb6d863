"""The commands `report` and `plot`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dgl_tuplepack import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.tools.cli.pictures import PICTURES
from tests.support.command import Run
from tests.support.ogb_folder import write_ogb_folder

BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}
COUNTS = {(3, 4): 20, (5, 8): 11, (9, 18): 2, (12, 22): 1}
CSV = "nodes,edges,count\n" + "".join(f"{nodes},{edges},{count}\n" for (nodes, edges), count in COUNTS.items())
TEXT = CSV.encode()


@pytest.mark.parametrize("kind", PICTURES)
def test_every_picture_is_drawn(run: Run, kind: str, tmp_path: Path) -> None:
    ending = ("png", "svg", "pdf")[list(PICTURES).index(kind) % 3]
    out = tmp_path / f"picture.{ending}"
    done = run("plot", kind, "-", "--out", out, text=TEXT)
    assert (done.code, done.out, done.err) == (0, "", f"dgl-tuplepack: wrote {out}\n")
    assert out.read_bytes().startswith(BEGINNINGS[ending])
    assert list(tmp_path.iterdir()) == [out]


def test_a_picture_within_given_limits_and_of_some_components(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    arguments = ("--limits", "10,20,3", "--oversize", "drop", "--method", "best_fit", "--json")
    done = run("plot", "fill", "-", "--out", out, *arguments, text=TEXT)
    assert json.loads(done.out) == {"kind": "fill", "path": str(out)}
    assert "1 of 34 graphs exceed Limits(nodes=10, edges=20, graphs=3) and are left out" in done.err
    histogram = SizeHistogram.from_counts({(3, 4, 9): 5, (2, 2, 1): 7}, ("nodes", "edges", "triplets"))
    histogram.save(tmp_path / "three.json")
    chosen = ("--component", "triplets", "--component", "nodes")
    for kind in ("sizes", "fill", "search", "distributions"):
        assert run("plot", kind, tmp_path / "three.json", "--out", out, *chosen).code == 0
    assert run("plot", "sizes", tmp_path / "three.json", "--out", out).code == 2


def test_a_report_of_standard_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("report", "-", "--name", "my graphs", "--graphs-per-batch", 6, text=TEXT)
    assert done.code == 0, done.err
    assert done.err == "dgl-tuplepack: wrote report.html\n"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h1>Packing my graphs</h1>" in page
    assert "34 graphs fit into" in page
    assert "Batches of 6 graphs" in page


def test_a_report_of_an_ogb_folder_within_given_limits(run: Run, tmp_path: Path) -> None:
    root = write_ogb_folder(tmp_path / "ogb", GraphSizes([[3, 4], [5, 8], [4, 6], [12, 22]] * 4))
    out = tmp_path / "page.html"
    arguments = ("--split", "train", "--limits", "nodes=30,edges=60", "--out", out, "--json")
    done = run("report", "ogbg-molhiv", "--root", root, *arguments)
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"kind": "report", "path": str(out)}
    page = out.read_text(encoding="utf-8")
    assert "<h1>Packing ogbg-molhiv</h1>" in page
    assert "12 graphs fit into" in page
    assert "limits = tp.Limits(nodes=30, edges=60, graphs=None)" in page


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["report", "-", "--out", "report.pdf"], 2, "end in .html"),
        (["report", "-", "--limits", "12,22", "--limits", "20,30"], 2, "one shape is needed"),
        (["plot", "fill", "-", "-o", "p.png", "--limits", "9,9", "--graphs-per-batch", "3"], 2, "leave --graphs-per-"),
        (["plot", "sizes", "-", "--out", "picture.gif"], 2, "end in .png, .svg, .pdf"),
        (["plot", "colours", "-", "--out", "picture.png"], 2, "sizes, distributions"),
        (["plot", "sizes", "-", "--out", "picture.png", "--component", "links"], 2, "choose one of nodes, edges"),
    ],
)
def test_wrong_input_is_one_clear_error(
    run: Run, arguments: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments, text=TEXT)
    assert done.code == code, done.err
    words = " ".join(done.err.replace("│", " ").split())
    assert message in words
    assert "Traceback" not in done.err
    assert code == 2 or done.err.count("\n") == 1
    assert done.out == ""
    assert list(tmp_path.iterdir()) == []
