"""`benchmark.py compare`: figures that are worse than the stored ones by more than their tolerance end with 1."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

# The scripts are not installed.
sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from benchmarks import compare

COUNTED, SPEEDS = [1.0, 1.001, 1.004], [8.0, 9.0, 1.8, 2.0]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A run of the command with these figures in the place of measured ones."""

    def with_figures(counted: list[float], speeds: list[float], *options: str) -> Any:
        monkeypatch.setattr(compare, "_counted", lambda: counted)
        monkeypatch.setattr(compare, "_speeds", lambda *settings: speeds)
        return CliRunner().invoke(compare.app, ["--baseline", str(tmp_path / "run.json"), *options])

    return with_figures


@pytest.mark.parametrize(
    ("counted", "speeds", "worse"),
    [
        (COUNTED, SPEEDS, 0),
        # Better figures, and slower ones within the tolerance.
        ([1.0, 1.0, 1.0], [7.0, 20.0, 1.6, 2.5], 0),
        ([1.0003, 1.001, 1.004], SPEEDS, 1),
        ([1.0, 1.002, 1.01], SPEEDS, 2),
        (COUNTED, [5.9, 6.6, 1.5, 1.6], 4),
    ],
)
def test_worse_figures_end_with_an_error(run: Any, counted: list[float], speeds: list[float], worse: int) -> None:
    assert run(COUNTED, SPEEDS, "--save").exit_code == 0
    done = run(counted, speeds)
    assert done.exit_code == (worse > 0)
    assert done.stdout.count("worse") == worse


@pytest.mark.parametrize("text", [None, "not JSON", "[]", '{"figures": {"another": 1.0}}'])
def test_a_file_without_the_figures_is_refused_before_measuring(run: Any, tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    done = run([], [])
    assert done.exit_code == 2
    assert "--save" in done.stderr


def test_the_counted_figures_are_not_worse_than_the_stored_ones() -> None:
    stored = json.loads(compare.BASELINE.read_text(encoding="utf-8"))["figures"]
    assert stored.keys() == compare.FIGURES.keys()
    for found, (name, figure) in zip(compare._counted(), compare.FIGURES.items(), strict=False):
        assert not figure.is_worse(found, stored[name]), name
