"""Transforms of graphs: what is refused, and how a transform is identified."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError, TransformError
from dgl_tuplepack.graphs.items import EpochIds
from dgl_tuplepack.graphs.transform import identity_of
from tests.support.graphs import assert_same_batch
from tests.support.messages import refused
from tests.support.transforms import LIMITS, dataset, failing, only_large


@pytest.fixture
def store(tmp_path: Path) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path / "store", dataset())


def with_column(graph: Any) -> Any:
    graph.ndata["extra"] = torch.zeros(graph.num_nodes())
    return graph


WRONG: dict[str, tuple[Any, type[tp.errors.TuplepackError], tuple[str, ...]]] = {
    "none": (lambda graph: None, TransformError, ("returned None", "must return a DGLGraph")),
    "batch": (lambda graph: dgl.batch([graph, graph]), TransformError, ("returned a batch of 2 graphs",)),
    "loops": (dgl.transforms.AddSelfLoop(), TransformError, ("edges instead of", "pre_transform")),
    "nodes": (lambda graph: dgl.add_nodes(graph, 2), TransformError, ("nodes instead of", "sizes were read")),
    "types": (
        dgl.transforms.AddReverse(sym_new_etype=True, copy_edata=False), TransformError, ("instead of", "sizes were"),
    ),
    "fails": (failing, TransformError, ("only_large_graphs failed for", "KeyError: 'charge'")),
    "schema": (with_column, SchemaError, ("extra", "the example has")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_transform_is_refused_and_the_item_named(name: str, store: tp.GraphStore) -> None:
    wrong, error, parts = WRONG[name]
    transform, items = only_large(wrong), tp.with_ids(dataset())
    collate = tp.PaddedCollate(LIMITS, items[0], transform=transform)
    collate([items[0], items[2]])
    with refused(error, "graph 1", *parts):
        collate([items[0], items[1]])
    plain = tp.PaddedCollate(LIMITS, dataset()[0], transform=transform)
    with refused(error, "item 2", *parts):
        plain([dataset()[0], dataset()[2], dataset()[3]])
    with refused(error, "graph 1", *parts):
        store.padded(LIMITS, transform=transform)[[0, 1]]
    with refused(error, "graph 1", *parts):
        list(tp.PackedDataset(dataset()[:2], LIMITS, transform=transform))


@pytest.mark.parametrize("name", ["none", "batch", "fails", "schema"])
def test_a_wrong_transform_leaves_no_store(name: str, tmp_path: Path) -> None:
    wrong, error, parts = WRONG[name]
    for source in (dataset(), iter(dataset())):
        with refused(error, "item 1", *parts):
            tp.GraphStore.write(tmp_path / "new", source, pre_transform=only_large(wrong), transform_name="wrong")
        assert not (tmp_path / "new").exists()


def uses_of(transform: Any, seed: Any, store: tp.GraphStore, new: Path) -> list[Callable[[], Any]]:
    """Every way to give a transform, some of which would write to `new`."""
    once: dict[str, Any] = {"pre_transform": transform, "transform_seed": seed}
    uses: list[Callable[[], Any]] = [
        lambda: tp.GraphStore.write(new, dataset(), **once),
        lambda: tp.preprocess(dataset(), new, **once),
        lambda: tp.preprocess_shards([dataset()], new, workers=1, **once),
    ]
    for name in ("transform", "batch_transform"):
        given: dict[str, Any] = {name: transform, "transform_seed": seed}
        uses += [
            functools.partial(tp.PaddedCollate, LIMITS, dataset()[0], **given),
            functools.partial(store.padded, LIMITS, **given),
            functools.partial(tp.PackedDataset, dataset(), LIMITS, **given),
        ]
    return uses


@pytest.mark.parametrize(
    ("transform", "seed", "says"),
    [
        *((given, 0, "callable") for given in ("DropEdge", 3, dgl.transforms.DropEdge)),
        *((copy.copy, seed, "must be an integer in 0..2**64-1") for seed in (-1, 2**64, 1.5, "1", True)),
    ],
)
def test_what_cannot_be_a_transform_or_a_seed_is_refused_before_anything_is_written(
    transform: Any, seed: Any, says: str, store: tp.GraphStore, tmp_path: Path
) -> None:
    for use in uses_of(transform, seed, store, tmp_path / "new"):
        with refused(TransformError, says):
            use()
        assert not (tmp_path / "new").exists()


def test_fewer_edges_are_allowed_and_random_ones_need_ids() -> None:
    collate = tp.PaddedCollate(LIMITS, dataset()[0], transform=dgl.transforms.DropEdge(0.5))
    with refused(TransformError, "DropEdge draws random numbers", "item 0 has no id", "with_ids(dataset)"):
        collate(dataset())
    items = tp.with_ids(dataset())
    collate = tp.PaddedCollate(LIMITS, items[0], transform=dgl.transforms.DropEdge(0.5))
    assert collate(items.__getitems__(EpochIds([0, 1, 2, 3], 7))).num_real_edges < 36
    steady = tp.PaddedCollate(LIMITS, dataset()[0], transform=dgl.transforms.ToSimple())
    assert steady(dataset()).num_real_edges == 36


def test_a_random_transform_without_an_epoch_warns_once_when_it_repeats_itself(store: tp.GraphStore) -> None:
    view = store.padded(LIMITS, transform=dgl.transforms.DropEdge(0.5))
    for i in range(4):
        view[[i]]
    with pytest.warns(UserWarning, match="graph 0 again, the same as before.*set_epoch"):
        view[[0]]
    view[[0]]
    known = store.padded(LIMITS, transform=dgl.transforms.DropEdge(0.5))
    known.collate.set_epoch(0)
    for _ in range(3):
        assert_same_batch(known[[0]], view[[0]])
    steady = store.padded(LIMITS, transform=dgl.transforms.RandomWalkPE(2))
    assert_same_batch(steady[[1]], steady[[1]])


class Scale:
    """A transform without a `repr`."""

    def __init__(self, by: Any) -> None:
        self.by = by

    def __call__(self, graph: Any) -> Any:
        return graph


@dataclasses.dataclass
class Shift(Scale):
    by: float


IDENTITIES: list[tuple[Any, str]] = [
    (failing, "tests.support.transforms.failing"),
    (dgl.add_self_loop, "dgl.transforms.functional.add_self_loop"),
    (functools.partial(only_large, change=2), "partial(tests.support.transforms.only_large, [], {'change': 2})"),
    (Shift(0.5), "Shift(by=0.5)"),
    (Scale([1, Shift(2.0)]), "Scale(by=[1, Shift(by=2.0)])"),
    (Scale(torch.float64), "Scale(by=torch.float64)"),
    (dgl.transforms.DropEdge(0.25), "DropEdge(p=0.25, dist=Bernoulli(probs: 0.25))"),
    (
        dgl.transforms.Compose([dgl.transforms.ToSimple(), dgl.transforms.RandomWalkPE(2)]),
        "Compose(transforms=[ToSimple(return_counts='count', aggregator='arbitrary'), "
        "RandomWalkPE(k=2, feat_name='PE', eweight_name=None)])",
    ),
]


@pytest.mark.parametrize(("transform", "text"), IDENTITIES)
def test_a_transform_is_identified_by_its_repr_and_settings(transform: Any, text: str) -> None:
    assert identity_of(transform) == text
    assert identity_of(transform, "mine, 2") == "mine, 2"


@pytest.mark.parametrize(
    "transform",
    [lambda graph: graph, only_large(None), Scale(0).__call__, Scale(torch.zeros(5000)), Scale(object())],
)
def test_a_transform_without_a_lasting_repr_needs_a_name(transform: Any, tmp_path: Path) -> None:
    with refused(TransformError, "in another process", "transform_name="):
        tp.GraphStore.write(tmp_path / "store", dataset(), pre_transform=transform)
    assert not (tmp_path / "store").exists()
    for name in ("", 3):
        with refused(TransformError, "transform_name must be"):
            identity_of(transform, name)  # type: ignore[arg-type]
