"""PyG's guide to mini-batches, beside its own batches: shifted attributes, and several graphs in one `Data`."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import LimitsError, SchemaError
from tests.support.messages import refused
from tests.support.pyg import (
    BIPARTITE,
    PAIR,
    InMemory,
    assert_same,
    batch_of,
    bipartites_of,
    ends,
    molecule,
    pair,
    pairs_of,
    room_for,
    stored,
)  # fmt: skip

from torch_geometric.data import Data, HeteroData  # isort: skip

GATHERED = pytest.mark.parametrize("gather", [list, InMemory, iter], ids=["list", "in memory", "iterator"])
ORDER = (2, 0, 1)


@pytest.fixture
def gen() -> torch.Generator:
    return torch.Generator().manual_seed(0)


class Atoms(Data):
    """Atoms with their neighbours, as MACE's AtomicData: its constructor needs arguments, its shifts are its own."""

    def __init__(self, edge_index: Any, positions: Any, shifts: Any, cell: Any, energy: Any) -> None:
        assert positions.shape[1] == 3
        super().__init__(
            edge_index=edge_index, positions=positions, shifts=shifts, cell=cell, energy=energy,
            num_nodes=len(positions),
        )  # fmt: skip

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return self.num_nodes if key == "edge_index" else 0


def atoms(gen: torch.Generator, n: int, e: int) -> Any:
    of_nodes, of_edges = torch.rand(n, 3, generator=gen), torch.rand(e, 3, generator=gen)
    return Atoms(ends(gen, n, n, e), of_nodes, of_edges, torch.eye(3)[None], torch.tensor(float(n)))


def linked(gen: torch.Generator) -> list[Any]:
    """Graphs with edges to predict, as PyG's RandomLinkSplit makes them, a root and a pair of nodes."""
    graphs = [molecule(n, e, n) for n, e in ((3, 4), (6, 2), (4, 4))]
    for graph, asked in zip(graphs, (5, 1, 4), strict=True):
        graph.edge_label_index = ends(gen, graph.num_nodes, graph.num_nodes, asked)
        graph.edge_label = torch.rand(asked, generator=gen)
        graph.root_index = torch.tensor([graph.num_nodes - 1])
        graph.both_index = torch.randint(0, graph.num_nodes, (1, 2), generator=gen)
        graph.next_index = torch.arange(graph.num_nodes).roll(1)
    return graphs


def hetero(gen: torch.Generator) -> list[Any]:
    graphs = []
    for a, b, e, k in ((2, 3, 4, 2), (4, 1, 3, 5), (3, 3, 2, 2)):
        data = HeteroData()
        data["a"].x, data["b"].x = torch.rand(a, 2, generator=gen), torch.rand(b, 1, generator=gen)
        for t, (n, m) in {("a", "to", "b"): (a, b), ("a", "is", "a"): (a, a)}.items():
            data[t].edge_index, data[t].edge_attr = ends(gen, n, m, e), torch.rand(e, 2, generator=gen)
            data[t].edge_label_index, data[t].edge_label = ends(gen, n, m, k), torch.rand(k, generator=gen)
        graphs.append(data)
    return graphs


CASES: dict[str, tuple[Callable[[torch.Generator], list[Any]], list[str], dict[str, str], tuple[str, ...]]] = {
    "pairs": (
        pairs_of, ["x_s", "x_t"], PAIR,
        ("nodes:x_s", "nodes:x_t", "edges:x_s:edge_index_s:x_s", "edges:x_t:edge_index_t:x_t"),
    ),
    "bipartite": (
        bipartites_of, ["x_s", "x_t"], BIPARTITE, ("nodes:x_s", "nodes:x_t", "edges:x_s:edge_index:x_t")
    ),
    "linked": (linked, [], {}, ("nodes:_N", "edges:_N:edge_index:_N", "edges:_N:edge_label_index:_N")),
    "hetero": (
        hetero, [], {},
        ("nodes:a", "nodes:b", "edges:a:is:a", "edges:a:is/edge_label_index:a", "edges:a:to:b",
         "edges:a:to/edge_label_index:b"),
    ),
}  # fmt: skip
EACH = pytest.mark.parametrize(("make", "follow", "levels", "components"), CASES.values(), ids=CASES)


def guessed(batch: Any) -> set[str]:
    """What PyG adds to bipartite graphs, since it takes the largest endpoint for a number of nodes."""
    return {"batch", "ptr"} - set(batch.keys())


@GATHERED
@EACH
def test_batches_are_those_of_pyg(
    make: Any, follow: list[str], levels: dict[str, str], components: Any, gather: Any, gen: torch.Generator
) -> None:
    graphs = make(gen)
    store = stored(gather(graphs), levels=levels)
    assert store.sizes.components == components
    assert tp.sizes_of(graphs, levels=levels).array.tolist() == store.sizes.array.tolist()
    found = store.batched(framework="pyg")[ORDER]
    expected = batch_of([graphs[i] for i in ORDER], follow_batch=follow)
    assert_same(found, expected, guessed(found))
    for one, i in zip(found.to_data_list(), ORDER, strict=True):
        assert_same(one, graphs[i])
    # What comes out has no class of its own, but is joined and stored as before; padded, it has the same graphs.
    out = pickle.loads(pickle.dumps([graph.clone() for graph in store.batched(framework="pyg")]))
    assert_same(batch_of([out[i] for i in ORDER], follow_batch=follow), expected)
    declared = {"edge_label_index": "node -> node"} if make is linked else levels
    assert stored(out, levels=declared, indices=store.schema.indices).schema == store.schema
    limits = room_for(store)
    padded = pickle.loads(pickle.dumps(store.padded(limits, sort_edges=True)[ORDER].pyg))
    collated = tp.PaddedCollate(limits, graphs[0], sort_edges=True, levels=levels)([graphs[i] for i in ORDER]).pyg
    for batch in (padded, collated):
        for one, i in zip(batch.to_data_list(), ORDER, strict=True):
            assert_same(one, graphs[i])


def test_endpoints_and_indices_of_unusual_classes_must_be_declared(gen: torch.Generator) -> None:
    calls: list[tuple[list[Any], str]] = [
        (pairs_of(gen), 'levels={"edge_index_s": "node -> node"} (or names of attributes, "x_s -> x_t")'),
        (bipartites_of(gen), "the number of nodes of item 0 is unknown"),
        (with_thing(shifted_by(lambda d: d.num_nodes), [torch.tensor([1])] * 2), 'indices={"thing": "nodes"}'),
    ]
    for graphs, text in calls:
        with refused(SchemaError, text):
            stored(graphs)
    # A declaration that does not hold is refused.
    with refused(SchemaError, "'edge_index_s' of item 0 is shifted by 3", "must be shifted by 3 and 4"):
        stored(pairs_of(gen), levels={**PAIR, "edge_index_s": "x_s -> x_t"})
    with refused(SchemaError, "'nodes -> x_s'", "must name the attributes that count the nodes of both ends"):
        stored(pairs_of(gen), levels={**PAIR, "edge_index_s": "nodes -> x_s"})


@pytest.mark.parametrize("gather", [list, InMemory], ids=["list", "in memory"])
def test_pairs_of_equal_sizes_are_two_graphs(gather: Any, gen: torch.Generator) -> None:
    graphs = [pair(gen, (n, n), (4, 4)) for n in (3, 5)]
    store = stored(gather(graphs), levels=PAIR)
    # Their names tell which edges the features belong to.
    assert {t: list(own) for t, own in store.schema.edge_features.items()} == {
        ("x_s", "edge_index_s", "x_s"): ["edge_attr_s"], ("x_t", "edge_index_t", "x_t"): ["edge_attr_t"]
    }  # fmt: skip
    for graph in graphs:
        graph.w = torch.rand(4, generator=gen)
    with refused(SchemaError, "the attribute 'w'", 'such as "edge_index_s"'):
        stored(gather(graphs), levels=PAIR)
    store = stored(gather(graphs), levels={"w": "edge_index_t", **PAIR})
    assert sorted(store.schema.edge_features["x_t", "edge_index_t", "x_t"]) == ["edge_attr_t", "w"]
    with refused(SchemaError, "levels map the attribute 'w' to 'x_r'", "'edge_index_s'", "'x_t'", "'graph'"):
        stored(gather(graphs), levels={"w": "x_r", **PAIR})


def shifted_by(shift: Callable[[Any], Any]) -> type[Any]:
    """A class of graphs whose `thing` PyG shifts by what `shift` returns."""

    class Shifted(Data):
        def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            return shift(self) if key == "thing" else super().__inc__(key, value, *args, **kwargs)

    return Shifted


def with_thing(kind: type[Any], things: Sequence[torch.Tensor]) -> list[Any]:
    graphs = [molecule(n, e, n) for n, e in ((3, 4), (6, 2))]
    return [kind(**graph.to_dict(), thing=thing) for graph, thing in zip(graphs, things, strict=True)]


@pytest.mark.parametrize("gather", [list, InMemory], ids=["list", "in memory"])
def test_shifts_that_count_nothing_are_refused(gather: Any) -> None:
    one, nodes = [torch.tensor([1]), torch.tensor([1])], {"thing": "nodes"}

    def refuses(shift: Callable[[Any], Any], things: Any, *parts: str) -> None:
        graphs = with_thing(shifted_by(shift), things)
        with refused(SchemaError, "'thing'", "__inc__", *parts):
            stored(gather(graphs), indices=nodes)
        assert len(stored(gather(graphs), levels={"thing": None})) == 2

    refuses(lambda d: 7, one, "is shifted by 7", "must be shifted by 3", 'levels={"thing": None}')
    refuses(lambda d: d.missing, one, "fails: AttributeError")
    refuses(
        lambda d: torch.tensor([[d.num_nodes], [d.num_edges]]), [torch.tensor([[0.0], [1.0]])] * 2, "whole number, or"
    )
    by_nodes = shifted_by(lambda d: d.num_nodes)
    with refused(SchemaError, "indices are int64 or int32", "'thing' is float32"):
        stored(gather(with_thing(by_nodes, [torch.tensor([1.0])] * 2)), indices=nodes)
    with refused(SchemaError, "has the index 6 in the label 'thing'", "only 6 nodes"):
        stored(gather(with_thing(by_nodes, [torch.tensor([1]), torch.tensor([6])])), indices=nodes)
    # A number is indices as well.
    numbers = with_thing(by_nodes, [2, 5])  # type: ignore[list-item]
    found = stored(gather(numbers), indices=nodes).batched(framework="pyg")[[0, 1]]
    assert_same(found, batch_of(numbers))


class Seven(Data):
    """A graph with an attribute that is shifted by what counts nothing."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 7 if key == "thing" else super().__inc__(key, value, *args, **kwargs)


def shortened(graph: Any) -> Any:
    assert "thing" in graph
    graph.edge_index, graph.edge_attr = graph.edge_index[:, 1:], graph.edge_attr[1:]
    return graph


def test_transforms_get_what_is_left_out(tmp_path: Path) -> None:
    graphs = with_thing(Seven, [torch.tensor([1]), torch.tensor([1])])
    limits, levels = tp.Limits(nodes=20, edges=20, graphs=3), {"thing": None}
    batch = tp.PaddedCollate(limits, graphs[0], levels=levels, transform=shortened)(graphs).pyg
    store = stored(graphs, levels=levels, pre_transform=shortened)
    settings: Any = {"limits": limits, "levels": levels, "pre_transform": shortened, "workers": 1}
    shards = tp.preprocess_shards({"a": graphs}, tmp_path / "shards", **settings).store
    for found in (batch, store.padded(limits)[[0, 1]].pyg, shards.padded(limits)[[0, 1]].pyg):
        assert_same(found[1], shortened(graphs[1].clone()), {"thing"})


def test_a_graph_that_shifts_in_another_way_is_refused() -> None:
    one = [torch.tensor([1]), torch.tensor([1])]
    by_nodes, by_edges = (with_thing(shifted_by(s), one) for s in (lambda d: d.num_nodes, lambda d: d.num_edges))
    limits = tp.Limits(nodes=20, edges=20, graphs=3)
    collate = tp.PaddedCollate(limits, by_nodes[0], indices={"thing": "nodes"})
    with refused(SchemaError, "'thing' of item 1", "shifted by 2", "must be shifted by 6"):
        collate([by_nodes[0], by_edges[1]])
    with refused(SchemaError, "'thing' of item 0", "shifted by 4", "must be shifted by 3"):
        collate([by_edges[0], by_nodes[1]])
    unshifted = tp.PaddedCollate(limits, with_thing(Data, one)[0])
    with refused(SchemaError, "'thing' of item 0 is shifted by 3", "give graphs of one class"):
        unshifted(by_nodes[:1])


@pytest.mark.parametrize("gather", [list, InMemory], ids=["list", "in memory"])
def test_rows_that_differ_in_number_are_a_component_where_levels_say_so(gather: Any, gen: torch.Generator) -> None:
    graphs = [molecule(n, 3, n) for n in (3, 5, 4)]
    for graph, faces in zip(graphs, (4, 2, 6), strict=True):
        graph.face = torch.randint(0, graph.num_nodes, (3, faces), generator=gen)
        graph.weight = torch.rand(faces, generator=gen)
    with refused(SchemaError, "item 1: the attribute 'face' has 2 rows, but must have 4", 'levels={"face": "face"}'):
        stored(gather(graphs))
    levels = {"face": "face", "weight": "face"}
    store = stored(gather(graphs), levels=levels)
    assert store.sizes.components == ("nodes:_N", "nodes:face", "edges:_N:edge_index:_N")
    assert tp.sizes_of(graphs, levels=levels).array[:, 1].tolist() == [4, 2, 6]
    found = store.batched(framework="pyg")[ORDER]
    assert_same(found, batch_of([graphs[i] for i in ORDER], follow_batch=["face"]))
    limits = tp.Limits(nodes={"_N": 15, "face": 14}, edges={"edge_index": 10}, graphs=4)
    (padded,) = tp.packed_loader(graphs, limits=limits, levels=levels, shuffle=False)
    assert padded.pyg.face.shape == (3, 15)
    assert (padded.pyg.face[:, ~padded.pyg.face_mask] == 12).all()  # the first padding node
    for one, i in zip(padded.pyg.to_data_list(), padded.graph_ids.tolist(), strict=False):
        assert_same(one, graphs[i])


def test_levels_make_other_things_of_edges_to_predict(gen: torch.Generator) -> None:
    graphs = [molecule(n, e, n) for n, e in ((3, 4), (6, 2))]
    for graph in graphs:
        graph.edge_label_index = ends(gen, graph.num_nodes, graph.num_nodes, 2)
    limits = tp.Limits(nodes=20, edges=20, graphs=3)
    with refused(LimitsError, "edges:_N:edge_label_index:_N"):
        tp.PackBatchSampler(graphs, limits)
    for level, left in (("graph", set[str]()), (None, {"edge_label_index"})):
        store = stored(graphs, levels={"edge_label_index": level})
        sizes = tp.sizes_of(graphs, levels={"edge_label_index": level})
        assert store.sizes.components == sizes.components == ("nodes", "edges")
        found, expected = store.batched(framework="pyg")[[1, 0]], batch_of(graphs[::-1])
        assert_same(found, expected, left)
        (padded,) = tp.packed_loader(graphs, limits=limits, levels={"edge_label_index": level}, shuffle=False)
        for one, i in zip(padded.pyg.to_data_list(), padded.graph_ids.tolist(), strict=False):
            assert_same(one, graphs[i], left)


@pytest.mark.parametrize("gather", [list, InMemory], ids=["list", "in memory"])
def test_a_shifted_attribute_of_a_node_type_is_named_and_sizes_need_none_of_it(
    gen: torch.Generator, gather: Callable[[Sequence[Any]], Any]
) -> None:
    """PyG shifts attributes whose names contain "batch" by their largest value."""
    graphs = hetero(gen)
    for graph in graphs:
        graph["a"].sub_batch = torch.ones(graph["a"].num_nodes, dtype=torch.int64)
    assert tp.sizes_of(gather(graphs)).num_nodes.tolist() == tp.sizes_of(hetero(gen)).num_nodes.tolist()
    with refused(SchemaError, "'sub_batch'", "type 'a'", 'levels={"sub_batch": None}'):
        stored(gather(graphs))


@pytest.mark.parametrize("in_memory", [None, False])
def test_a_class_whose_constructor_needs_arguments_is_read(
    gen: torch.Generator, in_memory: bool | None, tmp_path: Path
) -> None:
    graphs = [atoms(gen, n, e) for n, e in ((3, 4), (6, 2), (4, 4), (1, 0))]
    plain = [Data(**graph.to_dict()) for graph in graphs]
    assert tp.sizes_of(graphs).array.tolist() == [[3, 4], [6, 2], [4, 4], [1, 0]]
    for found, right in zip(*(tp.packed_loader(each, 2, in_memory=in_memory) for each in (graphs, plain)), strict=True):
        assert_same(found.pyg, right.pyg)
    store = tp.GraphStore.write(tmp_path, iter(graphs))
    assert_same(store.batched(framework="pyg")[[2, 0, 1, 3]], batch_of([plain[i] for i in (2, 0, 1, 3)]))
    # PyG's own loader passes None for each argument.
    with pytest.raises(AttributeError):
        batch_of(graphs)
