"""The padding contract, for random graphs of every kind: static shape, faithful content, padding apart."""

from __future__ import annotations

import pickle
from typing import Any

import dgl
import torch
from hypothesis import given, reject
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.graphs.items import Identified
from tests.support.graphs import (
    PADDING,
    Content,
    assert_equal_tensors,
    assert_same_batch,
    assert_same_graph,
    assert_same_label,
    contents,
    shapes_of,
)


def collate_of(content: Content, **settings: Any) -> tp.PaddedCollate:
    """Collate function for a content."""
    return tp.PaddedCollate(content.limits, content.example, content.packs_per_batch, **settings)


def masks_of(batch: tp.PaddedBatch) -> dict[Any, torch.Tensor]:
    """The mask of each type; that of graphs has the key None."""
    return {**batch.masks_by_type, None: batch.graph_mask}


@given(contents(), PADDING)
def test_unpadding_gives_the_graphs_back(content: Content, settings: dict[str, Any]) -> None:
    pad = tp.PaddedCollate(content.limits, Identified(0, content.example), content.packs_per_batch, **settings)
    items = [Identified(7 * i, item) for i, item in enumerate(content.items)]
    batch = pad(items)
    back = tp.unpad(batch, with_labels=True)
    assert len(back) == len(content.items)
    for (graph, label), item in zip(back, content.items, strict=True):
        assert_same_graph(graph, item[0] if content.has_labels else item)
        assert_same_label(label, item[1] if content.has_labels else None)
        assert graph.idtype == pad.schema.idtype
    for graph, alone in zip(tp.unpad(batch), back, strict=True):
        assert_same_graph(graph, alone[0])
    if items:
        assert batch.graph_ids[batch.graph_mask].tolist() == [7 * i for i in range(len(items))]
        assert (batch.graph_ids[~batch.graph_mask] == -1).all()


@given(contents(), PADDING)
def test_shape_masks_counts_and_padding_edges(content: Content, settings: dict[str, Any]) -> None:
    pad = collate_of(content, **settings)
    batch = pad(content.items)
    assert_static_shape(content, settings, pad, batch)
    assert_masks_and_counts(content, batch)
    assert_padding_edges_stay_apart(content, settings, batch)


def assert_static_shape(content: Content, settings: dict[str, Any], pad: tp.PaddedCollate, batch: Any) -> None:
    """The shape follows from limits and schema alone, also for no graphs and for fewer of them."""
    hetero, p, maxima = len(content.node_types) > 1, content.packs_per_batch, pad.shape.limits.maxima
    slots = {}
    for t in content.node_types:
        slots[t] = p * maxima[f"nodes:{t}" if hetero else "nodes"] + 1
        assert len(batch.masks_by_type[t]) == slots[t]
    for t in content.edge_types:
        covering = slots[t[2]] if settings["cover_padding"] else 0
        edges = p * maxima["edges:" + ":".join(t) if hetero else "edges"] + covering
        assert len(batch.masks_by_type[t]) == edges
    assert len(batch.graph_mask) == p * content.limits.graphs + 1
    assert shapes_of(batch) == shapes_of(pad([])) == shapes_of(pad(content.items[:1]))


def assert_masks_and_counts(content: Content, batch: Any) -> None:
    """Real content first, counted truly; the last slot owns all padding, empty slots own nothing."""
    number, masks = len(content.items), masks_of(batch)
    assert batch.num_real_graphs == number == batch.graph_mask.sum()
    assert batch.graph_mask[:number].all()
    num_real, counts = batch.num_real_by_type, batch.per_graph_by_type
    for t in (*content.node_types, *content.edge_types):
        graphs, is_nodes, mask, real, per_graph = content.graphs, isinstance(t, str), masks[t], num_real[t], counts[t]
        sizes = [graph.num_nodes(t) if is_nodes else graph.num_edges(t) for graph in graphs]
        in_dgl = batch.graph.batch_num_nodes(t) if is_nodes else batch.graph.batch_num_edges(t)
        assert mask.dtype == torch.bool
        assert mask.sum() == real == sum(sizes)
        assert mask[:real].all()
        assert per_graph.tolist() == in_dgl.tolist()
        assert per_graph[:number].tolist() == sizes
        assert not per_graph[number:-1].any()
        assert per_graph[-1] == len(mask) - real
        assert per_graph.sum() == len(mask)


def assert_padding_edges_stay_apart(content: Content, settings: dict[str, Any], batch: Any) -> None:
    """Padding edges join padding nodes only, as evenly as possible."""
    for t in content.edge_types:
        mask = batch.masks_by_type[t]
        for end, node_type in ((batch.src_by_type[t], t[0]), (batch.dst_by_type[t], t[2])):
            nodes = batch.masks_by_type[node_type]
            # Real edges join real nodes and padding edges padding nodes: nothing flows across.
            assert nodes[end[mask].long()].all()
            assert not nodes[end[~mask].long()].any()
            per_node = torch.bincount(end[~mask].long(), minlength=len(nodes))[~nodes]
            assert per_node.max() - per_node.min() <= 1
            if (~mask).sum() >= len(per_node):
                assert per_node.min() >= 1
            if settings["cover_padding"] and node_type == t[2]:
                assert per_node.min() >= 1
        if t[0] == t[2]:
            assert torch.equal(batch.src_by_type[t][~mask], batch.dst_by_type[t][~mask])


@given(contents(min_graphs=1), PADDING)
def test_real_part_is_what_dgl_batches(content: Content, settings: dict[str, Any]) -> None:
    batch = collate_of(content, **{**settings, "sort_edges": False})(content.items)
    try:
        expected = dgl.batch(content.graphs)
    except dgl.DGLError:
        # Where no graph has an edge of a type, DGL refuses those with its feature beside those without; we do not.
        reject()
    number = len(content.items)
    assert batch.graph.idtype == settings["idtype"]
    for t in content.node_types:
        real = expected.num_nodes(t)
        assert batch.graph.batch_num_nodes(t)[:number].tolist() == expected.batch_num_nodes(t).tolist()
        for name, value in batch.features_by_type[t].items():
            assert_equal_tensors(batch.graph.nodes[t].data[name], value)
            if real:
                assert_equal_tensors(value[:real], expected.nodes[t].data[name])
    for t in content.edge_types:
        real = expected.num_edges(t)
        assert batch.graph.batch_num_edges(t)[:number].tolist() == expected.batch_num_edges(t).tolist()
        for found, right in zip(batch.graph.edges(etype=t), expected.edges(etype=t), strict=True):
            assert found[:real].tolist() == right.tolist()
        for name, value in batch.features_by_type[t].items():
            assert_equal_tensors(batch.graph.edges[t].data[name], value)
            if real:
                assert_equal_tensors(value[:real], expected.edges[t].data[name])


@given(contents(), st.sampled_from([0, 1]))
def test_fills_are_honoured(content: Content, fill: int) -> None:
    """0 and 1 suit every dtype; each padding entry has the fill, for labels and features of all types."""
    batch = collate_of(content, feature_fill=fill, label_fill=fill)(content.items)
    masks = masks_of(batch)
    for (_, t, _), value in batch.columns().items():
        padding = value[~masks[t]]
        assert_equal_tensors(padding, torch.full_like(padding, fill))
    assert (batch.labels is None) == (not content.has_labels)


@given(contents())
def test_pickling_keeps_everything(content: Content) -> None:
    batch = collate_of(content)(content.items)
    assert_same_batch(pickle.loads(pickle.dumps(batch)), batch)
    assert_same_batch(pickle.loads(pickle.dumps(collate_of(content)))(content.items), batch)
