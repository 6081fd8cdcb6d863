"""Types without nodes or edges do not decide the schema: graphs give equal batches in any order.

Many datasets leave out the features of a type that has no node or edge in a graph, such as bonds of a single atom.
"""

from __future__ import annotations

import itertools
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dgl
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError, ShardsError
from tests.support.command import Run
from tests.support.graphs import Content, assert_same_batch, contents
from tests.support.messages import refused
from tests.support.stores import write_shards


def molecule(atoms: int, bonds: int, edge: str = "w") -> Any:
    """A graph whose edges have features if there are any."""
    graph = dgl.graph((torch.zeros(bonds, dtype=torch.int64), torch.arange(bonds) % atoms), num_nodes=atoms)
    graph.ndata["x"] = torch.full((atoms, 2), float(atoms))
    if bonds:
        graph.edata[edge] = torch.arange(bonds) % 2
    return graph


BONDLESS_FIRST = [molecule(1, 0), molecule(2, 0), molecule(3, 4), molecule(4, 2)]


def relations(*numbers: int) -> Any:
    """A heterograph with these numbers of edges of the types "a" and "b"; with features where there are edges."""
    ends = {("u", name, "u"): ([0] * n, [1] * n) for name, n in zip("ab", numbers, strict=True)}
    graph = dgl.heterograph(ends, {"u": 2})
    for name, n in zip("ab", numbers, strict=True):
        if n:
            graph.edges[name].data[name] = torch.ones(n, 3)
    return graph


@settings(max_examples=15)
@given(
    content=contents(min_graphs=1), data=st.data(), block=st.integers(1, 3),
    cuts=st.lists(st.integers(1, 5), max_size=3), compact=st.booleans(),
)  # fmt: skip
def test_stores_and_shards_of_any_order_make_equal_batches(
    content: Content, data: st.DataObject, block: int, cuts: list[int], compact: bool
) -> None:
    items = [content.example, *content.items]
    first = content.example[0] if content.has_labels else content.example
    assume(all(first.num_nodes(t) for t in first.ntypes) and all(first.num_edges(t) for t in first.canonical_etypes))
    order = data.draw(st.permutations(range(len(items))))
    shuffled, inverse = [items[i] for i in order], np.argsort(order)
    bounds = sorted({0, *(cut for cut in cuts if cut < len(items)), len(items)})
    # Enough for the example too.
    more = {"packs_per_batch": content.packs_per_batch + 2}
    with tempfile.TemporaryDirectory() as name, patch("os.fsync"):
        folder = Path(name)
        right = tp.GraphStore.write(folder / "right", items, compact=compact)
        with patch("dgl_tuplepack.graphs.items._ITEMS_PER_BLOCK", block):
            store = tp.GraphStore.write(folder / "store", iter(shuffled), compact=compact)
            parts = [shuffled[a:b] for a, b in itertools.pairwise(bounds)]
            shards = write_shards(folder / "shards", parts, compact=compact)
        again = tp.GraphStore.write(folder / "again", shards, compact=compact)
        chosen = [found.subset(inverse) for found in (store, shards, pickle.loads(pickle.dumps(shards)), again)]
        for found in (*chosen, chosen[1].to("cpu")):
            assert found.selection.schema == right.schema
            view = found.padded(content.limits, **more)
            for ids in ([*range(len(items))], [0], []):
                assert_same_batch(view[ids], right.padded(content.limits, **more)[ids])
        for each in (store, shards):
            each.verify()


@settings(max_examples=15)
@given(content=contents(min_graphs=1), data=st.data())
def test_items_read_one_by_one_make_the_batches_of_a_store(content: Content, data: st.DataObject) -> None:
    first = content.example[0] if content.has_labels else content.example
    assume(all(first.num_nodes(t) for t in first.ntypes) and all(first.num_edges(t) for t in first.canonical_etypes))
    items = data.draw(st.permutations([content.example, *content.items]))
    maxima = {
        name: max(1, int(most)) for name, most in tp.SizeHistogram.from_sizes(tp.sizes_of(items)).maxima().items()
    }
    limits = tp.Limits.from_dict({"maxima": maxima, "graphs": 2})
    with patch("os.fsync"):
        loaders = [tp.packed_loader(items, limits=limits, in_memory=choice) for choice in (False, True)]
    for found, right in zip(*loaders, strict=True):
        assert_same_batch(found, right)
    assert_same_batch(loaders[0].view[[]], loaders[1].view[[]])


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_no_graph_needs_to_have_all_types(order: tuple[int, ...], tmp_path: Path) -> None:
    items = [(relations(*numbers), float(i)) for i, numbers in enumerate([(0, 0), (2, 0), (0, 1)])]
    shuffled = [items[i] for i in order]
    batches = [next(iter(tp.packed_loader(shuffled, 3, in_memory=choice, shuffle=False))) for choice in (None, False)]
    batches.append(
        tp.GraphStore.write(tmp_path, iter(shuffled)).padded(tp.Limits({"u": 9}, {"a": 9, "b": 9}, 4))[[0, 1]]
    )
    for batch in batches:
        assert {e[1]: [*own] for e, own in batch.edge_features.items()} == {"a": ["a"], "b": ["b"]}
    assert_same_batch(batches[1], batches[0])


def test_a_batch_without_graphs_has_all_features_also_without_padding() -> None:
    """A rank that gets no pack runs the same model."""
    graph = tp.packed_loader(BONDLESS_FIRST, 2, padded=False, in_memory=False).view[[]]
    assert (graph.num_edges(), graph.edata["w"].dtype) == (0, torch.int64)


def test_transforms_see_all_examples() -> None:
    def widened(graph: Any) -> Any:
        if graph.num_edges():
            graph.edata["w"] = graph.edata["w"].float()[:, None]
        return graph

    batch = next(iter(tp.packed_loader(BONDLESS_FIRST, 4, transform=widened)))
    assert (batch.edge_features["w"].dtype, batch.edge_features["w"].shape[1:]) == (torch.float32, (1,))


@pytest.mark.parametrize("given", [{"w": "nodes"}, {"w": "edges"}])
def test_indices_of_a_type_that_comes_later(given: dict[str, str], tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path, BONDLESS_FIRST, indices=given)
    assert store.schema.indices == given
    batches = [next(iter(tp.packed_loader(BONDLESS_FIRST, 4, indices=given, in_memory=how))) for how in (None, False)]
    assert_same_batch(*batches)


def test_a_graph_that_lacks_features_of_its_edges_is_refused(tmp_path: Path) -> None:
    bare = molecule(3, 2)
    bare.edata.pop("w")
    for items in ([*BONDLESS_FIRST, bare], [molecule(1, 0), molecule(3, 4), bare], [bare, *BONDLESS_FIRST]):
        calls: list[Callable[[], Any]] = [
            lambda items=items: tp.GraphStore.write(tmp_path, items),
            lambda items=items: [*tp.packed_loader(items, 2)],
            lambda items=items: [*tp.packed_loader(items, 2, in_memory=False)],
        ]  # fmt: skip
        for call in calls:
            with refused(SchemaError, "edge features", "w int64 []", "every graph needs the same names"):
                call()
    assert not [*tmp_path.iterdir()]


def test_an_example_that_shows_no_features_is_named() -> None:
    collate = tp.PaddedCollate(tp.Limits(20, 20, 5), BONDLESS_FIRST[0])
    assert collate(BONDLESS_FIRST[:2]).num_real_graphs == 2
    with refused(SchemaError, "item 1 has the edge features ['w']", "give an example with such edges"):
        collate(BONDLESS_FIRST[1:3])


@pytest.mark.parametrize("attribute", [None, torch.zeros(0), torch.zeros(0, 2, dtype=torch.int64)], ids=str)
def test_a_pyg_example_without_edges_is_named(attribute: Any) -> None:
    def graph(bonds: int) -> Data:
        own = torch.ones(bonds, 2) if bonds else attribute
        ends = torch.zeros(2, bonds, dtype=torch.int64)
        return Data(x=torch.ones(2, 1), edge_index=ends, **({} if own is None else {"edge_attr": own}))

    collate = tp.PaddedCollate(tp.Limits(20, 20, 5), graph(0))
    assert collate([graph(0), graph(0)]).num_real_graphs == 2
    with refused(SchemaError, "edge_attr", "The example has no rows of", "; give an example that"):
        collate([graph(0), graph(2)])
    # Differences of other types are told in full.
    bare = graph(2)
    del bare.x
    with refused(SchemaError, "every graph needs the same attributes: add x"):
        tp.PaddedCollate(tp.Limits(20, 20, 5), graph(2))([bare.update({"num_nodes": 2})])


def test_shards_of_bondless_graphs_only(tmp_path: Path, run: Run) -> None:
    parts = [BONDLESS_FIRST[:2], BONDLESS_FIRST[2:], [molecule(2, 0)]]
    limits = tp.Limits(20, 20, 6)
    shards = tp.preprocess_shards(parts, tmp_path / "shards", limits=limits, workers=1).store
    whole = tp.GraphStore.write(tmp_path / "whole", [graph for part in parts for graph in part])
    assert_same_batch(shards.padded(limits)[[4, 0, 3]], whole.padded(limits)[[4, 0, 3]])
    assert "w" in shards[0].edata
    described = run("info", tmp_path / "shards")
    assert (described.code, "w" in described.out) == (0, True)
    # Features that differ are still refused, also if the first shard has none.
    other = [molecule(3, 2, "v")]
    with refused(ShardsError, "edge features"):
        tp.preprocess_shards([parts[0], parts[1], other], tmp_path / "other", limits=limits, workers=1)
