"""Graphs go from DGL to PyG and back unharmed: stores and batches have them in both frameworks."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from tests.support.graphs import Content, split_item
from tests.support.graphs import contents as dgl_contents
from tests.support.named import Named, as_dict, graphs_of, named_contents
from tests.support.pyg import LISTS, few, stored

from torch_geometric.data import Data  # isort: skip


def arrays_of(store: tp.GraphStore, names: dict[Any, str]) -> dict[Any, str]:
    """Checksums of the arrays; features and labels under the names that PyG has for them."""
    entries = store.segments[0].metadata.arrays
    return {
        (e.content, e.type, names.get((e.content, e.type, e.name), e.name)): e.sha256
        for e in entries
        # Its columns are in the order of the types, which is another one.
        if e.content != "size_classes"
    }


@few
@given(dgl_contents(min_graphs=1), st.booleans())
def test_graphs_of_dgl_go_through_pyg_unharmed(content: Content, compact: bool) -> None:
    first = stored([content.example, *content.items], compact=compact)
    batch = first.batched(framework="pyg")[range(len(first))]
    levels = {"node_feature": "node", "edge_feature": "edge", "label": "graph"}
    columns = batch._origin.names.columns
    is_plain = content.node_types == ["_N"]
    given = {key: levels[column[0]] for column, _, key in columns} if is_plain else None
    second = stored(batch.to_data_list(), levels=given, compact=compact)
    # A single label is `y` in PyG, so that a dict of `y` alone becomes one.
    single = {("label", None, "y"): ""} if set(second.schema.labels) == {""} else {}
    named = {column: key for column, _, key in columns} | {("label", None, ""): ""} | single
    if "" not in second.schema.labels:
        named.pop(("label", None, ""))
    assert arrays_of(second, {}) == arrays_of(first, named)
    for i, item in enumerate([content.example, *content.items]):
        graph, label = split_item(item) if content.has_labels else (item, None)
        data = batch[i]
        assert data.num_nodes == graph.num_nodes()
        assert data.num_edges == graph.num_edges()
        if label is not None and not isinstance(label, dict):
            assert torch.equal(data.y[0], torch.as_tensor(label))


@few
@given(LISTS)
def test_graphs_of_pyg_come_out_of_a_store_as_those_of_dgl(graphs: list[Any]) -> None:
    store = stored(graphs)
    labels = store.schema.labels
    for found, data in zip(store, graphs, strict=True):
        graph, label = split_item(found) if labels else (found, None)
        plain = isinstance(data, Data)
        for t in store.schema.edge_types:
            ends = data.edge_index if plain else data[t].edge_index
            assert torch.equal(torch.stack(graph.edges(etype=t)), ends)
            for name in store.schema.edge_features[t]:
                assert torch.equal(graph.edges[t].data[name], data[name] if plain else data[t][name])
        for t in store.schema.node_types:
            assert graph.num_nodes(t) == (data.num_nodes if plain else data[t].num_nodes)
            for name in store.schema.node_features[t]:
                assert torch.equal(graph.nodes[t].data[name], data[name] if plain else data[t][name])
        for name in labels:
            assert torch.equal(label[name] if name else label, data[name or "y"][0])


def assert_holds(data: Any, item: Any) -> None:
    """A graph of PyG holds the named graphs of an item, and its labels."""
    labels = as_dict(item[1] if isinstance(item, tuple) else None)
    for name, label in labels.items():
        assert torch.equal(data[name or "y"][0], torch.as_tensor(label)), name
    for name, graph in graphs_of(item).items():
        plain = graph.ntypes == ["_N"]
        for t in graph.ntypes:
            found = data[name if plain else f"{name}/{t}"]
            assert found.num_nodes == graph.num_nodes(t)
            for feature, value in graph.nodes[t].data.items():
                assert torch.equal(found[feature], value), feature
        for source, e, target in graph.canonical_etypes:
            found = data[(name, e, name) if plain else (f"{name}/{source}", e, f"{name}/{target}")]
            assert torch.equal(
                found.edge_index, torch.stack(graph.edges(etype=(source, e, target))).to(found.edge_index)
            )
            for feature, value in graph.edges[source, e, target].data.items():
                assert torch.equal(found[feature], value), feature


@few
@given(named_contents(), st.booleans(), st.booleans())
def test_named_graphs_are_graphs_of_pyg_with_a_type_for_each(content: Named, sort_edges: bool, cover: bool) -> None:
    settings: Any = {"packs_per_batch": content.packs, "sort_edges": sort_edges, "cover_padding": cover}
    every = [content.example, *content.items]
    store = stored(every, **content.declared)
    padded = store.padded(content.limits, **settings)[range(1, len(every))]
    collate = tp.PaddedCollate(content.limits, content.example, **settings, **content.declared)
    for batch in (padded.pyg, collate(content.items).pyg):
        assert batch.num_graphs == len(padded.graph_mask)
        for data, item in zip(batch.to_data_list(), content.items, strict=True):
            assert_holds(data, item)
    graphs = store.batched(framework="pyg")[range(len(every))].to_data_list()
    for data, item in zip(graphs, every, strict=True):
        assert_holds(data, item)
    # What came out goes in again, with the same ties and indices.
    called = {"edges:atoms": "edges:atoms:_E:atoms", "nodes": "nodes:atoms"}
    if store.schema.graph_names == ("atoms",):
        called = {"edges:atoms": "edges", "nodes:atoms": "nodes"}
    declared: Any = {w: {k: called.get(v, v) for k, v in told.items()} for w, told in content.declared.items()}
    again = stored(graphs, **declared)
    assert dict(again.schema.tied) == dict(store.schema.tied)
    for data, item in zip(again.batched(framework="pyg")[range(len(every))].to_data_list(), every, strict=True):
        assert_holds(data, item)
