"""`scripts/reproduce_paper.py`: what it writes for the embedded example is what the repository shows."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from dgl_tuplepack import SizeHistogram, load_example
from dgl_tuplepack.planning.sizes import GraphSizes
from tests.support.ogb_folder import write_ogb_folder
from tests.support.processes import ROOT, run, run_each

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PNG = b"\x89PNG\r\n\x1a\n"


SCRIPT = ROOT / "scripts" / "reproduce_paper.py"


def reproduce(*arguments: object) -> CompletedProcess[str]:
    return run(SCRIPT, *arguments)


def test_the_committed_page_is_what_comes_out(tmp_path: Path) -> None:
    done = reproduce("--out", tmp_path / "results")
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
    done = reproduce("--out", tmp_path, "--root", shared_data / "ogb")
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
    done = reproduce("--out", tmp_path / "out", "--root", root, "--histograms", saved)
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
    for done, (_, message) in zip(run_each(SCRIPT, *runs, folder=ROOT), cases, strict=True):
        assert done.returncode == 1
        assert message in done.stderr
        assert "Traceback" not in done.stderr
