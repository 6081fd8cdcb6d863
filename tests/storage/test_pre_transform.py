"""Stores keep the transform that their graphs had, and refuse another one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dgl
import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.errors import LimitsError, ShardsError
from tests.support.messages import refused
from tests.support.transforms import LIMITS, dataset


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
