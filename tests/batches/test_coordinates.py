"""Padding that geometry survives: no length 0 and no undefined angle, with equal results for what is real."""

from __future__ import annotations

from typing import Any

import dgl
import dgl.nn
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import dgl_tuplepack as tp
from dgl_tuplepack.errors import LimitsError, SchemaError
from tests.support.messages import refused
from tests.support.tensors import generator

USER_ITEM = ("user", "buys", "item")


def molecule(gen: torch.Generator, nodes: int, edges: int) -> Any:
    """Random positions, edges without self-loops (none where there is one node)."""
    src = torch.randint(nodes, (edges if nodes > 1 else 0,), generator=gen)
    step = torch.randint(1, max(nodes, 2), (len(src),), generator=gen)
    graph = dgl.graph((src, (src + step) % nodes), num_nodes=nodes)
    graph.ndata["pos"] = torch.randn(nodes, 3, generator=gen, dtype=torch.float64)
    graph.ndata["h"] = torch.randn(nodes, 4, generator=gen, dtype=torch.float64)
    graph.edata["w"] = torch.rand(len(src), 2, generator=gen, dtype=torch.float64)
    return graph


@st.composite
def molecules(draw: st.DrawFn) -> list[Any]:
    gen = generator(draw(st.integers(0, 2**31)))
    sizes = draw(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 8)), min_size=1, max_size=4))
    return [molecule(gen, n, e) for n, e in sizes]


def ways_to_pad(folder: str, items: list[Any], limits: tp.Limits, packs: int, **settings: Any) -> list[Any]:
    """The batch of all items by collate, from the store, and on a device."""
    ids = range(len(items))
    store = tp.GraphStore.write(folder, items)
    return [
        tp.PaddedCollate(limits, items[0], packs, **settings)(items),
        store.padded(limits, packs, **settings)[ids],
        store.to("cpu").padded(limits, packs, **settings)[ids],
    ]


def assert_padding_is_spread(batch: Any, src: Tensor, dst: Tensor, mask: Tensor, distance: float) -> None:
    """Padding nodes are distinct, padding edges are as long as `distance`, and triples along them have an angle."""
    pos = batch.node_features["pos"]
    padding = pos[~batch.node_mask]
    assert len(torch.unique(padding, dim=0)) == len(padding) >= 2
    src, dst = src[~mask], dst[~mask]
    assert not batch.node_mask[src].any()
    assert not batch.node_mask[dst].any()
    assert ((pos[src] - pos[dst]).norm(dim=1) >= distance * (1 - 1e-12)).all()
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        for c in dst[src == b].tolist():
            if c != a:
                one, other = pos[b] - pos[a], pos[c] - pos[b]
                assert torch.linalg.cross(one, other).norm() > 1e-3 * distance**2


@settings(deadline=None, max_examples=30)
@given(
    molecules(), st.integers(0, 5), st.integers(0, 9), st.integers(1, 2), st.booleans(),
    st.sampled_from([1.0, 12.5]), st.sampled_from([torch.int32, torch.int64]), st.booleans(),
)  # fmt: skip
def test_no_padding_edge_has_length_0(
    tmp_path_factory: Any, items: list[Any], nodes: int, edges: int, packs: int, cover: bool, distance: float,
    idtype: torch.dtype, sort_edges: bool,
) -> None:  # fmt: skip
    limits = tp.Limits(
        sum(g.num_nodes() for g in items) + nodes, max(1, sum(g.num_edges() for g in items) + edges), len(items)
    )
    options: dict[str, Any] = {
        "coordinates": {"pos": distance}, "cover_padding": cover, "idtype": idtype, "sort_edges": sort_edges,
    }  # fmt: skip
    folder = str(tmp_path_factory.mktemp("store") / "store")
    batches = ways_to_pad(folder, items, limits, packs, **options)
    for batch in batches:
        assert len(batch.node_mask) == packs * limits.nodes + 2
        assert batch.src.dtype == idtype
        assert_padding_is_spread(batch, batch.src.long(), batch.dst.long(), batch.edge_mask, distance)
        for name in ("src", "dst"):
            assert torch.equal(getattr(batch, name), getattr(batches[0], name))
        for name, value in batches[0].node_features.items():
            assert torch.equal(batch.node_features[name], value), name
        if cover:
            assert (batch.graph.in_degrees()[~batch.node_mask] > 0).all()
        for graph, original in zip(tp.unpad(batch), items, strict=True):
            assert torch.equal(graph.ndata["pos"], original.ndata["pos"])
            assert torch.equal(graph.edges()[1].long(), original.edges()[1])


def test_types_of_nodes_do_not_share_positions() -> None:
    gen = generator(0)
    graph = dgl.heterograph(
        {USER_ITEM: ([0, 1], [0, 0]), ("user", "knows", "user"): ([0], [1])}, {"user": 2, "item": 1}
    )
    for t in graph.ntypes:
        graph.nodes[t].data["pos"] = torch.randn(graph.num_nodes(t), 2, generator=gen)
    limits = tp.Limits({"user": 5, "item": 3}, {USER_ITEM: 7, ("user", "knows", "user"): 6}, 2)
    batch = tp.PaddedCollate(limits, graph, coordinates=("pos",))([graph])
    pos = {t: batch.node_features[t]["pos"] for t in graph.ntypes}
    padding = torch.cat([pos[t][~batch.node_mask[t]] for t in graph.ntypes])
    assert len(torch.unique(padding, dim=0)) == len(padding) == (7 - 2) + (5 - 1)
    for edge_type in graph.canonical_etypes:
        mask = batch.edge_mask[edge_type]
        ends = pos[edge_type[0]][batch.src[edge_type][~mask]] - pos[edge_type[2]][batch.dst[edge_type][~mask]]
        assert (ends.norm(dim=1) >= 1).all()


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_coordinates_of_any_dimension(shape: tuple[int, ...]) -> None:
    graph = dgl.graph(([0], [1]))
    graph.ndata["pos"] = torch.ones((2, *shape))
    batch = tp.PaddedCollate(tp.Limits(9, 9, 2), graph, coordinates=["pos"])([graph])
    pos = batch.node_features["pos"].reshape(11, -1)
    padding = ~batch.edge_mask
    assert ((pos[batch.src[padding]] - pos[batch.dst[padding]]).norm(dim=1) >= 1).all()


# Fill values and bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [(1, 2, 3), np.array([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 3.0])], ids=type)
def test_fills_may_differ_by_channel(given: Any, tmp_path: Any) -> None:
    graph = dgl.graph(([0], [1]))
    graph.ndata["c"] = torch.zeros(2, 3)
    graph.edata["v"] = torch.zeros(1, 3, dtype=torch.int16)
    item = (graph, torch.zeros(3, dtype=torch.float64))
    options: dict[str, Any] = {"feature_fill": {"c": given, "v": given}, "label_fill": {"": given}}
    for batch in ways_to_pad(str(tmp_path / "store"), [item], tp.Limits(4, 4, 2), 1, **options):
        for values, mask in (
            (batch.node_features["c"], batch.node_mask),
            (batch.edge_features["v"], batch.edge_mask),
            (batch.labels, batch.graph_mask),
        ):
            assert values[~mask].tolist() == [[1, 2, 3]] * int((~mask).sum())
            assert not values[mask].any()


def graph_of(**features: Tensor) -> Any:
    graph = dgl.graph(([0], [1]))
    graph.ndata.update(features)
    return graph


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"coordinates": ("x",)}, ("coordinates contains 'x'", "['i', 'pos']")),
        ({"coordinates": "pos"}, ("coordinates", "'pos'", 'coordinates=("pos",)')),
        ({"feature_fill": {"pos": [1, [2], 3]}}, ("feature_fill of pos", "do not form an array")),
        ({"coordinates": ("i",)}, ("coordinates must be real floats", "'i'", "int64")),
        ({"coordinates": {"pos": 0.0}}, ("distance of coordinates 'pos'", "0.0", "cutoff")),
        ({"coordinates": {"pos": 1e37}}, ("torch.float32 cannot represent", "padding positions", "1e+37")),
        ({"coordinates": ("pos",), "feature_fill": {"pos": 1.0}}, ("['pos']", "coordinates", "feature_fill")),
        ({"feature_fill": {"pos": [1.0, 2.0]}}, ("feature_fill of pos has shape [2]", "[3]")),
        ({"feature_fill": {"i": [1.5, 2.0]}}, ("feature_fill", "[1.5, 2.0]", "torch.int64 cannot hold")),
        ({"feature_fill": {"cell": 1.0}}, ("unknown names ['cell']", "values of graphs in label_fill")),
        ({"label_fill": {"pos": 1.0}}, ("unknown names ['pos']", "nodes and edges belong in feature_fill")),
    ],
)
def test_wrong_coordinates_and_fills(options: dict[str, Any], parts: tuple[str, ...]) -> None:
    graph = graph_of(pos=torch.zeros(2, 3), i=torch.zeros(2, 2, dtype=torch.int64))
    example = (graph, {"cell": torch.eye(3)}) if "cell" in str(options) else graph
    with refused(SchemaError, *parts):
        tp.PaddedCollate(tp.Limits(40, 40, 2), example, **options)


def test_the_reserve_is_part_of_the_shape() -> None:
    limits = tp.Limits.from_padded_shape(256, 512, 64, coordinates=True)
    assert limits == tp.Limits(254, 512, 63)
    example = graph_of(pos=torch.zeros(2, 3))
    batch = tp.PaddedCollate(limits, example, coordinates=("pos",))([example])
    assert (len(batch.node_mask), len(batch.edge_mask), len(batch.graph_mask)) == (256, 512, 64)
    with refused(LimitsError, "at least 3 nodes", "2 reserved", "got 2"):
        tp.Limits.from_padded_shape(2, 5, 5, coordinates=True)
