"""Runs the command line in this process, in a folder of its own, and checks what must hold however it ends."""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import io
import json
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from dgl_tuplepack.cli import main

# Lines that a failure may take; usage errors are framed, and shards are listed.
_MOST_LINES = 20
# No command on these small inputs takes longer, whatever else the machine does.
_MOST_SECONDS = 120


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


class Case:
    """A folder with ``given`` (what the case reads) and ``out`` (where it may write), and others that stay empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.given, self.out = folder / "given", folder / "out"
        for name in ("given", "home", "current", "temporary"):
            (folder / name).mkdir()

    def run(self, arguments: Sequence[str], encoding: str = "utf-8", text: bytes = b"") -> Ended:
        """Run the entry point with these arguments and check how it ends."""
        before = _tree(self.given)
        had_output = os.path.lexists(self.out)
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2))
        code = self._code(arguments, out, err, text)
        # CSV is a file of ours, so UTF-8, wherever it is written.
        written = [(out, "utf-8" if "--csv" in arguments else encoding), (err, encoding)]
        ended = Ended(code, *(stream.buffer.getvalue().decode(name) for stream, name in written))  # type: ignore[attr-defined]
        said = f"{list(arguments)} ended with {ended.code}:\n{ended.out[-2000:]}\n{ended.err[-4000:]}"
        assert ended.code in (0, 1, 2), said
        assert "Traceback" not in ended.out + ended.err, said
        # CSV holds names as they are: it is data for a program.
        shown = ended.err if "--csv" in arguments else ended.out + ended.err
        assert not _control_characters(shown), said
        if ended.code:
            lines = ended.err.strip().splitlines()
            assert 1 <= len(lines) <= _MOST_LINES, said
        elif "--json" in arguments and "--help" not in arguments:
            json.loads(ended.out)
        assert _tree(self.given) == before, f"what was read was changed by {said}"
        for name in ("home", "current", "temporary"):
            left = sorted(str(path) for path in (self.folder / name).rglob("*"))
            assert not left, f"left behind: {left} by {said}"
        assert sorted(os.listdir(self.folder))[-1] == "temporary", f"beside: {os.listdir(self.folder)} by {said}"
        partial = [str(path) for path in self.folder.rglob("*.partial*")]
        assert not partial, f"left behind: {partial} by {said}"
        if ended.code == 2 and not had_output:
            assert not os.path.lexists(self.out), f"bad usage made {self.out} by {said}"
        return ended

    def _code(self, arguments: Sequence[str], out: io.TextIOWrapper, err: io.TextIOWrapper, text: bytes) -> int:
        environment = {"HOME": str(self.folder / "home"), "TMPDIR": str(self.folder / "temporary"), "COLUMNS": "100"}
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.object(tempfile, "tempdir", None),
            mock.patch.object(sys, "argv", ["dgl-tuplepack", *arguments]),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(text))),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            contextlib.chdir(self.folder / "current"),
            warnings.catch_warnings(),
            limited(arguments),
        ):
            warnings.simplefilter("error")
            try:
                main()
            except SystemExit as stopped:
                return stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
        return 0


@contextlib.contextmanager
def limited(what: object) -> Iterator[None]:
    """Fail where something does not end."""

    def late(*_: object) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__)
        raise AssertionError(f"{what} does not end")

    previous = signal.signal(signal.SIGALRM, late)
    signal.alarm(_MOST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _tree(folder: Path) -> dict[str, str]:
    """Path of everything in a folder -> what it is."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            told = f"link to {os.readlink(path)}"
        elif path.is_file():
            told = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            told = "folder" if path.is_dir() else "other"
        # A store's lock is made by whoever looks whether it is being written.
        if path.name != ".lock":
            found[str(path.relative_to(folder))] = told
    return found


def _control_characters(text: str) -> list[str]:
    return [character for character in text if character not in "\n\t" and not _is_shown(character)]


def _is_shown(character: str) -> bool:
    code = ord(character)
    return code >= 0x20 and not 0x7F <= code <= 0x9F
