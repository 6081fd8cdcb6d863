"""Runs of scripts, one after the other in one new process: imports of torch and DGL take longer than most runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

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
    """Run a script once for each list of arguments."""
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
