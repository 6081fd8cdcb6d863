"""Batches with `sort_edges=True` against a stable sort of numpy, and their DGLGraph against one of endpoints."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import dgl
import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import dgl_tuplepack as tp
from dgl_tuplepack._core.kernels.graph_slots import fill_graph_slots
from tests.support.graphs import Content, assert_equal_tensors, assert_same_batch, assert_same_graph, contents

IDTYPES = st.sampled_from([torch.int64, torch.int32])


def padded(content: Content, **settings: Any) -> tp.PaddedBatch:
    """The batch of a content."""
    return tp.PaddedCollate(content.limits, content.example, content.packs_per_batch, **settings)(content.items)


@given(contents(), st.booleans(), IDTYPES)
def test_edges_are_those_of_a_stable_sort(content: Content, cover: bool, idtype: torch.dtype) -> None:
    """Endpoints, features and row pointers; everything else is that of the batch as it comes."""
    plain = padded(content, cover_padding=cover, idtype=idtype)
    batch = padded(content, cover_padding=cover, idtype=idtype, sort_edges=True)
    assert plain.row_pointers is None
    for t in content.edge_types:
        order = torch.from_numpy(np.argsort(plain.dst_by_type[t].numpy(), kind="stable"))
        assert_equal_tensors(batch.src_by_type[t], plain.src_by_type[t][order])
        assert_equal_tensors(batch.dst_by_type[t], plain.dst_by_type[t][order])
        assert batch.features_by_type[t].keys() == plain.features_by_type[t].keys()
        for name, value in plain.features_by_type[t].items():
            assert_equal_tensors(batch.features_by_type[t][name], value[order])
        incoming = np.bincount(plain.dst_by_type[t].numpy(), minlength=len(plain.masks_by_type[t[2]]))
        pointers = batch.row_pointers[t] if len(content.node_types) > 1 else batch.row_pointers
        assert pointers.dtype == torch.int64
        assert pointers.tolist() == [0, *np.cumsum(incoming).tolist()]
        # Real edges come first, and those of a graph stay together.
        assert not batch.masks_by_type[t].int().diff().gt(0).any()
    same = {
        name: getattr(plain, name)
        for name in ("src_by_type", "dst_by_type", "features_by_type", "row_pointers_by_type", "edge_orders")
    }
    assert_same_batch(replace(batch, **same), plain)


@given(contents(), st.booleans())
def test_unpadding_gives_each_graph_its_own_order_back(content: Content, by_graph: bool) -> None:
    """With what was written into the sorted batch or its graph, edge by edge."""
    batch = padded(content, sort_edges=True)
    for t in content.edge_types:
        # What stands beside an edge in the sorted batch: twice the position that it had before.
        value = 2 * batch.edge_orders[t]
        if by_graph:
            batch.graph.edges[t].data["twice"] = value
        else:
            batch.features_by_type[t]["twice"] = value
    first = dict.fromkeys(content.edge_types, 0)
    for moved in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)), lambda each: each.to("cpu")):
        assert_same_batch(moved(batch), batch)
    for graph, right in zip(tp.unpad(batch), content.graphs, strict=True):
        for t in content.edge_types:
            number = graph.num_edges(t)
            found = graph.edges[t].data.pop("twice")
            assert found.tolist() == [2 * (first[t] + j) for j in range(number)]
            first[t] += number
        assert_same_graph(graph, right)


def all_equal(found: Any, right: Any) -> bool:
    """Whether two results of a function of a graph are equal, order included."""
    if isinstance(right, Tensor):
        return bool(found.dtype == right.dtype and torch.equal(found, right))
    if isinstance(right, list | tuple):
        return len(found) == len(right) and all(map(all_equal, found, right))
    return bool(found == right)


def bare(graph: Any) -> Any:
    """A copy without features: DGL cannot pickle those of every dtype."""
    graph = graph.clone()
    for data in (*(graph.nodes[t].data for t in graph.ntypes), *(graph.edges[t].data for t in graph.canonical_etypes)):
        for name in list(data):
            del data[name]
    return graph


# What can be seen of the edges of a type of a graph.
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "edges": lambda g, t: g.edges("all", etype=t),
    "in-edges": lambda g, t: g.in_edges(g.nodes(t[2]), "all", etype=t),
    "out-edges": lambda g, t: g.out_edges(g.nodes(t[0]), "all", etype=t),
    "found edges": lambda g, t: g.find_edges(torch.arange(g.num_edges(t), dtype=g.idtype), etype=t),
    "successors": lambda g, t: g.successors(0, etype=t),
    "coo": lambda g, t: g.adj_tensors("coo", etype=t),
    "csr": lambda g, t: g.adj_tensors("csr", etype=t),
    "csc": lambda g, t: g.adj_tensors("csc", etype=t),
    "counts": lambda g, t: (g.batch_num_nodes(t[0]), g.batch_num_edges(t), g.idtype, g.batch_size),
    "reversed": lambda g, t: dgl.reverse(g[t]).edges("all"),
    "removed": lambda g, t: dgl.remove_edges(g, g.edges("eid", etype=t)[1:2], etype=t).edges("all", etype=t),
    "unbatched": lambda g, t: [each.edges("all", etype=t) for each in dgl.unbatch(g)],
    "int": lambda g, t: g.int().edges("all", etype=t),
    "pickled": lambda g, t: pickle.loads(pickle.dumps(bare(g))).edges("all", etype=t),
}


@given(contents(), IDTYPES, st.sampled_from(sorted(VIEWS)))
def test_the_graph_is_that_of_its_endpoints(content: Content, idtype: torch.dtype, view: str) -> None:
    """DGL builds it of row pointers; nobody can tell, whatever is asked first."""
    batch = padded(content, idtype=idtype, sort_edges=True)
    right = replace(batch, row_pointers_by_type=None).graph
    for t in content.edge_types:
        assert all_equal(VIEWS[view](batch.graph, t), VIEWS[view](right, t))
    assert_same_graph(batch.graph, right)


@given(st.lists(st.integers(-2, 5), max_size=8), st.integers(0, 30))
def test_graph_slots_are_repeated_numbers(counts: list[int], number: int) -> None:
    """Also where counts and slots do not agree: then nothing is written behind them."""
    expected = [g for g, count in enumerate(counts) for _ in range(max(count, 0))]
    slots, pointers = np.full(number + 1, -7), np.full(len(counts) + 2, -7)
    assert fill_graph_slots(np.array(counts, np.int64), slots[:number], pointers[:-1]) == len(expected)
    assert slots[: min(number, len(expected))].tolist() == expected[:number]
    assert (slots[len(expected) :] == -7).all()
    assert slots[-1] == -7
    assert pointers.tolist() == [*accumulate((max(count, 0) for count in counts), initial=0), -7]
