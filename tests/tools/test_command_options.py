"""The options of all commands together: one name for one thing, with one meaning and one default."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from dgl_tuplepack.tools.cli.commands import app
from tests.support.command import Run

COMMANDS: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
# Options that may differ between commands, and the reason.
DIFFERENT = {
    "--out": "each command writes another kind of file or folder; only names of finished results are defaults",
    "SOURCE": "preprocess reads several sources; it, chunk and partition read only sources of graphs",
    "STORE": "info needs none with --system",
}
# Names that options had before; each has one name now.
FORMER = {"--part", "--save", "--nodes", "--edges", "--limit", "--auto-limits"}


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
        assert name not in FORMER
        names[parameter.help].add(name)
    assert {help: same for help, same in names.items() if len(same) > 1} == {}


def test_every_file_or_folder_that_a_command_writes_is_its_out() -> None:
    writing = {command: parameter.opts for command, name, parameter in parameters() if name == "--out"}
    assert set(writing) == {"sizes", "plan", "preprocess", "plot", "report", "demo", "chunk", "partition"}
    assert all(options == ["--out", "-o"] for options in writing.values())
    assert {name for _, name, parameter in parameters() if "write" in parameter.help.lower()} == {"--out"}


def test_every_command_that_plans_accepts_limits_or_a_number_of_graphs() -> None:
    for option, commands in {
        "--limits": {"plan", "preprocess", "plot", "report"},
        "--graphs-per-batch": {"limits", "plan", "preprocess", "plot", "report"},
        "--split": {"sizes", "limits", "plan", "plot", "report"},
    }.items():
        assert {command for command, name, _ in parameters() if name == option} == commands


@pytest.mark.parametrize("name", COMMANDS)
def test_help_breaks_no_line_inside_a_sentence(run: Run, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "600")
    paragraphs = [" ".join(paragraph.split()) for paragraph in COMMANDS[name].help.split("\n\n")]
    lines = [line.strip() for line in run(name, "--help").out.splitlines()]
    assert all(paragraph in lines for paragraph in paragraphs)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_text_of_help_is_whole_sentences(name: str) -> None:
    for parameter in COMMANDS[name].params:
        assert parameter.help[0].isupper() or parameter.help.startswith(".")
        assert parameter.help.endswith("."), parameter.help


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_complete_at_60_columns_and_flags_have_no_type(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    wide = run(name, "--help").out
    assert "bool" not in wide
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


@pytest.mark.parametrize("command", ["sizes", "plan", "report", "plot sizes"])
def test_a_file_whose_folder_is_absent_is_refused_before_the_source_is_read(
    run: Run, command: str, tmp_path: Path
) -> None:
    out = tmp_path / "absent" / {"sizes": "sizes.csv", "plot sizes": "sizes.png"}.get(command, "page.html")
    done = run(*command.split(), tmp_path / "absent.csv", "--out", out)
    assert (done.code, done.out) == (1, "")
    assert (
        done.err
        == f"dgl-tuplepack: cannot write {out}: {out.parent} is no folder that accepts files; create the folder.\n"
    )
