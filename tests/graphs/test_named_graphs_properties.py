"""Items of several named graphs: batches, stores and what comes back, for random items, ties and indices."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.graphs.items import Identified
from tests.support.graphs import PADDING, assert_same_batch, assert_same_graph
from tests.support.named import (
    Named,
    as_dict,
    assert_begins_with,
    assert_same_named,
    graphs_of,
    named_contents,
    shifted_batch,
    types_of,
)


@st.composite
def settings_of(draw: st.DrawFn, content: Named) -> dict[str, Any]:
    """Settings of padded batches."""
    names = [name for name in graphs_of(content.example) if name != "deals"]
    return {
        "packs_per_batch": content.packs,
        **draw(PADDING),
        "coordinates": ("x",) if names and draw(st.booleans()) else (),
    }


def collated(content: Named, items: Sequence[Any], ids: Sequence[int], settings: dict[str, Any]) -> tp.PaddedBatch:
    """The batch of some items, with ids."""
    pad = tp.PaddedCollate(content.limits, Identified(0, items[0]), **content.declared, **settings)
    return pad([Identified(i, items[i]) for i in ids])


@contextmanager
def written(content: Named, **settings: Any) -> Iterator[tuple[tp.GraphStore, list[Any]]]:
    """A store of the example and all items."""
    items = [content.example, *content.items]
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        yield tp.GraphStore.write(f"{folder}/store", items, **content.declared, **settings), items


def shape_of(batch: tp.PaddedBatch) -> dict[str, Any]:
    """Shapes and dtypes of all tensors, and types of all graphs."""

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shape(each) for key, each in value.items()}
        return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value

    graphs = {
        name: (g.ntypes, g.canonical_etypes, g.batch_size, *map(g.num_nodes, g.ntypes))
        for name, g in batch.graphs.items()
    }
    return {"graphs": graphs, **{name: shape(value) for name, value in batch.tensors._asdict().items()}}


@given(st.data(), named_contents())
def test_unpadding_gives_the_items_back_and_shapes_are_static(data: st.DataObject, content: Named) -> None:
    settings = data.draw(settings_of(content))
    pad = tp.PaddedCollate(content.limits, content.example, **content.declared, **settings)
    batch = pad(content.items)
    found = tp.unpad(batch, with_labels=isinstance(content.example, tuple))
    assert len(found) == len(content.items)
    for item, right in zip(found, content.items, strict=True):
        assert_same_named(item, right, pad.schema.idtype)
    assert shape_of(pad([])) == shape_of(batch) == shape_of(pad(content.items[:1]))
    assert tp.unpad(pad([])) == []


@given(st.data(), named_contents())
def test_the_real_part_is_the_batch_of_dgl_with_indices_shifted(data: st.DataObject, content: Named) -> None:
    settings = {**data.draw(settings_of(content)), "sort_edges": False}
    batch = tp.PaddedCollate(content.limits, content.example, **content.declared, **settings)(content.items)
    assert_begins_with(batch, content, content.items)
    reserved = 2 if settings["coordinates"] else 1
    nodes, _ = types_of(graphs_of(content.example))
    for key, mask in batch.node_mask.items():
        assert key in nodes
        tied = content.tied and key == "bonds"
        if not (tied and settings["cover_padding"]):
            limit = content.limits.maxima[f"nodes:{key}"]
            if tied:
                limit = min(limit, content.limits.maxima["edges:atoms"])
            assert len(mask) == content.packs * limit + reserved
    if content.tied:
        assert torch.equal(batch.node_mask["bonds"], batch.edge_mask["atoms"])


@given(st.data(), named_contents())
def test_indices_point_to_the_same_values_in_any_order(data: st.DataObject, content: Named) -> None:
    """Of real slots to those of the item, of padding to padding, with sorted edges too."""
    settings = data.draw(settings_of(content))
    if not content.declared["indices"]:
        return
    batch = tp.PaddedCollate(content.limits, content.example, **content.declared, **settings)(content.items)
    atoms = batch.graphs["atoms"]
    items = [graphs_of(item)["atoms"] for item in content.items]
    near = torch.cat([g.ndata["x"][g.ndata["near"]] for g in items])
    assert torch.equal(atoms.ndata["x"][atoms.ndata["near"]][: len(near)], near)
    targets = ((atoms.ndata["near"], "node", "node"), (atoms.edata["twin"].long(), "edge", "edge"))
    for values, of, to in targets:
        real, target = getattr(batch, f"{of}_mask")["atoms"], getattr(batch, f"{to}_mask")["atoms"]
        assert target[values[real]].all()
        assert not target[values[~real]].any()
    assert batch.node_mask["atoms"][batch.labels["root"][batch.graph_mask]].all()
    assert not batch.node_mask["atoms"][batch.labels["root"][~batch.graph_mask]].any()
    slots = batch.edge_graph_slots["atoms"]
    assert torch.equal(slots[atoms.edata["twin"].long()], slots), "twins are edges of one graph"


@given(st.data(), named_contents(), st.booleans())
def test_batches_of_a_store_are_those_of_collate(data: st.DataObject, content: Named, compact: bool) -> None:
    settings = data.draw(settings_of(content))
    order = data.draw(st.permutations(range(1, len(content.items) + 1)))
    with written(content, compact=compact) as (store, items):
        padded, on_device = store.padded(content.limits, **settings), store.to("cpu")
        device_padded = on_device.padded(content.limits, **settings)
        for ids in (order, order[:1], []):
            right = collated(content, items, ids, settings)
            assert_same_batch(padded[ids], right)
            assert_same_batch(device_padded[ids], right)
        stored = store.padded(content.limits, as_stored=True, **settings)[order]
        for (content_, t, name), _ in store.schema.index_columns.items():
            value = as_dict(stored.labels)[name] if content_ == "label" else stored.features_by_type[t][name]
            assert value.dtype in (torch.int32, torch.int64), "narrow integers have no room for indices of a batch"


@settings(max_examples=25)
@given(named_contents(), st.booleans())
def test_items_come_back_from_a_store(content: Named, compact: bool) -> None:
    with written(content, compact=compact) as (store, items):
        for found in (list(store), list(store.subset(range(len(items))))):
            for item, right in zip(found, items, strict=True):
                assert_same_named(item, right)
        sizes = tp.sizes_of(items)
        assert store.sizes.components == sizes.components
        assert store.sizes.array.tolist() == sizes.array.tolist()
        store.verify()
        with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
            again = tp.GraphStore.write(f"{folder}/again", store)
            part = tp.GraphStore.write(f"{folder}/part", store.subset([len(items) - 1]))
            assert again.schema == store.schema == part.schema
            assert_same_named(again[0], items[0])
            assert_same_named(part[0], items[-1])


@settings(max_examples=25)
@given(st.data(), named_contents())
def test_batches_without_padding_are_those_of_dgl_with_indices_shifted(data: st.DataObject, content: Named) -> None:
    with written(content, compact=True) as (store, items):
        order = data.draw(st.permutations(range(len(items))))
        right, labels = shifted_batch(content, [items[i] for i in order])
        for view in (store.batched(), store.to("cpu").batched()):
            found = view[order]
            graphs, of_graphs = found if isinstance(found, tuple) else (found, None)
            for name, graph in right.items():
                assert_same_graph(graphs[name], graph)
                assert graphs[name].batch_size == len(items)
            assert as_dict(of_graphs).keys() == as_dict(labels).keys()
            for name, value in as_dict(labels).items():
                assert torch.equal(of_graphs[name] if name else of_graphs, value)
            assert_same_named(view[order[0]], items[order[0]])
