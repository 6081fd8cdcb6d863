"""Names and paths are data: shown as they are or with escapes, never obeyed, and any terminal can write them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dgl_tuplepack import GraphStore, SizeHistogram
from dgl_tuplepack._core.text import printable
from dgl_tuplepack.tools.drawing import label
from tests.support.command import Run

NAMES = [
    "[/x]", "[bold]n", "[link=http://x.y]n[/link]", ":smile:", "$x", "$\\frac{", "\\$x$", "_hidden",
    "<script>n</script>",
    "{{ n }}", "\x1b[2J\x1b]0;t\x07", "a\nb\r\tc", "\u202eevil", "\x7f\x85\u2028", "\ud800", "\udcff",
    "節点", "ü", "a,b\"c",
    "n" * 300, " ", "%s%(x)s", "&amp;",
]  # fmt: skip
KEYS = range(len(NAMES))
# Pictures take their time; their labels have a test of their own. A name comes with the one behind it: besides every
# fourth one, formulas, markup of pages, controls of terminals, halves of characters, and a long one.
CHOSEN = ("$x", "<script>n</script>", "\x1b[2J\x1b]0;t\x07", "\ud800", "n" * 300)
SOME = sorted({*range(0, len(NAMES), 4), *map(NAMES.index, CHOSEN)})


def names(number: int) -> tuple[str, str]:
    return NAMES[number], NAMES[(number + 1) % len(NAMES)]


def saved(number: int, folder: Path) -> Path:
    histogram = SizeHistogram.from_counts({(3, 4): 20, (5, 8): 11, (9, 18): 2, (12, 22): 1}, names(number))
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


@pytest.mark.parametrize("number", KEYS)
def test_tables_show_names_as_they_are(number: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Wide enough that nothing is folded.
    monkeypatch.setenv("COLUMNS", "4000")
    source = saved(number, tmp_path)
    limits = ["--limits", ",".join(f"{name}={most}" for name, most in zip(names(number), (30, 60), strict=True))]
    for command in (["sizes", source], ["plan", source, *limits], ["limits", source]):
        done = run(*command)
        assert (done.code, done.err) == (0, ""), command
        check_shown(done.out)
        assert all(printable(name) in done.out for name in names(number))
        found = json.loads(run(*command, "--json").out)
        assert set(names(number)) <= {*found.get("components", ()), *(key for part in _mappings(found) for key in part)}


def _mappings(value: Any) -> list[dict[str, Any]]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value] * isinstance(value, dict) + [found for part in inner for found in _mappings(part)]


@pytest.mark.parametrize("number", KEYS)
def test_errors_and_bad_usage_are_one_printable_line(number: int, run: Run, tmp_path: Path) -> None:
    name, source = NAMES[number], saved(number, tmp_path)
    if "\ud800" in name:
        pytest.skip("no argument can have such a name")
    for code, command in (
        (1, ["plan", source, "--limits", ",".join(f"{name}=2" for name in names(number))]),
        (1, ["sizes", f"{name}/absent"]),
        (1, ["sizes", source, "--out", tmp_path / "absent" / f"{name}.json"]),
        (2, ["plan", source, "--limits", name]),
        (2, ["plan", source, "--limits", f"other{name}=9"]),
        (2, ["plan", source, f"--{name}"]),
        (2, ["plot", name, source, "--out", tmp_path / "p.png"]),
        (2, [f"other{name}"]),
    ):
        done = run(*command)
        assert (done.code, done.out) == (code, ""), (command, done.err)
        assert done.err.startswith("dgl-tuplepack: ")
        assert done.err.count("\n") == 1, done.err
        check_shown(done.err)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@pytest.mark.parametrize("number", SOME)
def test_a_report_shows_names_and_runs_nothing(number: int, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = run("report", saved(number, tmp_path), "--out", out, "--name", NAMES[number])
    assert (done.code, done.err) == (0, f"dgl-tuplepack: wrote {out}\n")
    page = out.read_text(encoding="utf-8")
    check_shown(page)
    assert "<script>n" not in page
    assert f"<h1>Packing {_escaped(NAMES[number])}</h1>" in page


def _escaped(name: str) -> str:
    import markupsafe

    return str(markupsafe.escape(printable(name)))


@pytest.mark.parametrize("number", [number for number in KEYS if len(NAMES[number]) < 100])
def test_stores_with_any_names_are_written_shown_and_verified(number: int, run: Run, tmp_path: Path) -> None:
    """Splits, features and paths; the table comes after everything is written."""
    name = NAMES[number].replace("/", "|")
    if "\ud800" in name:
        pytest.skip("no path can have such a name")
    graphs = [dgl.rand_graph(3, 4), dgl.rand_graph(2, 2)]
    for graph in graphs:
        graph.ndata[NAMES[number]] = torch.zeros(graph.num_nodes())
    source, out = tmp_path / "first", tmp_path / name
    GraphStore.write(source, graphs, splits={NAMES[number]: [0], "rest": [1]})
    for command in (
        ["preprocess", source, "--out", out],
        ["info", out],
        ["verify", out],
        ["sizes", out, "--split", NAMES[number]],
    ):
        done = run(*command)
        assert (done.code, done.err) == (0, ""), command
        check_shown(done.out)
    done = run("sizes", out, "--split", "absent")
    assert (done.code, done.err.count("\n")) == (2, 1)
    check_shown(done.err)


@pytest.mark.skipif(os.name != "posix", reason="names of files are text here")
@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_any_terminal_can_write_any_name(encoding: str, tmp_path: Path) -> None:
    counts = {(3, 4): 20, (5, 8): 11}
    SizeHistogram.from_counts(counts, ("節点\ud800", "ü")).save(tmp_path / "h.json")
    os.rename(tmp_path / "h.json", os.fsencode(tmp_path) + b"/\xff\xfe.json")
    environment = os.environ | {
        "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding,
    }  # fmt: skip
    for arguments, code in (([], 0), (["--split", "x"], 2), (["--out", "/absent/ü.json"], 1)):
        done = subprocess.run(
            [sys.executable, "-m", "dgl_tuplepack", "sizes", os.fsencode(tmp_path) + b"/\xff\xfe.json", *arguments],
            capture_output=True, env=environment, timeout=300,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        text = (done.stdout + done.stderr).decode(encoding)
        assert "\\ud" in text
        check_shown(text)
        assert done.stderr.count(b"\n") == (1 if code else 0)
