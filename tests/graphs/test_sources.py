"""Sizes from every kind of source, and datasets whose items know their id."""

from __future__ import annotations

import itertools
import tempfile
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.items import Identified, parts_of
from tests.support.graphs import ITEM, RELATIONS, USER, assert_same_batch, generator, random_graph, random_heterograph
from tests.support.messages import refused

SIZES = [[3, 4], [1, 0], [2, 5], [0, 0]]


def graphs() -> list[Any]:
    gen = generator(0)
    return [random_graph(gen, *size) for size in SIZES]


def hetero(users: int, items: int, follows: int, buys: int, pleases: int) -> Any:
    edges = dict(zip(RELATIONS, (follows, buys, pleases), strict=True))
    return random_heterograph(generator(0), {USER: users, ITEM: items}, edges)


@pytest.mark.parametrize(
    "source",
    [
        [[graph, 1] for graph in graphs()],
        [(graph,) for graph in graphs()],
        [Identified(i, graph) for i, graph in enumerate(graphs())],
        np.array(SIZES, dtype=np.uint8),
        (torch.tensor([3, 1, 2, 0]), torch.tensor([4, 0, 5, 0], dtype=torch.int32)),
    ],
    ids=lambda source: type(source).__name__,
)
def test_every_source_gives_the_same_sizes(source: Any) -> None:
    sizes = tp.sizes_of(source)
    assert sizes.array.tolist() == SIZES
    assert sizes.array.dtype == np.int64
    assert sizes.components == ("nodes", "edges")


def test_bidirected_and_csc_only_graphs_count_directed_edges() -> None:
    # Two directed edges to a bond: what OGB stores and what limits count.
    bond = dgl.graph(([0, 1], [1, 0]))
    assert tp.sizes_of([bond, bond.formats("csc"), bond.int()]).array.tolist() == [[2, 2]] * 3


def test_heterograph_has_one_component_for_each_type() -> None:
    sizes = tp.sizes_of([hetero(3, 2, 4, 1, 5), (hetero(1, 0, 2, 0, 0), 1)])
    # DGL orders types by name.
    assert sizes.components == (
        "nodes:item", "nodes:user", "edges:item:pleases:user", "edges:user:buys:item", "edges:user:follows:user",
    )  # fmt: skip
    assert sizes.array.tolist() == [[2, 3, 5, 1, 4], [0, 1, 0, 0, 2]]
    assert sizes.num_nodes.tolist() == [5, 1]
    assert sizes.num_edges.tolist() == [10, 2]


@pytest.mark.parametrize("source", [5, None, dgl.graph(([0], [0])), {0: 1}], ids=lambda source: type(source).__name__)
def test_what_is_not_a_source_is_told_what_can_be_given(source: Any) -> None:
    with refused(SizesError, type(source).__name__, "list of graphs", "OgbFolder", "GraphStore", ".bin file"):
        tp.sizes_of(source)


@pytest.mark.parametrize("source", [["graph"], [(1, "a")], [None], [{"graph": 1}], [()]])
def test_items_that_are_no_graphs(source: list[Any]) -> None:
    with refused(SchemaError, "item 0", type(source[0]).__name__, "DGLGraph", "let the dataset return"):
        tp.sizes_of(source)


def test_mixed_types_are_named() -> None:
    with refused(SchemaError, "item 1", "['item', 'user']", "item 0", "['_N']", "same types"):
        tp.sizes_of([graphs()[0], hetero(1, 1, 0, 0, 0)])


# What an item may be -------------------------------------------------------------------------------------------

IDS = (7, np.int64(7), torch.tensor(7, dtype=torch.uint8))
NO_IDS = ("mol-7", 7.0, -1, 2**63, True, torch.tensor([7]), None)


def through_collate(items: list[Any]) -> Any:
    return tp.PaddedCollate(tp.Limits(20, 20, graphs=9), items[0])(items)


def through_store(items: list[Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return tp.GraphStore.write(folder, items).sizes


LIMITS = tp.Limits(20, 20, graphs=9)
ENTRANCES: list[Any] = [tp.sizes_of, through_collate, through_store, lambda items: list(tp.StreamPacker(items, LIMITS))]


@pytest.mark.parametrize("graph_id", IDS, ids=repr)
def test_the_third_part_of_an_item_is_its_id(graph_id: Any) -> None:
    item = (graphs()[0], 1.0, graph_id)
    assert type(parts_of(item, "here").id) is int
    batch = tp.PaddedCollate(LIMITS, item)([item, (graphs()[1], 2.0, 3)])
    assert batch.graph_ids.tolist() == [7, 3] + [-1] * 8
    assert batch.labels.tolist() == [1.0, 2.0] + [0.0] * 8
    assert tp.sizes_of([item]).array.tolist() == [SIZES[0]]


def test_a_third_part_that_is_no_id_is_refused_everywhere() -> None:
    for enter, graph_id in itertools.chain(
        ((enter, NO_IDS[0]) for enter in ENTRANCES), ((tp.sizes_of, graph_id) for graph_id in NO_IDS)
    ):
        with refused(SchemaError, type(graph_id).__name__, "third part", "in 0..2**63-1", "with_ids(dataset)"):
            enter([(graphs()[0], 1.0, graph_id)])
    for enter in ENTRANCES:
        with refused(SchemaError, "has 4 parts", "put several labels into one dict"):
            enter([(graphs()[0], 1.0, 2, 3)])


def test_ids_in_a_store_are_positions() -> None:
    items = [(graph, 1.0, i) for i, graph in enumerate(graphs())]
    assert through_store(items).array.tolist() == SIZES
    with refused(SchemaError, "item 1 has the id 2", "ids in a store are positions", "keep other ids as a label"):
        through_store([items[0], *items[2:]])


def test_with_ids_goes_before_ids_of_items() -> None:
    view = tp.with_ids([(graph, 1.0, 50 + i) for i, graph in enumerate(graphs())])
    assert through_collate([view[2], view[0]]).graph_ids.tolist() == [2, 0] + [-1] * 8


@pytest.mark.parametrize("index", [range(20, 24), [1, 1, 0, 0]])
def test_a_series_has_its_items_in_order_whatever_its_index(index: Any) -> None:
    pandas = pytest.importorskip("pandas", reason="the optional package pandas is not installed")
    items: list[Any] = [(graph, float(i)) for i, graph in enumerate(graphs())]
    series = pandas.Series(items, index=index, dtype=object)
    assert tp.sizes_of(series).array.tolist() == SIZES
    for choice in (None, False):
        found = next(iter(tp.packed_loader(series, 4, in_memory=choice, shuffle=False)))
        assert_same_batch(found, next(iter(tp.packed_loader(items, 4, shuffle=False))))
    ids = next(iter(tp.packed_loader(tp.with_ids(series), 4))).graph_ids
    assert sorted(ids[:4].tolist()) == [0, 1, 2, 3]
    with tempfile.TemporaryDirectory() as folder:
        assert tp.GraphStore.write(folder, series).sizes.array.tolist() == SIZES
    # Numbers are still sizes.
    assert tp.sizes_of(pandas.DataFrame(SIZES)).array.tolist() == SIZES
