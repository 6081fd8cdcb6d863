"""Shards to one dataset, in this process: what is written, kept, redone and refused."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dgl
import pytest

import dgl_tuplepack as tp
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
from dgl_tuplepack.storage.preprocessing import preprocess
from dgl_tuplepack.storage.shards import plan_shard, refuse, verify_shards
from tests.support.messages import refused
from tests.support.shards import (
    LIMITS,
    Misbehaving,
    assert_holds,
    make_shards,
    molecules,
    snapshot,
    write_bin,
    write_bins,
)
from tests.support.stores import checksum_of, data_of, flip, plans_in, write_shards


def test_every_shard_gets_a_store_and_a_plan_of_the_same_limits(bins: list[Path], out: Path) -> None:
    made = tp.preprocess_shards(bins, out, workers=1, multiple_of=8)
    assert_holds(made.store, 0, 1, 2)
    assert (made.written, made.kept, made.planned) == (("part-0", "part-1", "part-2"), (), made.written)
    # There are fewer than 64 graphs, so batches of all of them.
    search = tp.search_limits(made.store.histogram, graphs_per_batch=60, packs_per_batch="auto", multiple_of=8)
    assert made.limits == made.store.limits == search.best.limits
    for name in made.written:
        shard = tp.GraphStore(out / name)
        (plan,) = shard.plans.values()
        assert plan.limits == made.limits
        # A sampler takes the plan: it is for this shard.
        sampler = tp.PackBatchSampler(shard.sizes, plan.limits, plan=plan)
        assert sorted(i for ids in sampler for i in ids) == list(range(20))
    assert verify_shards(out).sizes.array.tolist() == made.store.sizes.array.tolist()
    made = tp.preprocess_shards(bins, out, workers=1, graphs_per_batch=10)
    search = tp.search_limits(made.store.histogram, graphs_per_batch=10, packs_per_batch="auto")
    assert (made.limits, made.packs_per_batch) == (search.best.limits, 2)


def test_the_result_depends_on_no_executor(bins: list[Path], tmp_path: Path) -> None:
    make_shards(bins, tmp_path / "one")
    with ThreadPoolExecutor(3) as executor:
        make_shards(bins, tmp_path / "other", workers=None, executor=executor)
    for i in range(3):
        one, other = (tp.GraphStore(tmp_path / name / f"part-{i}") for name in ("one", "other"))
        assert one.segments[0].metadata.arrays == other.segments[0].metadata.arrays
        assert one.plans[""].fingerprint == other.plans[""].fingerprint


def test_shards_have_some_parts_or_none_has_any(bins: list[Path], tmp_path: Path, out: Path) -> None:
    splits: dict[str, Any] = {"a": {"train": [3, 1], "test": [2]}, "b": {"test": range(20)}, "c": {"train": []}}
    for seed, (name, parts) in enumerate(splits.items()):
        tp.GraphStore.write(tmp_path / name, molecules(seed), splits=parts)
    with refused(ShardsError, "2 of 4", "c, part-0: it has no splits, but b has"):
        make_shards([tmp_path / "c", tmp_path / "b", bins[0], tmp_path / "a"], out)
    made = make_shards([tmp_path / "a", tmp_path / "b"], out)
    assert {name: ids.tolist() for name, ids in made.store.splits.items()} == {
        "train": [3, 1], "test": [2, *range(20, 40)],
    }  # fmt: skip
    assert [plans_in(out / name) for name in "ab"] == [["plan-test.json", "plan-train.json"], ["plan-test.json"]]
    verify_shards(out)
    # Where no graph is in any part, there is nothing to leave out.
    make_shards([tmp_path / "c", bins[0]], out)


def test_a_second_run_writes_nothing(bins: list[Path], out: Path) -> None:
    make_shards(bins, out)
    before = snapshot(out)
    made = make_shards(bins, out)
    assert (made.written, made.kept, made.planned) == ((), ("part-0", "part-1", "part-2"), ())
    assert snapshot(out) == before
    # Other limits: plans alone.
    made = make_shards(bins, out, limits=tp.Limits(40, 40))
    assert (made.written, made.planned) == ((), ("part-0", "part-1", "part-2"))
    assert made.store.limits == tp.Limits(40, 40)
    assert {name.split("/")[-1] for name, file in snapshot(out).items() if file != before.get(name)} == {
        "plan.json", "manifest.json",
    }  # fmt: skip
    assert make_shards(bins, out, overwrite=True).written == ("part-0", "part-1", "part-2")


def _flipped(out: Path) -> None:
    flip(max(data_of(out / "part-1").glob("*.npy"), key=lambda path: path.stat().st_size), -20)


DAMAGES: list[Any] = [
    _flipped,
    lambda out: (out / "part-1" / "metadata.json").unlink(),
    lambda out: (data_of(out / "part-1") / "source.json").write_text("{}"),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_redone_alone(bins: list[Path], out: Path, damage: Any) -> None:
    make_shards(bins, out)
    damage(out)
    made = make_shards(bins, out)
    assert (made.written, made.kept) == (("part-1",), ("part-0", "part-2"))
    assert_holds(verify_shards(out), 0, 1, 2)


def test_damage_that_opening_does_not_see_is_found(tmp_path: Path, out: Path) -> None:
    """Of large files, opening looks at samples alone."""
    shard = write_bin(tmp_path / "large.bin", molecules(0, 3000))
    make_shards([shard], out)
    file = max(data_of(out / "large").glob("*feature*"), key=lambda path: path.stat().st_size)
    flip(file, 6000)
    assert len(tp.MultiStore(out)) == 3000
    with refused(ShardsError, "1 of 1", "large: ", file.name):
        verify_shards(out)
    assert make_shards([shard], out).written == ("large",)
    verify_shards(out)


def test_a_changed_source_or_setting_is_noticed(bins: list[Path], out: Path) -> None:
    make_shards(bins, out)
    write_bin(bins[2], molecules(9))
    made = make_shards(bins, out)
    assert (made.written, made.planned) == (("part-2",), ("part-2",))
    assert_holds(made.store, 0, 1, 9)
    assert make_shards(bins, out, compact=True).kept == ()
    # Shards that are left out, or come in another order, need no work.
    made = make_shards([bins[2], bins[0]], out, compact=True)
    assert made.written == ()
    assert_holds(made.store, 9, 0)


def test_a_message_about_thousands_of_shards_stays_short() -> None:
    """When a process of a pool dies, all shards that are left fail for the same cause."""
    died = {f"shard-{i:05d}": "its process died; run again." for i in range(2000)}
    own = {f"own-{i}": f"cause {i} " + 9000 * "x" for i in range(500)}
    with pytest.raises(ShardsError) as found:
        refuse({**own, **died, "last": "cause 8"}, 3000)
    message = str(found.value)
    assert len(message) < 25_000
    assert "2501 of 3000" in message
    assert message.endswith("\n- 492 more")


def test_failed_shards_are_named_and_the_rest_goes_on(bins: list[Path], tmp_path: Path, out: Path) -> None:
    bins[1].write_bytes(b"no graphs")
    shards = {path.stem: path for path in [*bins, tmp_path / "absent.bin"]} | {"torn": Misbehaving(5, "raise")}
    with refused(ShardsError, "3 of 5", "part-1: ", "absent: ", "torn: RuntimeError: the tape is torn"):
        make_shards(shards, out)
    with refused(FormatError, "manifest.json"):
        tp.MultiStore(out)
    write_bin(bins[1], molecules(1))
    made = make_shards(bins, out)
    assert (made.written, made.kept) == (("part-1",), ("part-0", "part-2"))
    # A dataset whose shards all stay outlives a source that fails.
    bins[1].unlink()
    with refused(ShardsError, "1 of 3", "part-1"):
        make_shards(bins, out)
    assert_holds(tp.MultiStore(out), 0, 1, 2)
    # What replaces a shard is done; the dataset opens again when all are.
    write_bin(bins[0], molecules(9))
    with refused(ShardsError, "1 of 3", "part-1"):
        make_shards(bins, out)
    with refused(FormatError, "part-0", "written again"):
        tp.MultiStore(out)
    write_bin(bins[1], molecules(1))
    assert_holds(make_shards(bins, out).store, 9, 1, 2)


@pytest.mark.parametrize("settings", [{"limits": tp.Limits(40, 40)}, {"seed": 1}])
def test_an_interrupt_while_planning_anew_leaves_nothing_that_opens(
    bins: list[Path], out: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Plans would else contradict the manifest."""
    make_shards(bins, out)

    def plan_and_stop(*arguments: Any, **settings: Any) -> None:
        plan_shard(*arguments, **settings)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dgl_tuplepack.storage.shards.plan_shard", plan_and_stop)
        with pytest.raises(KeyboardInterrupt):
            make_shards(bins, out, **settings)
    with refused(FormatError, "manifest.json"):
        tp.MultiStore(out)
    made = make_shards(bins, out, **settings)
    assert (made.written, made.planned) == ((), ("part-1", "part-2"))
    assert (made.store.limits, made.store.manifest.seed) == (settings.get("limits", LIMITS), settings.get("seed", 0))
    verify_shards(out)


@pytest.mark.parametrize(("limits", "seed"), [(None, 0), (tp.Limits(31, 30), 0), (LIMITS, 1)])
def test_missing_plans_and_plans_of_other_limits_or_seeds_are_reported(
    bins: list[Path], out: Path, limits: tp.Limits | None, seed: int
) -> None:
    make_shards(bins, out)
    plan = data_of(out / "part-1") / "plan.json"
    if limits is None:
        plan.unlink()
    else:
        tp.pack(tp.GraphStore(out / "part-1").histogram, limits, seed=seed).save(plan)
    with refused(ShardsError, "1 of 3", "part-1: ", plan.name):
        verify_shards(out)
    assert make_shards(bins, out).planned == ("part-1",)
    verify_shards(out)


def _killed_first(out: Path) -> None:
    """As a process leaves it that was killed in its first shard."""
    (out / "part-0" / "data-0").mkdir(parents=True)
    for folder in (out, out / "part-0"):
        (folder / ".lock").touch()


def _killed_last(out: Path) -> None:
    make_shards(write_bins(out.parent, 3), out)
    (out / "manifest.json").unlink()
    (out / ".manifest.json.x.partial").touch()


@pytest.mark.parametrize("begun", [_killed_first, _killed_last])
def test_what_was_begun_goes_on(bins: list[Path], out: Path, begun: Any) -> None:
    out.mkdir()
    begun(out)
    make_shards(bins, out)
    assert_holds(tp.MultiStore(out), 0, 1, 2)


def test_shards_of_other_kinds_are_refused(bins: list[Path], tmp_path: Path, out: Path) -> None:
    graphs = [dgl.graph(([0], [1])) for _ in range(3)]
    with refused(ShardsError, "1 of 2", "plain", "node features", "kind", "part-0"):
        make_shards({"part-0": bins[0], "plain": graphs}, out)
    with refused(SchemaError, "part-1", "node features", "kind", "part-0"):
        write_shards(tmp_path / "by-hand", [molecules(0), graphs])


def test_limits_below_the_largest_graph_are_refused(bins: list[Path], out: Path) -> None:
    with refused(GraphTooLargeError, "8"):
        make_shards(bins, out, limits=tp.Limits(7, 30))
    assert not (out / "manifest.json").exists()
    assert make_shards(bins, out).written == ()


def test_files_of_others_stay(bins: list[Path], out: Path) -> None:
    """Whatever their names; and ours stay where others were put beside them."""
    make_shards(bins[:1], out)
    (out / "part-1").mkdir()
    (out / "part-1" / "plan.json").write_text("{}")
    (out / "part-0" / "metadata.json").unlink()
    (out / "part-0" / "raw.dat").touch()
    before = snapshot(out)
    with refused(ShardsError, "2 of 2", "part-0: ", "part-1: ", "holds other things"):
        make_shards(bins[:2], out)
    assert snapshot(out) == before


def test_a_source_is_never_written_over(tmp_path: Path, out: Path) -> None:
    write_shards(out, [molecules(0), molecules(1)])
    (tmp_path / "link").symlink_to(out)
    folders = [out / "part-0", out / "part-1"]
    before = snapshot(tmp_path)
    for shards, place in [
        (folders, out),
        ([f"file://{folders[0]}"], out),
        ([tmp_path / "link" / "part-1"], out),
        (folders, tmp_path / "link"),
        # One in which the dataset lies.
        ([folders[0]], folders[0] / "shards"),
    ]:
        with refused(SizesError, "would be written to", "part-"):
            make_shards(shards, place)
    assert snapshot(tmp_path) == before
    assert len(make_shards([folders[0]], tmp_path / "other").store) == 20


def test_a_folder_holds_a_store_or_shards_never_both(bins: list[Path], tmp_path: Path, out: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", molecules(0)).path
    make_shards(bins, out)
    before = snapshot(tmp_path)
    for overwrite in (False, True):
        with refused(FormatError, str(store), "holds a store"):
            make_shards(bins, store, overwrite=overwrite)
        with refused(FormatError, str(out), "holds a dataset of shards"):
            tp.GraphStore.write(out, molecules(0), overwrite=overwrite)
        with refused(FormatError, "holds a dataset of shards"):
            preprocess(bins[0], out, overwrite=overwrite)
    assert snapshot(tmp_path) == before


PLACED: list[Any] = [
    lambda out: (out / "notes.txt").touch(),
    # It would be replaced by a shard of its name.
    lambda out: tp.GraphStore.write(out / "part-0", molecules(9)),
    lambda out: (out / "manifest.json").write_text("{}"),
]


@pytest.mark.parametrize("put", PLACED)
def test_shards_are_not_written_among_other_things(bins: list[Path], out: Path, put: Any) -> None:
    out.mkdir()
    put(out)
    before = sorted(out.rglob("*")), snapshot(out)
    for overwrite in (False, True):
        with refused(FormatError, str(out), "holds other things"):
            make_shards(bins, out, overwrite=overwrite)
    assert (sorted(out.rglob("*")), snapshot(out)) == before


def test_bad_settings_are_refused_before_anything_is_written(bins: list[Path], tmp_path: Path, out: Path) -> None:
    with ThreadPoolExecutor(1) as executor, refused(InputError, "workers"):
        make_shards(bins, out, executor=executor)
    wrong: list[tuple[Any, str, Any]] = [
        (InputError, "seed", -1), (LimitsError, "limits", (50, 100)), (SearchError, "multiple_of", 0),
        (InputError, "compact", "no"), (InputError, "workers", 0),
    ]  # fmt: skip
    for error, setting, value in wrong:
        with refused(error, setting, str(value)):
            make_shards(bins, out, **{setting: value})
    with refused(InputError, "workers"):
        verify_shards(out, workers=0)
    assert not out.exists()
    (tmp_path / "file").touch()
    with refused(FormatError, str(tmp_path / "file")):
        make_shards(bins, tmp_path / "file")


def _edited(change: Any) -> Any:
    def damage(file: Path) -> None:
        document = json.loads(file.read_text())
        change(document)
        document["checksum"] = checksum_of(document)
        file.write_text(json.dumps(document))

    return damage


MANIFESTS: dict[str, Any] = {
    "checksum": lambda file: file.write_text(file.read_text().replace('"seed": 0', '"seed": 1')),
    "the sum over the shards": _edited(lambda d: d.update(num_graphs=59)),
    "../part-0": _edited(lambda d: d["shards"][0].update(name="../part-0")),
    "written again": _edited(lambda d: d["shards"][0].update(store=d["shards"][1]["store"])),
    "part-1": lambda file: os.rename(file.parent / "part-1", file.parent.parent / "away"),
}


@pytest.mark.parametrize("said", MANIFESTS)
def test_a_manifest_that_cannot_be_right_is_refused(bins: list[Path], out: Path, said: str) -> None:
    make_shards(bins, out)
    MANIFESTS[said](out / "manifest.json")
    with refused(FormatError, said):
        tp.MultiStore(out)


def test_stores_are_joined_as_shards_not_by_opening_a_list(tmp_path: Path, out: Path) -> None:
    stores = [tp.GraphStore.write(tmp_path / name, molecules(i)) for i, name in enumerate("ab")]
    with refused(FormatError, "MultiStore opens one folder", "preprocess_shards([store, other], out)"):
        tp.MultiStore(stores)  # type: ignore[arg-type]
    tp.preprocess_shards(stores, out, workers=1)
    assert_holds(tp.MultiStore(out), 0, 1)
