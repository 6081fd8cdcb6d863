"""The command line in this process: what it prints, writes, draws and refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest

from dgl_tuplepack import GraphSizes, PackPlan, SizeHistogram, StaticBatchSampler, load_example, pack, search_limits
from dgl_tuplepack._version import __version__
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.tools.cli.pictures import PICTURES
from tests.support.command import Run
from tests.support.ogb_folder import write_ogb_folder

EXAMPLE = "example:ogbg-molhiv"
MOLHIV = load_example("ogbg-molhiv")
BIG = ["--limits", "222,502"]
COUNTS = "nodes,edges,count\n3,4,5\n2,2,4\n6,10,1\n"
SMALL = SizeHistogram.from_csv(COUNTS)


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_sizes_has_a_row_of_figures_for_each_component(run: Run) -> None:
    done = run("sizes", "-", text=COUNTS.encode())
    assert (done.code, done.err) == (0, "")
    assert "10 graphs of 3 distinct sizes" in done.out
    (line,) = [line for line in done.out.splitlines() if "nodes" in line]
    assert [cell.strip() for cell in line.split("│")[1:-1]] == ["nodes", "29", "2.90", "2", "3", "3", "6", "6"]


@pytest.mark.parametrize("ending", ["json", "csv"])
def test_sizes_as_json_and_csv_are_the_histogram_and_are_read_again(run: Run, ending: str, tmp_path: Path) -> None:
    saved, printed = tmp_path / f"saved.{ending}", tmp_path / f"printed.{ending}"
    text = run("sizes", EXAMPLE, f"--{ending}", "--out", saved).out
    assert saved.read_text(encoding="utf-8") == text
    printed.write_text(text, encoding="utf-8")
    assert SizeHistogram.load(printed) == MOLHIV
    for source in ("-", printed):
        assert run("sizes", source, "--csv", text=text.encode()).out == MOLHIV.to_csv()


def test_standard_input_may_be_json_csv_or_a_row_for_each_graph(run: Run) -> None:
    pretty = json.dumps(json.loads(SMALL.to_json()), indent=2)
    rows = [row.split(",") for row in COUNTS.splitlines()[1:]]
    each = "nodes,edges\n" + "".join(f"{nodes},{edges}\n" * int(count) for nodes, edges, count in rows)
    for text in (pretty, "[[3, 4, 5], [2, 2, 4],\n[6, 10, 1]]", each, COUNTS, "\ufeff" + COUNTS):
        assert run("sizes", "-", "--csv", text=text.encode()).out == SMALL.to_csv()
    # This is CSV whose names look like JSON.
    odd = SizeHistogram.from_counts({(3, 4): 2}, ("{{ n }}", '{"n'))
    assert run("sizes", "-", "--csv", text=odd.to_csv().encode()).out == odd.to_csv()


def test_plan_shows_packs_bound_gap_and_efficiencies(run: Run, tmp_path: Path) -> None:
    done = run("plan", EXAMPLE, "--limits", "222,502,256", "--out", tmp_path / "plan.json")
    assert done.code == 0
    for part in ("3,744", "lower bound", "proven optimal", "99.97%", "94.69%", "cap 256"):
        assert part in done.out
    assert str(tmp_path / "plan.json") in done.err
    plan = PackPlan.load(tmp_path / "plan.json")
    assert plan.fingerprint == pack(load_example("ogbg-molhiv"), Limits(222, 502, 256)).fingerprint


@pytest.mark.parametrize(("heuristic", "packs"), [("product", 3917), ("node", 3789), ("0.5,0.5", 3838)])
def test_plan_by_the_papers_heuristics(run: Run, heuristic: str, packs: int) -> None:
    limits = ("--limits", "222,502,256")
    done = run("plan", EXAMPLE, *limits, "--method", "best_fit", "--heuristic", heuristic, "--csv")
    (row,) = records(done.out)
    assert int(row["packs"]) == packs
    assert row["method"] == "best_fit"


def test_what_is_too_large_is_left_out_when_told_to(run: Run) -> None:
    arguments = ("plan", "-", "--limits", "5,9")
    refused = run(*arguments, text=COUNTS.encode())
    assert (refused.code, "1 with 6 nodes, 10 edges" in refused.err) == (1, True)
    searched = run("limits", "-", "--budget", 16, "--oversize", "drop", text=COUNTS.encode())
    assert "1 graphs exceed the limits and were left out" in searched.out
    done = json.loads(run(*arguments, "--oversize", "drop", "--json", text=COUNTS.encode()).out)
    assert (done["dropped"], done["graphs"]) == (1, 9)
    shown = run(*arguments, "--oversize", "drop", text=COUNTS.encode())
    assert "graphs left out" in shown.out
    assert "1 of 10 graphs exceed Limits(nodes=5, edges=9, graphs=None) and are left out." in shown.err


def test_limits_advises(run: Run) -> None:
    done = run("limits", EXAMPLE, "--smallest")
    assert done.code == 0
    search = search_limits(MOLHIV)
    assert f"best: {search.best.limits!r}" in done.out
    assert f"{search.best.packs:,} packs" in done.out
    assert f"{search.best.harmonic_mean:.2%}" in done.out
    # Of the rows, the advised one is marked, without colours as well.
    (row,) = [line for line in done.out.splitlines() if line.rstrip(" │").endswith("best")]
    cells = [cell.strip() for cell in row.split("│")]
    assert cells[1:4] == [f"{number:,}" for number in (*search.best.limits.values, search.best.packs)]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["--target", "0.8"], {"target": 0.8}),
        (["--target", "nodes=0.8", "--target", "edges=0.7"], {"target": {"nodes": 0.8, "edges": 0.7}}),
        (["--graphs-per-batch", "5"], {"graphs_per_batch": 5, "packs_per_batch": "auto"}),
        (
            ["--budget", "60", "--cost", "nodes=1", "--cost", "edges=2"],
            {"budget": 60, "cost": {"nodes": 1, "edges": 2}},
        ),
        (["--smallest", "--multiple-of", "4", "--max-graphs", "3"], {"multiple_of": 4, "graphs": 3}),
    ],
)
def test_every_way_on_the_command_line(run: Run, arguments: list[str], asked: dict[str, Any]) -> None:
    done = run("limits", "-", *arguments, "--json", text=COUNTS.encode())
    assert done.code == 0, done.err
    search = search_limits(SizeHistogram.from_csv(COUNTS, "COUNTS"), **asked)
    assert json.loads(done.out) == json.loads(json.dumps(search.to_dict()))
    assert run("limits", "-", *arguments, "--csv", text=COUNTS.encode()).out == search.to_csv()
    assert "best: Limits(" in run("limits", "-", *arguments, text=COUNTS.encode()).out


def test_limits_compares_batch_sizes(run: Run) -> None:
    sizes = np.repeat(MOLHIV.sizes, MOLHIV.counts, axis=0)
    content = int(sizes.sum())
    rows = json.loads(run("limits", EXAMPLE, "--compare", "--json").out)["batch_sizes"]
    assert [row["batch_size"] for row in rows] == [16, 32, 64, 128, 256]
    row = rows[2]
    shape = StaticBatchSampler(sizes, 64).limits
    assert row["exact"]["limits"] == shape.to_dict()
    assert row["exact"]["padding"] == pytest.approx(sum(shape.values) * len(sizes) / (64 * content) - 1)
    best = search_limits(MOLHIV, graphs_per_batch=64, packs_per_batch="auto").best
    assert row["packs"]["limits"] == best.limits.to_dict()
    assert row["packs"]["padding"] == pytest.approx(sum(best.limits.values) * best.packs / content - 1)
    large = b"nodes,edges,count\n3,4,90\n60,80,1\n"
    shown = run("limits", "-", "--compare", "--graphs-per-batch", "8", text=large).out
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("\u2502")] == ["2", "4", "8", "16", "32"]
    # The largest graph rules out packs of so few graphs.
    assert " - " in next(line for line in shown.splitlines() if line.startswith("\u2502 2 "))
    assert "tp.StaticBatchSampler(dataset, 8)" in shown
    assert "tp.packed_loader(dataset, graphs_per_batch=8)" in shown
    refused = run("limits", EXAMPLE, "--compare", "--shapes", "2")
    assert refused.code == 2
    assert "--compare cannot be combined with --shapes" in " ".join(refused.err.split())
    assert run("limits", "-", "--compare", "--graphs-per-batch", "99", text=COUNTS.encode()).code == 2


def test_limits_are_for_batches_of_64_graphs_if_nothing_else_is_asked(run: Run) -> None:
    done = run("limits", EXAMPLE)
    search = search_limits(MOLHIV, graphs_per_batch=64, packs_per_batch="auto")
    assert f"batches of {search.graphs_per_batch:.1f} graphs on average: 2 packs each" in done.out
    assert "tp.packed_loader(dataset, graphs_per_batch=64)" in done.out
    few = json.loads(run("limits", "-", "--json", text=COUNTS.encode()).out)
    assert (few["graphs"], few["packs_per_batch"], few["graphs_per_batch"]) == (10, 1, 10)
    # All graphs are as large as 640 mean ones, so no batch that holds each of them has 64.
    large = run("limits", "-", text=b"nodes,edges,count\n1,1,20000\n999,999,1\n")
    assert (large.code, "rules out batches of 64 graphs; searched for the smallest limits" in large.err) == (0, True)
    # A number of packs per batch cannot be used by that other search, so it is an error.
    asked = run("limits", "-", "--packs-per-batch", 2, text=b"nodes,edges,count\n1,1,20000\n999,999,1\n")
    assert (asked.code, "graphs_per_batch=64 in 2 packs is out of reach" in asked.err) == (1, True)
    dropping = run("plan", EXAMPLE, "--graphs-per-batch", 4, "--oversize", "drop", "--effort", 0)
    assert (dropping.code, dropping.err.count("graphs exceed"), dropping.err.count("\n")) == (0, 1, 1)


def test_packs_of_a_batch_can_be_chosen(run: Run) -> None:
    done = run("limits", EXAMPLE, "--graphs-per-batch", 66, "--packs-per-batch", 3, "--json")
    found = json.loads(done.out)
    assert found["packs_per_batch"] == 3
    assert abs(found["graphs_per_batch"] / 66 - 1) <= 0.05
    for arguments in (["--smallest", "--target", "0.9"], ["--packs-per-batch", 2, "--target", "0.9"]):
        assert run("limits", EXAMPLE, *arguments).code == 2


def test_plan_for_buckets(tmp_path: Path, run: Run) -> None:
    asked = ("plan", EXAMPLE, "--method", "best_fit")
    limits = ("--limits", "100,220", "--limits", "222,502")
    found = json.loads(run(*asked, *limits, "--json", "--out", tmp_path / "plan.json").out)
    assert found["limits"] == [Limits(100, 220).to_dict(), Limits(222, 502).to_dict()]
    plan = PackPlan.load(tmp_path / "plan.json")
    assert found["packs_of_shapes"] == list(plan.packs_of_shapes)
    assert found["padded_slots"] == plan.padded_slots
    (row,) = records(run(*asked, *limits, "--csv").out)
    assert int(row["packs_of_shapes 0"]) + int(row["packs_of_shapes 1"]) == int(row["packs"]) == plan.num_packs
    done = run(*asked, *limits)
    assert done.code == 0
    for part in ("packs of each shape", "100 | 222", "220 | 502", f"{plan.padded_slots:,}"):
        assert part in done.out
    for wrong, said in (
        (("--limits", "222,502", "--limits", "100,220"), "ascend"),
        (("--limits", "100,220,9", "--graphs-per-batch", "9"), "leave --graphs-per-batch"),
    ):
        done = run(*asked, *wrong)
        assert (done.code, done.out, said in done.err) == (2, "", True)


def test_limits_searches_buckets(run: Run) -> None:
    asked = ("limits", EXAMPLE, "--shapes", 2)
    packs = ("--graphs-per-batch", 8, "--packs-per-batch", 2)
    found = json.loads(run(*asked, *packs, "--json").out)
    assert (found["packs_per_batch"], found["best"]) == (2, found["candidates"][0])
    done = run(*asked, *packs)
    assert "], packs_per_batch=2)" in "".join(done.out.split("\n"))
    assert f"{found['best']['padded_slots']:,}" in done.out
    done = run(*asked)
    assert (done.code, "shapes are impossible" in done.err) == (1, True)
    done = run(*asked, "--budget", 1000)
    assert (done.code, "--graphs-per-batch" in done.err) == (2, True)


def test_other_components_have_limits_too(run: Run) -> None:
    text = b"nodes:u,edges:u:likes:v,count\n3,4,5\n2,2,4\n"
    done = run("plan", "-", "--limits", "nodes:u=8,edges:likes=9", "--json", text=text)
    assert json.loads(done.out)["limits"]["maxima"] == {"nodes:u": 8, "edges:u:likes:v": 9}
    done = run("limits", "-", "--target", "edges:likes=0.6", "--csv", text=text)
    assert "limit_edges:u:likes:v" in records(done.out)[0]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of OGB's, of five graphs."""
    sizes = GraphSizes([[2, 2], [2, 2], [3, 4], [3, 4], [3, 4]])
    return write_ogb_folder(tmp_path_factory.mktemp("sources") / "root", sizes)


def test_a_name_of_ogb_and_a_part_of_its_split(run: Run, root: Path, tmp_path: Path) -> None:
    named = ("sizes", "ogbg-molhiv", "--root", root, "--csv")
    assert run(*named).out == "nodes,edges,count\n2,2,2\n3,4,3\n"
    parts = [SizeHistogram.from_csv(run(*named, "--split", part).out) for part in ("train", "valid", "test")]
    assert [part.num_graphs for part in parts] == [3, 1, 1]
    done = run("sizes", root / "ogbg_molhiv", "--split", "training")
    assert "has no split 'training'; choose one of train, valid, test" in done.err
    dgl.save_graphs(str(tmp_path / "graphs.bin"), [dgl.rand_graph(2, 2)])
    done = run("sizes", tmp_path / "graphs.bin", "--split", "train")
    assert (done.code, done.out) == (2, "")
    assert "has no split 'train'; leave --split out." in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["dance"], 2, ("dance",)),
        (["demo", "--graphs", "40000"], 2, ("32901",)),
        (["demo", "--out", str(Path(__file__) / "below")], 1, ("cannot write",)),
        (["sizes", "/no/such/place"], 1, ("/no/such/place", "--root", "example:ogbg-molhiv")),
        (["sizes", EXAMPLE, "--split", "train"], 2, (EXAMPLE, "--split")),
        (["sizes", EXAMPLE, "--root", "."], 2, (EXAMPLE, "--root")),
        (["sizes", EXAMPLE, "--json", "--csv"], 2, ("--json and --csv",)),
        (["sizes", EXAMPLE, "--out", "."], 1, ("cannot write",)),
        (["sizes", EXAMPLE, "--out", "histogram.txt"], 2, ("--out", ".json, .csv", "histogram.txt")),
        (["plan", EXAMPLE, "--limits", "0,9"], 2, ("--limits", "'0'", "above 0")),
        (["plan", EXAMPLE, "--limits", "nodes=60,edges=5,nodes=50"], 2, ("once per component", "nodes=50")),
        (["plan", EXAMPLE, "--limits", "100,220"], 1, ("84 of 32901", "222 nodes, 502 edges")),
        (["plan", EXAMPLE, *BIG, "--method", "magic"], 2, ("magic", "best_fit")),
        (["plan", EXAMPLE, *BIG, "--heuristic", "volume"], 2, ("volume", "product")),
        (["limits", EXAMPLE, "--target", "95"], 2, ("0.95",)),
        (["limits", EXAMPLE, "--target", "links=0.9"], 2, ("links", "nodes, edges")),
        (["limits", EXAMPLE, "--target", ".98", "--budget", "3"], 2, ("budget", "'target'")),
        (["limits", EXAMPLE, "--budget", "100"], 1, ("too small", "725", "--oversize drop")),
        (["limits", EXAMPLE, "--graphs-per-batch", "2"], 1, ("out of reach", "--oversize drop", "--max-graphs")),
        (["limits", EXAMPLE, "--graphs-per-batch", "32902"], 2, ("1..32901", "32902")),
    ],
)
def test_wrong_input_is_one_clear_error(run: Run, arguments: list[str], code: int, parts: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.code == code
    assert done.out == ""
    for part in parts:
        assert part in " ".join(done.err.replace("│", " ").split())
    if code == 1:
        assert done.err.startswith("dgl-tuplepack: ")
        assert done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (b"nodes,edges,count\n3,4,5\n3,nan,2\n", ("line 3 of standard input", "3,nan,2")),
        (b"\xff\xfe", ("standard input", "UTF-8")),
        (b'{"rows": [', ("standard input", "not valid JSON")),
    ],
)
def test_bad_tables_on_standard_input(run: Run, text: bytes, parts: tuple[str, ...]) -> None:
    done = run("sizes", "-", text=text)
    assert (done.code, done.out) == (1, "")
    assert all(part in done.err for part in parts)
    assert done.err.count("\n") == 1


def test_the_version_is_told_and_no_command_is_bad_usage(run: Run) -> None:
    assert run("--version").out.split() == ["dgl-tuplepack", __version__]
    assert run().code == 2


# --- pages and pictures

BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}
FOUR = {(3, 4): 20, (5, 8): 11, (9, 18): 2, (12, 22): 1}
CSV = "nodes,edges,count\n" + "".join(f"{nodes},{edges},{count}\n" for (nodes, edges), count in FOUR.items())
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
    assert "packs of at most 30 nodes, 60 edges" in " ".join(page.split())


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
def test_wrong_input_for_pages_and_pictures_is_one_clear_error(
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
