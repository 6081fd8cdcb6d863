"""Padding: exact small batches, their sizes, and what a batch can do."""

from __future__ import annotations

import dataclasses
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import dgl_tuplepack as tp
from dgl_tuplepack.errors import LimitsError
from dgl_tuplepack.graphs.items import Identified
from tests.support.graphs import (
    assert_equal_tensors,
    assert_same_batch,
    assert_same_graph,
    generator,
    random_graph,
    random_heterograph,
)
from tests.support.messages import refused
from tests.support.padding import FEATURES, LIMITS, WEIGHTS, collate, graph, item


def test_a_batch_slot_by_slot() -> None:
    path = dgl.graph(([0, 1], [1, 2]))
    path.ndata["x"] = torch.tensor([1.0, 2.0, 3.0])
    loop = dgl.graph(([0], [0]))
    loop.ndata["x"] = torch.tensor([4.0])
    pad = tp.PaddedCollate(tp.Limits(6, 8, graphs=4), example=(path, 5), label_fill=-7, feature_fill=9.0)
    batch = pad([(path, 1), (loop, 2)])
    assert batch.node_features["x"].tolist() == [1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0]
    # Five padding edges over the padding nodes 4, 5, 6.
    assert batch.src.tolist() == [0, 1, 3, 4, 4, 5, 5, 6]
    assert batch.dst.tolist() == [1, 2, 3, 4, 4, 5, 5, 6]
    assert batch.node_mask.tolist() == [True] * 4 + [False] * 3
    assert batch.edge_mask.tolist() == [True] * 3 + [False] * 5
    assert batch.graph_mask.tolist() == [True, True, False, False, False]
    assert batch.nodes_per_graph.tolist() == [3, 1, 0, 0, 3]
    assert batch.edges_per_graph.tolist() == [2, 1, 0, 0, 5]
    assert batch.node_graph_slots.tolist() == [0, 0, 0, 1, 4, 4, 4]
    assert batch.labels.tolist() == [1, 2, -7, -7, -7]
    assert batch.graph_ids is None
    assert (batch.num_real_nodes, batch.num_real_edges, batch.num_real_graphs) == (4, 3, 2)
    assert batch.graph.batch_num_nodes().tolist() == [3, 1, 0, 0, 3]
    assert batch.graph.batch_num_edges().tolist() == [2, 1, 0, 0, 5]


def test_fills_by_name() -> None:
    example = graph(), {"y": torch.tensor([1, 2]), "weight": 0.5}
    pad = tp.PaddedCollate(LIMITS, example=example, feature_fill={"w": -5}, label_fill={"y": 3})
    batch = pad([example])
    assert batch.edge_features["w"][3:].tolist() == [-5] * 5
    assert not batch.node_features["x"][2:].any()
    assert batch.labels["y"][1:].tolist() == [[3, 3]] * 4
    assert batch.labels["weight"][1:].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        (torch.bool, True), (torch.uint8, 255), (torch.int32, -(2**31)), (torch.int64, np.int64(-1)),
        # Torch takes integers beyond 64 bits as floating point only.
        *((torch.float32, fill) for fill in (float("nan"), float("inf"), 1e30, -(2**63), np.float32(-1))),
    ],
)  # fmt: skip
def test_fills_at_the_ends_of_a_dtype(dtype: torch.dtype, fill: Any) -> None:
    example = random_graph(generator(0), 1, 0, {"x": ((), dtype)}), torch.zeros(1, dtype=dtype)
    batch = tp.PaddedCollate(LIMITS, example=example, feature_fill=fill, label_fill=fill)([])
    for found in (batch.node_features["x"], batch.labels.flatten()):
        assert_equal_tensors(found.nan_to_num(77), torch.full((len(found),), float(fill)).to(dtype).nan_to_num(77))


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (3, torch.tensor(3)),
        (True, torch.tensor(True)),
        (0.5, torch.tensor(0.5)),
        (np.float64(0.5), torch.tensor(0.5, dtype=torch.float64)),
        (np.array([1, 2], dtype=np.int32), torch.tensor([1, 2], dtype=torch.int32)),
        ([1, 2], torch.tensor([1, 2])),
        (torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, 3, dtype=torch.float16)),
        # Arrays of any layout.
        (np.array([1, 2], ">i8"), torch.tensor([1, 2])),
        (np.array([2, 1])[::-1], torch.tensor([1, 2])),
    ],
)
def test_kinds_of_labels(label: Any, expected: torch.Tensor) -> None:
    batch = tp.PaddedCollate(LIMITS, example=(graph(), label))([(graph(), label)])
    assert batch.labels.shape == (5, *expected.shape)
    assert_equal_tensors(batch.labels[0], expected)
    ((_, back),) = tp.unpad(batch, with_labels=True)
    assert_equal_tensors(back, expected)


def test_ids_are_filled_by_with_ids() -> None:
    items = tp.with_ids([item(label=i) for i in range(5)])
    pad = collate(example=items[-1])
    # Ids counted from the end are those of the graphs: -1 stands for padding.
    assert_equal_tensors(pad([items[4], items[-3]]).graph_ids, torch.tensor([4, 2, -1, -1, -1]))
    # An empty batch has ids too, if those of the example have.
    assert pad([]).graph_ids.tolist() == [-1] * 5
    assert collate()([]).graph_ids is None


@pytest.mark.parametrize(("idtype", "sort_edges"), [(torch.int32, True), (torch.int64, False)])
def test_the_bytes_of_a_batch_are_those_of_its_tensors(idtype: torch.dtype, sort_edges: bool) -> None:
    both = {("a", "to", "b"): 2, ("b", "in", "b"): 1}
    features = {"a": FEATURES, "b": {}}, {("a", "to", "b"): WEIGHTS}
    example = (random_heterograph(generator(0), {"a": 2, "b": 1}, both, *features), torch.tensor([1.0, 2.0]))
    components = tp.sizes_of([example]).components
    limits = tp.Limits.from_components({name: 9 + i for i, name in enumerate(components)}, graphs=4)
    settings: Any = {"idtype": idtype, "cover_padding": True, "sort_edges": sort_edges}
    pad = tp.PaddedCollate(limits, Identified(0, example), packs_per_batch=3, **settings)
    batch = pad([])
    leaves = tree_leaves([getattr(batch, field.name) for field in dataclasses.fields(batch)])
    assert pad.shape.nbytes == sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))


def test_as_many_bytes_as_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = collate().shape.nbytes
    monkeypatch.setattr("dgl_tuplepack.batches.shape._memory", lambda: needed)
    collate()
    monkeypatch.setattr("dgl_tuplepack.batches.shape._memory", lambda: needed - 1)
    with refused(LimitsError, f"{needed} bytes", "fewer packs_per_batch"):
        collate()


def test_as_many_nodes_as_int32_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the node slots is the padding's."""
    monkeypatch.setattr("dgl_tuplepack.batches.shape._memory", lambda: 2**63 - 1)
    limits = tp.Limits(2**30 - 1, 8, 4)
    assert collate(limits=limits, packs_per_batch=2, idtype=torch.int32).shape.slots["_N"] == 2**31 - 1
    for nodes, packs in ((2**31 - 1, 1), (2**30, 2)):
        limits = tp.Limits(nodes, 8, 4)
        with refused(LimitsError, f"{nodes * packs + 1} node slots", f"at most {2**31 - 1}", "torch.int64"):
            collate(limits=limits, packs_per_batch=packs, idtype=torch.int32)
        collate(limits=limits, packs_per_batch=packs, idtype=torch.int64)


@pytest.mark.parametrize("formats", ["coo", "csr", "csc", ["csr", "csc"]])
def test_sparse_format_of_the_graphs_does_not_matter(formats: Any) -> None:
    """DGL answers ``edges()`` in order of ids only where it may make the COO form; convolutions prefer CSC."""
    plain = [graph(3, 4, seed=i) for i in range(2)]
    restricted = [g.formats(formats) for g in plain]
    batch = tp.PaddedCollate(LIMITS, example=restricted[0])(restricted)
    assert_same_batch(batch, tp.PaddedCollate(LIMITS, example=plain[0])(plain))
    for back, original in zip(tp.unpad(batch), plain, strict=True):
        assert_same_graph(back, original)


def test_moves_with_all_its_tensors() -> None:
    """The "meta" device stands for any other one: whatever stays behind shows."""
    items = tp.with_ids([item(label=i) for i in range(3)])
    batch = collate(example=items[0])([items[0], items[1]])
    built = batch.graph
    moved = batch.to("meta")
    tensors = moved.tensors._replace(type_names=None, graph_names=None)
    assert {leaf.device.type for leaf in tree_leaves(tensors) if leaf is not None} == {"meta"}
    # Counts are plain numbers, so that nothing waits for a device.
    assert (moved.num_real_nodes, moved.num_real_graphs) == (4, 2)
    # A graph that was built before would stay on the old device, beside tensors on the new one.
    assert moved._graph is None
    assert (batch.device.type, batch.graph is built) == ("cpu", True)
    same = batch.to("cpu", non_blocking=True)
    assert_same_batch(same, batch)
    assert same.graph is not built


def test_pin_memory_reaches_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CUDA: which tensors are asked to pin themselves."""
    pinned: list[int] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.data_ptr()) or tensor)
    batch = collate()([item()])
    assert_same_batch(batch.pin_memory(), batch)
    for tensor in (batch.src, batch.dst, batch.labels, batch.graph_mask, batch.node_mask, batch.edge_mask):
        assert tensor.data_ptr() in pinned


def test_repr_says_what_is_real() -> None:
    text = repr(collate()([item()]))
    assert text == "PaddedBatch(7 nodes, 8 edges, 5 graphs; real: 2 nodes, 3 edges, 1 graphs; device cpu)"


def test_batches_do_not_share_memory_with_the_dataset() -> None:
    one = item()
    batch = collate()([one])
    batch.node_features["x"].fill_(77)
    batch.labels.fill_(77)
    assert not (one[0].ndata["x"] == 77).any()
    assert one[1].item() == 1.0


def test_an_attribute_of_a_framework_batch_is_missing_with_a_hint() -> None:
    batch = collate()([item()])
    for name in ("x", "edge_index", "ndata"):
        with pytest.raises(AttributeError, match=rf"has no attribute '{name}'; models get batch.graph"):
            getattr(batch, name)
        assert not hasattr(batch, name)
