"""The tensors of a batch: those of the batch, with the same layout in every batch."""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dgl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch.utils import _pytree as pytree

import dgl_tuplepack as tp
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.items import Identified
from tests.support.graphs import PADDING, Content, assert_equal_tensors, contents, generator, random_graph
from tests.support.messages import refused


def guarded(t: Any, storage: bool = True) -> Any:
    """All that a tracer may look at, beside values: names and their order, types, and layout and kind of tensors."""
    if isinstance(t, dict):
        return type(t), [(key, guarded(value, storage)) for key, value in t.items()]
    if isinstance(t, tuple):
        return type(t), [guarded(value, storage) for value in t]
    if not isinstance(t, Tensor):
        return t
    layout = tuple(t.shape), t.stride(), t.dtype, t.device, t.requires_grad, t.is_leaf, type(t)
    # Where its memory begins, as far as vector instructions care.
    return (*layout, t._is_view(), t.storage_offset(), t.data_ptr() % 16 if t.numel() else 0) if storage else layout


def assert_static(t: Any) -> None:
    """Every tensor is contiguous, and no number is among them."""
    for leaf in pytree.tree_leaves(t):
        assert leaf is None or leaf.is_contiguous()


@settings(max_examples=12)
@given(st.data(), contents(), PADDING)
def test_all_that_is_guarded_is_equal_in_all_batches(
    data: st.DataObject, content: Content, padding: dict[str, Any]
) -> None:
    """Of a collate, a store or a device; empty, full or in between; and through a pipe."""
    items = [content.example, *content.items]
    pad = tp.PaddedCollate(content.limits, Identified(0, items[0]), content.packs_per_batch, **padding)
    ids = data.draw(st.permutations(range(1, len(items))))
    choices = [ids, [], ids[:1], ids[: len(ids) // 2]]
    collated = [pad([Identified(i, items[i]) for i in chosen]) for chosen in choices]
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        store = tp.GraphStore.write(Path(folder) / "store", items)
        view = store.padded(content.limits, content.packs_per_batch, **padding)
        device = store.to("cpu").padded(content.limits, content.packs_per_batch, **padding)
        of_store, of_device = ([way[chosen] for chosen in choices] for way in (view, device))
    batches = [collated, of_store, of_device, [pickle.loads(pickle.dumps(batch)) for batch in of_store]]
    for made in batches:
        tensors = [batch.tensors for batch in made]
        assert all(guarded(t) == guarded(tensors[0]) for t in tensors)
        assert_static(tensors[0])
        # A step that was compiled for one kind of batches takes the others too.
        assert guarded(tensors[0], storage=False) == guarded(collated[0].tensors, storage=False)


@given(contents(), PADDING)
def test_tensors_are_those_of_the_batch(content: Content, padding: dict[str, Any]) -> None:
    pad = tp.PaddedCollate(content.limits, content.example, content.packs_per_batch, **padding)
    batch = pad(content.items)
    t = batch.tensors
    for name in BatchTensors._fields:
        found, right = getattr(t, name), getattr(batch, name)
        assert pytree.tree_structure(found) == pytree.tree_structure(right), name
        for one, other in zip(pytree.tree_leaves(found), pytree.tree_leaves(right), strict=True):
            if isinstance(other, torch.Tensor):
                assert_equal_tensors(one, other, name)
            else:
                assert one == other
    for slots, kinds in ((t.node_graph_slots, content.node_types), (t.edge_graph_slots, content.edge_types)):
        for kind in kinds:
            expected = [g for g, number in enumerate(batch.per_graph_by_type[kind].tolist()) for _ in range(number)]
            assert (slots[kind] if isinstance(slots, dict) else slots).tolist() == expected
    assert (t.row_pointers is not None) == padding["sort_edges"]
    assert_tensor_graph(batch)


@pytest.mark.parametrize("sort_edges", [False, True])
def test_types_of_a_homogeneous_graph_keep_their_names(sort_edges: bool) -> None:
    """Also in a compiled function, where a batch more compiles nothing."""
    edge_type = ("atom", "bond", "atom")
    pair = dgl.heterograph({edge_type: ([0, 1], [1, 0])})
    pair.ndata["x"] = torch.tensor([[1.0], [3.0]])
    limits = tp.Limits(nodes=6, edges=6, graphs=3)
    pad = tp.PaddedCollate(limits, example=pair, sort_edges=sort_edges)
    counted = CompileCounter()

    def total_of(t: BatchTensors) -> Tensor:
        graph = t.graph
        graph.update_all(dgl.function.copy_u("x", "m"), dgl.function.sum("m", "h"), etype="bond")
        return graph.nodes["atom"].data["h"].sum()

    step = tp.compile(total_of, backend=counted)
    for number in (2, 1):
        batch = pad([pair] * number)
        graph = batch.tensors.graph
        assert (graph.ntypes, graph.canonical_etypes) == (batch.graph.ntypes, batch.graph.canonical_etypes)
        assert graph.ndata["x"] is batch.node_features["x"]
        assert step(batch.tensors) == 4 * number
    assert counted.frame_count == 1
    plain = tp.PaddedCollate(limits, example=dgl.graph(([0, 1], [1, 0])))([])
    assert plain.tensors.type_names is None
    assert plain.tensors.graph.ntypes == ["_N"]


def assert_tensor_graph(batch: tp.PaddedBatch) -> None:
    """Compare the graph of the tensors with the graph of the batch."""
    graph, right = batch.tensors.graph, batch.graph
    assert isinstance(graph, tp.TensorGraph)
    assert graph.ntypes == right.ntypes
    assert graph.canonical_etypes == right.canonical_etypes
    assert graph.batch_size == right.batch_size
    for t in right.ntypes:
        assert graph.num_nodes(t) == right.num_nodes(t)
        assert graph.batch_num_nodes(t).tolist() == right.batch_num_nodes(t).tolist()
        assert_same_data(graph.nodes[t].data, right.nodes[t].data)
    for t in right.canonical_etypes:
        for found, expected in zip(graph.edges(etype=t), right.edges(etype=t), strict=True):
            assert_equal_tensors(found, expected)
        assert graph.batch_num_edges(t).tolist() == right.batch_num_edges(t).tolist()
        assert graph.in_degrees(etype=t).tolist() == right.in_degrees(etype=t).tolist()
        assert_same_data(graph.edges[t].data, right.edges[t].data)


def assert_same_data(found: Any, right: Any) -> None:
    """Equal features of a type, by name."""
    assert set(found) == set(right)
    for name, value in right.items():
        assert_equal_tensors(found[name], value, name)


def pair() -> Any:
    """A small graph with a feature."""
    graph = dgl.graph(([0, 1], [1, 0]))
    graph.ndata["x"] = torch.tensor([1.0, 2.0])
    return graph


def batch_of_pairs(**settings: Any) -> tp.PaddedBatch:
    """Two small graphs."""
    return tp.PaddedCollate(tp.Limits(6, 8, graphs=4), example=pair(), **settings)([pair(), pair()])


def test_written_features_are_among_the_tensors_and_later_ones_are_not() -> None:
    batch = batch_of_pairs()
    batch.graph.ndata["h"] = torch.ones(7)
    batch.node_features["k"] = torch.zeros(7)
    t = batch.tensors
    assert list(t.node_features) == ["x", "h", "k"]
    assert set(t.graph.ndata) == {"x", "h", "k"}
    batch.graph.ndata["late"] = torch.ones(7)
    t.node_features["own"] = torch.ones(7)
    t.graph.ndata["scratch"] = torch.ones(7)
    assert list(t.node_features) == ["x", "h", "k", "own"]
    assert set(batch.node_features) == {"x", "h", "k", "late"}


def test_features_of_any_layout_come_with_one() -> None:
    """Pictures as features may lie channels last, which torch.cat would keep where nothing is padding."""
    gen = generator(0)

    def graph(nodes: int) -> Any:
        made = random_graph(gen, nodes, 4)
        made.ndata["picture"] = torch.randn(nodes, 3, 4, 5, generator=gen).to(memory_format=torch.channels_last)
        made.edata["picture"] = torch.randn(4, 3, 4, 5, generator=gen).to(memory_format=torch.channels_last)
        made.edata["turned"] = torch.randn(5, 4, generator=gen).T
        return made, torch.randn(4, 3, generator=gen).T

    items = [graph(3), graph(4)]
    pad = tp.PaddedCollate(tp.Limits(7, 8, graphs=2), example=items[0])
    # All edge slots are real in the last one.
    batches = [pad([]), pad(items[:1]), pad(items)]
    assert all(guarded(batch.tensors) == guarded(batches[0].tensors) for batch in batches)
    assert_static(batches[-1].tensors)


def test_counts_that_were_changed_are_refused() -> None:
    for number, change in (("8", 1), ("6", -1)):
        batch = batch_of_pairs()
        batch.nodes_per_graph[0] += change
        with refused(SchemaError, "counts of '_N'", f"add up to {number}", "7 slots", "nodes_per_graph.clone()"):
            batch.tensors  # noqa: B018


def test_what_is_no_batch_is_refused_as_masks() -> None:
    batch = batch_of_pairs()
    for given_ in (batch.graph, tuple(batch.tensors), batch.node_mask, BatchTensors):
        with refused(SchemaError, "masked() needs a PaddedBatch or its tensors", type(given_).__name__):
            tp.nn.masked(given_)
