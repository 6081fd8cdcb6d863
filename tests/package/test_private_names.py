"""The package uses private names of other libraries in one file only, which says why."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import dgl_tuplepack as tp

ROOT = Path(tp.__file__).parent
FILES = {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
ALLOWED = {"compiling/torch_private.py"}
FORBIDDEN = {("sys", "_getframe"), ("inspect", "stack"), ("inspect", "currentframe"), ("object", "__new__")}
# Documented by the library in spite of the name.
PUBLIC = {"_fields", "_replace", "_asdict", "_exit"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def own_names() -> Iterator[str]:
    """What the package itself defines, and so may use."""
    for node in (node for tree in FILES.values() for node in ast.walk(tree)):
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


@pytest.mark.parametrize("file", FILES)
def test_no_private_name_of_others_is_used(file: str) -> None:
    found = list(uses(FILES[file]))
    assert not found or file in ALLOWED, found


def test_a_private_name_would_be_noticed() -> None:
    for line in ("graph._node_frames", "sys._getframe(1)", "object.__new__(kind)", "from torch import _C"):
        assert list(uses(ast.parse(line))), line
