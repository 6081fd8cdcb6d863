"""Small files are written as a whole or not at all; tests run as root, so no test relies on permissions."""

from __future__ import annotations

import copy
import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack._core import files
from dgl_tuplepack.errors import FormatError, InputError
from tests.support.messages import refused
from tests.support.stores import molecules, write_shards


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_an_interrupted_write_leaves_the_old_file_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, step, fail)
    with refused(FormatError, "cannot write", str(path), "No space left on device", "free some space"):
        files.write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]  # nothing is left beside it


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with refused(FormatError, "cannot read", str(tmp_path / "absent"), "No such file"):
        files.read_text(tmp_path / "absent")
    with refused(FormatError, "cannot read", "Is a directory"):
        files.read_text(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with refused(FormatError, "cannot read", str(tmp_path / "binary"), "utf-8"):
        files.read_text(tmp_path / "binary")


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOMEM, "vm.max_map_count"), (errno.EMFILE, "ulimit -n"), (errno.EDQUOT, "quota"),
        (errno.EACCES, "check the path and its permissions"),
    ],
)  # fmt: skip
def test_the_advice_fits_the_error_of_the_system(
    number: int, advice: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A map that the system refuses for want of memory has nothing to do with permissions."""

    def fail(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "replace", fail)
    with refused(FormatError, "cannot write", os.strerror(number), advice):
        files.write_text(tmp_path / "plan.json", "new")
    monkeypatch.setattr(files, "open_plain", fail)
    with refused(FormatError, "cannot read", advice):
        files.open_file(tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "no json", "[" * 100_000])
def test_what_is_no_json_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with refused(FormatError, str(path), "not valid JSON", "damaged"):
        files.read_json(path)


# JSON of others ----------------------------------------------------------------------------------------------


def load(kind: str, path: Path) -> object:
    load = {
        "plan.json": tp.PackPlan.load, "histogram.json": tp.SizeHistogram.load, "bare.json": tp.SizeHistogram.load,
        "metadata.json": lambda file: tp.GraphStore(file.parent),
        "manifest.json": lambda file: tp.MultiStore(file.parent),
    }  # fmt: skip
    return load[kind](path)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One file of each kind that is read."""
    folder = tmp_path_factory.mktemp("ours")
    sizes = tp.GraphSizes([[3, 4], [2, 2], [2, 2]])
    tp.pack(sizes, tp.Limits(5, 6)).save(folder / "plan.json")
    tp.SizeHistogram.from_sizes(sizes).save(folder / "histogram.json")
    (folder / "bare.json").write_text("[[3, 4, 1], [2, 2, 2]]")
    write_shards(folder / "shards", [molecules(2), molecules(3)])
    files = {file.name: file for file in folder.glob("*.json")}
    return {
        **files,
        "metadata.json": folder / "shards/part-0/metadata.json",
        "manifest.json": folder / "shards/manifest.json",
    }


KINDS = ["plan.json", "histogram.json", "bare.json", "metadata.json", "manifest.json"]
ODD = st.sampled_from([
    None, True, False, -1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**99, -(10**99), 0.5, 1e300, -0.0, "", "a",
    "x" * 9999, "\ud800", "\0", "../x", [], {}, [[]], [{}], {"a": 1}, [1, "a"], [[1, 2], [3]], [None],
    [[[[[[[[[[1]]]]]]]]]], [-1], [2**64], [10**50], [0.5], ["int64"], "int64", [1] * 100,
])  # fmt: skip


@given(data=st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_of_another_kind_anywhere_is_refused_or_read(
    ours: dict[str, Path], tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    """With checksums that are right again, so that they do not tell."""
    document = json.loads(ours[kind].read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        inside: Any = document
        while True:
            keys = sorted(inside) if isinstance(inside, dict) else range(len(inside))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(inside[key], dict | list) or not inside[key] or data.draw(st.booleans()):
                break
            inside = inside[key]
        inside[key] = copy.deepcopy(data.draw(ODD))
    if "checksum" in document:
        document["checksum"] = files.checksum(document)
    folder = tmp_path_factory.mktemp("odd")
    (folder / kind).write_text(json.dumps(document))
    try:
        load(kind, folder / kind)
    except InputError as error:
        assert len(str(error)) < 2000  # noqa: PT017


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_what_is_not_a_file_is_never_replaced(tmp_path: Path) -> None:
    """Run as root, a renaming would replace /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name, what in (("pipe", "a device or a pipe"), ("folder", "a folder"), ("link", "a device or a pipe")):
        with refused(FormatError, "cannot write", what):
            files.write_text(tmp_path / name, "text")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "link", "pipe"]


def test_a_link_keeps_leading_to_its_file_which_is_read_back_byte_for_byte(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    files.write_text(tmp_path / "link", "Größe\nnodes\n")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == "Größe\nnodes\n".encode()
    assert files.read_text(tmp_path / "link") == "Größe\nnodes\n"
