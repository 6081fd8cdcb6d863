"""What transforms refuse, what a store keeps of them, and the transforms of batches."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import (
    FormatError,
    GraphTooLargeError,
    LimitsError,
    SchemaError,
    ShardsError,
    TransformError,
)
from dgl_tuplepack.graphs.items import EpochIds
from dgl_tuplepack.graphs.transform import identity_of
from tests.support.command import Run
from tests.support.graphs import assert_same_batch
from tests.support.messages import refused
from tests.support.stores import purchases

LIMITS = tp.Limits(nodes=30, edges=60, graphs=8)


def ring(number: int) -> Any:
    around = torch.arange(number)
    graph = dgl.to_bidirected(dgl.graph((around, (around + 1) % number)))
    graph.ndata["x"] = torch.arange(number * 2.0).reshape(number, 2)
    return graph


def dataset() -> list[Any]:
    return [(ring(n), torch.tensor(float(n))) for n in (3, 5, 4, 6)]


@pytest.fixture
def store(tmp_path: Path) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path / "store", dataset())


def only_large(change: Any) -> Any:
    """A transform that does `change` to graphs of 5 nodes and more, and nothing to others."""

    def only_large_graphs(graph: Any) -> Any:
        return change(graph) if graph.num_nodes() >= 5 else graph

    return only_large_graphs


def failing(graph: Any) -> Any:
    raise KeyError("charge")


def with_column(graph: Any) -> Any:
    graph.ndata["extra"] = torch.zeros(graph.num_nodes())
    return graph


WRONG: dict[str, tuple[Any, type[tp.errors.TuplepackError], tuple[str, ...]]] = {
    "none": (lambda graph: None, TransformError, ("returned None", "must return a DGLGraph")),
    "pair": (lambda graph: (graph, 1), TransformError, ("returned (Graph(", "must return a DGLGraph")),
    "batch": (lambda graph: dgl.batch([graph, graph]), TransformError, ("returned a batch of 2 graphs",)),
    "loops": (dgl.transforms.AddSelfLoop(), TransformError, ("edges instead of", "pre_transform")),
    "reverse": (dgl.transforms.AddReverse(), TransformError, ("edges instead of", "before sizes")),
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
        store.batch([0, 1], LIMITS, transform=transform)


@pytest.mark.parametrize("name", ["none", "pair", "batch", "fails", "schema"])
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


def test_a_batch_of_unknown_epoch_warns_too(store: tp.GraphStore) -> None:
    view = store.padded(LIMITS, batch_transform=tp.transforms.AddNoise("x", 1.0))
    first = view[[1, 2]]
    with pytest.warns(UserWarning, match="AddNoise draws random numbers for graph 1 again"):
        assert_same_batch(view[[1, 2]], first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = [view[EpochIds([1, 2], epoch)].node_features["x"] for epoch in (3, 3, 4)]
    assert torch.equal(other[0], other[1])
    assert not torch.equal(other[0], other[2])


BATCH: dict[str, tuple[Any, tuple[str, ...]]] = {
    "none": (lambda batch: None, ("returned None", "must return the given batch")),
    "other": (lambda batch: batch.to("cpu"), ("must return the given batch",)),
    "source": (lambda batch: batch.src.zero_(), ("changed src", "may change only features and labels")),
    "mask": (lambda batch: batch.node_mask.fill_(True), ("changed node_masks",)),
    "ids": (lambda batch: setattr(batch, "graph_ids", None), ("changed graph_ids",)),
    "count": (lambda batch: setattr(batch, "num_real_graphs", 1), ("num_real_graphs",)),
    "rows": (lambda batch: batch.node_features.update(x=torch.ones(3, 2)), ("'x'", "[3, 2]", "31 rows")),
    "scalar": (lambda batch: setattr(batch, "labels", torch.tensor(1.0)), ("rows, one for each slot",)),
    "dtype": (
        lambda batch: batch.node_features.update(x=batch.node_features["x"].double()),
        ("float64 [2]", "float32 [2]", "all batches"),
    ),
    "fails": (lambda batch: batch.node_features["charge"], ("failed for", "KeyError")),
    "edges": (lambda batch: batch.graph.add_edges(0, 1), ("changed in place",)),
}


@pytest.mark.parametrize("name", BATCH)
def test_a_transform_of_a_batch_that_changes_more_than_it_may_is_refused(name: str, store: tp.GraphStore) -> None:
    change, parts = BATCH[name]

    def transform(batch: tp.PaddedBatch) -> Any:
        if batch.num_real_graphs:
            found = change(batch)
            return found if name in ("none", "other") else batch
        return batch

    error = SchemaError if name == "edges" else TransformError
    with refused(error, *parts):
        store.padded(LIMITS, batch_transform=transform)[[2, 1]]
    items = tp.with_ids(dataset())
    with refused(error, *parts):
        tp.PaddedCollate(LIMITS, items[0], batch_transform=transform)([items[2], items[1]])
    if name not in ("fails", "edges"):
        with refused(error, "the batch of graphs 2, 1"):
            store.padded(LIMITS, batch_transform=transform)[[2, 1]]


def test_a_new_dtype_of_the_same_bits_leaves_no_old_padding(store: tp.GraphStore) -> None:
    """Padding of columns of another dtype is 0, also where the old padding would fit or be promoted."""

    def transform(batch: tp.PaddedBatch) -> tp.PaddedBatch:
        batch.node_features["x"] = batch.node_features["x"].half()
        return batch

    batch = store.padded(LIMITS, feature_fill=9.0, batch_transform=transform)[[2, 1]]
    plain = store.batch([2, 1], LIMITS, feature_fill=9.0)
    found, real = batch.node_features["x"], plain.node_mask
    assert found.dtype == torch.float16
    assert torch.equal(found[real], plain.node_features["x"][real].half())
    assert not found[~real].any()
    assert (plain.node_features["x"][~real] == 9).all()


def test_batches_of_a_transform_have_plain_strides(tmp_path: Path) -> None:
    """Compiled code is specialised for strides, so those of a transform must not reach it."""
    graph = dgl.graph(([0, 1], [1, 0]))
    graph.ndata["image"] = torch.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    store = tp.GraphStore.write(tmp_path, [graph, graph])
    plain = store.batch([0, 1], LIMITS)

    def turned(fill: bool) -> Callable[[tp.PaddedBatch], tp.PaddedBatch]:
        def transform(batch: tp.PaddedBatch) -> tp.PaddedBatch:
            image = batch.node_features["image"].clone()
            if fill:
                # The padding differs, and so is put back.
                image[~batch.node_mask] = 1
            image = image.contiguous(memory_format=torch.channels_last)
            batch.node_features.update(image=image, new=image + 1)
            return batch

        return transform

    for fill in (False, True):
        for ids in ([0, 1], []):
            found = store.batch(ids, LIMITS, batch_transform=turned(fill)).node_features
            for name in ("image", "new"):
                assert found[name].stride() == plain.node_features["image"].stride()
            assert torch.equal(found["image"], store.batch(ids, LIMITS).node_features["image"])


def test_a_transform_that_fails_without_graphs_is_refused_at_once(store: tp.GraphStore) -> None:
    def transform(batch: tp.PaddedBatch) -> tp.PaddedBatch:
        batch.node_features["x"] /= batch.num_real_graphs
        return batch if batch.num_real_graphs else None  # type: ignore[return-value]

    with refused(TransformError, "for a padding-only batch"):
        store.padded(LIMITS, batch_transform=transform)


def test_noise_signs_and_masks_change_real_rows_alone(store: tp.GraphStore) -> None:
    plain = store.batch([0, 1, 2], LIMITS, feature_fill=9.0)

    def transformed(transform: Any) -> tp.PaddedBatch:
        return store.batch(EpochIds([0, 1, 2], 1), LIMITS, feature_fill=9.0, batch_transform=transform)

    x, real = plain.node_features["x"], plain.node_mask
    noisy = transformed(tp.transforms.AddNoise("x", 0.1)).node_features["x"]
    assert 0 < (noisy - x)[real].abs().max() < 1
    signs = transformed(tp.transforms.FlipSigns("x"))
    ratio = (signs.node_features["x"] / x)[real & (x != 0).all(1)]
    slots = plain.node_graph_slots[real & (x != 0).all(1)]
    for slot in range(3):
        assert len(ratio[slots == slot].unique(dim=0)) == 1
    chosen = transformed(tp.transforms.MaskNodes("x", 0.5, value=[-1.0, -2.0], mask="hit"))
    hit = chosen.node_features["hit"]
    assert 0 < hit.sum() < real.sum()
    assert not hit[~real].any()
    assert (chosen.node_features["x"][hit] == torch.tensor([-1.0, -2.0])).all()
    assert torch.equal(chosen.node_features["x"][~hit], x[~hit])
    for batch in (signs.node_features["x"], noisy, chosen.node_features["x"]):
        assert torch.equal(batch[~real], x[~real])


def test_transforms_of_batches_say_what_does_not_fit(store: tp.GraphStore) -> None:
    with refused(TransformError, "no node feature 'pos'", "['x']"):
        store.padded(LIMITS, batch_transform=tp.transforms.AddNoise("pos", 0.1))
    with refused(TransformError, "value has shape [3]", "[2]"):
        store.padded(LIMITS, batch_transform=tp.transforms.MaskNodes("x", 0.5, value=[1, 2, 3]))
    for make in (
        lambda: tp.transforms.AddNoise("x", -1),
        lambda: tp.transforms.MaskNodes("x", 1.5),
        lambda: tp.transforms.MaskNodes("x", 0.5, mask="x"),
    ):
        with pytest.raises(TransformError):
            make()
    with refused(SchemaError, "needs a PaddedBatch"):
        tp.transforms.FlipSigns("x")(ring(3))  # type: ignore[arg-type]


def test_pad_to_limits_refuses_what_it_cannot_pad() -> None:
    pad = tp.transforms.PadToLimits(tp.Limits(nodes=6, edges=12, graphs=2))
    assert isinstance(pad, dgl.transforms.BaseTransform)
    padded = dgl.transforms.Compose([dgl.transforms.RemoveSelfLoop(), pad])(ring(4))
    assert padded.batch_num_nodes().tolist() == [4, 0, 3]
    assert repr(pad) == "PadToLimits(Limits(nodes=6, edges=12, graphs=2))"
    with refused(GraphTooLargeError, "7 nodes"):
        pad(ring(7))
    with refused(GraphTooLargeError, "3 graphs"):
        pad(dgl.batch([ring(2)] * 3))
    with refused(SchemaError, "'node_mask' already", "masks=False"):
        pad(padded)
    with refused(SchemaError, "needs a DGLGraph"):
        pad((ring(3), 1))
    with refused(LimitsError, "cap on graphs"):
        tp.transforms.PadToLimits(tp.Limits(6, 12))
    for packs in (0, -1, 1.5, True, "2"):
        with refused(LimitsError, "packs_per_batch"):
            tp.transforms.PadToLimits(tp.Limits(6, 12, graphs=2), packs)  # type: ignore[arg-type]
    plain = tp.transforms.PadToLimits(tp.Limits(6, 12, graphs=2), masks=False)(ring(4))
    assert set(plain.ndata) == {"x"}


def test_a_store_keeps_its_transform_and_refuses_another(tmp_path: Path) -> None:
    lap = dgl.transforms.Compose([dgl.transforms.AddSelfLoop(), dgl.transforms.RandomWalkPE(2)])
    store = tp.GraphStore.write(tmp_path / "lap", dataset(), pre_transform=lap, transform_seed=3)
    for opened in (store, tp.GraphStore(tmp_path / "lap"), pickle.loads(pickle.dumps(store))):
        assert opened.pre_transform.seed == 3
        assert "RandomWalkPE(k=2" in opened.pre_transform.transform
        assert "AddSelfLoop" in opened.pre_transform.transform
        opened.check_pre_transform(lap, 3)
    other = dgl.transforms.Compose([dgl.transforms.AddSelfLoop(), dgl.transforms.RandomWalkPE(3)])
    for transform, seed in ((other, 3), (lap, 4), (None, 0), (dgl.transforms.AddSelfLoop(), 3)):
        with refused(FormatError, str(tmp_path / "lap"), "RandomWalkPE(k=2", "overwrite=True"):
            store.check_pre_transform(transform, seed)
    plain = tp.GraphStore.write(tmp_path / "plain", dataset())
    assert plain.pre_transform is None
    plain.check_pre_transform(None)
    with refused(FormatError, "without a pre_transform", "AddSelfLoop"):
        plain.check_pre_transform(dgl.transforms.AddSelfLoop())
    # What is written from it had the transform, too.
    copied = tp.GraphStore.write(tmp_path / "copied", store.subset([1, 0]))
    assert copied.pre_transform == store.pre_transform
    twice = tp.GraphStore.write(tmp_path / "twice", tmp_path / "lap", pre_transform=dgl.transforms.ToSimple())
    assert twice.pre_transform.transform.startswith(store.pre_transform.transform)
    twice.check_pre_transform(dgl.transforms.ToSimple())


def test_preprocess_takes_sizes_after_the_transform(tmp_path: Path, run: Run) -> None:
    limits = tp.Limits(nodes=6, edges=18)
    with pytest.raises(LimitsError):
        tp.preprocess(dataset(), tmp_path / "no", limits=tp.Limits(6, 12), pre_transform=dgl.transforms.AddSelfLoop())
    done = tp.preprocess(dataset(), tmp_path / "out", limits=limits, pre_transform=dgl.transforms.AddSelfLoop())
    assert done.store.sizes.array[:, 1].tolist() == [9, 15, 12, 18]
    assert done.plans[""].histogram == done.store.histogram
    # A transform that makes graphs smaller lets them in.
    tp.preprocess(done.store, tmp_path / "less", limits=tp.Limits(6, 12), pre_transform=dgl.transforms.RemoveSelfLoop())
    shown = json.loads(run("info", str(tmp_path / "out"), "--json").out)
    assert shown["pre_transform"]["transform"].startswith("AddSelfLoop(")
    assert "transformed by" in run("info", str(tmp_path / "out")).out


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
    tp.MultiStore(out).check_pre_transform(dgl.transforms.RandomWalkPE(2))
    found = preprocess(dgl.transforms.RandomWalkPE(3), overwrite=True)
    assert found.written == ("a", "b")
    assert found.store[0][0].ndata["PE"].shape == (3, 3)


def test_shards_that_are_stores_with_a_transform_of_their_own_are_kept(tmp_path: Path) -> None:
    part = tp.GraphStore.write(tmp_path / "part", dataset(), pre_transform=dgl.transforms.ToSimple())
    for kept in ((), ("part",)):
        done = tp.preprocess_shards([tmp_path / "part"], tmp_path / "out", workers=1, limits=LIMITS)
        assert done.kept == kept
        assert done.store.pre_transform == part.pre_transform


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
    (failing, f"{__name__}.failing"),
    (dgl.add_self_loop, "dgl.transforms.functional.add_self_loop"),
    (functools.partial(only_large, change=2), f"partial({__name__}.only_large, [], {{'change': 2}})"),
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
    [
        lambda graph: graph,
        only_large(None),
        Scale(0).__call__,
        Scale(lambda: 0),
        Scale(torch.zeros(5000)),
        Scale(object()),
    ],
)
def test_a_transform_without_a_lasting_repr_needs_a_name(transform: Any, tmp_path: Path) -> None:
    with refused(TransformError, "in another process", "transform_name="):
        tp.GraphStore.write(tmp_path / "store", dataset(), pre_transform=transform)
    assert not (tmp_path / "store").exists()
    for name in ("", 3):
        with refused(TransformError, "transform_name must be"):
            identity_of(transform, name)  # type: ignore[arg-type]


def test_a_name_identifies_a_transform_everywhere(tmp_path: Path) -> None:
    """Another function of the same name is the same transform; another name is another one."""

    def clone(name: str) -> dict[str, Any]:
        return {"pre_transform": lambda graph: graph.clone(), "transform_name": name}

    store = tp.GraphStore.write(tmp_path / "store", dataset(), **clone("clone 1"))
    assert str(store.pre_transform) == "clone 1 (seed 0)"
    store.check_pre_transform(failing, transform_name="clone 1")
    with refused(FormatError, "clone 1", "clone 2"):
        store.check_pre_transform(failing, transform_name="clone 2")
    made = tp.preprocess(dataset(), tmp_path / "made", **clone("clone 1"))
    assert made.store.pre_transform == store.pre_transform
    plain = tp.GraphStore.write(tmp_path / "plain", dataset()).path
    shards: dict[str, Any] = {"shards": [plain], "out": tmp_path / "out", "limits": LIMITS, "workers": 1}
    for name, kept in (("clone 1", ()), ("clone 1", ("plain",))):
        assert tp.preprocess_shards(**shards, **clone(name)).kept == kept
    with refused(ShardsError, "clone 1", "clone 2"):
        tp.preprocess_shards(**shards, **clone("clone 2"))


def test_heterographs_are_transformed_type_by_type(tmp_path: Path) -> None:
    items = [graph.clone() for graph in purchases()]
    for graph in items:
        graph.nodes["user"].data["pos"] = torch.zeros(graph.num_nodes("user"), 3)
    store = tp.GraphStore.write(tmp_path / "store", items)
    limits = tp.Limits.from_components({name: 40 for name in store.schema.components}, graphs=8)
    noise, ids = tp.transforms.AddNoise("pos", 1.0), EpochIds(range(8), 1)
    batch = store.batch(ids, limits, transform=dgl.transforms.DropEdge(0.5), batch_transform=noise)
    assert sum(batch.num_real_edges.values()) < sum(graph.num_edges() for graph in items)
    pos, mask = batch.node_features["user"]["pos"], batch.node_mask["user"]
    assert (pos[mask] != 0).all()
    assert (pos[~mask] == 0).all()
    signs = store.batch(ids, limits, batch_transform=tp.transforms.FlipSigns("pos"))
    assert torch.equal(signs.node_features["user"]["pos"], 0 * pos)
    with refused(TransformError, "edges of type ('user', 'follows', 'user') instead of", "graph 2"):
        store.batch([2], limits, transform=only_follows)


def only_follows(graph: Any) -> Any:
    return dgl.add_edges(graph, 0, 0, etype="follows") if graph.num_nodes("user") > 2 else graph


def test_batches_are_transformed_in_inference_mode_and_on_any_default_device(store: tp.GraphStore) -> None:
    view = store.padded(LIMITS, batch_transform=tp.transforms.AddNoise("x", 1.0), transform_seed=1)
    expected = view[EpochIds([1, 2], 1)]
    with torch.inference_mode():
        assert_same_batch(view[EpochIds([1, 2], 1)], expected)
    with torch.device("meta"):
        assert_same_batch(view[EpochIds([1, 2], 1)], expected)


def test_batches_on_a_device_are_transformed_too(store: tp.GraphStore) -> None:
    masks: dict[str, Any] = {"batch_transform": tp.transforms.MaskNodes("x", 0.5, value=-1), "transform_seed": 2}
    view = store.subset([3, 1]).to("cpu").padded(LIMITS, **masks)
    same = store.subset([3, 1]).padded(LIMITS, **masks)[EpochIds([1, 0], 2)]
    assert_same_batch(view[EpochIds([1, 0], 2)], same)
    # Ids in the store, not in the subset.
    whole = store.padded(LIMITS, **masks)
    assert torch.equal(whole[EpochIds([1, 3], 2)].node_features["x"], same.node_features["x"])
