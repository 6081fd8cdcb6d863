"""The options of all commands together: one name for one thing, one meaning and one default; and what they print."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from dgl_tuplepack import GraphSizes, SizeHistogram
from dgl_tuplepack.tools.cli.commands import app
from tests.support.command import Run
from tests.support.processes import ROOT, run_each

COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
# Options that may differ between commands, and the reason.
DIFFERENT = {
    "--out": "each command writes another kind of file or folder; only names of finished results are defaults",
    "--batch-size": "inspect has a default; preprocess stores a shape only if it is asked to",
    "--graphs-per-batch": "inspect shows exact batches unless it is asked for packs",
    "SOURCE": "preprocess reads several sources; it, chunk and partition read only sources of graphs",
    "STORE": "info needs none with --system",
}


def parameters() -> Iterator[tuple[str, str, Any]]:
    """Yield the command, the name and the parameter of every option and argument."""
    for command, made in COMMANDS.items():
        for parameter in made.params:
            is_option = parameter.param_type_name == "option"
            name = max(parameter.opts, key=len) if is_option else parameter.metavar
            yield command, name, parameter


def facts(parameter: Any) -> tuple[Any, ...]:
    """Return what a user can see of a parameter, without its name."""
    return (
        parameter.param_type_name,
        *(str(vars(parameter).get(name)) for name in ("metavar", "help", "default", "multiple", "min", "max")),
        tuple(sorted([*parameter.opts, *parameter.secondary_opts])),
        parameter.required,
        str(parameter.type_descriptor.annotation),
    )


def test_a_name_has_one_meaning_one_type_and_one_default() -> None:
    found = defaultdict(set)
    for _, name, parameter in parameters():
        found[name].add(facts(parameter))
    assert {name for name, meanings in found.items() if len(meanings) > 1} == set(DIFFERENT)


def test_one_thing_has_one_name() -> None:
    names = defaultdict(set)
    for _, name, parameter in parameters():
        names[parameter.help].add(name)
    assert {help: same for help, same in names.items() if len(same) > 1} == {}


def test_every_file_or_folder_that_a_command_writes_is_its_out() -> None:
    writing = {command: parameter.opts for command, name, parameter in parameters() if name == "--out"}
    assert set(writing) == {"inspect", "sizes", "plan", "preprocess", "plot", "report", "demo", "chunk", "partition"}
    assert all(options == ["--out", "-o"] for options in writing.values())
    assert {name for _, name, parameter in parameters() if "write" in parameter.help.lower()} == {"--out"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_whole_sentences_and_complete_at_any_width(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = COMMANDS[name]
    for parameter in command.params:
        assert parameter.help[0].isupper() or parameter.help.startswith(".")
        assert parameter.help.endswith("."), parameter.help
    monkeypatch.setenv("COLUMNS", "600")
    done = run(name, "--help")
    assert done.code == 0
    wide = done.out
    # Flags have no type, and no line breaks inside a sentence.
    assert "bool" not in wide
    paragraphs = [" ".join(paragraph.split()) for paragraph in command.help.split("\n\n")]
    assert all(paragraph in [line.strip() for line in wide.splitlines()] for paragraph in paragraphs)
    for parameter in command.params:
        assert (parameter.opts[0] if parameter.opts[0].startswith("--") else parameter.metavar.split()[0]) in wide
    numbers = {word for word in wide.split() if any(map(str.isdigit, word))}
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run(name, "--help").out
    assert {word for word in numbers if word not in narrow} == set()


def test_tables_keep_numbers_and_marks_whole_at_60_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table = b"nodes,edges,count\n1234567,12345678,1000000\n2234567,22345678,10000\n"
    for command, numbers in {
        "sizes": ("1,256,912,670,000", "12,569,134,780,000", "12,444,687.90", "22,345,678"),
        "limits": ("37,037,034", "1,010,000", "99.81%", "best"),
        "plan": ("340,000", "37,037,034", "23,456,780,000", "99.81%"),
    }.items():
        done = run(command, "-", *(() if command == "sizes" else ("--graphs-per-batch", 5)), text=table)
        assert done.code == 0, done.err
        words = re.split(r"[\s┃│]+", done.out)
        assert {number for number in numbers if number not in words} == set(), done.out


@pytest.mark.parametrize("command", ["inspect", "sizes", "plan", "report", "plot sizes"])
def test_a_file_whose_folder_is_absent_is_refused_before_the_source_is_read(
    run: Run, command: str, tmp_path: Path
) -> None:
    out = tmp_path / "absent" / {"sizes": "sizes.csv", "plot sizes": "sizes.png"}.get(command, "page.html")
    done = run(*command.split(), tmp_path / "absent.csv", "--out", out)
    assert (done.code, done.out) == (1, "")
    assert f"cannot write {out}" in done.err


@pytest.mark.processes
def test_commands_print_only_what_programs_read(tmp_path: Path) -> None:
    """Solvers print from C, past `sys.stdout`."""
    numbers = np.random.default_rng(0).integers(1, 60, (300, 2))
    SizeHistogram.from_sizes(GraphSizes(numbers)).save(tmp_path / "sizes.json")
    (tmp_path / "command.py").write_text("from dgl_tuplepack.tools.cli import main\nmain()\n")
    limits = ["--limits", "100,120", "--json"]
    runs = (
        ["sizes", "--json"], ["limits", "--graphs-per-batch", "8", "--json"], ["limits", "--target", "0.9", "--json"],
        ["plan", *limits, "--effort", "0.5"], ["plan", *limits, "--limits", "200,240", "--effort", "0.2"],
        ["plot", "fill", *limits, "--out", "fill.svg"],
    )  # fmt: skip
    given = [[*arguments, "sizes.json"] for arguments in runs]
    # Text that does not come from Python would stand between the results, which `run_each` could not read.
    for done in run_each(tmp_path / "command.py", *given, folder=tmp_path, PYTHONPATH=str(ROOT)):
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
