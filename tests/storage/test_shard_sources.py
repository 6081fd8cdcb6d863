"""What a shard may be: names, and files and folders on any file system of fsspec."""

from __future__ import annotations

import io
import re
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.errors import ShardsError, SizesError
from dgl_tuplepack.storage.shard_sources import Shard, as_shards
from tests.support.messages import refused
from tests.support.ogb_folder import write_ogb_folder
from tests.support.shards import assert_holds, make_shards, molecules
from tests.support.stores import plans_in

SIZES = tp.GraphSizes(np.array([[n, 2 * (n - 1)] for n in [3, 9, 4, 7, 5, 8, 6, 3]]))


def test_folders_and_objects_are_shards_too(tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [write_ogb_folder(tmp_path / name, SIZES, seed) / "ogbg_molhiv" for seed, name in enumerate("ab")]
    # Two of one name are told apart by the folders that they lie in.
    made = make_shards([roots[0], tp.OgbFolder(roots[1])], out)
    assert made.written == ("a-ogbg_molhiv", "b-ogbg_molhiv")
    assert made.store.splits["train"].tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]
    assert plans_in(out / "b-ogbg_molhiv") == ["plan-test.json", "plan-train.json", "plan-valid.json"]
    # From another working folder, they are the same.
    monkeypatch.chdir(tmp_path)
    assert make_shards(["a/ogbg_molhiv", tp.OgbFolder("b/ogbg_molhiv")], out).written == ()
    made = make_shards(roots, out, ogb_settings={"labels": False})
    assert (len(made.written), made.store.schema.labels) == (2, {})
    # Objects without files are written again.
    for _ in range(2):
        assert make_shards({"a": molecules(0)}, tmp_path / "objects").written == ("a",)


def test_names_are_plain_and_unique() -> None:
    def names(*shards: Any) -> list[str]:
        return [shard.name for shard in as_shards(shards, {})]

    assert names("s3://b/x/part 1.bin", "s3://b/x/../é") == ["part_1", "_"]
    assert names("a/x.bin", "b/x.bin", "c/y.bin") == [*names("a/x.bin", "b/x.bin"), "c-y"]
    assert names("zip://a.bin::s3://b/x.zip", "zip://d/b.bin::s3://b/x.zip", "simplecache::s3://b/c") == ["a", "b", "c"]
    assert names(["graphs"], "x.bin") == ["shard-00000", "x"]
    assert all("/" not in name and not name.startswith(".") for name in names("../..", ".hidden"))
    with refused(SizesError, "two shards", "-x'", "dict of names to shards"):
        names("x.bin", "x.bin")
    for one in ("abc", Path("abc"), b"abc"):
        with refused(SizesError, "abc", "list"):
            as_shards(one, {})
    with refused(SizesError, "no shards"):
        names()
    for shards in (["a/manifest.json.bin"], {"metadata.json": "x.bin"}, ["Manifest.JSON"]):
        with refused(SizesError, "name of a file of a dataset", "mapping"):
            as_shards(shards, {})


def test_shards_may_lie_anywhere(bins: list[Path], tmp_path: Path, out: Path) -> None:
    """On any file system of fsspec: files and folders, which are copied here and taken away again."""
    write_ogb_folder(tmp_path / "ogb", SIZES)
    memory = fsspec.filesystem("memory")
    memory.put(str(bins[0]), "/bucket/part-0.bin")
    memory.put(str(tmp_path / "ogb" / "ogbg_molhiv"), "/bucket/ogbg_molhiv", recursive=True)
    tp.GraphStore.write(tmp_path / "store", molecules(1))
    memory.put(str(tmp_path / "store"), "/bucket/store", recursive=True)
    urls = ["memory://bucket/part-0.bin", "memory://bucket/store", f"file://{bins[2]}"]
    made = make_shards(urls, out)
    assert made.written == ("part-0", "store", "part-2")
    assert_holds(made.store, 0, 1, 2)
    assert make_shards(urls, out).written == ()
    memory.pipe("/bucket/part-0.bin", bins[1].read_bytes())
    made = make_shards(urls, out)
    assert made.written == ("part-0",)
    assert_holds(made.store, 1, 1, 2)

    found = make_shards(["memory://bucket/ogbg_molhiv"], tmp_path / "of-ogb").store
    right = tp.GraphStore.write(tmp_path / "right", tp.OgbFolder(tmp_path / "ogb" / "ogbg_molhiv"))
    assert found.segments[0].metadata.arrays == right.segments[0].metadata.arrays
    with refused(ShardsError, "memory://bucket/nothing", "nowhere://x"):
        make_shards(["memory://bucket/nothing", "nowhere://x"], tmp_path / "of-ogb")


@pytest.mark.parametrize(("kind", "whole"), [("zip", False), ("tar", True)])
def test_archives_are_read_and_forged_ones_write_nothing_outside(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, kind: str, whole: bool
) -> None:
    (tmp_path / "temporary" / "deep").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary" / "deep"))
    root, path = write_ogb_folder(tmp_path / "ogb", SIZES), tmp_path / "archive"
    files = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    url = f"{kind}://{'' if whole else 'ogbg_molhiv'}::file://{path}"
    _pack(path, kind, files)
    right = tp.GraphStore.write(tmp_path / "right", root)
    made = make_shards({"a": url}, out)
    assert made.store.segments[0].metadata.arrays == right.segments[0].metadata.arrays
    assert make_shards({"a": url}, out).written == ()
    _pack(path, kind, {**files, "ogbg_molhiv/../../ESCAPED": b"here"})
    with refused(ShardsError, "ESCAPED", "outside"):
        make_shards({"a": url}, out)
    assert not list(tmp_path.rglob("ESCAPED"))


def _pack(path: Path, kind: str, files: dict[str, bytes]) -> None:
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        return
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def test_a_failure_names_the_url_and_not_its_copy(tmp_path: Path, out: Path) -> None:
    _pack(tmp_path / "parts.zip", "zip", {"part.bin": b"damaged"})
    url = f"zip://part.bin::{tmp_path / 'parts.zip'}"
    with pytest.raises(ShardsError, match=re.escape(url)) as caught:
        make_shards([url], out)
    assert tempfile.gettempdir() + "/dgl-tuplepack-" not in str(caught.value)


def test_a_change_is_noticed_though_sizes_stay(bins: list[Path], tmp_path: Path) -> None:
    """In an archive whose members are always of the same time."""
    shard = Shard("part", f"zip://part.bin::file://{tmp_path / 'archive.zip'}")
    found = []
    for content in (bins[0].read_bytes(), bins[0].read_bytes(), bins[0].read_bytes()[:-1] + b"\7"):
        _pack(tmp_path / "archive.zip", "zip", {"part.bin": content})
        found.append(shard.identity())
    assert found[0] == found[1] != found[2]
