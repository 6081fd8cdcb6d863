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
from dgl_tuplepack._core.kernels.assemble import CODES, EDGE_ORDER, ENDPOINTS, FIELD, OTHER, ROW_POINTERS, ROWS
from dgl_tuplepack._core.kernels.graph_slots import fill_graph_slots
from dgl_tuplepack._core.kernels.sort_edges import sort_edges
from dgl_tuplepack.storage.view import address_of
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
        assert batch.edge_features_by_type[t].keys() == plain.edge_features_by_type[t].keys()
        for name, value in plain.edge_features_by_type[t].items():
            assert_equal_tensors(batch.edge_features_by_type[t][name], value[order])
        incoming = np.bincount(plain.dst_by_type[t].numpy(), minlength=len(plain.node_masks_by_type[t[2]]))
        pointers = batch.row_pointers[t] if len(content.node_types) > 1 else batch.row_pointers
        assert pointers.dtype == torch.int64
        assert pointers.tolist() == [0, *np.cumsum(incoming).tolist()]
        # Real edges come first, and those of a graph stay together.
        assert not batch.edge_masks_by_type[t].int().diff().gt(0).any()
    same = {
        name: getattr(plain, name)
        for name in ("src_by_type", "dst_by_type", "edge_features_by_type", "row_pointers_by_type", "edge_orders")
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
            batch.edge_features_by_type[t]["twice"] = value
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


# What can be seen of the edges of a type of a graph. What cannot tell an order, such as `is_multigraph`, is here too.
VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "edges": lambda g, t: g.edges("all", etype=t),
    "edges by source": lambda g, t: g.edges("all", order="srcdst", etype=t),
    "in-edges": lambda g, t: g.in_edges(g.nodes(t[2]), "all", etype=t),
    "out-edges": lambda g, t: g.out_edges(g.nodes(t[0]), "all", etype=t),
    "degrees": lambda g, t: (g.in_degrees(etype=t), g.out_degrees(etype=t)),
    "found edges": lambda g, t: g.find_edges(torch.arange(g.num_edges(t), dtype=g.idtype), etype=t),
    "ids": lambda g, t: g.edge_ids(*g.edges(etype=t), etype=t),
    "successors": lambda g, t: g.successors(0, etype=t),
    "predecessors": lambda g, t: g.predecessors(0, etype=t),
    "multigraph": lambda g, t: g.is_multigraph,
    "coo": lambda g, t: g.adj_tensors("coo", etype=t),
    "csr": lambda g, t: g.adj_tensors("csr", etype=t),
    "csc": lambda g, t: g.adj_tensors("csc", etype=t),
    "counts": lambda g, t: (g.batch_num_nodes(t[0]), g.batch_num_edges(t), g.idtype, g.batch_size),
    "reversed": lambda g, t: dgl.reverse(g[t]).edges("all"),
    "part": lambda g, t: dgl.edge_subgraph(g[t], g.edges("eid", etype=t)[::2]).edges("all"),
    "removed": lambda g, t: dgl.remove_edges(g, g.edges("eid", etype=t)[1:2], etype=t).edges("all", etype=t),
    "added": lambda g, t: dgl.add_edges(
        g, torch.zeros(1, dtype=g.idtype), torch.zeros(1, dtype=g.idtype), etype=t
    ).edges("all", etype=t),
    "unbatched": lambda g, t: [each.edges("all", etype=t) for each in dgl.unbatch(g)],
    "int": lambda g, t: g.int().edges("all", etype=t),
    "cloned": lambda g, t: g.clone().edges("all", etype=t),
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


@given(
    st.integers(0, 9), st.integers(0, 12), st.sampled_from(["int32", "int64"]),
    st.lists(st.tuples(st.sampled_from(["bool", "int16", "float32", "float64", "complex128"]), st.integers(0, 3))),
    st.integers(0, 2**31),
)  # fmt: skip
def test_the_kernel_sorts_in_place(
    nodes: int, edges: int, idtype: str, columns: list[tuple[str, int]], seed: int
) -> None:
    """Every column of the type, and nothing else."""
    rng = np.random.default_rng(seed)
    edges = edges if nodes else 0
    ends, others = rng.integers(0, max(nodes, 1), (2, edges)).astype(idtype)
    of_edges = [rng.integers(0, 2, (edges, width)).astype(dtype) for dtype, width in columns]
    of_nodes = rng.integers(0, 99, (nodes, 1))
    order = np.argsort(ends, kind="stable")
    right = [ends[order], others[order], np.cumsum([0, *np.bincount(ends, minlength=nodes)]), order]
    right += [column[order] for column in of_edges] + [of_nodes]
    kinds = [(ENDPOINTS, 1), (ENDPOINTS, 1), (ROW_POINTERS, 1), (EDGE_ORDER, 1), *[(ROWS, 1)] * len(columns), (ROWS, 0)]
    guard = np.full(2, -7)
    # A guard stands behind row pointers and order, which are written whole.
    pointers, sorted_edges = (np.full(number + 1, -7, np.int64) for number in (nodes + 1, edges))
    found = [ends.copy(), others.copy(), pointers, sorted_edges, *(c.copy() for c in of_edges), of_nodes.copy()]
    fields = []
    for f, ((kind, t), array) in enumerate(zip(kinds, found, strict=True)):
        width = array[0].size if len(array) else 1
        fields.append((kind, t, 0, f, 0, width, width * array.itemsize, CODES.get(str(array.dtype), OTHER), 0, 0, 0))
    memory = np.array([address_of(array) for array in found])
    sort_edges(memory, np.array(fields, FIELD), np.array([[0, 2, 3, -1]]), np.array([nodes, edges, 5]))
    assert pointers[-1] == sorted_edges[-1] == guard[0]
    for array, expected in zip([*found[:2], pointers[:-1], sorted_edges[:-1], *found[4:]], right, strict=True):
        assert array.tolist() == expected.tolist()


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
