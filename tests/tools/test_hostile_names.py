"""Names and paths are data: shown as they are or with escapes, never obeyed, and any terminal can write them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import dgl
import markupsafe
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_tuplepack import GraphStore, SizeHistogram
from dgl_tuplepack._core.checks import printable
from dgl_tuplepack.tools.drawing import label
from tests.support.command import Run

# Markup of terminals and of pages, formulas, controls of terminals, other alphabets, separators, and a long name.
NAMES = [
    "[link=http://x.y]n[/link]", "$\\frac{", "_hidden", "<script>n</script>", "\x1b[2J\x1b]0;t\x07", "a\nb\r\tc",
    "節点", 'a,b"c', "n" * 200,
]  # fmt: skip


def saved(name: str, folder: Path) -> Path:
    histogram = SizeHistogram.from_counts({(3, 4): 20, (5, 8): 11, (9, 18): 2, (12, 22): 1}, (name, "ü"))
    histogram.save(folder / "h.json")
    return folder / "h.json"


def check_shown(text: str) -> None:
    """What reaches a terminal: lines of characters that it only shows."""
    assert all(line.isprintable() for line in text.split("\n"))


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_becomes_one_printable_line_that_tells_it(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")
    if "\\" not in text:
        parts = [re.escape(c) if c.isprintable() else r"(\\[a-zA-Z0-9]+)" for c in text]
        assert re.fullmatch("".join(parts), shown)


@pytest.mark.parametrize("name", NAMES)
def test_tables_show_names_as_they_are_and_errors_are_one_printable_line(
    name: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Wide enough that nothing is folded.
    monkeypatch.setenv("COLUMNS", "4000")
    source = saved(name, tmp_path)
    for command in (["sizes", source], ["plan", source, "--limits", f"{name}=30,ü=60"], ["limits", source]):
        done = run(*command)
        assert (done.code, done.err) == (0, ""), command
        check_shown(done.out)
        assert printable(name) in done.out
        assert json.dumps(name) in run(*command, "--json").out
    for code, command in (
        (1, ["plan", source, "--limits", f"{name}=2,ü=2"]),
        (1, ["sizes", f"{name}/absent"]),
        (2, ["plan", source, "--limits", f"other{name}=9"]),
        (2, ["plan", source, f"--{name}"]),
    ):
        done = run(*command)
        assert (done.code, done.out) == (code, ""), (command, done.err)
        assert done.err.startswith("dgl-tuplepack: ")
        assert done.err.count("\n") == 1, done.err
        check_shown(done.err)


@settings(max_examples=30)
@given(st.one_of(st.text(st.characters(exclude_categories=())), st.text("$\\_{}^")))
def test_labels_are_what_the_picture_shows(name: str) -> None:
    """matplotlib draws the text of a label, and takes none for a formula."""
    from matplotlib.figure import Figure

    figure = Figure()
    ax = figure.add_subplot()
    ax.plot([0, 1], label=f"{label(name)}: {label(name)}")
    text = ax.legend().get_texts()[0]
    shown, is_formula = text._preprocess_math(text.get_text())
    assert not is_formula
    if name.isascii() and name.isprintable() and len(name) <= 30:
        assert shown.strip() == f"{name}: {name}".strip() or name.startswith("_")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()


@pytest.mark.parametrize("name", NAMES[3:6])
def test_a_report_shows_names_and_runs_nothing(name: str, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = run("report", saved(name, tmp_path), "--out", out, "--name", name)
    assert (done.code, done.err) == (0, f"dgl-tuplepack: wrote {out}\n")
    page = out.read_text(encoding="utf-8")
    check_shown(page)
    assert "<script>n" not in page
    assert f"<h1>Packing {markupsafe.escape(printable(name))}</h1>" in page


@pytest.mark.parametrize("name", NAMES[::3])
def test_stores_with_any_names_are_written_shown_and_verified(name: str, run: Run, tmp_path: Path) -> None:
    """Splits, features and paths; the table comes after everything is written."""
    graphs = [dgl.rand_graph(3, 4), dgl.rand_graph(2, 2)]
    for graph in graphs:
        graph.ndata[name] = torch.zeros(graph.num_nodes())
    source, out = tmp_path / "first", tmp_path / name.replace("/", "|")
    GraphStore.write(source, graphs, splits={name: [0], "rest": [1]})
    for command in (["preprocess", source, "--out", out], ["info", out], ["sizes", out, "--split", name]):
        done = run(*command)
        assert (done.code, done.err) == (0, ""), command
        check_shown(done.out)
    done = run("sizes", out, "--split", "absent")
    assert (done.code, done.err.count("\n")) == (2, 1)
    check_shown(done.err)


@pytest.mark.skipif(os.name != "posix", reason="names of files are text here")
def test_a_terminal_of_ascii_can_write_any_name(tmp_path: Path) -> None:
    SizeHistogram.from_counts({(3, 4): 20}, ("節点", "ü")).save(tmp_path / "h.json")
    variables = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "dgl_tuplepack", "sizes", tmp_path / "h.json"]
    done = subprocess.run(command, capture_output=True, env=os.environ | variables, timeout=300)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii")
    assert "\\u7bc0" in text
    check_shown(text)
