"""Programs and scripts in new processes of Python."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def without(*packages: str) -> str:
    """The beginning of a program in which these packages cannot be imported."""
    return f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])

sys.meta_path.insert(0, Absent())
"""


def environment(**variables: str) -> dict[str, str]:
    """Variables of a process that can import the tests; without those of a launcher, which Lightning sets."""
    ours = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "RANK", "LOCAL_RANK")}
    return {**ours, "PYTHONPATH": str(ROOT), **variables}


def run(*arguments: object, folder: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments, without input, in a process that can import the tests."""
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def output_of(program: str, *arguments: object, **variables: str) -> list[str]:
    """Lines that a program prints; it must end well and say nothing else."""
    # The exception is torch's, about a Python that is still common.
    warnings = ("-W", "error", "-W", "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")
    done = run(*warnings, "-c", textwrap.dedent(program), *arguments, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


# Each run is that of a main program: its arguments, its streams, and the exit code it leaves with.
PROGRAM = """
import contextlib, io, json, os, runpy, sys, traceback

results, sys.stdout = sys.stdout, None
script, *runs = json.load(sys.stdin)
sys.path[0] = os.path.dirname(script)
for arguments in runs:
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = [script, *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as stopped:
            code = stopped.code or 0
            if isinstance(code, str):
                print(code, file=sys.stderr)
                code = 1
        except BaseException:
            traceback.print_exc()
            code = 1
    print(json.dumps([code, out.getvalue(), err.getvalue()]), file=results, flush=True)
"""


def run_each(
    script: Path, *runs: Sequence[object], folder: Path, **variables: str
) -> list[subprocess.CompletedProcess[str]]:
    """Run a script once for each list of arguments, in one process: imports take longer than most runs."""
    given = [list(map(str, arguments)) for arguments in runs]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([str(script), *given]),
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = map(json.loads, done.stdout.splitlines())
    return [
        subprocess.CompletedProcess([str(script), *arguments], *result)
        for arguments, result in zip(given, found, strict=True)
    ]


def exit_code_if_killed(action: Callable[[], object], step: int, functions: Sequence[tuple[Any, str]]) -> int:
    """Run `action` in a forked process that is killed right before call number `step` of any of the functions.

    Return the exit code: 0 if `action` has made fewer calls, otherwise ``-SIGKILL``. A function is given by its module
    and its name.
    """
    process = multiprocessing.get_context("fork").Process(target=_until_killed, args=(action, step, functions))
    process.start()
    process.join(120)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode


def _until_killed(action: Callable[[], object], step: int, functions: Sequence[tuple[Any, str]]) -> None:
    calls = itertools.count()

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            if next(calls) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **settings)

        return call

    for module, name in functions:
        setattr(module, name, counted(getattr(module, name)))
    action()
