"""The ten rooms: each says what it is for, no import hides a circle, and private names of others stay in one file."""

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
    docs = {room: (ROOT / room / "__init__.py").read_text() for room in ROOMS if room != "_core"}
    assert [room for room, doc in docs.items() if not re.search(r"(uses|may use)\b", doc)] == []


@pytest.mark.parametrize("file", FILES)
def test_no_file_imports_a_package_around_it_or_a_file_by_a_string(file: str) -> None:
    assert not list(hidden(file, (ROOT / file).read_text(encoding="utf-8")))


def test_hidden_imports_would_be_noticed() -> None:
    for text in ("from dgl_tuplepack import pack", 'load("dgl_tuplepack.planning.plan:PackPlan")'):
        assert list(hidden("planning/sizes.py", text)), text
    assert not list(hidden("planning/sizes.py", "from dgl_tuplepack.planning import plan"))


TREES = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
ALLOWED = {"compiling/torch_private.py"}
FORBIDDEN = {("sys", "_getframe"), ("inspect", "stack"), ("inspect", "currentframe"), ("object", "__new__")}
# Documented by the library in spite of the name.
PUBLIC = {"_fields", "_replace", "_asdict", "_exit"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def own_names() -> Iterator[str]:
    """What the package itself defines, and so may use."""
    for node in (node for tree in TREES.values() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            yield node.attr


def uses(tree: ast.AST) -> Iterator[str]:
    """Private names that are not the package's own, as they are written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            foreign = is_private(node.attr) and node.attr not in OWN
            if (base, node.attr) in FORBIDDEN or foreign:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("dgl_tuplepack"):
            yield from (f"line {node.lineno}: {alias.name}" for alias in node.names if is_private(alias.name))


OWN = set(own_names())


@pytest.mark.parametrize("file", TREES)
def test_no_private_name_of_others_is_used(file: str) -> None:
    found = list(uses(TREES[file]))
    assert not found or file in ALLOWED, found


def test_a_private_name_would_be_noticed() -> None:
    for line in ("graph._node_frames", "sys._getframe(1)", "object.__new__(kind)", "from torch import _C"):
        assert list(uses(ast.parse(line))), line
