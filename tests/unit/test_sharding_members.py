"""Archives and listings that lead outside of the folder that they are copied to."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, ShardsError
from dgl_tuplepack.sharding.members import copy_members, file_system, members
from dgl_tuplepack.sharding.shard import Shard
from tests.messages import refused
from tests.ogb_folder import write_ogb_folder

HOSTILE = [
    "set/../ESCAPED", "set/../../ESCAPED", "set/../../../../ESCAPED", "set/a/../b", "set/./../../ESCAPED", "set/..",
    "set//ESCAPED", "set/a\\..\\..\\..\\ESCAPED", "set/..\\ESCAPED", "set/C:\\ESCAPED", "set/C:ESCAPED",
]  # fmt: skip


class Hostile(MemoryFileSystem):
    """A place whose listing names what it is told to."""

    protocol = "hostile"
    store: ClassVar[dict[str, Any]] = {}
    names: ClassVar[list[str]] = []
    kind: ClassVar[str] = "file"

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("hostile://")))

    def isfile(self, path: str) -> bool:
        return False

    def find(self, path: str, *_: Any, **__: Any) -> Any:
        return {name: {"name": name, "size": 1, "type": self.kind, "created": 1} for name in self.names}

    def get_file(self, rpath: str, lpath: str, **_: Any) -> None:
        Path(lpath).write_text("x")


fsspec.register_implementation("hostile", Hostile, clobber=True)


def surroundings(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def zipped(path: Path, names: list[str]) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"x")
    return f"zip://set::file://{path}"


def tarred(path: Path, entries: list[tarfile.TarInfo]) -> str:
    with tarfile.open(path, "w") as archive:
        for entry in entries:
            entry.size = 1 if entry.isreg() else 0
            archive.addfile(entry, io.BytesIO(b"x") if entry.isreg() else None)
    return f"tar://set::file://{path}"


def remembered(_: Path, names: list[str]) -> str:
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    for name in names:
        memory.store[f"/{name}"] = memory.store.get("/x") or _memory_file()
    return "memory://set"


def _memory_file() -> Any:
    memory = fsspec.filesystem("memory")
    memory.pipe("/elsewhere/x", b"x")
    return memory.store.pop("/elsewhere/x")


def told(_: Path, names: list[str]) -> str:
    Hostile.names, Hostile.kind = [f"/{name}" for name in names], "file"
    return "hostile://set"


def in_tar(path: Path, names: list[str]) -> str:
    return tarred(path, [tarfile.TarInfo(name) for name in names])


PLACES = {"zip": zipped, "tar": in_tar, "memory": remembered, "made up": told}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_leads_outside_is_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, name: str
) -> None:
    if (place, name) in {("tar", "set//ESCAPED"), ("tar", "set/..")}:
        pytest.skip("fsspec gives tar another name, or does not list it")
    (tmp_path / "temporary" / "deep").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary" / "deep"))
    url = PLACES[place](tmp_path / "archive", ["set/fine", name])
    before = surroundings(tmp_path)
    for folder in (tmp_path, tmp_path / "temporary"):
        monkeypatch.chdir(folder)
        with refused(FormatError, url, "which"), Shard("a", url).opened():
            pass
        with refused(FormatError, url, "which"):
            Shard("a", url).identity()
    assert surroundings(tmp_path) == before


@pytest.mark.parametrize("name", ["/set2/x", "/ESCAPED", "set/x", "", "/set/\0", "/set/../x", "/set/", "http://set/x"])
def test_a_listing_that_names_other_places_is_refused(tmp_path: Path, name: str) -> None:
    Hostile.names, Hostile.kind = ["/set/fine", name], "file"
    with refused(FormatError, "hostile://set", repr(name)), Shard("a", "hostile://set").opened():
        pass


def test_names_that_become_equal_are_refused() -> None:
    Hostile.names, Hostile.kind = ["/set/x", "/set/./x"], "file"
    with refused(FormatError, "same path as '/set/"), Shard("a", "hostile://set").opened():
        pass


def test_a_file_never_takes_the_place_of_another(tmp_path: Path) -> None:
    """Also where the file system here takes two names for one."""
    Hostile.names, Hostile.kind = ["/set/x", "/set/x/y"], "file"
    with refused(FormatError, "hostile://set"), Shard("a", "hostile://set").opened():
        pass
    files, path = file_system("hostile://set")
    (tmp_path / "x").touch()
    Hostile.names = ["/set/x"]
    with refused(FormatError, "two files have the name 'x'"):
        copy_members(files, members(files, path, "u"), tmp_path, "u")


@given(
    parts=st.lists(st.sampled_from(["..", ".", "", "a", "b", "\\", "..\\a", "C:", "é", "\0", "a b", "~"]), min_size=1)
)
def test_what_is_taken_lies_below_the_folder(parts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    name = "/".join(["/set", *parts])
    Hostile.names, Hostile.kind = [name], "file"
    files, path = file_system("hostile://set")
    try:
        found = members(files, path, "hostile://set")
    except FormatError as error:
        assert repr(name)[:200] in str(error)  # noqa: PT017
        return
    target = tmp_path_factory.mktemp("target")
    (relative,) = found
    copy_members(files, found, target / "copy", "hostile://set")
    copied = [file for file in target.rglob("*") if file.is_file()]
    assert copied == [target / "copy" / relative]
    assert os.path.normpath(copied[0]) == str(copied[0])


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_members_of_tar_that_are_not_plain_files_are_refused(tmp_path: Path, kind: bytes) -> None:
    link = tarfile.TarInfo("set/odd")
    link.type, link.linkname = kind, "set/fine" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
    url = tarred(tmp_path / "a.tar", [tarfile.TarInfo("set/fine"), link])
    with refused(FormatError, url, "'set/odd'", "not a plain file"), Shard("a", url).opened():
        pass


def test_links_in_zip_and_other_kinds_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        link = zipfile.ZipInfo("set/odd")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with refused(FormatError, "'set/odd'", "not a plain file"), Shard("a", f"zip://set::{tmp_path}/a.zip").opened():
        pass
    Hostile.names, Hostile.kind = ["/set/odd"], "other"
    with refused(FormatError, "'/set/odd'", "not a plain file"), Shard("a", "hostile://set").opened():
        pass


@pytest.mark.parametrize("url", ["memory://bucket/..", "hostile://bucket/a\\b"])
def test_the_last_part_of_a_url_is_a_plain_name(url: str) -> None:
    Hostile.names = ["/bucket/a\\b/x"]
    with pytest.raises(FormatError), Shard("a", url).opened():
        pass


@pytest.mark.parametrize("kind", ["zip", "tar", "whole zip", "whole tar", "dotted tar", "memory"])
def test_archives_of_plain_files_are_read(tmp_path: Path, kind: str) -> None:
    sizes = tp.GraphSizes(np.array([[n, 2 * (n - 1)] for n in [3, 9, 4, 7, 5, 8, 6, 3]]))
    root = write_ogb_folder(tmp_path / "ogb", sizes)
    right = tp.GraphStore.write(tmp_path / "right", root)
    files = {file.relative_to(root): file for file in root.rglob("*") if file.is_file()}
    path, whole = tmp_path / "archive", kind.startswith(("whole", "dotted"))
    if kind.endswith("zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for name, file in files.items():
                archive.write(file, str(name))
    elif kind.endswith("tar"):
        with tarfile.open(path, "w") as archive:
            archive.add(*((root, ".") if kind == "dotted tar" else (root / "ogbg_molhiv", "ogbg_molhiv")))
    else:
        memory = fsspec.filesystem("memory")
        memory.put(str(root / "ogbg_molhiv"), "/ogbg_molhiv", recursive=True)
    url = f"{kind.split()[-1]}://{'' if whole else 'ogbg_molhiv'}" + ("" if kind == "memory" else f"::file://{path}")
    made = tp.preprocess_shards({"a": url}, tmp_path / "out", workers=1)
    assert made.store.parts[0].metadata.arrays == right.parts[0].metadata.arrays


def test_an_archive_writes_nothing_outside_of_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary" / "deep").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary" / "deep"))
    root = write_ogb_folder(tmp_path / "ogb", tp.GraphSizes(np.array([[3, 4]] * 8)))
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for file in (root / "ogbg_molhiv").rglob("*"):
            archive.write(file, str(file.relative_to(root)))
        archive.writestr("ogbg_molhiv/../../ESCAPED", "here")
    with refused(ShardsError, "ogbg_molhiv/../../ESCAPED"):
        tp.preprocess_shards([f"zip://ogbg_molhiv::{tmp_path}/a.zip"], tmp_path / "out", workers=1)
    assert not list(tmp_path.rglob("ESCAPED"))


class Closed(Hostile):
    """A place that tells of a folder, but does not let anyone look into one inside."""

    protocol = "closed"

    def info(self, path: str, **_: Any) -> Any:
        return {"name": path, "size": 0, "type": "file" if path.endswith("x") else "directory"}

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        if path.endswith("split"):
            raise PermissionError(13, "Permission denied")
        return [self.info(f"{path}/{name}") for name in ("x", "split")]

    find = fsspec.AbstractFileSystem.find

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("closed:/")


fsspec.register_implementation("closed", Closed, clobber=True)


def test_a_folder_that_cannot_be_listed_is_never_left_out() -> None:
    """A dataset without its folder of splits would be another one, and nobody would know."""
    for use in (lambda shard: shard.identity(), lambda shard: shard.opened().__enter__()):
        with refused(FormatError, "closed://set", "Permission denied"):
            use(Shard("a", "closed://set"))


def test_a_place_that_refuses_to_tell_is_not_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Closed, "info", refuse)
    with refused(FormatError, "closed://set", "Permission denied"):
        Shard("a", "closed://set").identity()


def test_a_copy_that_finds_no_space_names_both_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Hostile, "get_file", full)
    Hostile.names, Hostile.kind = ["/set/x"], "file"
    files, path = file_system("hostile://set")
    with refused(FormatError, "cannot copy hostile://set", str(tmp_path / "copy"), "No space left on device"):
        copy_members(files, members(files, path, "u"), tmp_path / "copy", "hostile://set")


@pytest.mark.parametrize("protocol", ["", "file://"])
def test_an_archive_that_is_a_pipe_is_not_waited_for(tmp_path: Path, protocol: str) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    with refused(ShardsError, "pipe.zip", "not a plain file"):
        tp.preprocess_shards([f"zip://set::{protocol}{tmp_path / 'pipe.zip'}"], tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()
