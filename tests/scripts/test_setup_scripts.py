"""What the scripts that install or resolve choose, without installing anything."""

from __future__ import annotations

import importlib.util
import json
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
        ((3, 14, 0), "x86_64", ["demo", "--graphs", "9"], "plain", ".venv-without-dgl"),
        ((3, 11, 7), "x86_64", ["--without-dgl", "tests", "-x"], "plain", ".venv-without-dgl"),
        ((3, 13, 0), "x86_64", ["--newest", "tests", "-x"], "plain", ".venv-newest"),
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
    constraints = ROOT / "scripts" / f"constraints{'-newest' if '--newest' in arguments else ''}.txt"
    assert made == [(ROOT / folder, ROOT / folder / "bin/python", extra, constraints)]
    ((python, *command),) = called
    assert python == str(ROOT / folder / "bin/python")
    options = [argument for argument in arguments if argument not in ("--without-dgl", "--newest", "demo", "tests")]
    assert command[len(command) - len(options) :] == options
    assert ("testpaths=tests" in command) == ("tests" in arguments and extra == "plain")
    told = "DGL has no wheels" in capsys.readouterr().err
    assert told == (extra == "plain" and arguments[0] not in ("--without-dgl", "--newest"))


def test_a_python_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    for arguments, needed in ((["demo"], "3.11"), (["--newest", "tests"], "3.12")):
        assert script("run").main(arguments) == 1
        assert f"this is Python 3.10.13, but {needed} or newer is needed" in capsys.readouterr().err


def test_an_unknown_command_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--newest"], ["--newest", "--without-dgl", "tests"], ["test"]):
        assert script("run").main(arguments) == 2
        assert "[--without-dgl | --newest] {demo,tests,docs}" in capsys.readouterr().err


def test_the_newest_versions_are_those_that_pip_finds_without_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    resolve, found = script("resolve"), {"torch": "2.13.0+cpu", "numpy": "3.0", "Jinja2": "4", "nvidia-cublas": "13"}

    def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
        assert {"install", "--dry-run", "torch==2.13.0"} <= {*arguments}
        installed = [{"metadata": {"name": name, "version": version}} for name, version in found.items()]
        return subprocess.CompletedProcess([], 0, json.dumps({"install": installed}), "")

    monkeypatch.setattr(resolve, "pip", pip)
    monkeypatch.setattr(resolve, "NEWEST", tmp_path / "newest.txt")
    (tmp_path / "newest.txt").write_text("# text\nnumpy==2.0\ntorch==2.13.0\n")
    assert resolve.main(["--newest"]) == 0
    lines = (tmp_path / "newest.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["Jinja2==4", "numpy==3.0", "torch==2.13.0"]


def test_the_lowest_versions_are_those_of_the_package() -> None:
    """Each dependency of the package itself has a lowest version; markers for newer Pythons are left out."""
    lowest = dict(line.split("==") for line in script("oldest").lowest())
    assert {"numpy", "numba", "highspy", "typer", "rich", "tqdm", "torch", "dgl", "torch_geometric"} <= {*lowest}
    assert {"pandas", "matplotlib", "Jinja2", "pyarrow", "dask", "distributed", "scipy", "ogb"} <= {*lowest}
    assert lowest["numpy"] == "1.24"
    assert not {"pytest", "sphinx", "jax"} & {*lowest}
    text = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    for name, version in lowest.items():
        assert f"{name}>={version}\n" in text or f"{name}>={version}; python_version <" in text


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
    assert resolve.main([]) == 1
    row = "| 3.15 | no: No matching distribution found for numba | 2.13.0: yes | no | yes |"
    assert capsys.readouterr().out.splitlines()[-1] == row
