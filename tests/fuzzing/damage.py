"""Ways to damage a file: its bytes, its place, or the values of a JSON document, signed again or not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.stores import checksum_of

# What a JSON value may be replaced by, as text: some of it cannot be written by the json module.
_HOSTILE = (
    "null", "true", "-1", "0", "1", "1.5", "1e400", "NaN", "-Infinity", str(2**63), str(-(2**63) - 1), "9" * 5000,
    '""', '"a"', '"../../ESCAPED"', '"/ESCAPED"', '"a\\u0000b"', '"\\ud800"', '"[/x]"', '"x\\u001b[31m"', '"int64"',
    '"float64"', "[]", "{}", "[[]]", "[1]", "[-1]", '{"a": 1}', "[" * 500 + "]" * 500, "[" * 100_000,
    '{"a":' * 500 + "1" + "}" * 500,
)  # fmt: skip
_MARK = "@replaced@"

Damage = Callable[[Path], str]


def damages() -> st.SearchStrategy[Damage]:
    """A function that damages the file at a path and says how."""
    return st.one_of(
        _flipped(), _truncated(), _inserted(), _replaced(), _moved(), _json_values(), _json_keys(), _json_values()
    )  # fmt: skip


@st.composite
def _flipped(draw: st.DrawFn) -> Damage:
    places = draw(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=4))

    def damage(path: Path) -> str:
        content = bytearray(path.read_bytes())
        for place, change in places:
            if content:
                content[int(place * len(content))] ^= change
        path.write_bytes(bytes(content))
        return f"bytes flipped at {places}"

    return damage


@st.composite
def _truncated(draw: st.DrawFn) -> Damage:
    place = draw(st.floats(0, 1, exclude_max=True))

    def damage(path: Path) -> str:
        content = path.read_bytes()
        path.write_bytes(content[: int(place * len(content))])
        return f"cut at {place}"

    return damage


@st.composite
def _inserted(draw: st.DrawFn) -> Damage:
    place, more = draw(st.floats(0, 1)), draw(st.binary(min_size=1, max_size=16))

    def damage(path: Path) -> str:
        content = path.read_bytes()
        at = int(place * len(content))
        path.write_bytes(content[:at] + more + content[at:])
        return f"{more!r} inserted at {place}"

    return damage


@st.composite
def _replaced(draw: st.DrawFn) -> Damage:
    content = draw(st.one_of(st.binary(max_size=64), st.sampled_from([text.encode() for text in _HOSTILE])))

    def damage(path: Path) -> str:
        path.write_bytes(content)
        return f"replaced by {content[:80]!r}"

    return damage


@st.composite
def _moved(draw: st.DrawFn) -> Damage:
    how = draw(st.sampled_from(["removed", "a folder", "a link to itself", "a link to nothing", "a pipe"]))

    def damage(path: Path) -> str:
        path.unlink()
        if how == "a folder":
            path.mkdir()
        elif how == "a link to itself":
            path.symlink_to(path)
        elif how == "a link to nothing":
            path.symlink_to("nothing")
        elif how == "a pipe":
            os.mkfifo(path)
        return how

    return damage


@st.composite
def _json_values(draw: st.DrawFn) -> Damage:
    choice, value, signed = (
        draw(st.floats(0, 1, exclude_max=True)),
        draw(st.sampled_from(_HOSTILE)),
        draw(st.booleans()),
    )

    def damage(path: Path) -> str:
        document = _document(path)
        places = list(_places(document)) if document is not None else []
        if not places:
            path.write_text(value)
            return f"replaced by {value:.80}"
        *inside, last = places[int(choice * len(places))]
        holder = document
        for key in inside:
            holder = holder[key]
        holder[last] = _MARK
        _save(path, document, value, signed)
        return f"{[*inside, last]} replaced by {value:.80}, {'signed' if signed else 'as it is'}"

    return damage


@st.composite
def _json_keys(draw: st.DrawFn) -> Damage:
    choice, signed, twice = draw(st.floats(0, 1, exclude_max=True)), draw(st.booleans()), draw(st.booleans())

    def damage(path: Path) -> str:
        document = _document(path)
        places = list(_places(document)) if document is not None else []
        if not places:
            path.write_bytes(b"")
            return "emptied"
        *inside, last = places[int(choice * len(places))]
        holder = document
        for key in inside:
            holder = holder[key]
        if not twice:
            del holder[last]
        elif isinstance(holder, list):
            holder.append(holder[last])
        else:
            holder[f"{last}s"] = holder[last]
        _save(path, document, "", signed)
        return f"{[*inside, last]} {'doubled' if twice else 'left out'}, {'signed' if signed else 'as it is'}"

    return damage


def _document(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError:
        return None


def _save(path: Path, document: Any, value: str, signed: bool) -> None:
    """Write the document, its checksum as `docs/format.md` has it where it can be computed."""
    text = json.dumps(document).replace(json.dumps(_MARK), value)
    if signed and isinstance(document, dict) and "checksum" in document and document["checksum"] != _MARK:
        try:
            document = json.loads(text)
            document["checksum"] = checksum_of(document)
            text = json.dumps(document)
        except (ValueError, RecursionError):
            pass
    path.write_text(text)


def _places(value: Any, above: tuple[Any, ...] = ()) -> Any:
    """Paths to all values inside a JSON document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*above, key)
        yield from _places(part, (*above, key))
