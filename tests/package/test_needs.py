"""What is left out where DGL is not installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.needs import TESTS, WITHOUT, needs_dgl


def test_files_that_need_no_dgl_import_none() -> None:
    """An import of DGL into one of their helpers would leave them out unseen."""
    assert [name for name in WITHOUT if needs_dgl(TESTS / name)] == []


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("import dgl.nn as nn", True),
        ("def f():\n    from dgl import graph", True),
        ("from tests.support.graphs import flat", True),
        ("from tests.support import stores", True),
        ("from tests.support.samplers import flat", False),
        ("import dgl_tuplepack, dglx", False),
        ("'import dgl'", False),
    ],
)
def test_an_import_of_dgl_is_found(text: str, needs: bool, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(text)
    assert needs_dgl(tmp_path / "file.py") is needs


def test_what_is_skipped_where_dgl_is_installed_runs_without_it() -> None:
    """CI runs these files in the environment without DGL, which would be for nothing if it left them out."""
    marked = [path for path in TESTS.rglob("test_*.py") if "pytest.mark.without_" + "dgl" in path.read_text("utf-8")]
    assert {path.relative_to(TESTS).as_posix() for path in marked} == {"package/test_without_dgl.py"} <= {*WITHOUT}


def test_nothing_skips_for_want_of_dgl_by_itself() -> None:
    for file in TESTS.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"importorskip\(.dgl|find_spec\(.dgl.\) is None", text), file
