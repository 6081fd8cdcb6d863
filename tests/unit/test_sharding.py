"""Shards to one dataset, in this process: what is written, kept, redone, joined and refused."""

from __future__ import annotations

import json
import os
import re
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dgl
import fsspec
import numpy as np
import pytest
from click.testing import Result
from filelock import FileLock
from typer.testing import CliRunner

import dgl_tuplepack as tp
from dgl_tuplepack.cli.commands import app
from dgl_tuplepack.errors import (
    FormatError,
    GraphTooLargeError,
    InputError,
    LimitsError,
    SchemaError,
    SearchError,
    ShardsError,
    SizesError,
)
from dgl_tuplepack.preprocessing import preprocess
from dgl_tuplepack.sharding import verify_shards
from dgl_tuplepack.sharding.shard import as_shards
from dgl_tuplepack.sharding.tasks import plan_shard
from tests.graphs import assert_same_item
from tests.messages import refused
from tests.ogb_folder import write_ogb_folder
from tests.shards import Misbehaving, molecules, write_bin, write_bins
from tests.stores import checksum_of, data_of, plans_in, write_shards

LIMITS = tp.Limits(30, 30)


def run(shards: Any, out: Path, **settings: Any) -> Any:
    return tp.preprocess_shards(shards, out, **{"limits": LIMITS, "workers": 1, **settings})


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files but locks: when they were written, and what they hold."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def assert_holds(store: tp.MultiStore, parts: list[list[Any]]) -> None:
    items = [item for part in parts for item in part]
    assert len(store) == len(items)
    for found, item in zip(store, items, strict=True):
        assert_same_item(found, item)


@pytest.fixture
def bins(tmp_path: Path) -> list[Path]:
    return write_bins(tmp_path, 3)


def test_limits_of_shards_are_for_a_number_of_graphs(bins: list[Path], tmp_path: Path) -> None:
    made = tp.preprocess_shards(bins, tmp_path / "out", workers=1, graphs_per_batch=10)
    search = tp.search_limits(made.store.histogram, graphs_per_batch=10, packs_per_batch="auto")
    assert (made.limits, made.packs_per_batch) == (search.best.limits, 2)
    loader = tp.packed_loader(tmp_path / "out", 10, limits=made.store.limits)
    assert (loader.packs_per_batch, loader.graphs_per_batch) == (2, 10)


def test_every_shard_gets_a_store_and_a_plan_of_the_same_limits(bins: list[Path], tmp_path: Path) -> None:
    made = tp.preprocess_shards(bins, tmp_path / "out", workers=1, multiple_of=8)
    assert_holds(made.store, [molecules(i) for i in range(3)])
    assert (made.written, made.kept, made.planned) == (("part-0", "part-1", "part-2"), (), made.written)
    assert (made.limits.nodes + 1) % 8 == made.limits.edges % 8 == 0
    assert made.limits == made.store.limits == tp.search_limits(made.store.histogram, multiple_of=8).best.limits
    for i, (name, shard) in enumerate(made.store.shards.items()):
        assert name == f"part-{i}"
        plan = tp.PackPlan.load(tmp_path / "out" / name / "plan.json")
        assert plan.limits == made.limits
        # A sampler takes the plan: it is for this shard.
        sampler = tp.PackBatchSampler(shard.sizes, plan.limits, plan=plan)
        assert sorted(i for ids in sampler for i in ids) == list(range(20))
    assert verify_shards(tmp_path / "out").sizes.array.tolist() == made.store.sizes.array.tolist()


def test_the_result_depends_on_no_executor(bins: list[Path], tmp_path: Path) -> None:
    run(bins, tmp_path / "one")
    with ThreadPoolExecutor(3) as executor:
        run(bins, tmp_path / "other", workers=None, executor=executor)
    documents = []
    for out in ("one", "other"):
        plans = [json.loads((tmp_path / out / f"part-{i}" / "plan.json").read_text()) for i in range(3)]
        stores = [tp.GraphStore(tmp_path / out / f"part-{i}").parts[0].metadata.arrays for i in range(3)]
        documents.append((plans, stores))
    assert documents[0] == documents[1]


def test_a_second_run_writes_nothing(bins: list[Path], tmp_path: Path) -> None:
    run(bins, tmp_path / "out")
    before = snapshot(tmp_path / "out")
    made = run(bins, tmp_path / "out")
    assert (made.written, made.kept, made.planned) == ((), ("part-0", "part-1", "part-2"), ())
    assert snapshot(tmp_path / "out") == before
    # Other limits: plans alone.
    made = run(bins, tmp_path / "out", limits=tp.Limits(40, 40))
    assert (made.written, made.planned) == ((), ("part-0", "part-1", "part-2"))
    assert made.store.limits == tp.Limits(40, 40)
    assert {name.split("/")[-1] for name, file in snapshot(tmp_path / "out").items() if file != before.get(name)} == {
        "plan.json", "manifest.json",
    }  # fmt: skip
    # A plan that belongs to no part of the split is somebody else's.
    tp.pack([[1, 1]], LIMITS).save(tmp_path / "out" / "part-0" / "plan-mine.json")
    verify_shards(tmp_path / "out")
    assert run(bins, tmp_path / "out").planned == ("part-0", "part-1", "part-2")
    assert plans_in(tmp_path / "out" / "part-0") == ["plan-mine.json", "plan.json"]
    made = run(bins, tmp_path / "out", overwrite=True)
    assert made.written == ("part-0", "part-1", "part-2")


def _half_written(out: Path) -> None:
    (out / "part-1" / "metadata.json").unlink()


def _flipped(out: Path) -> None:
    file = max(data_of(out / "part-1").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(bytes(content))


def _unfinished(out: Path) -> None:
    (out / "part-1" / "source.json").unlink()


def _strange_source(out: Path) -> None:
    (out / "part-1" / "source.json").write_text("{}")


@pytest.mark.parametrize("damage", [_half_written, _flipped, _unfinished, _strange_source])
def test_a_damaged_shard_is_redone_alone(bins: list[Path], tmp_path: Path, damage: Any) -> None:
    run(bins, tmp_path / "out")
    damage(tmp_path / "out")
    made = run(bins, tmp_path / "out")
    assert (made.written, made.kept) == (("part-1",), ("part-0", "part-2"))
    assert_holds(made.store, [molecules(i) for i in range(3)])
    verify_shards(tmp_path / "out")


def test_damage_that_opening_does_not_see_is_found(tmp_path: Path) -> None:
    """Of large files, opening looks at samples alone."""
    shard = write_bin(tmp_path / "large.bin", molecules(0, 3000))
    run([shard], tmp_path / "out")
    file = max(data_of(tmp_path / "out" / "large").glob("*feature*"), key=lambda path: path.stat().st_size)
    with file.open("r+b") as opened:
        opened.seek(6000)
        byte = opened.read(1)
        opened.seek(6000)
        opened.write(bytes([byte[0] ^ 1]))
    assert len(tp.MultiStore(tmp_path / "out")) == 3000
    with refused(ShardsError, "1 of 1", "large: ", file.name):
        verify_shards(tmp_path / "out")
    assert run([shard], tmp_path / "out").written == ("large",)
    verify_shards(tmp_path / "out")


def test_a_changed_source_or_setting_is_noticed(bins: list[Path], tmp_path: Path) -> None:
    run(bins, tmp_path / "out")
    write_bin(bins[2], molecules(9, 7))
    made = run(bins, tmp_path / "out")
    assert (made.written, made.planned) == (("part-2",), ("part-2",))
    assert_holds(made.store, [molecules(0), molecules(1), molecules(9, 7)])
    assert run(bins, tmp_path / "out", compact=True).kept == ()
    # Shards that are left out, or come in another order, need no work.
    made = run([bins[2], bins[0]], tmp_path / "out", compact=True)
    assert made.written == ()
    assert_holds(made.store, [molecules(9, 7), molecules(0)])


def test_a_source_that_changes_while_it_is_read_is_refused(
    bins: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = tp.GraphStore.write

    def write_late(path: Path, source: Any, **settings: Any) -> tp.GraphStore:
        store = write(path, source, **settings)
        write_bin(bins[0], molecules(9))
        return store

    with monkeypatch.context() as patch:
        patch.setattr(tp.GraphStore, "write", write_late)
        with refused(ShardsError, "1 of 1", "part-0", "changed while it was read"):
            run(bins[:1], tmp_path / "out")
    made = run(bins[:1], tmp_path / "out")
    assert made.written == ("part-0",)
    assert_holds(made.store, [molecules(9)])


def test_failed_shards_are_named_and_the_rest_goes_on(bins: list[Path], tmp_path: Path) -> None:
    bins[1].write_bytes(b"no graphs")
    shards = {path.stem: path for path in [*bins, tmp_path / "absent.bin"]} | {"torn": Misbehaving(5, "raise")}
    with refused(ShardsError, "3 of 5", "part-1: ", "absent: ", "torn: RuntimeError: the tape is torn"):
        run(shards, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    with refused(FormatError, "manifest.json"):
        tp.MultiStore(tmp_path / "out")
    write_bin(bins[1], molecules(1))
    made = run(bins, tmp_path / "out")
    assert (made.written, made.kept) == (("part-1",), ("part-0", "part-2"))


def test_an_old_shard_outlives_a_source_that_fails(bins: list[Path], tmp_path: Path) -> None:
    run(bins, tmp_path / "out")
    bins[1].unlink()
    with refused(ShardsError, "part-1"):
        run(bins, tmp_path / "out")
    assert_holds(tp.MultiStore(tmp_path / "out"), [molecules(i) for i in range(3)])


def _other_features(bins: list[Path]) -> Any:
    return {"part-0": [dgl.graph(([0], [1])) for _ in range(3)], "part-1": bins[1], "part-2": bins[2]}


def _one_missing(bins: list[Path]) -> Any:
    write_bin(bins[0], molecules(9))
    bins[1].unlink()
    return bins


def _too_large(bins: list[Path]) -> Any:
    write_bin(bins[0], [(dgl.rand_graph(31, 3), label) for _, label in molecules(9)])
    return bins[:1]


@pytest.mark.parametrize(
    ("change", "error"),
    [(_other_features, ShardsError), (_one_missing, ShardsError), (_too_large, GraphTooLargeError)],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_failed_run_leaves_the_dataset_as_it_was(
    bins: list[Path], tmp_path: Path, change: Any, error: Any, overwrite: bool
) -> None:
    out = tmp_path / "out"
    run(bins, out)
    before = snapshot(out)
    with pytest.raises(error):
        run(change(bins), out, overwrite=overwrite)
    assert snapshot(out).items() >= before.items()
    assert_holds(verify_shards(out), [molecules(i) for i in range(3)])
    # What was written is not written again, unless it is of something else.
    write_bins(tmp_path, 3)
    write_bin(bins[1], molecules(5))
    with refused(ShardsError, "1 of 4"):
        run([*bins, tmp_path / "absent.bin"], out)
    made = run(bins, out)
    assert (made.written, made.planned) == ((), ("part-0", "part-1", "part-2"))
    assert_holds(verify_shards(out), [molecules(0), molecules(5), molecules(2)])
    assert not (out / ".new").exists()


# After data, metadata and source.json of the first shard.
@pytest.mark.parametrize("steps", range(4))
def test_an_interrupt_while_shards_are_replaced_leaves_nothing_that_opens(
    bins: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    out = tmp_path / "out"
    tp.GraphStore.write(tmp_path / "store", molecules(0), splits={"train": [1, 2]})
    run({"part-0": tmp_path / "store"}, out)
    shards = dict(zip(["part-0", "part-1"], bins, strict=False))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _stopping_after(steps, out))
        with pytest.raises(KeyboardInterrupt):
            run(shards, out)
    with refused(FormatError, "manifest.json"):
        tp.MultiStore(out)
    assert_holds(run(shards, out).store, [molecules(0), molecules(1)])
    verify_shards(out)
    assert plans_in(out / "part-0") == ["plan.json"]
    assert sorted(path.name for path in out.iterdir()) == [".lock", "manifest.json", "part-0", "part-1"]


def _stopping_after(steps: int, out: Path) -> Any:
    replace, left = os.replace, [steps]

    def stopping(old: Any, new: Any) -> None:
        if (out / ".new") in Path(old).parents and (out / ".new") not in Path(new).parents:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
        replace(old, new)

    return stopping


def test_shards_of_other_kinds_are_refused(bins: list[Path], tmp_path: Path) -> None:
    graphs = [dgl.graph(([0], [1])) for _ in range(3)]
    with refused(ShardsError, "1 of 2", "plain", "node features", "kind", "part-0"):
        run({"part-0": bins[0], "plain": graphs}, tmp_path / "out")
    with refused(SchemaError, "part-1", "node features", "kind", "part-0"):
        write_shards(tmp_path / "by-hand", [molecules(0), graphs])


def test_shards_have_some_parts_or_none_has_any(bins: list[Path], tmp_path: Path) -> None:
    splits: dict[str, Any] = {"a": {"train": [3, 1], "test": [2]}, "b": {"test": range(20)}, "c": {"train": []}}
    for seed, (name, parts) in enumerate(splits.items()):
        tp.GraphStore.write(tmp_path / name, molecules(seed), splits=parts)
    with refused(ShardsError, "2 of 4", "c: it has no split, but b has one", "part-0: it has no split"):
        run([tmp_path / "c", tmp_path / "b", bins[0], tmp_path / "a"], tmp_path / "out")
    made = run([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert {name: ids.tolist() for name, ids in made.store.splits.items()} == {
        "train": [3, 1], "test": [2, *range(20, 40)],
    }  # fmt: skip
    assert plans_in(tmp_path / "out" / "a") == ["plan-test.json", "plan-train.json"]
    assert plans_in(tmp_path / "out" / "b") == ["plan-test.json"]
    verify_shards(tmp_path / "out")
    # Where no graph is in any part, there is nothing to leave out.
    run([tmp_path / "c", bins[0]], tmp_path / "out")


def test_limits_below_the_largest_graph_are_refused(bins: list[Path], tmp_path: Path) -> None:
    with refused(GraphTooLargeError, "8"):
        run(bins, tmp_path / "out", limits=tp.Limits(7, 30))
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert run(bins, tmp_path / "out").written == ()


@pytest.mark.parametrize("files", [
    ("plan.json", "plan-b.json", "source.json", "raw.dat"), ("plan.json", "source.json"), ("plan-b.json",),
])  # fmt: skip
def test_files_of_others_stay(bins: list[Path], tmp_path: Path, files: tuple[str, ...]) -> None:
    """Whatever their names; and ours stay where others were put beside them."""
    out = tmp_path / "out"
    run(bins[:1], out)
    (out / "part-1").mkdir()
    for name in files:
        (out / "part-1" / name).write_text("{}")
    (out / "part-0" / "metadata.json").unlink()
    (out / "part-0" / "raw.dat").touch()
    before = snapshot(out)
    with refused(ShardsError, "2 of 2", "part-0: ", "part-1: ", "holds other things"):
        run(bins[:2], out)
    assert snapshot(out) == before


def test_a_source_is_never_written_over(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = write_shards(out, [molecules(0), molecules(1)])
    (tmp_path / "link").symlink_to(out)
    folders = [store.path for store in made.shards.values()]
    inside = write_bin(folders[0] / "graphs.bin", molecules(2))
    before = snapshot(tmp_path)
    for shards, place in [
        (folders, out),
        ([f"file://{folders[0]}"], out),
        ([tmp_path / "link" / "part-1"], out),
        (folders, tmp_path / "link"),
        ({"part-0": inside}, out),
        # Each other's.
        ({"part-1": folders[0], "part-0": tmp_path / "absent.bin"}, out),
        # One in which the dataset lies.
        ([folders[0]], folders[0]),
        ([folders[0]], folders[0] / "shards"),
    ]:
        with refused(SizesError, "is to be written", "part-"):
            run(shards, place)
    assert snapshot(tmp_path) == before
    assert len(run([folders[0]], tmp_path / "other").store) == 20


def test_two_runs_at_once_are_refused(bins: list[Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with FileLock(tmp_path / "out" / ".lock"), refused(FormatError, "another process", str(tmp_path / "out")):
        run(bins, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
    run(bins, tmp_path / "out")


@pytest.mark.parametrize("exists", [False, True])
def test_a_run_that_writes_nothing_leaves_nothing(tmp_path: Path, exists: bool) -> None:
    out = tmp_path / "out"
    if exists:
        out.mkdir()
    with refused(ShardsError, "absent.bin"):
        run([tmp_path / "absent.bin"], out)
    assert list(tmp_path.iterdir()) == ([out] if exists else [])
    assert not exists or not list(out.iterdir())


def test_a_name_in_an_archive_that_leads_outside_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary" / "deep").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary" / "deep"))
    for name in ("set/../../ESCAPED", "set/../../../../ESCAPED", "set//" + str(tmp_path / "ESCAPED")):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for member in ("set/fine", name):
                archive.writestr(zipfile.ZipInfo(member), b"x")
        with pytest.raises(ShardsError):
            run([f"zip://set::{tmp_path / 'a.zip'}"], tmp_path / "out")
    assert not list(tmp_path.rglob("ESCAPED"))


def test_a_failure_names_the_url_and_not_its_copy(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as archive:
        archive.writestr("part.bin", b"damaged")
    url = f"zip://part.bin::{tmp_path / 'parts.zip'}"
    with pytest.raises(ShardsError, match=re.escape(url)) as caught:
        run([url], tmp_path / "out")
    assert tempfile.gettempdir() + "/dgl-tuplepack-" not in str(caught.value)


def test_a_folder_holds_a_store_or_shards_never_both(bins: list[Path], tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", molecules(0))
    before = snapshot(tmp_path / "store")
    for overwrite in (False, True):
        with refused(FormatError, str(store.path), "holds a store"):
            run(bins, store.path, overwrite=overwrite)
    assert snapshot(tmp_path / "store") == before
    run(bins, tmp_path / "shards")
    before = snapshot(tmp_path / "shards")
    for overwrite in (False, True):
        with refused(FormatError, str(tmp_path / "shards"), "holds a dataset of shards"):
            tp.GraphStore.write(tmp_path / "shards", molecules(0), overwrite=overwrite)
        with refused(FormatError, "holds a dataset of shards"):
            preprocess(bins[0], tmp_path / "shards", overwrite=overwrite)
    assert snapshot(tmp_path / "shards") == before
    # Both, put together by hand: no command may choose one in silence.
    (store.path / "manifest.json").write_bytes((tmp_path / "shards" / "manifest.json").read_bytes())
    for name in ("info", "verify", "sizes"):
        assert "a store and a dataset of shards" in str(command(name, store.path).exception)
    with refused(FormatError, "holds a dataset of shards"):
        tp.GraphStore.write(store.path, molecules(0), overwrite=True)


def _notes(out: Path) -> None:
    (out / "notes.txt").touch()


def _stores(out: Path) -> None:
    tp.GraphStore.write(out / "part-0", molecules(9))


def _other_manifest(out: Path) -> None:
    (out / "manifest.json").write_text("{}")


@pytest.mark.parametrize("put", [_notes, _stores, _other_manifest])
def test_shards_are_not_written_among_other_things(bins: list[Path], tmp_path: Path, put: Any) -> None:
    """A store of the name of a shard least of all: it would be replaced."""
    (tmp_path / "out").mkdir()
    put(tmp_path / "out")
    before = sorted((tmp_path / "out").rglob("*")), snapshot(tmp_path / "out")
    for overwrite in (False, True):
        with refused(FormatError, str(tmp_path / "out"), "holds other things"):
            run(bins, tmp_path / "out", overwrite=overwrite)
    assert (sorted((tmp_path / "out").rglob("*")), snapshot(tmp_path / "out")) == before


def _killed_first(out: Path) -> None:
    """As a process leaves it that was killed in its first shard."""
    (out / ".lock").touch()
    (out / "part-0" / "data-0").mkdir(parents=True)
    (out / "part-0" / ".lock").touch()


def _killed_between(out: Path) -> None:
    """Its first store was complete, and nothing else."""
    _stores(out)
    (out / ".lock").touch()
    (out / "part-0" / ".source.json.x.partial").touch()


def _killed_last(out: Path) -> None:
    run(write_bins(out.parent, 3), out)
    (out / "manifest.json").unlink()
    (out / ".manifest.json.x.partial").touch()


def _noted(out: Path) -> None:
    run(write_bins(out.parent, 2), out)
    (out / "notes.txt").touch()


@pytest.mark.parametrize("begun", [_killed_first, _killed_between, _killed_last, _noted])
def test_what_was_begun_goes_on(bins: list[Path], tmp_path: Path, begun: Any) -> None:
    (tmp_path / "out").mkdir()
    begun(tmp_path / "out")
    run(bins, tmp_path / "out")
    assert_holds(tp.MultiStore(tmp_path / "out"), [molecules(i) for i in range(3)])


def test_shards_may_lie_anywhere(bins: list[Path], tmp_path: Path) -> None:
    """On any file system of fsspec: files and folders, which are copied here and taken away again."""
    sizes = tp.GraphSizes(np.array([[n, 2 * (n - 1)] for n in [3, 9, 4, 7, 5, 8, 6, 3]]))
    write_ogb_folder(tmp_path / "ogb", sizes)
    memory = fsspec.filesystem("memory")
    memory.put(str(bins[0]), "/bucket/part-0.bin")
    memory.put(str(tmp_path / "ogb" / "ogbg_molhiv"), "/bucket/ogbg_molhiv", recursive=True)
    tp.GraphStore.write(tmp_path / "store", molecules(1))
    memory.put(str(tmp_path / "store"), "/bucket/store", recursive=True)
    urls = ["memory://bucket/part-0.bin", "memory://bucket/store", f"file://{bins[2]}"]
    made = run(urls, tmp_path / "out")
    assert made.written == ("part-0", "store", "part-2")
    assert_holds(made.store, [molecules(0), molecules(1), molecules(2)])
    assert run(urls, tmp_path / "out").written == ()
    memory.pipe("/bucket/part-0.bin", bins[1].read_bytes())
    made = run(urls, tmp_path / "out")
    assert made.written == ("part-0",)
    assert_holds(made.store, [molecules(1), molecules(1), molecules(2)])

    found = run(["memory://bucket/ogbg_molhiv"], tmp_path / "of-ogb").store
    right = tp.GraphStore.write(tmp_path / "right", tp.OgbFolder(tmp_path / "ogb" / "ogbg_molhiv"))
    assert found.parts[0].metadata.arrays == right.parts[0].metadata.arrays
    with refused(ShardsError, "memory://bucket/nothing", "nowhere://x"):
        run(["memory://bucket/nothing", "nowhere://x"], tmp_path / "of-ogb")


def test_folders_and_objects_are_shards_too(tmp_path: Path) -> None:
    sizes = tp.GraphSizes(np.array([[n, 2 * (n - 1)] for n in [3, 9, 4, 7, 5, 8, 6, 3]]))
    roots = [write_ogb_folder(tmp_path / name, sizes, seed) / "ogbg_molhiv" for seed, name in enumerate("ab")]
    # Two of one name are told apart by the folders that they lie in.
    made = run([roots[0], tp.OgbFolder(roots[1])], tmp_path / "out")
    assert made.written == ("a-ogbg_molhiv", "b-ogbg_molhiv")
    assert made.store.splits["train"].tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13]
    plans = ["plan-test.json", "plan-train.json", "plan-valid.json"]
    assert plans_in(tmp_path / "out" / "b-ogbg_molhiv") == plans
    assert run([roots[0], tp.OgbFolder(roots[1])], tmp_path / "out").written == ()
    made = run(roots, tmp_path / "out", ogb_settings={"labels": False})
    assert len(made.written) == 2
    assert made.store.schema.labels == {}


def test_names_are_plain_and_unique(tmp_path: Path) -> None:
    def names(*shards: Any) -> list[str]:
        return [shard.name for shard in as_shards(shards, {})]

    assert names("s3://b/x/part 1.bin", "s3://b/x/../é") == ["part_1", "_"]
    assert names("a/x.bin", "b/x.bin", "c/y.bin") == [*names("a/x.bin", "b/x.bin"), "c-y"]
    assert names("zip://a.bin::s3://b/x.zip", "zip://d/b.bin::s3://b/x.zip", "simplecache::s3://b/c") == ["a", "b", "c"]
    assert names(["graphs"], "x.bin") == ["shard-00000", "x"]
    assert all("/" not in name and not name.startswith(".") for name in names("../..", ".hidden"))
    with refused(SizesError, "two shards", "-x'", "in Python a mapping"):
        names("x.bin", "x.bin")
    for one in ("abc", Path("abc"), b"abc"):
        with refused(SizesError, "abc", "list"):
            as_shards(one, {})
    with refused(SizesError, "no shards"):
        names()
    for name in ("manifest.json", "metadata.json", "Manifest.JSON"):
        with refused(SizesError, f"'{name}'", "mapping"):
            names(f"a/{name}.bin")
        with refused(SizesError, f"'{name}'"):
            as_shards({name: "x.bin"}, {})


def test_bad_settings_are_refused_before_anything_is_written(bins: list[Path], tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, refused(InputError, "workers"):
        run(bins, tmp_path / "out", executor=executor)
    wrong: list[tuple[Any, str, Any]] = [
        (InputError, "seed", -1), (LimitsError, "limits", (50, 100)), (SearchError, "multiple_of", 0),
        (InputError, "compact", "no"), (InputError, "overwrite", "no"), (InputError, "workers", 0),
    ]  # fmt: skip
    for error, setting, value in wrong:
        with refused(error, setting, str(value)):
            run(bins, tmp_path / "out", **{setting: value})
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with refused(FormatError, str(tmp_path / "file")):
        run(bins, tmp_path / "file")


@pytest.mark.parametrize("settings", [{"limits": tp.Limits(40, 40)}, {"seed": 1}])
def test_an_interrupt_while_planning_anew_leaves_nothing_that_opens(
    bins: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Plans would else contradict the manifest."""
    run(bins, tmp_path / "out")

    def plan_and_stop(*arguments: Any) -> None:
        plan_shard(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dgl_tuplepack.sharding.run.plan_shard", plan_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run(bins, tmp_path / "out", **settings)
    with refused(FormatError, "manifest.json"):
        tp.MultiStore(tmp_path / "out")
    made = run(bins, tmp_path / "out", **settings)
    assert (made.written, made.planned) == ((), ("part-1", "part-2"))
    assert (made.store.limits, made.store.manifest.seed) == (settings.get("limits", LIMITS), settings.get("seed", 0))
    verify_shards(tmp_path / "out")


@pytest.mark.parametrize(("limits", "seed"), [(None, 0), (tp.Limits(31, 30), 0), (LIMITS, 1)])
def test_plans_of_other_limits_or_seeds_are_told(
    bins: list[Path], tmp_path: Path, limits: tp.Limits | None, seed: int
) -> None:
    store = run(bins, tmp_path / "out").store.shards["part-1"]
    plan = store.path / "plan.json"
    if limits is None:
        plan.unlink()
    else:
        tp.pack(store.histogram, limits, seed=seed).save(plan)
    with refused(ShardsError, "1 of 3", "part-1: ", plan.name):
        verify_shards(tmp_path / "out")
    assert run(bins, tmp_path / "out").planned == ("part-1",)
    verify_shards(tmp_path / "out")


def _edited(change: Any) -> Any:
    def damage(file: Path) -> None:
        document = json.loads(file.read_text())
        change(document)
        document["checksum"] = checksum_of(document)
        file.write_text(json.dumps(document))

    return damage


def _altered(file: Path) -> None:
    file.write_text(file.read_text().replace('"seed": 0', '"seed": 1'))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_altered, "checksum"),
        (lambda file: file.write_text(file.read_text()[:-20]), "JSON"),
        (_edited(lambda d: d.update(format="else")), "else"),
        (_edited(lambda d: d.update(version=2)), "version 2"),
        (_edited(lambda d: d.update(num_graphs=59)), "add up"),
        (_edited(lambda d: d.update(num_graphs=80, shards=[*d["shards"], d["shards"][0]])), "twice"),
        (_edited(lambda d: d["shards"][0].update(name="../part-0")), "../part-0"),
        (_edited(lambda d: d["shards"][0].update(store=d["shards"][1]["store"])), "written again"),
        (_edited(lambda d: d["shards"][0].pop("store")), "no valid dataset"),
        (_edited(lambda d: d.update(shards=[], num_graphs=0)), "no valid dataset"),
        (_edited(lambda d: d.pop("limits")), "limits"),
        (_edited(lambda d: d["limits"].update(maxima={"nodes": -1})), "-1"),
    ],
)
def test_a_manifest_that_cannot_be_right_is_refused(bins: list[Path], tmp_path: Path, damage: Any, said: str) -> None:
    run(bins, tmp_path / "out")
    damage(tmp_path / "out" / "manifest.json")
    with refused(FormatError, said):
        tp.MultiStore(tmp_path / "out")


def test_a_shard_that_is_missing_or_damaged_is_told(bins: list[Path], tmp_path: Path) -> None:
    run(bins, tmp_path / "out")
    store = tp.MultiStore(tmp_path / "out")
    _flipped(tmp_path / "out")
    with refused(FormatError, "part-1"):
        store.verify()
    with refused(ShardsError, "1 of 3", "part-1: "):
        verify_shards(tmp_path / "out")
    os.rename(tmp_path / "out" / "part-1", tmp_path / "away")
    with refused(FormatError, "part-1"):
        tp.MultiStore(tmp_path / "out")


def command(*arguments: Any) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_line_knows_shards(bins: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = command("preprocess", *bins, out, "--limits", "30,30", "--workers", 1)
    assert first.exit_code == 0, first.output
    assert "3 shards written" in first.output
    second = command("preprocess", *bins, out, "--limits", "30,30", "--workers", 1)
    assert "nothing to do" in second.output
    made = json.loads(command("preprocess", *bins[:2], out, "--workers", 1, "--json").stdout)
    assert (made["written"], made["kept"]) == ([], ["part-0", "part-1"])
    found = json.loads(command("info", out, "--json").stdout)
    assert (found["shards"], found["graphs"]) == ({"part-0": 20, "part-1": 20}, 40)
    assert "limits of their plans" in command("info", out).output
    assert json.loads(command("verify", out, "--json").stdout) == {"store": str(out), "graphs": 40, "intact": True}
    assert json.loads(command("sizes", out, "--json").stdout)["graphs"] == 40
    # One alone becomes a single store, as ever.
    assert command("preprocess", out / "part-1", tmp_path / "one").exit_code == 0
    assert len(tp.GraphStore(tmp_path / "one")) == 20
    for place, graphs in ((out, 40), (tmp_path / "one", 20)):
        assert command("verify", place).output == f"{place}: {graphs} graphs, intact\n"
    (tmp_path / "one" / "plan.json").unlink()
    assert "intact; there are no plans" in command("verify", tmp_path / "one").output


def test_the_command_line_refuses_what_cannot_work(bins: list[Path], tmp_path: Path) -> None:
    failed = command("preprocess", *bins, tmp_path / "absent.bin", tmp_path / "out", "--workers", 1)
    assert isinstance(failed.exception, ShardsError)
    alone = command("preprocess", bins[0])
    assert alone.exit_code == 2
    assert "OUT is missing" in alone.output
    assert command("preprocess", *bins, tmp_path / "out", "--workers", 1, "--dask", "tcp://x:1").exit_code == 2
    assert command("preprocess", *bins, tmp_path / "out", "--workers", 0).exit_code == 2
    pytest.importorskip("distributed")
    nobody = command("preprocess", *bins, tmp_path / "out", "--dask", "nonsense://127.0.0.1:9")
    assert isinstance(nobody.exception, FormatError)
    assert "nonsense://127.0.0.1:9" in str(nobody.exception)


def test_stores_are_joined_as_shards_not_by_opening_a_list(tmp_path: Path) -> None:
    stores = [tp.GraphStore.write(tmp_path / name, molecules(i)) for i, name in enumerate("ab")]
    for given in (stores, [store.path for store in stores], stores[0]):
        with refused(FormatError, "MultiStore opens one folder", "preprocess_shards([store, other], out)"):
            tp.MultiStore(given)  # type: ignore[arg-type]
    tp.preprocess_shards(stores, tmp_path / "out", workers=1)
    assert_holds(tp.MultiStore(tmp_path / "out"), [molecules(0), molecules(1)])
