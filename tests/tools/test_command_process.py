"""The command line as a process: its streams, what is missing around it, and Ctrl-C."""

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

from dgl_tuplepack import GraphSizes, GraphStore, SizeHistogram

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="streams and signals are those of POSIX here"),
    pytest.mark.processes,
]

COMMAND = f"{sys.executable} -m dgl_tuplepack "
EXAMPLE = "example:ogbg-molhiv"


def shell(line: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command of this package in a shell; `{}` stands for it."""
    return subprocess.run(
        ["bash", "-c", line.replace("{}", COMMAND)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | settings,
    )


def check_one_line(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("dgl-tuplepack: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(part in done.stderr for part in parts)


# --- streams


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = shell(f"{{}} limits {EXAMPLE} --json | head -2; echo ${{PIPESTATUS[0]}} >&2")
    assert done.stdout.startswith("{\n")
    assert done.stderr in ("0\n", "1\n")


def test_output_that_cannot_be_written_is_an_error() -> None:
    check_one_line(shell(f"{{}} sizes {EXAMPLE} >/dev/full"), 1, "No space left")


def test_closed_streams() -> None:
    check_one_line(shell("{} sizes - <&-"), 1, "standard input is closed")
    for streams in (">&-", "<&- >&- 2>&-"):
        done = shell(f"{{}} sizes {EXAMPLE} --csv {streams}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert shell("{} sizes 2>&-").returncode == 2


# --- what is missing

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])
sys.meta_path.insert(0, Absent())
from dgl_tuplepack.tools.cli import main
sys.argv[0] = "dgl-tuplepack"
main()
"""


@pytest.mark.parametrize("command", ["preprocess", "info", "verify", "sizes", "report", "demo"])
def test_without_torch_one_line_says_what_is_missing(command: str, tmp_path: Path) -> None:
    GraphStore.write(tmp_path / "store", [dgl.rand_graph(3, 4)])
    before = sorted(tmp_path.rglob("*"))
    arguments = {"preprocess": ["out"], "report": ["--out", "report.html"], "demo": ["--out", "out"]}.get(command, [])
    source = [] if command == "demo" else ["store"]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(names=("torch", "dgl", "ogb")), command, *source, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
    )
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


@pytest.mark.parametrize("delay_s", [0.5, 1.5, 4.0])
@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "sizes.json", "--limits", "64,160,8", "--effort", "100", "--save", "plan.json"],
        ["preprocess", "0.bin", "1.bin", "2.bin", "out", "--workers", "2"],
    ],
)
def test_ctrl_c_is_one_line_and_leaves_nothing_half_written(
    arguments: list[str], delay_s: float, tmp_path: Path
) -> None:
    numbers = np.random.default_rng(1)
    sizes = np.stack([numbers.integers(1, 60, 3000), np.minimum(numbers.integers(0, 200, 3000), 150)], axis=1)
    SizeHistogram.from_sizes(GraphSizes(sizes)).save(tmp_path / "sizes.json")
    for number in range(3):
        graphs = [dgl.rand_graph(4 + i % 5, 6 + i % 7) for i in range(9000)]
        dgl.save_graphs(str(tmp_path / f"{number}.bin"), graphs)
    code, err = interrupted(arguments, tmp_path, delay_s)
    # Python itself ends by the signal if C code runs Python code when it comes; shells show 130 for both.
    assert code in (130, -signal.SIGINT)
    assert err == "dgl-tuplepack: interrupted\n"
    assert not (tmp_path / "plan.json").exists()
    assert not (tmp_path / "out" / "manifest.json").exists()
    # Locks are empty, and stay.
    assert [path for path in tmp_path.rglob("*") if path.suffix == ".partial" or path.match(".[!l]*")] == []
