"""What the scripts that install or resolve choose, without installing anything."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"script_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("version", "machine", "arguments", "extra", "folder"),
    [
        ((3, 11, 7), "x86_64", ["demo"], "all", ".venv"),
        ((3, 11, 7), "aarch64", ["demo"], "plain", ".venv-without-dgl"),
        ((3, 12, 1), "x86_64", ["tests", "-x"], "plain", ".venv-without-dgl"),
        ((3, 14, 0), "x86_64", ["demo", "--graphs", "9"], "plain", ".venv-without-dgl"),
        ((3, 11, 7), "x86_64", ["--without-dgl", "tests", "-x"], "plain", ".venv-without-dgl"),
    ],
)
def test_dgl_is_set_up_where_it_has_wheels(
    version: tuple[int, ...],
    machine: str,
    arguments: list[str],
    extra: str,
    folder: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, made, called = script("run"), [], []
    monkeypatch.delenv("TUPLEPACK_ENVIRONMENT", raising=False)
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(run, "prepare", lambda *given: made.append(given))
    monkeypatch.setattr(subprocess, "call", lambda command, **_: called.append(command) or 7)
    assert run.main(arguments) == 7
    assert made == [(ROOT / folder, ROOT / folder / "bin/python", extra)]
    ((python, *command),) = called
    assert python == str(ROOT / folder / "bin/python")
    options = [argument for argument in arguments if argument not in ("--without-dgl", "demo", "tests")]
    assert command[len(command) - len(options) :] == options
    assert ("testpaths=tests" in command) == ("tests" in arguments and extra == "plain")
    told = "DGL has no wheels" in capsys.readouterr().err
    assert told == (extra == "plain" and "--without-dgl" not in arguments)


def test_a_python_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    assert script("run").main(["demo"]) == 1
    assert "this is Python 3.10.13, but 3.11 or newer is needed" in capsys.readouterr().err


def test_the_resolved_set_is_all_but_dgl_and_what_needs_torch() -> None:
    resolve = script("resolve")
    needed = resolve.requirements()
    names = {resolve.name_of(requirement) for requirement in needed}
    assert {"numpy", "numba", "highspy", "jax", "jraph", "dask", "matplotlib", "pytest", "pandas"} <= names
    assert not names & {"dgl", "torch", "pytorch-lightning", "torchdata", ""}
    assert 'numpy>=2.3; python_version >= "3.14"' in needed
    assert resolve.pinned("numba")


def test_what_has_no_wheel_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    resolve = script("resolve")
    listed = {"torch": "2.14.0, 2.13.0", "pytorch-lightning": "2.6.6", "torchdata": "0.11.0", "dgl": "2.1.0"}

    def pip(command: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
        if command == "install":
            error = "ERROR: No matching distribution found for numba"
            return subprocess.CompletedProcess([], 1, "", f"WARNING: x\n{error}\n")
        text = f"Available versions: {listed[arguments[1]]}\n" if listed[arguments[1]] else ""
        return subprocess.CompletedProcess([], 0, text, "")

    monkeypatch.setattr(resolve, "pip", pip)
    monkeypatch.setattr(resolve, "PYTHONS", ["3.15"])
    assert resolve.main() == 1
    row = "| 3.15 | no: No matching distribution found for numba | 2.13.0: yes | no | yes |"
    assert capsys.readouterr().out.splitlines()[-1] == row
    listed["torch"] = ""
    monkeypatch.setattr(resolve, "resolved", lambda python: (True, "9 packages: yes"))
    assert resolve.main() == 1
    assert "no wheel of torch" in capsys.readouterr().out
