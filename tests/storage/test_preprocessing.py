"""Stores with plans beside them: what is written, chosen, checked and refused."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pickle
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack._core import progress
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, LimitsError, SearchError, ShardsError
from dgl_tuplepack.storage import graph_store, selection
from dgl_tuplepack.storage.graph_store import plan_file, save_static_shape, split_histograms
from dgl_tuplepack.storage.preprocessing import preprocess, verify, write_plans
from tests.support.messages import refused
from tests.support.molecules import random_molecules
from tests.support.ogb_folder import write_ogb_folder
from tests.support.processes import exit_code_if_killed
from tests.support.stores import data_of, plans_in
from tests.support.transforms import LIMITS, dataset

SIZES = tp.GraphSizes(np.array([[n, 2 * (n - 1)] for n in [3, 9, 4, 7, 5, 8, 6, 3] * 4]))
# Of a name that is too long for a file.
DIGEST = hashlib.sha256(b"x" * 201).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_ogb_folder(tmp_path / "ogb", SIZES) / "ogbg_molhiv"


def test_each_part_of_the_split_gets_a_plan_of_the_same_limits(folder: Path, tmp_path: Path) -> None:
    made = preprocess(folder, tmp_path / "out", multiple_of=8)
    assert (made.limits.nodes + 1) % 8 == made.limits.edges % 8 == 0
    assert list(made.plans) == ["train", "valid", "test"]
    assert plans_in(tmp_path / "out") == ["plan-test.json", "plan-train.json", "plan-valid.json"]
    store = tp.GraphStore(tmp_path / "out")
    for part, ids in store.splits.items():
        plan = tp.GraphStore(tmp_path / "out").plans[part]
        assert plan.fingerprint == made.plans[part].fingerprint
        assert plan.limits == made.limits
        # A sampler takes the plan, and its batches come from the store.
        subset = store.subset(ids)
        sampler = tp.PackBatchSampler(subset, plan.limits, plan=plan)
        view = subset.padded(sampler.limits)
        batches = [view[chosen] for chosen in sampler]
        assert sum(batch.num_real_graphs for batch in batches) == len(ids)
    assert set(made.seconds) == {"write", "limits", "plan", "verify"}
    assert min(made.seconds.values()) >= 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_large", [True, False])
def test_steps_that_take_long_are_shown_on_a_terminal(
    is_large: bool, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    if is_large:
        monkeypatch.setattr(progress, "_MANY", 1)
        for module in (graph_store, selection):
            monkeypatch.setattr(module, "DELAY", 0)
    made = preprocess(folder, tmp_path / "out")
    tp.preprocess_shards([folder], tmp_path / "shards", limits=tp.Limits(20, 40), workers=1)
    tp.packed_loader(made.store, limits=tp.Limits(20, 40))
    shown = ("check:", "open:", "preparing batches of 32 graphs", "counting the sizes of 32 graphs")
    assert [text for text in shown if text in stream.getvalue()] == [text for text in shown if is_large]


def test_limits_are_for_a_number_of_graphs_of_the_training_split(folder: Path, tmp_path: Path) -> None:
    made = preprocess(folder, tmp_path / "out", graphs_per_batch=8)
    assert made.limits.fits(SIZES).all()
    batches = -(-made.plans["train"].num_packs // made.packs_per_batch)
    assert (made.packs_per_batch, made.plans["train"].histogram.num_graphs / batches) == (2, 8)
    search = tp.search_limits(
        made.plans["train"].histogram, graphs_per_batch=8, packs_per_batch="auto", holding=made.store
    )
    assert made.limits == search.best.limits
    everything = preprocess(folder, tmp_path / "all", graphs_per_batch=1000)
    assert (everything.packs_per_batch, everything.plans["train"].num_packs) == (1, 1)
    assert preprocess(folder, tmp_path / "given", limits=tp.Limits(20, 40)).packs_per_batch == 1


def test_limits_are_for_64_graphs_if_nothing_is_given_and_the_largest_graph_allows_it(tmp_path: Path) -> None:
    small = tp.GraphSizes([[n, 2 * (n - 1)] for n in (3, 9, 4, 7, 5) * 40])
    made = preprocess(random_molecules(small), tmp_path / "small")
    search = tp.search_limits(small, graphs_per_batch=64, packs_per_batch="auto")
    assert (made.limits, made.packs_per_batch) == (search.best.limits, 2)
    large = tp.GraphSizes([[2, 2]] * 1000 + [[400, 798]])
    made = preprocess(random_molecules(large), tmp_path / "large")
    assert (made.limits, made.packs_per_batch) == (tp.search_limits(large).best.limits, 1)
    with refused(SearchError, "graphs_per_batch=64 is out of reach"):
        preprocess(random_molecules(large), tmp_path / "refused", graphs_per_batch=64)


def test_limits_and_numbers_that_cannot_be_are_refused_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    """Where the source knows its sizes; a store that is there stays as it was, with its plans."""
    with refused(SearchError, "graphs_per_batch=8", "Limits(nodes=20, edges=40", "leave one"):
        preprocess(folder, tmp_path / "out", graphs_per_batch=8, limits=tp.Limits(20, 40))
    with refused(GraphTooLargeError, "graph 1 ", "9"):
        preprocess(tp.OgbFolder(folder), tmp_path / "out", limits=tp.Limits(8, 100))
    with refused(SearchError, "graphs_per_batch=1 is out of reach"):
        preprocess(folder, tmp_path / "out", graphs_per_batch=1)
    assert not (tmp_path / "out").exists()
    made = preprocess(folder, tmp_path / "out", graphs_per_batch=8)
    with refused(SearchError, "graphs_per_batch=1 is out of reach"):
        preprocess(folder, tmp_path / "out", graphs_per_batch=1, overwrite=True)
    with refused(FormatError, "holds a store already"):
        preprocess(folder, tmp_path / "out", graphs_per_batch=1)
    assert verify(tmp_path / "out").checksum == made.store.checksum
    # A list has sizes only in its graphs, which are written when it is read.
    with refused(SearchError, "out of reach", f"The store {tmp_path / 'list'} was written, but without plans"):
        preprocess(random_molecules(SIZES), tmp_path / "list", graphs_per_batch=1)


def test_without_a_split_one_plan_is_for_all_graphs(tmp_path: Path) -> None:
    made = preprocess(random_molecules(SIZES), tmp_path / "out", limits=tp.Limits(12, 22, 3), compact=True)
    assert list(made.plans) == [""]
    assert made.plans[""].histogram == tp.SizeHistogram.from_sizes(SIZES)
    assert made.plans[""].limits == tp.Limits(12, 22, 3)
    assert plans_in(tmp_path / "out") == ["plan.json"]
    assert "uint8" in {entry.stored for entry in made.store.segments[0].metadata.arrays}


def test_plans_of_what_was_there_go_even_where_new_ones_fail(folder: Path, tmp_path: Path) -> None:
    preprocess(folder, tmp_path / "out")
    with refused(
        GraphTooLargeError, "8", f"The store {tmp_path / 'out'} was written, but without plans", "--overwrite"
    ):
        preprocess(random_molecules(SIZES), tmp_path / "out", limits=tp.Limits(8, 100), overwrite=True)
    assert plans_in(tmp_path / "out") == []
    assert tp.GraphStore(tmp_path / "out").splits == {}


@pytest.mark.filterwarnings("ignore:batches of . graphs need a shape:UserWarning")
@pytest.mark.parametrize("has_splits", [True, False])
def test_the_shape_of_exact_batches_is_stored_and_used(folder: Path, tmp_path: Path, has_splits: bool) -> None:
    out = tmp_path / "out"
    made = preprocess(folder if has_splits else random_molecules(SIZES), out, batch_size=4)
    store = tp.GraphStore(out)
    train = store.subset(store.splits["train"]) if has_splits else store
    assert made.static_shape == train.static_shape(4) == tp.StaticBatchSampler(train.sizes, 4).limits
    # Of other graphs, or of another number, nothing is stored.
    assert train.static_shape(3) is None
    assert train.subset(range(len(train) - 1)).static_shape(4) is None
    assert not has_splits or store.static_shape(4) is None
    # A shape that is larger than needed shows which one is used.
    assert made.static_shape is not None
    nodes, edges = made.static_shape.values
    larger = tp.Limits(nodes + 5, edges + 7, graphs=4)
    save_static_shape(data_of(out), larger, train.sizes)
    assert train.static_shape(4) == larger
    assert tp.StaticBatchSampler(train, 4, num_replicas=1, rank=0).limits == larger
    assert tp.StaticBatchSampler(train, 4, num_replicas=1, rank=0, drop_last=True).limits == larger
    # Five ranks divide these graphs in another way, but may use it too, as the shape that is chosen.
    assert tp.StaticBatchSampler(train, 4, num_replicas=5, rank=0).limits == larger
    assert tp.StaticBatchSampler(train.sizes, 4, num_replicas=5, rank=0).limits == made.static_shape
    others: list[dict[str, Any]] = [
        {"slack": 0.5}, {"shape": tp.Limits(99, 999)}, {"multiple_of": 8}, {"shuffle": False}
    ]  # fmt: skip
    assert all(tp.StaticBatchSampler(train, 4, **other).limits != larger for other in others)
    verify(out)
    # One that holds not even a graph is damaged, and so is a file that was altered.
    save_static_shape(data_of(out), tp.Limits(1, 1, graphs=4), train.sizes)
    with refused(FormatError, "static-shape.json", "graphs exceed"):
        verify(out)
    save_static_shape(data_of(out), larger, train.sizes)
    path = data_of(out) / "static-shape.json"
    path.write_text(path.read_text().replace(f'"nodes": {nodes + 5}', f'"nodes": {nodes + 6}'))
    with refused(FormatError, "static-shape.json was altered"):
        tp.StaticBatchSampler(train, 4)
    # A new store without a shape has none.
    preprocess(random_molecules(SIZES), out, overwrite=True)
    assert tp.GraphStore(out).static_shape(4) is None


def test_verify_refuses_a_shape_or_a_plan_for_other_graphs_and_a_missing_plan(folder: Path, tmp_path: Path) -> None:
    for name, sizes in (("one", SIZES), ("two", SIZES.take(np.arange(8)))):
        preprocess(random_molecules(sizes), tmp_path / name, batch_size=4)
    for file in ("static-shape.json", "plan.json"):
        (data_of(tmp_path / "one") / file).write_bytes((data_of(tmp_path / "two") / file).read_bytes())
        with refused(FormatError, f"{file} is for other graphs", str(tmp_path / "one")):
            verify(tmp_path / "one")
    preprocess(folder, tmp_path / "out")
    (data_of(tmp_path / "out") / "plan-valid.json").unlink()
    with refused(FormatError, f"{tmp_path / 'out'} has no plan-valid.json;"):
        verify(tmp_path / "out")


@settings(max_examples=20, deadline=None)
@given(names=st.lists(st.text() | st.text("a-_/.%é", min_size=60), min_size=1, max_size=4, unique=True))
@example(names=["ood-test", "ood_test", "a/b", "a_b"])
@example(names=["x" * 201, f"{'x' * 100}{DIGEST}", f"{'x' * 100}-{DIGEST}", f"{'x' * 100}%-{DIGEST}"])
def test_each_part_has_its_plan_whatever_its_name(names: list[str]) -> None:
    graphs = random_molecules(SIZES)
    splits = {name: [0, 1 + i] for i, name in enumerate(names)}
    with tempfile.TemporaryDirectory() as folder:
        store = tp.GraphStore.write(folder, graphs, splits=splits)
        plans = write_plans(store, tp.Limits(30, 60), 0)
        verify(folder)
        assert len(plans_in(Path(folder))) == len(names)
        # The usual names stay as they are.
        usual = {"": "plan.json", "ood-test": "plan-ood-test.json", "a/b": "plan-a%2Fb.json"}
        assert {part: plan_file(Path(folder), part).name for part in usual} == usual
        found = tp.GraphStore(folder).plans
        assert {name: plan.fingerprint for name, plan in found.items()} == {n: p.fingerprint for n, p in plans.items()}


@pytest.mark.parametrize("new_splits", [{"train": range(9), "extra": [9], "valid": []}, {}], ids=["splits", "none"])
def test_a_killed_run_leaves_the_old_store_or_the_new_one_with_its_plans(tmp_path: Path, new_splits: Any) -> None:
    """At each step on the disk all plans are there, and are for the graphs of the store that is there.

    Every fourth step, from another one in each run of the tests.
    """
    old = write_ogb_folder(tmp_path / "old", tp.GraphSizes(np.array([[4, 6], [6, 10]] * 8))) / "ogbg_molhiv"
    new = tp.GraphStore.write(tmp_path / "new", old, splits=new_splits).path
    out, seen = tmp_path / "out", []
    steps = [(os, name) for name in ("replace", "fsync", "unlink", "rmdir", "mkdir")]
    for step in itertools.count(random.randrange(4), 4):
        preprocess(old, out, overwrite=True)
        code = exit_code_if_killed(lambda: preprocess(new, out, overwrite=True), step, steps)
        store = verify(out)
        plans = store.plans
        assert {split: plan.histogram for split, plan in plans.items()} == split_histograms(store)
        seen.append(sorted(plans))
        if code == 0:
            break
        # What was left over goes with the next write.
        tp.GraphStore.write(out, old, overwrite=True)
        assert {path.name for path in out.iterdir()} == {".lock", "metadata.json", data_of(out).name}
    assert plans_in(out) == sorted(plan_file(out, split).name for split in plans)
    stages = [stage for stage, _ in itertools.groupby(seen)]
    assert stages == [["test", "train", "valid"], ["extra", "train"] if new_splits else [""]]


def test_plans_are_not_written_beside_another_store(folder: Path, tmp_path: Path) -> None:
    """Another process may replace the store while its plans are made."""
    ours = tp.GraphStore.write(tmp_path / "out", folder)
    tp.GraphStore.write(tmp_path / "out", random_molecules(SIZES), overwrite=True)
    with refused(FormatError, "cannot write", str(tmp_path / "out")):
        write_plans(ours, tp.Limits(100, 200), 0)
    assert plans_in(tmp_path / "out") == []


# --- transforms that graphs had


def test_a_store_keeps_its_transform(tmp_path: Path) -> None:
    lap = dgl.transforms.Compose([dgl.transforms.AddSelfLoop(), dgl.transforms.RandomWalkPE(2)])
    store = tp.GraphStore.write(tmp_path / "lap", dataset(), pre_transform=lap, transform_seed=3)
    for opened in (store, tp.GraphStore(tmp_path / "lap"), pickle.loads(pickle.dumps(store))):
        assert opened.pre_transform.seed == 3
        assert "RandomWalkPE(k=2" in opened.pre_transform.transform
        assert "AddSelfLoop" in opened.pre_transform.transform
    plain = tp.GraphStore.write(tmp_path / "plain", dataset())
    assert plain.pre_transform is None
    # What is written from it had the transform, too.
    copied = tp.GraphStore.write(tmp_path / "copied", store.subset([1, 0]))
    assert copied.pre_transform == store.pre_transform
    twice = tp.GraphStore.write(tmp_path / "twice", tmp_path / "lap", pre_transform=dgl.transforms.ToSimple())
    assert twice.pre_transform.transform.startswith(store.pre_transform.transform)


def test_preprocess_takes_sizes_after_the_transform(tmp_path: Path) -> None:
    limits = tp.Limits(nodes=6, edges=18)
    with pytest.raises(LimitsError):
        tp.preprocess(dataset(), tmp_path / "no", limits=tp.Limits(6, 12), pre_transform=dgl.transforms.AddSelfLoop())
    done = tp.preprocess(dataset(), tmp_path / "out", limits=limits, pre_transform=dgl.transforms.AddSelfLoop())
    assert done.store.sizes.array[:, 1].tolist() == [9, 15, 12, 18]
    assert done.plans[""].histogram == done.store.histogram
    # A transform that makes graphs smaller lets them in.
    tp.preprocess(done.store, tmp_path / "less", limits=tp.Limits(6, 12), pre_transform=dgl.transforms.RemoveSelfLoop())


def test_shards_of_another_transform_are_refused(tmp_path: Path) -> None:
    shards = {name: tp.GraphStore.write(tmp_path / f"of {name}", dataset()).path for name in "ab"}
    out = tmp_path / "out"

    def preprocess(transform: Any, **settings: Any) -> Any:
        return tp.preprocess_shards(shards, out, workers=1, limits=LIMITS, pre_transform=transform, **settings)

    assert preprocess(dgl.transforms.RandomWalkPE(2)).written == ("a", "b")
    assert preprocess(dgl.transforms.RandomWalkPE(2)).kept == ("a", "b")
    for other in (dgl.transforms.RandomWalkPE(3), None):
        with refused(ShardsError, "2 of 2 shards failed", "RandomWalkPE(k=2", "overwrite=True"):
            preprocess(other)
    with refused(ShardsError, "(seed 0)", "(seed 1)"):
        preprocess(dgl.transforms.RandomWalkPE(2), transform_seed=1)
    assert "RandomWalkPE(k=2" in tp.MultiStore(out).pre_transform.transform
    found = preprocess(dgl.transforms.RandomWalkPE(3), overwrite=True)
    assert found.written == ("a", "b")
    assert found.store[0][0].ndata["PE"].shape == (3, 3)


def test_shards_that_are_stores_with_a_transform_of_their_own_are_kept(tmp_path: Path) -> None:
    part = tp.GraphStore.write(tmp_path / "part", dataset(), pre_transform=dgl.transforms.ToSimple())
    for kept in ((), ("part",)):
        done = tp.preprocess_shards([tmp_path / "part"], tmp_path / "out", workers=1, limits=LIMITS)
        assert done.kept == kept
        assert done.store.pre_transform == part.pre_transform


def test_a_name_identifies_a_transform_everywhere(tmp_path: Path) -> None:
    """Another function of the same name is the same transform; another name is another one."""

    def clone(name: str) -> dict[str, Any]:
        return {"pre_transform": lambda graph: graph.clone(), "transform_name": name}

    store = tp.GraphStore.write(tmp_path / "store", dataset(), **clone("clone 1"))
    assert str(store.pre_transform) == "clone 1 (seed 0)"
    made = tp.preprocess(dataset(), tmp_path / "made", **clone("clone 1"))
    assert made.store.pre_transform == store.pre_transform
    plain = tp.GraphStore.write(tmp_path / "plain", dataset()).path
    shards: dict[str, Any] = {"shards": [plain], "out": tmp_path / "out", "limits": LIMITS, "workers": 1}
    for name, kept in (("clone 1", ()), ("clone 1", ("plain",))):
        assert tp.preprocess_shards(**shards, **clone(name)).kept == kept
    with refused(ShardsError, "clone 1", "clone 2"):
        tp.preprocess_shards(**shards, **clone("clone 2"))
