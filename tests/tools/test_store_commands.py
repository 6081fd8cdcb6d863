"""The commands `preprocess`, `info` and `verify`, of one store and of shards; `chunk` and `partition`."""

from __future__ import annotations

import functools
import json
import os
import struct
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import dgl
import numpy as np
import pytest

import dgl_tuplepack as tp
from tests.support.command import Run
from tests.support.processes import ROOT
from tests.support.shards import write_bins
from tests.support.stores import SPLITS, data_of, molecules


def test_shards_are_written_shown_and_verified(tmp_path: Path, run: Run) -> None:
    bins, out = write_bins(tmp_path, 3), tmp_path / "out"
    written = functools.partial(run, "preprocess", *bins, "--out", out, "--limits", "30,30", "--workers", 1)
    first = written()
    assert first.code == 0, first.err
    assert "3 shards written" in first.out
    assert "nothing to do" in written().out
    made = json.loads(run("preprocess", *bins[:2], "--out", out, "--workers", 1, "--json").out)
    assert (made["written"], made["kept"]) == ([], ["part-0", "part-1"])
    found = json.loads(run("info", out, "--json").out)
    assert (found["shards"], found["graphs"]) == ({"part-0": 20, "part-1": 20}, 40)
    assert "limits of their plans" in run("info", out).out
    assert json.loads(run("verify", out, "--json").out) == {"store": str(out), "graphs": 40, "intact": True}
    assert tp.SizeHistogram.from_json(run("sizes", out, "--json").out).num_graphs == 40
    # One alone becomes a single store, as ever.
    assert run("preprocess", out / "part-1", "-o", tmp_path / "one").code == 0
    for place, graphs in ((out, 40), (tmp_path / "one", 20)):
        assert run("verify", place).out == f"{place}: {graphs} graphs, intact\n"
    (data_of(tmp_path / "one") / "plan.json").unlink()
    assert "intact; it has no plans" in run("verify", tmp_path / "one").out


@pytest.mark.skipif(os.name != "posix", reason="needs a terminal of POSIX")
@pytest.mark.processes
def test_preprocess_shows_a_line_before_it_reads(tmp_path: Path) -> None:
    import fcntl
    import termios

    (source,) = write_bins(tmp_path, 1)
    ours, theirs = os.openpty()
    # Rows and columns; a bar shows nothing in a terminal of width 0.
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    command = [sys.executable, "-m", "dgl_tuplepack", "preprocess", source, "--out", tmp_path / "out"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=ROOT)
    os.write(theirs, b"end")
    shown = os.read(ours, 2**16).decode()
    assert (done.returncode, "graphs" in done.stdout) == (0, True), shown
    assert "".join(shown.split()).startswith("readingthegraphs"), shown
    os.close(ours)
    os.close(theirs)


def test_what_cannot_work_is_refused(tmp_path: Path, run: Run) -> None:
    bins, out = write_bins(tmp_path, 2), tmp_path / "out"
    failed = run("preprocess", *bins, tmp_path / "absent.bin", "--out", out, "--workers", 1)
    assert (failed.code, "1 of 3 shards failed" in failed.err) == (1, True)
    alone = run("preprocess", bins[0])
    assert (alone.code, "Missing option '--out'" in alone.err) == (2, True)
    assert run("preprocess", *bins, "--out", out, "--workers", 1, "--dask", "tcp://x:1").code == 2
    assert run("preprocess", *bins, "--out", out, "--workers", 0).code == 2
    pytest.importorskip("distributed")
    nobody = run("preprocess", *bins, "--out", out, "--dask", "nonsense://127.0.0.1:9")
    assert (nobody.code, "nonsense://127.0.0.1:9" in nobody.err) == (1, True)


def test_buckets_are_given_by_several_limits(tmp_path: Path, run: Run) -> None:
    tp.GraphStore.write(tmp_path / "in", molecules(30, most=9))
    limits = ("--limits", "12,14", "--limits", "40,50")
    done = run("preprocess", tmp_path / "in", "--out", tmp_path / "out", *limits)
    assert done.code == 0
    assert "nodes 12, edges 14 or nodes 40, edges 50" in " ".join(done.out.split())
    # It is about the number of packs, not about slots.
    assert "above" not in done.out
    done = run("preprocess", tmp_path / "in", "--out", tmp_path / "out", *limits, "--overwrite", "--json")
    assert json.loads(done.out)["limits"] == [tp.Limits(12, 14).to_dict(), tp.Limits(40, 50).to_dict()]
    assert run("verify", tmp_path / "out").code == 0
    done = run("preprocess", tmp_path / "in", "--out", tmp_path / "all", *limits, "--workers", 1)
    assert done.code == 0
    assert "nodes 12, edges 14 or nodes 40, edges 50" in " ".join(run("info", tmp_path / "all").out.split())


def test_all_commands_choose_the_same_limits_by_default(tmp_path: Path, run: Run) -> None:
    source, page = tmp_path / "in", tmp_path / "page.html"
    tp.GraphStore.write(source, molecules(300, most=9))
    search = tp.search_limits(source, graphs_per_batch=64, packs_per_batch="auto")
    best = search.best.limits
    assert best != tp.search_limits(source).best.limits
    planned = json.loads(run("plan", source, "--json").out)
    written = json.loads(run("preprocess", source, "-o", tmp_path / "out", "--json").out)
    for given in ((), ("--graphs-per-batch", 64)):
        assert json.loads(run("limits", source, *given, "--json").out) == json.loads(json.dumps(search.to_dict()))
    assert planned["limits"] == written["limits"] == best.to_dict()
    assert planned["packs_per_batch"] == written["packs_per_batch"] == search.packs_per_batch == 2
    assert run("report", source, "-o", page).code == 0
    assert f"Advised: {best.nodes:,} nodes, {best.edges:,} edges." in " ".join(page.read_text().split())
    drawn = tmp_path / "given.svg", tmp_path / "searched.svg"
    assert run("plot", "fill", source, "-o", drawn[0], "--limits", f"{best.nodes},{best.edges}").code == 0
    assert run("plot", "fill", source, "-o", drawn[1]).code == 0
    assert drawn[0].read_bytes() == drawn[1].read_bytes()
    assert "graphs on average: 2 packs each" in run("plan", source).out


def test_info_shows_what_was_declared_and_the_transform(tmp_path: Path, run: Run) -> None:
    atoms = dgl.graph(([0, 1, 2], [1, 2, 3]))
    item, ties = {"atoms": atoms, "bonds": dgl.line_graph(atoms)}, {"nodes:bonds": "edges:atoms"}
    tp.GraphStore.write(tmp_path / "s", [(item, {"root": 1})], ties=ties, indices={"root": "nodes:atoms"})
    document = json.loads(run("info", tmp_path / "s", "--json").out)
    assert (document["ties"], document["indices"]) == (ties, {"root": "nodes:atoms"})
    assert document["totals"] == {"nodes:atoms": 4, "nodes:bonds": 3, "edges:atoms": 3, "edges:bonds": 2}
    shown = run("info", tmp_path / "s").out
    assert "tied to edges:atoms" in shown
    assert "index root" in shown
    loops = dgl.transforms.AddSelfLoop()
    tp.GraphStore.write(tmp_path / "t", [dgl.graph(([0, 1], [1, 2]))], pre_transform=loops)
    transformed = json.loads(run("info", tmp_path / "t", "--json").out)["pre_transform"]["transform"]
    assert transformed.startswith("AddSelfLoop(")
    assert "transformed by" in run("info", tmp_path / "t").out


def test_info_says_what_is_known_about_the_installed_torch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: "2.1.0")
    found = json.loads(run("info", "--system", "--json").out)
    assert (found["torch"], found["tp.compile"][:22]) == ("2.1.0", "too old for tp.compile")


# --- chunk and partition


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tp.GraphStore.write(tmp_path / "store", molecules(12), splits=SPLITS).path


def test_a_store_becomes_chunks_and_these_a_partition_that_dgl_opens(run: Run, source: Path, tmp_path: Path) -> None:
    done = run("chunk", source, "-o", tmp_path / "chunks", "--chunks", 3, "--edges-as", "numpy", "--graph-name", "mine")
    sizes = tp.sizes_of(source)
    totals = sizes.totals()
    assert (done.code, done.err) == (0, "")
    assert f"12 graphs, {totals['nodes']} nodes, {totals['edges']} edges" in done.out
    assert json.loads((tmp_path / "chunks" / "metadata.json").read_text())["graph_name"] == "mine"
    arguments = ("partition", tmp_path / "chunks", "-o", tmp_path / "parts", "--parts", 2, "--workers", 1)
    done = run(*arguments, "--balance", "train", "--balance", "test")
    assert done.code == 0, done.err
    for text in ("nodes", "edges", "train", "test", "2 parts written, 0 already there", "no edge is cut"):
        assert text in done.out
    document = json.loads(run(*arguments, "--json", "--balance", "train", "--balance", "test").out)
    assert (document["written"], document["kept"]) == ([], [0, 1])
    assert [*document["bound"]] == ["nodes", "edges", "train", "test"]
    numbers = [dgl.distributed.load_partition(document["config"], part)[0].num_nodes() for part in range(2)]
    assert sum(numbers) == totals["nodes"]
    assert document["imbalance"]["nodes"] == pytest.approx(max(numbers) / np.mean(numbers))


def test_bad_usage_is_refused(run: Run, source: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "out")
    for arguments, part in (
        (("chunk", source, *out, "--edges-as", "xml"), "csv, numpy, parquet"),
        (("chunk", source, *out, "--chunks", 0), "--chunks"),
        (("partition", source, *out), "--parts"),
    ):
        done = run(*arguments)
        assert (done.code, part in done.err) == (2, True)
    for arguments, part in (
        (("partition", source, *out, "--parts", 2, "--balance", "valid"), "'valid'"),
        (("partition", "example:ogbg-molhiv", *out, "--parts", 2), "only sizes"),
    ):
        done = run(*arguments)
        assert (done.code, part in done.err) == (1, True)
