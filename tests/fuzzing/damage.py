"""Ways to damage a file: its bytes, or its place. Values of JSON documents are those of tests/unit/test_files.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

# Damages the file at a path, and says how.
Damage = Callable[[Path], str]

_MOVES: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nothing"),
    "a pipe": lambda path: os.mkfifo(path),
}


def damages() -> st.SearchStrategy[Damage]:
    """A function that damages the file at a path and says how."""
    return st.one_of(_changed(), st.sampled_from(sorted(_MOVES)).map(_moved))


@st.composite
def _changed(draw: st.DrawFn) -> Damage:
    """Bytes flipped, cut off, inserted or put in the place of all."""
    how, more = draw(st.sampled_from(["flipped", "cut", "inserted", "replaced"])), draw(st.binary(max_size=16))
    places = draw(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))

    def damage(path: Path) -> str:
        content = bytearray(path.read_bytes())
        at = int(places[0][0] * len(content))
        if how == "flipped":
            for place, change in places if content else ():
                content[int(place * len(content))] ^= change
        else:
            after = {"cut": b"", "inserted": more + content[at:], "replaced": b""}[how]
            content = more if how == "replaced" else content[:at] + after
        path.write_bytes(bytes(content))
        return f"{how} at {places}: {more!r}"

    return damage


def _moved(how: str) -> Damage:
    def damage(path: Path) -> str:
        path.unlink()
        _MOVES[how](path)
        return how

    return damage
