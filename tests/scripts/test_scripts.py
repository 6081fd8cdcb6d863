"""The scripts, run as a user runs them: as processes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from dgl_tuplepack import SizeHistogram, load_example
from dgl_tuplepack.planning.sizes import GraphSizes
from tests.support.ogb_folder import write_ogb_folder
from tests.support.processes import ROOT, run, run_each

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.dgl
def test_the_page_of_layers_is_what_layers_do_and_an_old_or_absent_one_is_told(tmp_path: Path) -> None:
    """Each ninth layer is compared; CONTRIBUTING says when to compare all of them."""
    script, first = ROOT / "scripts" / "list_layers.py", "| `AGNNConv(allow_zero_in_degree=True)` | "
    page = tmp_path / "layers.md"
    committed = (ROOT / "docs" / "reference" / "layers.md").read_text(encoding="utf-8")
    page.write_text(committed.replace(f"{first}yes", f"{first}no"), encoding="utf-8")
    runs = [("--check", "--every", 9, "--out", path) for path in (page, tmp_path / "absent.md")]
    old, absent = run_each(script, *runs, folder=ROOT)
    assert old.returncode == absent.returncode == 1
    # All the other lines are those of the committed page.
    assert [line for line in old.stderr.splitlines() if line.startswith(("- ", "+ "))] == [f"+ {first}yes | yes |  |"]
    assert "absent.md" in absent.stderr
    assert "Traceback" not in absent.stderr


@pytest.fixture(scope="module")
def ogb_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    histogram = load_example("ogbg-molhiv")
    chosen = np.random.default_rng(0).choice(len(histogram), 160, p=histogram.counts / histogram.num_graphs)
    return write_ogb_folder(tmp_path_factory.mktemp("ogb"), GraphSizes(histogram.sizes[chosen]))


# Code from C++ takes half a minute here; the script's own part is the same without it.
TRAIN = f"""
import functools, runpy
import dgl_tuplepack as tp
tp.compile = functools.partial(tp.compile, backend="aot_eager")
runpy.run_path({str(ROOT / "scripts" / "train_ogb.py")!r}, run_name="__main__")
"""


@pytest.mark.dgl
def test_training_on_an_ogb_folder_compiled_too_and_wrong_input(ogb_root: Path, tmp_path: Path) -> None:
    cases = [
        (["--name", "ogbg-nothing"], "ogbg-nothing"),
        (["--root", "/no/such/folder"], "/no/such/folder does not exist"),
        (["--framework", "jax"], "'jax' is not one of"),
    ]
    arguments = ("--root", ogb_root, "--epochs", 2, "--width", 8, "--layers", 1, "--batch-size", 32)
    runs = [
        (*arguments, "--framework", framework, *way) for framework in ("dgl", "pyg") for way in ((), ("--compile",))
    ]
    runs += [("--root", ogb_root, *wrong) for wrong, _ in cases]
    (tmp_path / "train.py").write_text(TRAIN)
    *trained, unnamed, absent, unknown = run_each(tmp_path / "train.py", *runs, folder=ROOT, PYTHONPATH=str(ROOT))
    for done in trained:
        assert done.returncode == 0, done.stderr
        assert "train: 120 graphs" in done.stdout
        assert done.stdout.count("120 graphs in ") == 3
        assert done.stdout.count("rocauc: train 0.") == 2
        assert "is iterated again" not in done.stderr
        assert "uncompiled" not in done.stderr
    losses = [[float(loss) for loss in re.findall(r"mean loss ([\d.]+)", done.stdout)] for done in trained]
    assert [len(each) for each in losses] == [2] * 4
    for plain, compiled in (losses[:2], losses[2:]):
        np.testing.assert_allclose(compiled, plain, atol=2e-4)
    for done, (_, message) in zip((unnamed, absent, unknown), cases, strict=True):
        # A choice that does not exist is bad usage.
        assert done.returncode == (2 if done is unknown else 1)
        assert message in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.dgl
def test_the_study_goes_on_where_it_stopped_and_writes_its_page(ogb_root: Path, tmp_path: Path) -> None:
    """A row for each run, none of them twice; the page tells of all that have ended. The committed page comes again."""
    study = ROOT / "scripts" / "study_training.py"
    arguments = ("run", "--source", ogb_root / "ogbg_molhiv", "--epochs", 2, "--out", tmp_path)
    runs = [(*arguments, "--packs", 1, "--seeds", seeds) for seeds in (1, 2, 2)]
    again, committed = tmp_path / "again", ROOT / "docs" / "results"
    again.mkdir()
    for name in ("training.csv", "training-pairs.csv"):
        (again / name).write_bytes((committed / name).read_bytes())
    pages = [("page", "--out", folder) for folder in (tmp_path, again)]
    *done, refused = run_each(study, *runs, *pages, (*arguments, "--packs", 3), folder=ROOT)
    for each in done:
        assert each.returncode == 0, each.stderr
    assert (again / "training.md").read_text() == (committed / "training.md").read_text()
    assert ["all runs are in the file" in each.stdout for each in done[:3]] == [False, False, True]
    rows = (tmp_path / "training.csv").read_text().splitlines()
    assert len(rows) == 1 + 4 * 2
    assert len({tuple(row.split(",")[:5]) for row in rows}) == len(rows)
    page = (tmp_path / "training.md").read_text(encoding="utf-8")
    assert "2 epochs, 2 seeds" in page
    assert "Of these 15 comparisons" in page
    assert (tmp_path / "training-curves.png").read_bytes().startswith(PNG)
    assert refused.returncode == 2


def test_the_setup_script_clears_nothing_that_it_has_not_made(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    done = run(ROOT / "scripts" / "run.py", "demo", TUPLEPACK_ENVIRONMENT=str(tmp_path))
    assert done.returncode == 1
    assert "is not empty and is not ours" in done.stderr
    assert (tmp_path / "precious").read_text() == "data"


def test_benchmarks_find_what_they_measure(tmp_path: Path) -> None:
    """Ranks have more even work as samplers deal packs and exact batches than in random order."""
    arguments = "balance", "--graphs", 8192, "--json", tmp_path / "balance.json"
    done = run(ROOT / "scripts" / "benchmark.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert "mean spread" in done.stdout
    rows = json.loads((tmp_path / "balance.json").read_text())
    rows, of_materials = rows[:12], rows[12:]
    for exact, packs, greedy in zip(of_materials[::3], of_materials[1::3], of_materials[2::3], strict=True):
        for kind in ("atom", "edge"):
            assert packs[f"by {kind}, worst spread"] < exact[f"by {kind}, worst spread"] < 0.015
            assert exact[f"by {kind}, worst spread"] < greedy[f"by {kind}, mean spread"]
            assert greedy[f"{kind} slots used"] < exact[f"{kind} slots used"] < packs[f"{kind} slots used"]
    assert [row["order"] for row in rows] == ["random", "dealt"] * 6
    for random, dealt in zip(rows[::2], rows[1::2], strict=True):
        assert dealt["mean spread"] < random["mean spread"] / 3


def test_the_committed_picture_of_batches_is_what_comes_out(tmp_path: Path) -> None:
    assert run(ROOT / "scripts" / "draw_batches.py", "--out", tmp_path).returncode == 0
    for name in ("batches-light.svg", "batches-dark.svg"):
        assert (tmp_path / name).read_bytes() == (ROOT / "docs" / "images" / name).read_bytes()


def test_the_page_on_batches_has_the_pairs_that_the_script_counts() -> None:
    done = run("scripts/pairs.py", "--epochs", 2)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs" / "benchmarks" / "batches.md").read_text(encoding="utf-8")
    first, _, *lines = done.stdout.splitlines()
    said = re.search(
        r"one pack per batch, ([\d.]+) % .* and ([\d.]+) % of the pairs with a graph of 50", page, re.DOTALL
    )
    assert said is not None
    # A better search changes plans, and with them the last digits.
    found = [float(share) for share in re.findall(r"([\d.]+)%", first)]
    assert found == pytest.approx([float(share) for share in said.groups()], abs=2)
    counted = {tuple(line.split()[:-2]): [float(each.rstrip("%")) for each in line.split()[-2:]] for line in lines}
    for name, row_name in (("ogbg-molhiv", "ogbg-molhiv"), ("5000 materials", "5,000 materials")):
        (row,) = re.findall(rf"^\| {row_name} \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", page, re.MULTILINE)
        resampled, exchanged, chance = map(float, row)
        for content, again in (("resample", resampled), ("exchange", exchanged)):
            assert counted[*name.split(), content] == pytest.approx([again, chance], rel=0.1, abs=0.01)


# --- reproduce_paper.py

PAPER = ROOT / "scripts" / "reproduce_paper.py"


def test_the_committed_page_is_what_comes_out(tmp_path: Path) -> None:
    done = run(PAPER, "--out", tmp_path / "results")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    committed = ROOT / "docs" / "results"
    page = (tmp_path / "results" / "paper.md").read_text(encoding="utf-8")
    assert page == (committed / "paper.md").read_text(encoding="utf-8")
    # Every row of the paper is there, and only the one of its first slip differs.
    assert page.count("| yes |") == 8
    assert "| best fit, minimum | 98.5, 93.3 | 98.78, 93.56 | no |" in page
    pictures = sorted(path.name for path in (tmp_path / "results").glob("*.png"))
    assert pictures == sorted(path.name for path in committed.glob("ogbg-molhiv-*.png")) != []
    for name in pictures:
        assert (tmp_path / "results" / name).read_bytes().startswith(PNG)
        assert f"({name})" in page


def test_the_real_dataset_gives_the_same_figures(tmp_path: Path, shared_data: Path) -> None:
    done = run(PAPER, "--out", tmp_path, "--root", shared_data / "ogb")
    assert done.returncode == 0, done.stderr
    committed = (ROOT / "docs" / "results" / "paper.md").read_text(encoding="utf-8")
    from_raw = committed.replace("the histogram that comes with the package", "OGB's raw folder")
    assert (tmp_path / "paper.md").read_text(encoding="utf-8") == from_raw != committed


def test_folders_and_saved_histograms_are_found(tmp_path: Path) -> None:
    # Small stand-ins under the datasets' names: their figures cannot agree, and the page says so.
    sizes = GraphSizes(load_example("ogbg-molhiv").sizes[:40])
    root, saved = write_ogb_folder(tmp_path / "ogb", sizes), tmp_path / "saved"
    saved.mkdir()
    SizeHistogram.from_counts({(3, 4): 20, (20, 54): 1, (9, 10): 6}).save(saved / "pcqm4mv2.json")
    done = run(PAPER, "--out", tmp_path / "out", "--root", root, "--histograms", saved)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "paper.md").read_text(encoding="utf-8")
    assert "| graphs | 32,901 | 30 |" in page
    assert "| graphs | 3,378,606 | 27 |" in page
    assert "| 30, 62 | 98.8 | " in page
    assert "From OGB's raw folder" in page
    assert "From a saved histogram" in page
    assert "Not available when this page was written: ogbg-molpcba, ogbg-code2, ogbg-ppa." in page


def test_wrong_input_and_damaged_data_are_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "ogbg_molhiv" / "raw").mkdir(parents=True)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "ogbg-molhiv.json").write_text("[[1, 2]]")
    cases: list[tuple[list[object], str]] = [
        (["--root", "/no/such/folder"], "/no/such/folder is not a folder"),
        (["--out", ROOT / "setup.py" / "below"], "cannot create the folder"),
        (["--root", tmp_path], "ogbg_molhiv"),
        (["--histograms", tmp_path / "saved"], "row 1 is"),
    ]
    runs = [("--out", tmp_path / "out", *arguments) for arguments, _ in cases]
    for done, (_, message) in zip(run_each(PAPER, *runs, folder=ROOT), cases, strict=True):
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr
