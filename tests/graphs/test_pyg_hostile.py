"""Graphs of PyG that could give wrong batches silently: classes that shift oddly, and broken datasets in memory."""

from __future__ import annotations

import copy
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.storage.write import blocks_of
from tests.support.graphs import assert_same_batch
from tests.support.messages import refused
from tests.support.pyg import PAIR, InMemory, assert_same, batch_of, ends, molecule, pair, stored

from torch_geometric import EdgeIndex  # isort: skip
from torch_geometric.data import Data, HeteroData, TemporalData  # isort: skip
from torch_geometric.transforms import RandomLinkSplit  # isort: skip

GATHERED = pytest.mark.parametrize("gather", [list, InMemory, iter], ids=["list", "in memory", "iterator"])
SIZES = ((3, 4), (6, 2), (4, 4), (1, 0))


@pytest.fixture
def gen() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def class_of(
    increment: Callable[[Any, str], Any] | None = None, axis: Callable[[Any, str], Any] | None = None
) -> type[Any]:
    """A class of graphs; what the functions return NotImplemented for is as in PyG."""

    class Own(Data):
        def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            found = NotImplemented if increment is None else increment(self, key)
            return super().__inc__(key, value, *args, **kwargs) if found is NotImplemented else found

        def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            found = NotImplemented if axis is None else axis(self, key)
            return super().__cat_dim__(key, value, *args, **kwargs) if found is NotImplemented else found

    return Own


def thing_by(shift: Callable[[Any], Any]) -> type[Any]:
    return class_of(lambda data, key: shift(data) if key == "thing" else NotImplemented)


def things(kind: type[Any], sizes: Any = SIZES, **more: Any) -> list[Any]:
    return [kind(**molecule(n, e, n).to_dict(), thing=torch.zeros(1, dtype=torch.long), **more) for n, e in sizes]


def test_a_later_graph_whose_class_does_not_shift_an_attribute_is_refused() -> None:
    shifting, plain = thing_by(lambda data: data.num_nodes), Data
    graphs = things(shifting, [(3, 4)] * 20) + things(plain, [(5, 4)]) + things(shifting)
    nodes = {"thing": "nodes"}
    for given in (graphs, iter(graphs), graphs[:1] + graphs[20:]):
        with refused(SchemaError, "'thing' of item", "is shifted by"):
            stored(given, levels={"thing": "graph"}, indices=nodes)
    # A graph without nodes shifts by 0 whatever its class says.
    empty = shifting(
        x=torch.zeros(0, 3, dtype=torch.long), edge_index=torch.zeros(2, 0, dtype=torch.long),
        edge_attr=torch.zeros(0, 2, dtype=torch.long), y=torch.zeros(1, 2), thing=torch.zeros(0, dtype=torch.long),
    )  # fmt: skip
    for graph in graphs:
        graph.thing = torch.arange(graph.num_nodes)
    assert len(stored([*graphs[:20], empty], indices=nodes)) == 21


def test_increments_of_the_two_ends_must_be_a_column(gen: torch.Generator) -> None:
    # PyG adds them to the columns of an edge_index of two edges.
    kind = class_of(lambda data, key: torch.tensor([len(data.x_s), len(data.x_t)]) if "edge" in key else NotImplemented)
    graphs = [kind(x_s=torch.rand(n, 1), x_t=torch.rand(n + 1, 1), edge_index=ends(gen, n, n + 1, 2)) for n in (2, 3)]
    for gather in (list, InMemory):
        with refused(SchemaError, "the edge_index of", "a row for each end: [["):
            stored(gather(graphs), levels={"edge_index": "x_s -> x_t"})


@GATHERED
def test_methods_that_fail_for_one_graph_are_named(gather: Any) -> None:
    kind = class_of(lambda data, key: 1 // 0 if key == "edge_index" and data.num_nodes == 4 else NotImplemented)
    with refused(SchemaError, "the edge_index of item 2", "__inc__ of Own fails: ZeroDivisionError", "correct __inc__"):
        stored(gather(things(kind)))
    if gather is not InMemory:
        for axis, text in ((lambda *_: 1 // 0, "ZeroDivisionError"), (lambda *_: True, "")):
            with refused(SchemaError, "item 0", text):
                stored(gather(things(class_of(None, axis))))


def test_a_number_does_not_tell_the_number_of_nodes() -> None:
    graphs = [Data(edge_index=torch.zeros(2, 1, dtype=torch.long), x=torch.tensor(3.0)) for _ in range(2)]
    for read in (stored, tp.sizes_of):
        with refused(SchemaError, "number of nodes of item 0 is unknown", "set num_nodes"):
            read(graphs)


@GATHERED
def test_endpoints_of_32_and_64_bits_together_have_64_as_in_pyg(gather: Any) -> None:
    graphs = [
        Data(x=torch.rand(n, 1), edge_index=torch.zeros(2, 2 * n, dtype=dtype))
        for n, dtype in ((2, torch.int32), (3, torch.int64))
    ]
    assert_same(stored(gather(graphs)).batched(framework="pyg")[[0, 1]], batch_of(graphs))
    graphs[1].edge_index[0, 0] = 2**32 + 1
    with refused(SchemaError, "item 1 has an edge at node 4294967297", "only 3 nodes"):
        stored(gather(graphs))


def test_labels_of_links_of_one_number_belong_to_the_links_of_their_name() -> None:
    split = RandomLinkSplit(num_val=0.3, num_test=0.0, split_labels=True)
    store = stored([split(molecule(9, 20 + i, i))[0] for i in range(3)])
    assert {e[1]: [*own] for e, own in store.schema.edge_features.items()} == {
        "edge_index": ["edge_attr"], "pos_edge_label_index": ["pos_edge_label"],
        "neg_edge_label_index": ["neg_edge_label"],
    }  # fmt: skip


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_of_other_classes_are_refused_by_name() -> None:
    link = torch.tensor([[0], [1]])
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])
    edges = EdgeIndex(link, sparse_size=(2, 2))
    for key, value, name in (("edge_index", edges, "EdgeIndex"), ("thing", nested, "nested_tensor")):
        data = Data(x=torch.rand(2, 1), edge_index=link)
        data[key] = value
        with refused(SchemaError, key, f"is {name}", "must be a dense tensor", ".as_tensor()"):
            stored([data, data])


def test_endpoints_have_no_other_level() -> None:
    for level in (None, "node", "graph", "x"):
        with refused(SchemaError, "levels must map", "edge_index, which graphs need", repr(level)):
            stored(things(Data), levels={"edge_index": level})
    assert len(stored(things(Data), levels={"edge_index": "edge_index"})) == 4


def test_what_would_be_lost_of_a_heterodata_is_refused() -> None:
    data = HeteroData()
    data["a"].x, data["a", "to", "a"].edge_index = torch.rand(2, 1), torch.zeros(2, 1, dtype=torch.long)
    for change in (lambda d: setattr(d, "num_nodes", 5), lambda d: setattr(d["a", "to", "a"], "num_nodes", 5)):
        other = data.clone()
        change(other)
        for gather in (list, InMemory):
            with refused(SchemaError, "the attribute 'num_nodes'", 'levels={"num_nodes": None}'):
                stored(gather([other, other]))
            assert len(stored(gather([other, other]), levels={"num_nodes": None})) == 2
    plain = HeteroData({"_N": {"x": torch.rand(2, 1)}, ("_N", "_E", "_N"): {"edge_index": torch.zeros(2, 1).long()}})
    with refused(SchemaError, "item 0 is a HeteroData whose types are '_N'", "rename"):
        stored([plain, plain])


def changed(change: Callable[[Any], Any], graphs: Any = None) -> Any:
    dataset = InMemory(graphs or [molecule(n, e, n) for n, e in SIZES])
    change(dataset)
    return dataset


def test_a_dataset_in_memory_has_the_attributes_that_its_graphs_have() -> None:
    # PyG's graphs lack what has no slices.
    dataset = changed(lambda d: setattr(d._data, "z", torch.rand(14)))
    assert "z" not in dataset[0]
    assert_same(stored(dataset).batched(framework="pyg")[range(4)], batch_of([*dataset]))
    assert "z" in dataset._data


@pytest.mark.parametrize("key", ["x", "y", "edge_index"])
@pytest.mark.parametrize("wrong", [lambda o: o[:-1], lambda o: o.flip(0), lambda o: o + 1])
def test_slices_that_do_not_divide_the_rows_are_refused(key: str, wrong: Callable[[Any], Any]) -> None:
    dataset = changed(lambda d: d.slices.update({key: wrong(d.slices[key])}))
    parts = ("the slices divide the", "the dataset has") if len(dataset.slices[key]) != 5 else (f"slices of {key!r}",)
    with refused(SchemaError, *parts):
        stored(dataset)


def test_a_number_of_nodes_that_is_a_tensor_is_refused_by_name_in_memory_too() -> None:
    ends = torch.zeros(2, 1, dtype=torch.int64)
    items = [Data(edge_index=ends, y=torch.ones(1), num_nodes=torch.tensor([number])) for number in (3, 1, 7)]
    for source in (items, InMemory(items)):
        with refused(SchemaError, "num_nodes of", "must be an integer in 0..2**63-1, but is tensor([3])"):
            tp.sizes_of(source)


def test_datasets_of_other_things_are_no_collated_graphs() -> None:
    events = TemporalData(src=torch.arange(3), dst=torch.arange(3), t=torch.arange(3), msg=torch.rand(3, 2))
    with refused(SchemaError, "is TemporalData"):
        stored(InMemory([events, events]))
    with pytest.raises(SizesError, match="no graphs"):
        stored(changed(lambda d: setattr(d, "slices", {})))


class Rooted(HeteroData):
    """A class that shifts an attribute of the graph by the nodes of one type."""

    def __inc__(self, key: str, value: Any, store: Any = None, *args: Any, **kwargs: Any) -> Any:
        return self["a"].num_nodes if key == "root" else super().__inc__(key, value, store, *args, **kwargs)


def test_graphs_of_a_heterodata_of_its_own_class_are_joined_as_before() -> None:
    graphs = []
    for n in (2, 3):
        data = Rooted()
        data["a"].x, data["b"].x = torch.rand(n, 1), torch.rand(n + 1, 2)
        data["a", "to", "b"].edge_index = torch.tensor([[0] * n, [n] * n])
        data.root = torch.tensor([n - 1])
        graphs.append(data)
    with refused(SchemaError, "'root' of item 0", 'indices={"root": "nodes"}', "nodes:a, nodes:b"):
        stored(graphs)
    dataset = stored(graphs, indices={"root": "nodes:a"}).batched(framework="pyg")
    assert_same(dataset[[0, 1]], batch_of(graphs))
    # Single graphs have a class of ours, which PyG joins, pickles and splits in the same way.
    found = pickle.loads(pickle.dumps([dataset[0], copy.copy(dataset[1])]))
    assert_same(batch_of(batch_of(found).to_data_list()), batch_of(graphs))


def ion(bonds: int, attribute: str) -> Any:
    """A Data whose edges have features if there are any; otherwise `attribute` says what it has instead."""
    data = Data(x=torch.ones(3, 2), edge_index=torch.zeros(2, bonds, dtype=torch.long), y=torch.tensor([1.0]))
    if bonds:
        data.edge_attr = torch.ones(bonds, 4)
    elif attribute != "missing":
        data.edge_attr = {"no columns": torch.tensor([]), "right": torch.ones(0, 4)}[attribute]
    return data


def trade(items: int, attribute: str) -> Any:
    """A HeteroData, whose items and the edges to them have features if there are any."""
    data = HeteroData()
    data["u"].x = torch.ones(2, 2)
    data["u", "f", "u"].edge_index = torch.tensor([[0], [1]])
    data["u", "b", "i"].edge_index = torch.zeros(2, items, dtype=torch.long)
    data["i"].num_nodes = items
    for t, name in (("i", "x"), (("u", "b", "i"), "t")):
        if items or attribute == "right":
            data[t][name] = torch.ones(items, 3)
        elif attribute == "no columns":
            data[t][name] = torch.tensor([])
    return data


@pytest.mark.parametrize(("make", "attribute"), [(ion, "missing"), (ion, "no columns"), (trade, "missing")])
def test_pyg_graphs_without_edges_that_come_first_make_equal_batches(make: Any, attribute: str, tmp_path: Path) -> None:
    items, right = ([make(number, how) for number in (0, 0, 2)] for how in (attribute, "right"))
    before = copy.deepcopy([item.to_dict() for item in items])
    expected = next(iter(tp.packed_loader(right, 3, shuffle=False)))
    for choice in (None, False):
        assert_same_batch(next(iter(tp.packed_loader(items, 3, shuffle=False, in_memory=choice))), expected)
        # Batches of one graph, some of which show no features.
        pairs = zip(*(tp.packed_loader(each, 1, in_memory=choice) for each in (items, right)), strict=True)
        for found, alone in pairs:
            assert_same_batch(found, alone)
    assert tp.GraphStore.write(tmp_path, iter(items)).schema == tp.GraphStore.write(tmp_path / "right", right).schema
    assert str([item.to_dict() for item in items]) == str(before), "the user's graphs are unchanged"


def test_pyg_graphs_that_lack_attributes_of_their_edges_are_refused() -> None:
    bare = ion(2, "missing")
    del bare.edge_attr
    without_label = ion(0, "missing")
    del without_label.y
    for items in ([bare, ion(2, "")], [ion(0, "missing"), ion(2, ""), bare], [without_label, ion(2, "")]):
        for choice in (None, False):
            with refused(SchemaError, "every graph needs the same attributes"):
                list(tp.packed_loader(items, 2, in_memory=choice))


# Iterators ---------------------------------------------------------------------------------------------------


def test_an_iterator_is_read_block_by_block_without_a_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, read = things(Data, [(1 + i % 6, i % 5) for i in range(20)]), list[int]()
    right = tp.GraphStore.write(tmp_path / "right", graphs)
    monkeypatch.setattr("dgl_tuplepack.graphs.items._ITEMS_PER_BLOCK", 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    _, blocks = blocks_of(resolve(read.append(i) or graph for i, graph in enumerate(graphs)))  # type: ignore[func-returns-value]
    for number, block in enumerate(blocks):
        assert len(block) in (3, 2)
        assert len(read) <= 3 * (number + 2)
    assert read == [*range(20)]

    class Stream(torch.utils.data.IterableDataset[Any]):
        def __len__(self) -> int:
            return len(graphs)

        def __iter__(self) -> Iterator[Any]:
            return iter(graphs)

    for number, given in enumerate((iter(graphs), Stream(), tp.with_ids(Stream()))):
        store = tp.GraphStore.write(tmp_path / str(number), given)
        for found, expected in zip(*(s.segments[0].metadata.arrays for s in (store, right)), strict=True):
            assert (found.content, found.sha256) == (expected.content, expected.sha256)


def test_the_first_block_of_an_iterator_or_levels_decide_and_later_blocks_must_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a list, all graphs decide."""
    monkeypatch.setattr("dgl_tuplepack.graphs.items._ITEMS_PER_BLOCK", 2)

    def graphs(sizes: Any) -> list[Any]:
        return [Data(x=torch.rand(n, 1), edge_index=torch.randint(n, (2, e)), w=torch.rand(e, 1)) for n, e in sizes]

    alike, other = graphs([(3, 3), (4, 4), (5, 2)]), graphs([(3, 2), (4, 4), (5, 2)])
    assert stored(alike).schema.edge_features == stored(iter(other)).schema.edge_features
    with refused(SchemaError, "'w' may belong to nodes, edges or graphs", "the 2 graphs that were read", "levels="):
        stored(iter(alike))
    assert stored(iter(alike), levels={"w": "edge"}).schema.edge_features == stored(alike).schema.edge_features
    with refused(SchemaError, "item 2", "'w' has 2 rows, but must have 5", 'levels={"w": "node"}'):
        stored(iter(alike), levels={"w": "node"})
    for key, value in (("w", torch.rand(2, 3)), ("more", torch.rand(1))):
        changed = [*other[:2], other[2].clone()]
        changed[2][key] = value
        with refused(SchemaError, "item 2", key):
            stored(iter(changed))
    named = [*other[:2], other[2].clone()]
    named[2].name = "C2"
    with pytest.warns(UserWarning, match="'name' is text"):
        assert len(stored(iter(named))) == 3


@pytest.mark.parametrize(("make", "first", "attribute"), [(ion, "edge_attr", "missing"), (trade, "x", "no columns")])
def test_an_iterator_that_begins_with_too_many_graphs_without_edges_says_so(
    make: Any, first: str, attribute: str
) -> None:
    graphs = [make(0, attribute)] * 512 + [make(2, attribute)]
    with refused(SchemaError, "item 512", repr(first), "the first 512 graphs have none", "give a list"):
        stored(iter(graphs))
    # One graph less, and the first block shows all attributes.
    assert stored(graphs).schema == stored(iter(graphs[1:])).schema


@pytest.mark.parametrize("attribute", ["missing", "no columns"])
def test_sizes_do_not_depend_on_the_order_of_graphs_without_edges(
    attribute: str, gen: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if PyG's own rules do not tell which attributes are edges."""
    graphs = [pair(gen, (2, 3), edges) for edges in ((0, 0), (0, 0), (2, 4), (0, 1))]
    right = tp.sizes_of(graphs, levels=PAIR)
    for graph in graphs:
        for end in "st":
            if not len(graph[f"edge_attr_{end}"]):
                graph[f"edge_attr_{end}"] = torch.tensor([])
                if attribute == "missing":
                    del graph[f"edge_attr_{end}"]
    monkeypatch.setattr("dgl_tuplepack.graphs.pyg_read._GRAPHS", 1)
    assert np.array_equal(tp.sizes_of(graphs, levels=PAIR).array, right.array)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no full device here")
@pytest.mark.parametrize("number", [1, 2000])
def test_a_full_folder_for_temporary_files_is_refused(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large data fails at once, little data when it is flushed."""
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda _: open("/dev/full", "w+b"))  # noqa: SIM115
    with refused(FormatError, "cannot write a temporary file: No space left on device", "TMPDIR"):
        stored(things(Data, [(3, 4)] * number))
