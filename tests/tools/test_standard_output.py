"""Only results reach standard output. Solvers print from C, past `sys.stdout`, so each test runs a process."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dgl_tuplepack import GraphSizes, SizeHistogram
from tests.support.processes import ROOT, output_of, run_each

pytestmark = pytest.mark.processes


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """A histogram whose plans and bounds need linear programs."""
    numbers = np.random.default_rng(0).integers(1, 60, (300, 2))
    SizeHistogram.from_sizes(GraphSizes(numbers)).save(tmp_path / "sizes.json")
    return tmp_path / "sizes.json"


def test_planning_prints_nothing(sizes: Path) -> None:
    program = """
        import sys
        import dgl_tuplepack as tp

        sizes, limits = tp.SizeHistogram.load(sys.argv[1]), tp.Limits(100, 120)
        for effort in (0, 0.2, 0.5):
            tp.pack(sizes, limits, effort=effort)
        tp.pack(sizes, [limits, tp.Limits(200, 240)], effort=0.2)
        tp.lower_bound(sizes, limits)
        tp.search_limits(sizes, graphs_per_batch=8)
        tp.search_limits(sizes, target=0.9)
    """
    assert output_of(program, sizes) == []


def test_commands_print_only_what_programs_read(sizes: Path, tmp_path: Path) -> None:
    (tmp_path / "command.py").write_text("from dgl_tuplepack.tools.cli import main\nmain()\n")
    limits = ["--limits", "100,120", "--json"]
    runs = (
        ["sizes", sizes, "--json"], ["limits", sizes, "--graphs-per-batch", "8", "--json"],
        ["plan", sizes, *limits, "--effort", "0.2"], ["plan", sizes, *limits, "--limits", "200,240", "--effort", "0.2"],
        ["plot", "fill", sizes, *limits, "--out", "fill.svg"],
    )  # fmt: skip
    # Text that does not come from Python would stand between the results, which `run_each` could not read.
    for done in run_each(tmp_path / "command.py", *runs, folder=tmp_path, PYTHONPATH=str(ROOT)):
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
