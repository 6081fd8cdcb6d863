"""Small files are written as a whole or not at all; tests run as root, so no test relies on permissions."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from dgl_tuplepack import _files
from dgl_tuplepack.errors import FormatError
from tests.messages import refused


def test_what_is_written_is_read_back_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    _files.write_text(path, "Größe\nnodes\n")
    assert path.read_bytes() == "Größe\nnodes\n".encode()
    assert _files.read_text(path) == "Größe\nnodes\n"


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    _files.write_text(tmp_path / "ours", "")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


@pytest.mark.parametrize("step", ["replace", "fsync", "chmod"])
def test_an_interrupted_write_leaves_the_old_file_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_files.os, step, fail)
    with refused(FormatError, "cannot write", str(path), "No space left on device", "check"):
        _files.write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]  # nothing is left beside it


def test_even_an_interrupt_from_the_keyboard_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_files.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _files.write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.json"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(FormatError, "cannot write", str(tmp_path / "file" / "plan.json"), "Not a directory"):
        _files.write_text(tmp_path / "file" / "plan.json", "x")
    with refused(FormatError, "cannot write", str(tmp_path / "absent" / "plan.json"), "No such file"):
        _files.write_text(tmp_path / "absent" / "plan.json", "x")


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with refused(FormatError, "cannot write", "Is a directory"):
        _files.write_text(tmp_path / "folder", "x")
    assert os.listdir(tmp_path) == ["folder"]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with refused(FormatError, "cannot read", str(tmp_path / "absent"), "No such file"):
        _files.read_text(tmp_path / "absent")
    with refused(FormatError, "cannot read", "Is a directory"):
        _files.read_text(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with refused(FormatError, "cannot read", str(tmp_path / "binary"), "utf-8"):
        _files.read_text(tmp_path / "binary")


@pytest.mark.parametrize("text", ["", "{", '{"a": 1', "no json", "[" * 100_000])
def test_what_is_no_json_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with refused(FormatError, str(path), "no valid JSON", "damaged"):
        _files.read_json(path)


@pytest.mark.parametrize("document", [[], 3, None, "text", {}, {"format": "other"}, {"format": None}])
def test_a_foreign_document_is_refused(document: object) -> None:
    with refused(FormatError, "a.json is not a ours file", "give a file"):
        _files.check_header(document, "a.json", "ours", 1)


@pytest.mark.parametrize("version", [2, 0, None, "1", [1]])
def test_another_version_is_refused(version: object) -> None:
    with refused(FormatError, f"version {version!r} of ours", "reads version 1", "release that wrote it"):
        _files.check_header({"format": "ours", "version": version}, "a.json", "ours", 1)


def test_the_right_header_passes() -> None:
    _files.check_header({"format": "ours", "version": 1}, "a.json", "ours", 1)


def test_reading_needs_no_space(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="check the path and its permissions") as caught:
        _files.read_text(tmp_path / "absent")
    assert "space" not in str(caught.value)
    with refused(FormatError, "check the path, its permissions and the space left"):
        _files.write_text(tmp_path / "absent" / "file", "")
