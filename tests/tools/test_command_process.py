"""The command line as a process: its streams, what is missing around it, Ctrl-C, and what the README shows."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import dgl
import numpy as np
import pytest

from dgl_tuplepack import GraphSizes, GraphStore, PackBatchSampler, PackPlan, SizeHistogram, load_example
from tests.support.processes import ROOT, run_each, without

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="streams and signals are those of POSIX here"),
    pytest.mark.processes,
]

COMMAND = f"{sys.executable} -m dgl_tuplepack "
EXAMPLE = "example:ogbg-molhiv"
MAIN = "from dgl_tuplepack.tools.cli import main\nmain()\n"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this package in a shell; `{}` stands for it."""
    return subprocess.run(["bash", "-c", line.replace("{}", COMMAND)], capture_output=True, text=True, timeout=300)


def check_one_line(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("dgl-tuplepack: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(part in done.stderr for part in parts)


# --- streams


def test_one_command_feeds_another_and_a_reader_may_leave_early() -> None:
    done = shell(f"{{}} sizes {EXAMPLE} --csv | {{}} limits - --json | head -2; echo ${{PIPESTATUS[@]}} >&2")
    assert done.stdout.startswith("{\n")
    assert done.stderr in ("0 0 0\n", "0 1 0\n")


def test_output_that_cannot_be_written_is_an_error_and_closed_streams_are_none() -> None:
    check_one_line(shell(f"{{}} sizes {EXAMPLE} >/dev/full"), 1, "No space left")
    check_one_line(shell("{} sizes - <&-"), 1, "standard input is closed")
    done = shell(f"{{}} sizes {EXAMPLE} --csv <&- >&- 2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# --- what is missing


def test_without_torch_one_line_says_what_is_missing(tmp_path: Path) -> None:
    GraphStore.write(tmp_path / "store", [dgl.rand_graph(3, 4)])
    (tmp_path / "command.py").write_text(without("torch", "dgl", "ogb") + MAIN)
    before = sorted(tmp_path.rglob("*"))
    runs = (
        ["preprocess", "store", "--out", "out"], ["info", "store"], ["verify", "store"], ["sizes", "store"],
        ["inspect", "store"],
        ["report", "store", "--out", "report.html"], ["demo", "--out", "out"],
        ["chunk", "store", "--out", "out"], ["partition", "store", "--out", "out", "--parts", "2"],
    )  # fmt: skip
    for done in run_each(tmp_path / "command.py", *runs, folder=tmp_path, PYTHONPATH=str(ROOT)):
        check_one_line(done, 1, "torch is not installed", "dgl_tuplepack[torch]")
    assert sorted(tmp_path.rglob("*")) == before


# --- Ctrl-C


def interrupted(arguments: list[str], folder: Path, delay_s: float) -> tuple[int, str]:
    """Start a command in a group of its own and send Ctrl-C to the whole group, as a terminal does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dgl_tuplepack", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(delay_s)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with sizes that take long to plan, and two files of graphs that take long to write."""
    folder, numbers = tmp_path_factory.mktemp("sources"), np.random.default_rng(1)
    sizes = np.stack([numbers.integers(1, 60, 3000), np.minimum(numbers.integers(0, 200, 3000), 150)], axis=1)
    SizeHistogram.from_sizes(GraphSizes(sizes)).save(folder / "sizes.json")
    for name in ("0.bin", "1.bin"):
        dgl.save_graphs(str(folder / name), [dgl.rand_graph(4 + i % 5, 6 + i % 7) for i in range(9000)])
    return folder


@pytest.mark.parametrize(
    ("command", "given", "options", "delay_s"),
    [
        ("plan", ["sizes.json"], ["--limits", "64,160,8", "--effort", "100", "--out", "plan.json"], 0.5),
        ("plan", ["sizes.json"], ["--limits", "64,160,8", "--effort", "100", "--out", "plan.json"], 4.0),
        ("preprocess", ["0.bin", "1.bin"], ["--out", "out", "--workers", "2"], 1.5),
        ("preprocess", ["0.bin", "1.bin"], ["--out", "out", "--workers", "2"], 4.0),
    ],
)
def test_ctrl_c_is_one_line_and_leaves_nothing_half_written(
    command: str, given: list[str], options: list[str], delay_s: float, sources: Path, tmp_path: Path
) -> None:
    code, err = interrupted([command, *(str(sources / name) for name in given), *options], tmp_path, delay_s)
    if code == -signal.SIGABRT:
        # C++ code of torch ends the process if the signal comes while it runs Python code, as in `import torch`.
        assert err.startswith("terminate called")
        assert "KeyboardInterrupt" in err
    else:
        # Python itself ends by the signal if C code runs Python code when it comes; shells show 130 for both.
        assert (code, err) in [(130, "dgl-tuplepack: interrupted\n"), (-signal.SIGINT, "dgl-tuplepack: interrupted\n")]
    assert not (tmp_path / "plan.json").exists()
    assert not (tmp_path / "out" / "manifest.json").exists()
    # Locks are empty, and stay.
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".partial" or path.match(".[!l]*")] == []


# --- as in the README


@pytest.mark.slow
def test_the_command_line_as_in_the_documentation(tmp_path: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").rglob("*.md")))
    # Those that need no data of the reader's.
    shown = [line for line in pages.splitlines() if line.startswith("dgl-tuplepack ") and "example:" in line]
    lines = [line.split()[1:] for line in shown]
    assert {"report", "plot", "limits", "plan"} <= {line[0] for line in lines}
    (tmp_path / "command.py").write_text(MAIN)
    for done in run_each(tmp_path / "command.py", *lines, folder=tmp_path, PYTHONPATH=str(ROOT)):
        assert done.returncode == 0, done.stderr
        assert done.stdout or done.stderr.startswith("dgl-tuplepack: wrote ")
    # What was saved is the plan that a sampler takes.
    histogram = load_example("ogbg-molhiv")
    sizes = GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0))
    plan = PackPlan.load(tmp_path / "plan.json")
    assert len(PackBatchSampler(sizes, plan.limits, plan=plan)) == plan.num_packs
