"""Transforms of batches: what they change, and what is refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, SchemaError, TransformError
from dgl_tuplepack.graphs.items import EpochIds
from tests.support.graphs import assert_same_batch
from tests.support.messages import refused
from tests.support.stores import purchases
from tests.support.transforms import LIMITS, dataset, ring


@pytest.fixture
def store(tmp_path: Path) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path / "store", dataset())


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
    "mask": (lambda batch: batch.node_mask.fill_(True), ("changed masks",)),
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
    plain = store.padded(LIMITS, feature_fill=9.0)[[2, 1]]
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
    plain = store.padded(LIMITS)[[0, 1]]

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
            found = store.padded(LIMITS, batch_transform=turned(fill))[ids].node_features
            for name in ("image", "new"):
                assert found[name].stride() == plain.node_features["image"].stride()
            assert torch.equal(found["image"], store.padded(LIMITS)[ids].node_features["image"])


def test_a_transform_that_fails_without_graphs_is_refused_at_once(store: tp.GraphStore) -> None:
    def transform(batch: tp.PaddedBatch) -> tp.PaddedBatch:
        batch.node_features["x"] /= batch.num_real_graphs
        return batch if batch.num_real_graphs else None  # type: ignore[return-value]

    with refused(TransformError, "for a padding-only batch"):
        store.padded(LIMITS, batch_transform=transform)


def test_noise_signs_and_masks_change_real_rows_alone(store: tp.GraphStore) -> None:
    plain = store.padded(LIMITS, feature_fill=9.0)[[0, 1, 2]]

    def transformed(transform: Any) -> tp.PaddedBatch:
        return store.padded(LIMITS, feature_fill=9.0, batch_transform=transform)[EpochIds([0, 1, 2], 1)]

    x, real = plain.node_features["x"], plain.node_mask
    noisy = transformed(tp.transforms.AddNoise("x", 0.1)).node_features["x"]
    assert 0 < (noisy - x)[real].abs().max() < 1
    signs = transformed(tp.transforms.FlipSigns("x"))
    ratio = (signs.node_features["x"] / x)[real & (x != 0).all(1)]
    slots = plain.node_graph_slots[real & (x != 0).all(1)]
    signs_of_graphs = [ratio[slots == slot].unique(dim=0) for slot in range(3)]
    assert [len(each) for each in signs_of_graphs] == [1, 1, 1]
    assert len(torch.cat(signs_of_graphs).unique(dim=0)) > 1
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


def test_heterographs_are_transformed_type_by_type(tmp_path: Path) -> None:
    items = [graph.clone() for graph in purchases()]
    for graph in items:
        graph.nodes["user"].data["pos"] = torch.zeros(graph.num_nodes("user"), 3)
    store = tp.GraphStore.write(tmp_path / "store", items)
    limits = tp.Limits.from_components({name: 40 for name in store.schema.components}, graphs=8)
    noise, ids = tp.transforms.AddNoise("pos", 1.0), EpochIds(range(8), 1)
    batch = store.padded(limits, transform=dgl.transforms.DropEdge(0.5), batch_transform=noise)[ids]
    assert sum(batch.num_real_edges.values()) < sum(graph.num_edges() for graph in items)
    pos, mask = batch.node_features["user"]["pos"], batch.node_mask["user"]
    assert (pos[mask] != 0).all()
    assert (pos[~mask] == 0).all()
    signs = store.padded(limits, batch_transform=tp.transforms.FlipSigns("pos"))[ids]
    assert torch.equal(signs.node_features["user"]["pos"], 0 * pos)
    with refused(TransformError, "edges of type ('user', 'follows', 'user') instead of", "graph 2"):
        store.padded(limits, transform=only_follows)[[2]]


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
