"""Several sources as one loader: the share of each in every epoch, and the sources of the graphs of a batch."""

from __future__ import annotations

import math
import pickle
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dgl_tuplepack as tp
from dgl_tuplepack._core.seeds import key_of
from dgl_tuplepack.errors import InputError, SamplerError, SchemaError, SizesError
from dgl_tuplepack.loading.mixture import shares_of
from dgl_tuplepack.loading.opened import opened
from dgl_tuplepack.sampling.weights import SourceShares, draws_of
from tests.support.graphs import assert_same_dgl_batch
from tests.support.loading import ITEMS, LARGE
from tests.support.messages import refused
from tests.support.samplers import flat
from tests.support.stores import molecules, purchases, write_shards

pytestmark = [
    pytest.mark.filterwarnings("ignore:batches of .* graphs need a shape:UserWarning"),
    pytest.mark.filterwarnings("ignore:graphs_per_batch is:UserWarning"),
]

SOURCES = {"a": ITEMS[:30], "b": ITEMS[30:40], "c": ITEMS[40:]}
SOURCE_OF = np.repeat([0, 1, 2], [30, 10, 20])
SHARES = {"a": 2, "b": 1, "c": 5}
EXACT: dict[str, Any] = {"batch_size": 8}
KINDS: dict[str, dict[str, Any]] = {
    "exact": EXACT,
    "exact and padded": {**EXACT, "padded": True},
    "packs": {"graphs_per_batch": 8},
    "packs without padding": {"graphs_per_batch": 8, "padded": False},
}


def mixed(source: Any = None, shares: Any = SHARES, **others: Any) -> Any:
    with_ids = {} if others.get("padded") or "graphs_per_batch" in others else {"with_ids": True}
    return tp.packed_loader(SOURCES if source is None else source, shares=shares, **{**with_ids, **others})


def rows_of(batch: Any) -> tuple[list[int], list[int]]:
    """Ids and sources of the graphs of a batch."""
    if isinstance(batch, tp.PaddedBatch):
        assert not batch.source_ids[~batch.graph_mask].any()
        return batch.graph_ids[batch.graph_mask].tolist(), batch.source_ids[batch.graph_mask].tolist()
    if hasattr(batch, "source_ids"):
        return batch.graph_ids.tolist(), batch.source_ids.tolist()
    assert batch[-1].dtype == batch[-2].dtype == torch.int64
    return batch[-1].tolist(), batch[-2].tolist()


def epoch_of(loader: Any) -> tuple[list[int], list[int]]:
    ids, sources = zip(*map(rows_of, loader), strict=True)
    return flat(ids), flat(sources)


# Shares ------------------------------------------------------------------------------------------------------


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=5), data=st.data(), seed=st.integers(0, 2**64 - 1))
def test_each_epoch_meets_the_shares(counts: list[int], data: st.DataObject, seed: int) -> None:
    shares = np.array([data.draw(st.integers(1, 30)) for _ in counts]) / 1.0
    shares /= math.fsum(shares)
    ids, number = np.repeat(np.arange(len(counts)), counts), sum(counts)
    sizes = np.random.default_rng(number).integers(0, 9, (number, 2))
    weights = SourceShares(tuple(map(str, counts)), shares, ids)
    drawn = draws_of(weights, number, np.arange(number), sizes).of(key_of(seed, 0, 0))
    times = np.bincount(drawn, minlength=number)
    for found, expected in (
        (np.bincount(ids[drawn], minlength=len(counts)), number * shares),
        (times, (number * shares / counts)[ids]),
    ):
        assert (np.floor(expected - 1e-6) <= found).all()
        assert (found <= np.ceil(expected + 1e-6)).all()
    assert len(drawn) == number


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_all_ranks_together_meet_the_shares(kind: str, ranks: int) -> None:
    loaders = [mixed(**KINDS[kind], num_replicas=ranks, rank=rank, with_ids=True) for rank in range(ranks)]
    seen = set()
    for epoch in range(3):
        for loader in loaders:
            loader.set_epoch(epoch)
        ids, sources = map(flat, zip(*map(epoch_of, loaders), strict=True))
        assert sources == SOURCE_OF[ids].tolist()
        assert np.bincount(sources).tolist() in ([15, 7, 38], [15, 8, 37])
        assert {len(loader) for loader in loaders} == {len(loaders[0])}
        seen.add(tuple(ids))
    assert len(seen) == 3


def test_shares_of_nodes_and_temperatures() -> None:
    graphs = {name: opened(items, True, True, {}) for name, items in SOURCES.items()}
    counts, nodes = np.array([30, 10, 20]), np.array([each.sizes.totals()["nodes"] for each in graphs.values()])

    def found(*settings: Any) -> Any:
        return shares_of(graphs, *settings).shares

    assert np.allclose(found(SHARES, None, "graphs"), [0.25, 0.125, 0.625])
    # As many nodes of each source.
    equal = found(dict.fromkeys("abc", 7), None, "nodes") * nodes / counts
    assert np.allclose(equal, equal.mean())
    for share_of in ("graphs", "nodes"):
        assert np.allclose(found(None, 1, share_of), counts / 60)
    assert np.allclose(found(None, 2, "graphs"), np.sqrt(counts) / np.sqrt(counts).sum())
    assert np.allclose(found(None, 1e9, "graphs"), 1 / 3)
    squares = np.sqrt(nodes) * counts / nodes
    assert np.allclose(found(None, 2, "nodes"), squares / squares.sum())
    # Large numbers and small ones do not overflow.
    assert np.allclose(found(dict.fromkeys("abc", 1e308), None, "graphs"), 1 / 3)


def test_temperature_one_shows_each_graph_once() -> None:
    loader = tp.packed_loader(SOURCES, batch_size=8, temperature=1, with_ids=True)
    for _ in range(3):
        ids, sources = epoch_of(loader)
        assert sorted(ids) == list(range(60))
        assert sources == SOURCE_OF[ids].tolist()


def test_dropped_graphs_leave_the_shares_alone() -> None:
    source = {"a": ITEMS[:30], "b": [LARGE, *ITEMS[30:40]]}
    limits = tp.Limits(80, 80)
    with pytest.warns(UserWarning, match="1 of 41 graphs"):
        loader = mixed(source, {"a": 1, "b": 1}, batch_size=8, limits=limits, oversize="drop")
    assert np.bincount(epoch_of(loader)[1]).tolist() == [20, 20]
    source["b"] = [LARGE]
    with (
        refused(SamplerError, "no graph of the source 'b'", "larger limits"),
        pytest.warns(UserWarning, match="1 of 31"),
    ):
        mixed(source, {"a": 9, "b": 1}, batch_size=8, limits=limits, oversize="drop")


@pytest.mark.filterwarnings("error:graphs_per_batch is:UserWarning")
def test_packs_hold_the_asked_number_of_the_graphs_that_an_epoch_has() -> None:
    source = {"small": molecules(300), "large": molecules(40, most=60)}
    loader = mixed(source, {"small": 0.6, "large": 0.4}, graphs_per_batch=16)
    assert loader.graphs_per_batch == pytest.approx(16, rel=0.05)
    assert np.bincount(epoch_of(loader)[1]).tolist() == [204, 136]


# Batches -----------------------------------------------------------------------------------------------------


def sources_in(folder: Path, kind: str) -> Any:
    if kind != "stores":
        return SOURCES
    store = tp.GraphStore.write(folder / "a", [*ITEMS[:30], *ITEMS[:5]])
    shards = write_shards(folder / "b", [ITEMS[30:33], ITEMS[33:40]])
    return {"a": store.subset(range(30)), "b": shards, "c": ITEMS[40:]}


@pytest.mark.parametrize("kind", ["lists", "items", "stores"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_hold_the_graphs_of_their_sources(kind: str, workers: int, tmp_path: Path) -> None:
    in_memory = False if kind == "items" else None
    loader = mixed(sources_in(tmp_path, kind), batch_size=8, in_memory=in_memory, num_workers=workers)
    for graph, labels, source_ids, ids in loader:
        assert source_ids.tolist() == SOURCE_OF[ids].tolist()
        assert_same_dgl_batch(graph, dgl.batch([ITEMS[i][0] for i in ids]))
        assert torch.equal(labels, torch.stack([ITEMS[i][1] for i in ids]))
        assert graph.__dict__["static_shape"] == loader.shape
    padded = mixed(sources_in(tmp_path / "again", kind), graphs_per_batch=8, in_memory=in_memory, num_workers=workers)
    ids, sources = epoch_of(padded)
    assert sources == SOURCE_OF[ids].tolist()
    again = pickle.loads(pickle.dumps(loader.view))
    assert [x.tolist() for x in again[[31, 3, 59]][2:]] == [[1, 0, 2], [31, 3, 59]]


def test_batches_without_labels_and_with_a_collate_function_or_a_transform() -> None:
    hetero = {"a": purchases(12), "b": purchases(8, 1)}
    for graph, source_ids in tp.packed_loader(hetero, batch_size=4, shares={"a": 1, "b": 1}):
        assert graph.batch_size == len(source_ids)
    settings: list[dict[str, Any]] = [
        {"collate_fn": lambda items: dgl.batch([graph for graph, _ in items])},
        {"transform": lambda graph: graph},
    ]
    for each in settings:
        loader = tp.packed_loader(SOURCES, batch_size=8, shares=SHARES, **each)
        for graph, *_, source_ids in loader:
            assert graph.batch_size == len(source_ids)
    padded = mixed(graphs_per_batch=8, transform=lambda graph: graph)
    ids, sources = epoch_of(padded)
    assert sources == SOURCE_OF[ids].tolist()
    batch = next(iter(padded))
    assert torch.equal(batch.tensors.source_ids, batch.source_ids)
    assert np.array_equal(batch.jraph.globals["source_ids"], batch.source_ids)
    assert torch.equal(batch.to("cpu").source_ids, batch.source_ids)


def test_a_saved_state_resumes() -> None:
    loader, other = mixed(**EXACT), mixed(**EXACT)
    iterator = iter(loader)
    head = [rows_of(next(iterator)) for _ in range(3)]
    state = loader.state_dict()
    rest = [rows_of(batch) for batch in iterator]
    other.load_state_dict(state)
    assert [rows_of(batch) for batch in other] == rest
    assert len(head) + len(rest) == len(loader)
    for changed in ({**SHARES, "a": 3}, {"a": 1, "b": 1, "c": 1}):
        with refused(SamplerError, "the state was saved with other weights or shares"):
            mixed(shares=changed, **EXACT).load_state_dict(state)


class Heads(nn.Module):
    """A head for each source."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Linear(1, 3)

    def forward(self, graph: Any, x: Any, source_ids: Any) -> Any:
        with graph.local_scope():
            graph.ndata["h"] = x[:, None]
            return self.heads(dgl.sum_nodes(graph, "h")).gather(1, source_ids[:, None])


def test_the_sources_of_two_lines_are_rows_of_graphs() -> None:
    loader, model = tp.packed_loader(SOURCES, batch_size=8, shares=SHARES), Heads()
    compiled = tp.compile(model, loader, backend="eager")
    for graph, _, source_ids in loader:
        found = compiled(graph, graph.ndata["x"], source_ids)
        assert torch.allclose(found, model(graph, graph.ndata["x"], source_ids), atol=1e-5)
    assert len(compiled._static_calls._calls) == 1
    assert compiled._static_calls.is_compiled


@pytest.mark.parametrize("kind", ["exact", "exact and padded", "packs", "items"])
def test_batches_of_pyg(kind: str) -> None:
    from torch_geometric.data import Data

    import tests.support.pyg  # noqa: F401

    def graphs(number: int, first: int) -> list[Any]:
        edges = torch.zeros(2, 2, dtype=torch.long)
        return [Data(torch.full((2 + i % 5, 1), float(first + i)), edges) for i in range(number)]

    source, of = {"a": graphs(30, 0), "b": graphs(20, 30)}, KINDS.get(kind, {**EXACT, "in_memory": False})
    loader = mixed(source, {"a": 1, "b": 2}, **of)
    for made in loader:
        batch = made.pyg if loader.padded else made
        slots = made.graph_mask if loader.padded else slice(None)
        ids, sources = batch.graph_ids[slots], batch.source_ids
        assert len(sources) == batch.num_graphs
        assert torch.equal(sources[slots], (ids >= 30).long())
        assert torch.equal(batch.x[:, 0][batch.ptr[:-1]][slots].long(), ids)
    if not loader.padded:
        assert batch.to("cpu").source_ids is not None
    with refused(SchemaError, "'b' has PyG graphs", "'a' has DGLGraphs", "mixture"):
        mixed({"a": [dgl.rand_graph(3, 2)], "b": graphs(20, 0)}, {"a": 1, "b": 2}, **of)


# Bad input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "settings", "error", "parts"),
    [
        (SOURCES, {"shares": {"a": 1, "b": 1}}, InputError, ("'a', 'b', 'c'", "exactly these names")),
        (SOURCES, {"shares": {**SHARES, "d": 1}}, InputError, ("'a', 'b', 'c'", "exactly these names")),
        (SOURCES, {"shares": [1, 1, 1]}, InputError, ("[1, 1, 1]", "mapping")),
        (SOURCES, {"shares": {**SHARES, "b": 0}}, InputError, ("the share of 'b'", "above 0", "leave a source out")),
        (SOURCES, {"shares": {**SHARES, "b": float("nan")}}, InputError, ("the share of 'b'", "nan")),
        (SOURCES, {"shares": {**SHARES, "b": "much"}}, InputError, ("the share of 'b'", "'much'")),
        (SOURCES, {"shares": {**SHARES, "b": 1e-30}}, InputError, ("'b'", "next to none")),
        (SOURCES, {"shares": SHARES, "temperature": 2}, InputError, ("one of them", "both are given")),
        (SOURCES, {"temperature": 0}, InputError, ("temperature", "0.001", "equal shares")),
        (SOURCES, {"temperature": "hot"}, InputError, ("temperature", "'hot'")),
        (SOURCES, {"shares": SHARES, "share_of": "edges"}, InputError, ("share_of", "'edges'", "'nodes'")),
        (ITEMS, {"share_of": "nodes"}, InputError, ("share_of= needs shares= or temperature=",)),
        (SOURCES, {}, InputError, ("splits=True", "shares=", "temperature=")),
        (ITEMS, {"shares": SHARES}, InputError, ("mapping of names to sources",)),
        (SOURCES, {"shares": SHARES, "splits": True}, InputError, ("splits= is given too",)),
        (SOURCES, {"shares": SHARES, "weights": np.ones(60)}, InputError, ("weights= is given too",)),
        (SOURCES, {"shares": SHARES, "shuffle": False}, SamplerError, ("shares", "shuffle=False")),
        ({}, {"temperature": 1}, SizesError, ("at least one source",)),
        ({1: ITEMS}, {"temperature": 1}, InputError, ("must be strings", "1")),
        ({"a": ITEMS, "b": []}, {"temperature": 1}, SizesError, ("'b'", "no graphs")),
        ({"a": ITEMS, "b": purchases(9)}, {"temperature": 1}, SchemaError, ("'a'", "'b'", "node types", "mixture")),
        ({"a": ITEMS, "b": [(LARGE[0], 1)]}, {"temperature": 1}, SchemaError, ("'a'", "'b'", "labels", "mixture")),
        (
            SOURCES,
            {"shares": {"a": 1, "b": 20, "c": 1}, "batch_size": 20},
            InputError,
            ("no order meets", "'b'", "0.909", "each of its 10 graphs", "3 batches", "at most 0.5"),
        ),
    ],
    ids=map(str, range(23)),
)
def test_wrong_mixtures_are_refused(source: Any, settings: dict[str, Any], error: Any, parts: tuple[str, ...]) -> None:
    with refused(error, *parts):
        tp.packed_loader(source, **{**EXACT, **settings})


def test_the_largest_share_that_an_order_meets() -> None:
    # 60 graphs in 8 batches: each of the 10 graphs of "b" can come 8 times, in 80 places.
    source = {"a": ITEMS[:50], "b": ITEMS[50:52]}
    most = 2 * 7 / 52
    mixed(source, {"a": 1 - most, "b": most}, **EXACT)
    with refused(InputError, "no order meets", "at most 0.269"):
        mixed(source, {"a": 1 - most - 0.01, "b": most + 0.01}, **EXACT)


def test_a_store_and_a_dataset_that_is_read_item_by_item(tmp_path: Path) -> None:
    source = {"a": tp.GraphStore.write(tmp_path / "a", ITEMS), "b": molecules(20)}
    with refused(InputError, "'a' is a store", "'b' is read item by item", "in_memory=True"):
        tp.packed_loader(source, batch_size=8, temperature=1, in_memory=False)
    empty = [(dgl.graph(([], [])), torch.zeros(2)) for _ in range(9)]
    with refused(InputError, "'b'", "no share of nodes"):
        graphs = {"a": opened(ITEMS, True, True, {}), "b": opened(empty, True, True, {})}
        shares_of(graphs, {"a": 1, "b": 1}, None, "nodes")


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(2, 12), st.floats(0.2, 5))
def test_two_sources_meet_their_shares_if_an_order_does(first: int, second: int, size: int, ratio: float) -> None:
    source = {"x": ITEMS[:first], "y": ITEMS[30 : 30 + second]}
    number, share = first + second, ratio / (1 + ratio)
    most = max(share / first, (1 - share) / second) * number
    if most > -(-number // size) + 1e-9:
        with refused(InputError, "no order meets"):
            mixed(source, {"x": ratio, "y": 1}, batch_size=size)
        return
    ids, sources = epoch_of(mixed(source, {"x": ratio, "y": 1}, batch_size=size))
    assert len(ids) == number
    assert abs(sources.count(0) - share * number) < 1 + 1e-6
    assert sources == [int(i >= first) for i in ids]


def test_a_type_without_edges_in_one_source_has_the_features_of_the_others(tmp_path: Path) -> None:
    def graph(edges: int) -> Any:
        made = dgl.heterograph({("u", "r", "u"): (list(range(edges)), [0] * edges)}, num_nodes_dict={"u": 3})
        if edges:
            made.edata["w"] = torch.full((edges, 2), 5.0)
        return made

    source: dict[str, Any] = {"none": [graph(0)] * 8, "some": [graph(2)] * 8}
    for names in (("none", "some"), ("some", "none")):
        for in_memory in (None, False):
            given = {name: source[name] for name in names}
            loader = tp.packed_loader(
                given, batch_size=4, shares={"none": 1, "some": 1}, in_memory=in_memory, padded=True
            )
            for batch in loader:
                assert (batch.edge_features["w"][batch.edge_mask] == 5).all()
