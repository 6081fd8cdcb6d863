"""The command line in this process, for tests that need no real one."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from dgl_tuplepack.tools.cli import main


class Done(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command with `text` as its standard input."""

    def run(*arguments: object, text: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "argv", ["dgl-tuplepack", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        # It always leaves by sys.exit, with 0 too.
        with pytest.raises(SystemExit) as stopped:
            main()
        assert isinstance(stopped.value.code, int)
        return Done(stopped.value.code, *capsys.readouterr())

    return run
