"""Graphs of PyG go in and come out as they were: lists, datasets in memory, stores and padded batches."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from tests.support.pyg import LISTS, InMemory, assert_same, batch_of, contents, few, room_for, stored, told_lists


def rows_of(value: Any) -> int:
    """How many numbers an attribute has; a number of nodes is one."""
    return int(value.numel()) if isinstance(value, torch.Tensor) else 1


def is_readable(dataset: Any) -> bool:
    """Whether PyG can take the dataset apart: not if a type has `num_nodes` alone, or if there is one graph."""
    try:
        return dataset.slices is not None and dataset[0] is not None
    except KeyError:
        return False


def checksums_of(store: tp.GraphStore) -> dict[Any, str]:
    """Checksums of the arrays of a store."""
    return {key: entry.sha256 for key, entry in store.segments[0].entries.items()}


@few
@given(LISTS)
def test_graphs_come_out_of_a_store_as_they_went_in(graphs: list[Any]) -> None:
    store = stored(graphs)
    batch = store.padded(room_for(graphs))[range(len(graphs))].pyg
    assert batch.num_real_graphs == len(batch) == len(graphs)
    assert batch.num_graphs == len(graphs) + 2
    for found, expected in zip(batch.to_data_list(), graphs, strict=True):
        assert_same(found, expected)


def without_rows(graphs: Sequence[Any], data: st.DataObject) -> list[Any]:
    """The graphs, in which types without nodes (edges) lack attributes that other graphs show, or have odd ones."""
    shown = {key for graph in graphs for key, value in contents(graph).items() if rows_of(value)}
    made = [copy.copy(graph) for graph in graphs]
    for graph in made:
        for store in graph.stores:
            for name in [name for name, value in store.items() if not rows_of(value)]:
                is_optional = store._key is not None or "edge" in name
                if is_optional and name != "edge_index" and (store._key, name) in shown:
                    how = data.draw(st.sampled_from(["right", "missing", "no columns"]))
                    if how == "missing":
                        del store[name]
                    elif how == "no columns":
                        store[name] = torch.tensor([])
    return made


@few
@given(LISTS, st.data(), st.integers(1, 3))
def test_types_without_rows_decide_nothing_in_any_order(graphs: list[Any], data: st.DataObject, block: int) -> None:
    shuffled = data.draw(st.permutations(graphs))
    expected = stored(shuffled)
    with patch("dgl_tuplepack.graphs.items._ITEMS_PER_BLOCK", block):
        found = stored(without_rows(shuffled, data))
    assert found.schema == expected.schema
    assert checksums_of(found) == checksums_of(expected)


@few
@given(LISTS)
def test_a_dataset_in_memory_gives_the_store_of_its_items(graphs: list[Any]) -> None:
    dataset = InMemory(graphs)
    if not is_readable(dataset):
        return
    found, expected = stored(dataset), stored(graphs)
    assert found.schema == expected.schema
    assert checksums_of(found) == checksums_of(expected)
    assert (tp.sizes_of(dataset).array == tp.sizes_of(graphs).array).all()


@few
@given(LISTS, st.data())
def test_a_subset_of_a_dataset_in_memory_is_the_list_of_its_items(graphs: list[Any], data: st.DataObject) -> None:
    dataset = InMemory(graphs)
    if not is_readable(dataset):
        return
    # All of them, in any order, and some twice, so that the levels are told.
    order = data.draw(st.permutations(range(len(graphs))))
    ids = [*order, *data.draw(st.lists(st.sampled_from(order), max_size=3))]
    store = stored(dataset[ids])
    batch = store.padded(room_for([graphs[i] for i in ids]))[range(len(ids))].pyg
    for found, i in zip(batch.to_data_list(), ids, strict=True):
        assert_same(found, graphs[i])
    other = stored(torch.utils.data.Subset(dataset, ids))
    assert other.schema == store.schema
    assert (other.sizes.array == store.sizes.array).all()


@few
@given(LISTS)
def test_collating_graphs_gives_the_batch_of_the_store(graphs: list[Any]) -> None:
    limits, store = room_for(graphs), stored(graphs)
    collate = tp.PaddedCollate(limits, tp.with_ids(graphs)[len(graphs) - 1])
    found, expected = (
        collate([tp.with_ids(graphs)[i] for i in range(len(graphs))]),
        store.padded(limits)[range(len(graphs))],
    )
    assert_same(found.pyg, expected.pyg)


@few
@given(LISTS)
def test_the_real_part_of_a_padded_batch_is_the_batch_of_pyg(graphs: list[Any]) -> None:
    found = stored(graphs).padded(room_for(graphs))[range(len(graphs))].pyg
    expected = batch_of(graphs)
    own = contents(found)
    for store in expected.stores:
        for key, value in store.items():
            if key == "ptr":
                assert torch.equal(own[store._key, key][: len(value)], value)
            elif key != "num_nodes":
                dim = expected.__cat_dim__(key, value, store)
                assert torch.equal(own[store._key, key].narrow(dim, 0, value.shape[dim]), value), key


@few
@given(LISTS, st.data())
def test_batches_without_padding_are_those_of_pyg(graphs: list[Any], data: st.DataObject) -> None:
    view = stored(graphs).batched(framework="pyg")
    ids = data.draw(st.lists(st.sampled_from(range(len(graphs))), min_size=1, max_size=6))
    found = view[ids]
    assert_same(found, batch_of([graphs[i] for i in ids]))
    for one, i in zip(found.to_data_list(), ids, strict=True):
        assert_same(one, graphs[i])
    assert_same(view[ids[0]], graphs[ids[0]])


@few
@given(told_lists(), st.data(), st.booleans())
def test_classes_that_join_graphs_in_their_own_way_are_followed(
    told: tuple[list[Any], dict[str, str], dict[str, Any]], data: st.DataObject, sort_edges: bool
) -> None:
    graphs, _, declared = told
    store = stored(graphs, **declared)
    ids = data.draw(st.lists(st.sampled_from(range(len(graphs))), min_size=1, max_size=5))
    chosen, groups = [graphs[i] for i in ids], [name for name in ("x_a", "x_b") if name in graphs[0]]
    expected = batch_of(chosen, follow_batch=groups)
    found = store.batched(framework="pyg")[ids]
    assert_same(found, expected, {"batch", "ptr"} - set(found.keys()))
    # What comes out has another class, but is joined in the same way.
    dataset = store.batched(framework="pyg")
    assert_same(batch_of([dataset[i] for i in ids], follow_batch=groups), expected)
    every, limits = range(len(graphs)), room_for(store)
    padded = store.padded(limits, sort_edges=sort_edges)[every].pyg
    collate = tp.PaddedCollate(limits, graphs[0], sort_edges=sort_edges, **declared)
    assert_same(collate(graphs).pyg, padded, {"graph_ids"})
    for one, graph in zip(padded.to_data_list(), graphs, strict=True):
        assert_same(one, graph)
    dataset, levels = InMemory(graphs), declared["levels"]
    assert (tp.sizes_of(dataset, levels=levels).array == tp.sizes_of(graphs, levels=levels).array).all()
    part = stored(dataset[ids], **declared).batched(framework="pyg")[range(len(ids))]
    assert_same(part, expected, {"batch", "ptr"} - set(part.keys()))


@few
@given(told_lists())
def test_what_increments_leave_open_is_refused_or_does_not_matter(
    told: tuple[list[Any], dict[str, str], dict[str, Any]],
) -> None:
    graphs, levels, declared = told
    refused = ""
    try:
        store = stored(graphs, levels=levels)
    except SchemaError as error:
        refused, store = str(error), stored(graphs, **declared)
    assert not refused or any(text in refused for text in ("levels=", "indices=", "number of nodes of item 0"))
    found = store.batched(framework="pyg")[range(len(graphs))]
    assert_same(found, batch_of(graphs), {"batch", "ptr", *(f"x_{n}_{k}" for n in "ab" for k in ("batch", "ptr"))})
