"""``dgl-tuplepack inspect``: what it prints, draws and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest
from matplotlib.patches import PathPatch

import dgl_tuplepack as tp
from dgl_tuplepack.tools.plots import plot_batches
from tests.support.command import Run
from tests.support.loading import ITEMS, LARGE
from tests.support.ogb_folder import write_ogb_folder

EXAMPLE = "example:ogbg-molhiv"
COUNTS = b"nodes,edges,count\n3,4,50\n2,2,40\n60,100,1\n"

pytestmark = pytest.mark.filterwarnings("ignore:batches of .* graphs need a shape:UserWarning")


def test_it_shows_what_batches_are_like(run: Run, tmp_path: Path) -> None:
    done = run("inspect", EXAMPLE, "--batch-size", 64, "--out", tmp_path / "batches.png")
    assert done.code == 0
    for part in (
        "515 of 5 to 64 graphs", "1,625 nodes, 3,478 edges, 65 graphs", "unknown", "the largest graph (205 nodes",
        "loader = tp.packed_loader(dataset, batch_size=64)\nmodel = tp.compile(model, loader)\n",
    ):  # fmt: skip
        assert part in done.out
    assert "makes the shape so large" not in done.out
    assert matplotlib.image.imread(tmp_path / "batches.png").std() > 0.1
    # 64 graphs are the default.
    assert run("inspect", EXAMPLE).out == done.out


def test_json_is_what_the_loader_describes(run: Run, tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", ITEMS, splits={"train": range(5, 45), "test": range(5)})
    train = store.subset(store.splits["train"])
    for arguments, settings in (
        (["--batch-size", 8], {"batch_size": 8}),
        (["--batch-size", 8, "--multiple-of", 8, "--seed", 5], {"batch_size": 8, "multiple_of": 8, "seed": 5}),
        (["--graphs-per-batch", 8], {"graphs_per_batch": 8, "padded": False}),
        (["--batch-size", 4, "--ranks", 2], {"batch_size": 4, "num_replicas": 2, "rank": 0}),
    ):
        for graphs, more, first in ((store, [], 0), (train, ["--split", "train"], 5)):
            done = run("inspect", tmp_path / "store", *arguments, *more, "--json")
            assert done.code == 0, done.err
            expected = tp.packed_loader(graphs, **settings).describe()  # type: ignore[call-overload]
            # The command has ids of the store, and the loader of its subset.
            expected.largest["id"] += first
            assert json.loads(done.out) == json.loads(json.dumps(expected.to_dict()))


def test_packs_may_leave_out_the_largest_graphs(run: Run, tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", [*ITEMS, LARGE])
    done = run("inspect", tmp_path / "store", "--graphs-per-batch", 8, "--oversize", "drop", "--json")
    assert (done.code, done.err.count("1 of 61 graphs exceed")) == (0, 1)
    with pytest.warns(UserWarning, match="1 of 61 graphs exceed"):
        expected = tp.packed_loader(store, graphs_per_batch=8, padded=False, oversize="drop").describe()
    assert json.loads(done.out) == json.loads(json.dumps(expected.to_dict()))


def test_an_ogb_folder_has_bytes_and_a_histogram_has_none(run: Run, tmp_path: Path) -> None:
    write_ogb_folder(tmp_path, tp.sizes_of(ITEMS))
    done = json.loads(run("inspect", "ogbg-molhiv", "--root", tmp_path, "--batch-size", 8, "--json").out)
    loader = tp.packed_loader(tp.OgbFolder(tmp_path / "ogbg_molhiv"), batch_size=8)
    assert done["num_bytes"] == loader.describe().num_bytes
    done = run("inspect", "-", "--batch-size", 4, "--json", text=COUNTS)
    found = json.loads(done.out)
    assert (found["num_bytes"], found["largest"]["id"], found["largest"]["to_blame"]) == (None, None, True)
    assert "need a shape with" in done.err
    assert "makes the shape so large" in run("inspect", "-", "--batch-size", 4, text=COUNTS).out


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["-", "--batch-size", "0"], 2, ("--batch-size",)),
        (["-", "--batch-size", "many"], 2, ("--batch-size", "valid integer")),
        (["-", "--batch-size", "4", "--graphs-per-batch", "4"], 2, ("--batch-size", "--graphs-per-batch", "leave one")),
        (["-", "--graphs-per-batch", "900"], 2, ("900", "91")),
        (["-", "--oversize", "drop"], 2, ("--oversize", "--graphs-per-batch")),
        (["-", "--graphs-per-batch", "2", "--multiple-of", "0"], 2, ("--multiple-of",)),
        (["-", "--ranks", "92"], 1, ("92 ranks",)),
        (["-", "--split", "train"], 2, ("--split",)),
        (["-", "--out", "picture.gif"], 2, (".png", "picture.gif")),
        (["nowhere"], 1, ("there is no nowhere",)),
    ],
)
def test_wrong_input_is_one_clear_error(
    run: Run, arguments: list[str], code: int, parts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("inspect", *arguments, text=COUNTS)
    assert (done.code, done.out) == (code, "")
    assert all(part in done.err for part in parts), done.err
    assert not list(tmp_path.iterdir())


def paths_of(ax: Any) -> list[Any]:
    return [patch.get_path().get_extents() for patch in ax.patches if isinstance(patch, PathPatch)]


def test_bars_end_at_the_slots(run: Run) -> None:
    for settings in ({"batch_size": 4}, {"limits": [tp.Limits(10, 10), tp.Limits(20, 20)]}):
        found = tp.packed_loader(ITEMS, **settings).describe()  # type: ignore[call-overload]
        ax = plot_batches(found)
        ax.figure.draw_without_rendering()
        assert len(ax.get_xticks()) == len(found.first) == 12
        heights = sorted({round(box.y1) for box in paths_of(ax)} & {slots for _, slots in found.first})
        assert heights == sorted({slots for _, slots in found.first})
        assert max(box.y1 for box in paths_of(ax)) == max(slots for _, slots in found.first)
        shown = ax.get_legend().get_texts()[1].get_text()
        part = 1 - np.sum([np.sum(graphs) for graphs, _ in found.first]) / sum(slots for _, slots in found.first)
        assert f"{part:.1%}" in shown
