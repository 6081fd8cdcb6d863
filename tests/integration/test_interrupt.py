from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import _thread, threading, time
from dgl_tuplepack import Limits, pack
from scripts.benchmarks.shapes import planted
made = planted(100_000, (1000, 2200, 5000))
threading.Timer(0.7, _thread.interrupt_main).start()
start = time.monotonic()
try:
    plan = pack(made.histogram, made.limits, effort=1000.0, on_interrupt={choice!r})
    plan.validate()
    print("plan", plan.method)
except KeyboardInterrupt:
    print("stopped")
assert time.monotonic() - start < 10
"""


@pytest.mark.parametrize(("choice", "expected"), [("raise", "stopped"), ("best", "plan auto:")])
def test_an_interrupt_ends_a_long_search_cleanly(choice, expected):
    command = [sys.executable, "-c", PROGRAM.format(choice=choice)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(expected)
    assert ("interrupted" in found.stdout) == (choice == "best")


COMMAND = """
import _thread, sys, threading
from dgl_tuplepack.cli import main
from scripts.benchmarks.shapes import uniform
uniform(20_000).save({path!r})
sys.argv = ["dgl-tuplepack", "limits", {path!r}]
threading.Timer(1.5, _thread.interrupt_main).start()
main()
"""


def test_an_interrupted_command_says_so_in_one_line(tmp_path):
    command = [sys.executable, "-c", COMMAND.format(path=str(tmp_path / "sizes.json"))]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "dgl-tuplepack: interrupted\n")
