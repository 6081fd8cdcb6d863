"""The ten rooms: each says what it is for, and no import hides a circle from the contracts in setup.cfg."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgl_tuplepack as tp

ROOT = Path(tp.__file__).parent
ROOMS = ("_core", "planning", "graphs", "compiling", "nn", "batches", "sampling", "storage", "loading", "tools")
FILES = sorted(str(path.relative_to(ROOT)) for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def is_module(name: str) -> bool:
    path = ROOT.parent / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def hidden(file: str, text: str) -> Iterator[str]:
    """Imports by which a file could come back to itself unseen: from a package around it, and by a string."""
    module = "dgl_tuplepack." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    around = {module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module in around:
            yield from (f"{node.module}.{a.name}" for a in node.names if not is_module(f"{node.module}.{a.name}"))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            named = re.fullmatch(r"(dgl_tuplepack(?:\.\w+)+)(?::\w+)?", node.value)
            if named and is_module(named[1]):
                yield node.value


def test_the_package_has_ten_rooms_and_a_few_files() -> None:
    assert {path.parent.name for path in ROOT.glob("*/*") if path.suffix in (".py", ".csv")} == {*ROOMS, "data"}
    assert all(
        "It may use" in (ROOT / room / "__init__.py").read_text() for room in ROOMS if room not in ("_core", "nn")
    )


@pytest.mark.parametrize("file", FILES)
def test_no_file_imports_a_package_around_it_or_a_file_by_a_string(file: str) -> None:
    assert not list(hidden(file, (ROOT / file).read_text(encoding="utf-8")))


def test_hidden_imports_would_be_noticed() -> None:
    for text in ("from dgl_tuplepack import pack", 'load("dgl_tuplepack.planning.plan:PackPlan")'):
        assert list(hidden("planning/sizes.py", text)), text
    assert not list(hidden("planning/sizes.py", "from dgl_tuplepack.planning import plan"))
