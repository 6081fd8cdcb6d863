"""`tp.pyg.DataLoader` gives what PyG's loader gives for the same graphs: batches, order and random numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, Subset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, InputError
from dgl_tuplepack.loading.packed_loader import WholeBatches
from dgl_tuplepack.storage.view import BatchView
from tests.support.messages import refused
from tests.support.ogb_folder import write_ogb_folder
from tests.support.pyg import LISTS, PAIR, InMemory, NewAxis, assert_same, few, molecule, pairs_of, stored
from tests.support.tensors import generator

from torch_geometric.loader import DataLoader  # isort: skip


GRAPHS = [molecule(2 + i % 5, 1 + i % 7, i) for i in range(30)]


CONFIGURATIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "defaults": dict,
    "batch_size": lambda: {"batch_size": 7},
    "shuffled": lambda: {"batch_size": 7, "shuffle": True},
    "generator": lambda: {"batch_size": 7, "shuffle": True, "generator": generator(7)},
    "sampler": lambda: {"batch_size": 7, "sampler": RandomSampler(GRAPHS, num_samples=40, replacement=True)},
    "batch_sampler": lambda: {"batch_sampler": BatchSampler(RandomSampler(GRAPHS, generator=generator(7)), 7, True)},
    "list as a batch_sampler": lambda: {"batch_sampler": [[3, 1], [29], [4, 4, 0]]},
    "both": lambda: {
        "batch_size": 7,
        "follow_batch": ["x", "y", "edge_attr", "absent"],
        "exclude_keys": ["y", "edge_index"],
    },
    "workers": lambda: {"batch_size": 7, "num_workers": 2, "shuffle": True, "follow_batch": ["y"]},
    "persistent workers": lambda: {"batch_size": 7, "num_workers": 2, "persistent_workers": True},
}


def epochs_of(loader: Any) -> tuple[list[Any], torch.Tensor]:
    """Batches of two epochs, and the state of torch's random numbers after them."""
    torch.manual_seed(3)
    return [*loader, *loader], torch.get_rng_state()


def assert_same_loader(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for name in ("batch_size", "drop_last", "num_workers", "follow_batch", "exclude_keys"):
        assert getattr(ours, name) == getattr(theirs, name), name
    (found, state), (expected, other) = epochs_of(ours), epochs_of(theirs)
    assert len(found) == len(expected)
    for one, right in zip(found, expected, strict=True):
        assert_same(one, right)
        assert one.num_graphs == right.num_graphs
    assert torch.equal(state, other)


def test_arguments_have_the_order_and_defaults_of_the_original() -> None:
    found, expected = (inspect.signature(kind).parameters for kind in (tp.pyg.DataLoader, DataLoader))
    ours = [(p.name, p.default, p.kind) for p in found.values() if p.name not in ("with_ids", "in_memory")]
    assert ours == [(p.name, p.default, p.kind) for p in expected.values()]


@pytest.mark.parametrize("kind", ["list", "store"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_epochs_are_those_of_the_loader_of_pyg(name: str, kind: str) -> None:
    of, dataset = CONFIGURATIONS[name], stored(GRAPHS) if kind == "store" else GRAPHS
    assert_same_loader(tp.pyg.DataLoader(dataset, **of()), DataLoader(GRAPHS, **of()))


def test_every_view_of_a_store_is_batched_as_the_list() -> None:
    store, ids = stored(GRAPHS), [7, 3, 3, 29, 0, 11]
    chosen = [GRAPHS[i] for i in ids]
    for dataset, graphs in (
        (store.subset(ids), chosen), (Subset(store, ids), chosen), (store.batched(framework="pyg"), GRAPHS),
        (InMemory(GRAPHS), GRAPHS), ([], []), (Subset(store, []), []),
    ):  # fmt: skip
        assert_same_loader(tp.pyg.DataLoader(dataset, 4, False, ["x"]), DataLoader(graphs, 4, False, ["x"]))


def test_stores_are_fetched_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above would pass graph by graph, too."""
    store = stored(GRAPHS)
    asked: list[Any] = []
    fetch = BatchView.__getitem__
    monkeypatch.setattr(BatchView, "__getitem__", lambda view, ids: asked.append(ids) or fetch(view, ids))
    for dataset in (store, store.subset(range(20)), Subset(store, range(20)), store.batched(framework="pyg")):
        next(iter(tp.pyg.DataLoader(dataset, batch_size=16, follow_batch=["y"])))
    assert asked == [list(range(16))] * 4


@few
@given(LISTS, st.data())
def test_vectors_of_any_attribute_and_batches_without_it_are_those_of_pyg(
    graphs: list[Any], data: st.DataObject
) -> None:
    names = sorted({key for store in graphs[0].stores for key in store} | {"num_nodes"})
    follow, exclude = (data.draw(st.lists(st.sampled_from(names), unique=True, max_size=3)) for _ in range(2))
    settings: Any = {"batch_size": 2, "follow_batch": follow, "exclude_keys": exclude}
    for dataset in (stored(graphs), graphs):
        assert_same_loader(tp.pyg.DataLoader(dataset, **settings), DataLoader(graphs, **settings))


class Doubled(list[Any]):
    """A list that changes its items when they are read."""

    def __getitem__(self, i: Any) -> Any:
        item = super().__getitem__(i).clone()
        item.x = item.x * 2
        return item


def with_one(change: Callable[[Any], None]) -> list[Any]:
    """The graphs, of which one is changed."""
    graphs = [graph.clone() for graph in GRAPHS]
    change(graphs[4])
    return graphs


def transformed() -> InMemory:
    """A dataset that doubles a feature when a graph is read."""
    dataset = InMemory(GRAPHS)
    dataset.transform = lambda graph: graph.clone().update({"x": graph.x * 2})
    return dataset


UNLIKE: dict[str, Any] = {
    "text": with_one(lambda graph: setattr(graph, "name", "a")),
    "text in all": [graph.clone().update({"name": "a"}) for graph in GRAPHS],
    "lists in all": [graph.clone().update({"names": ["a", "b"]}) for graph in GRAPHS],
    "an attribute that others lack": with_one(lambda graph: setattr(graph, "z", torch.ones(2))),
    "another width": with_one(lambda graph: setattr(graph, "y", torch.ones(1, 5))),
    "gradients": with_one(lambda graph: setattr(graph, "edge_attr", graph.edge_attr.float().requires_grad_())),
    "a transform": transformed(),
    "a list of another class": Doubled(GRAPHS),
    "pairs": [(graph, graph) for graph in GRAPHS],
    "tensors": list(torch.arange(30.0)),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_what_cannot_be_copied_is_collated_by_pyg(kind: str) -> None:
    settings: Any = {"batch_size": 4, "follow_batch": ["x"]}
    loaders = [make(UNLIKE[kind], **settings) for make in (tp.pyg.DataLoader, DataLoader)]
    assert not isinstance(loaders[0].dataset, WholeBatches)
    try:
        expected = list(loaders[1])
    except Exception as error:
        with pytest.raises(type(error)):
            list(loaders[0])
        return
    for one, right in zip(loaders[0], expected, strict=True):
        pairs = zip(one, right, strict=True) if kind == "pairs" else [(one, right)]
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs) if kind == "tensors" else assert_same(ours, theirs)
            assert kind != "gradients" or ours.edge_attr.requires_grad == theirs.edge_attr.requires_grad


def test_lists_and_datasets_are_copied_unless_the_user_says_no() -> None:
    for dataset in (GRAPHS, tuple(GRAPHS), Subset(GRAPHS, range(9)), InMemory(GRAPHS), InMemory(GRAPHS)[:9]):
        for in_memory, copied in ((None, True), (True, True), (False, False)):
            loader = tp.pyg.DataLoader(dataset, batch_size=4, in_memory=in_memory, with_ids=True)
            assert isinstance(loader.dataset, WholeBatches) == copied
            assert torch.cat([batch.graph_ids for batch in loader]).tolist() == list(range(len(dataset)))
    with refused(InputError, "in_memory=True", "item 0"):
        tp.pyg.DataLoader(UNLIKE["tensors"], in_memory=True)


def test_paths_and_ogb_folders_are_opened(tmp_path: Path) -> None:
    folder = tp.OgbFolder(write_ogb_folder(tmp_path, tp.GraphSizes([[3, 4], [5, 8], [4, 2]])))
    store = tp.GraphStore.write(tmp_path / "store", folder)
    expected = list(tp.pyg.DataLoader(store, batch_size=2))
    assert len(expected) == 2
    for dataset in (str(store.path), store.path, folder, str(folder.path)):
        for found, right in zip(tp.pyg.DataLoader(dataset, batch_size=2), expected, strict=True):
            assert_same(found, right)
    with refused(FormatError, "there is no"):
        tp.pyg.DataLoader(str(tmp_path / "absent"))


def test_labels_of_several_rows_or_a_new_axis_are_counted_as_pyg_counts_them() -> None:
    rows = [molecule(n, 3, n) for n in (2, 4, 3, 5)]
    for graph in rows:
        graph.targets = torch.rand(2, 3)
    # PyG's own batch of these needs its class.
    new = [NewAxis(edge_index=torch.tensor([[0], [1]]), foo=torch.rand(16), num_nodes=n) for n in (3, 2, 4)]
    for graphs, name in ((rows, "targets"), (new, "foo")):
        settings: Any = {"batch_size": 3, "follow_batch": [name]}
        assert_same_loader(tp.pyg.DataLoader(stored(graphs), **settings), DataLoader(graphs, **settings))


def test_pairs_have_the_batch_vectors_that_follow_batch_adds() -> None:
    graphs = pairs_of(generator(7))
    (found,) = tp.pyg.DataLoader(stored(graphs, levels=PAIR), batch_size=3, exclude_keys=["y"])
    (expected,) = DataLoader(graphs, batch_size=3, follow_batch=["x_s", "x_t"], exclude_keys=["y"])
    assert_same(found, expected, {"batch", "ptr"})


def test_batches_of_packs_and_single_graphs_come_too() -> None:
    store = stored(GRAPHS)
    sampler = tp.PackBatchSampler(store, tp.Limits(nodes=20, edges=26), content="fixed")
    batches = list(tp.pyg.DataLoader(store, batch_size=None, sampler=sampler))
    assert sum(batch.num_graphs for batch in batches) == 30
    assert all(batch.num_nodes <= 20 and batch.num_edges <= 26 for batch in batches)
    for found, expected in zip(tp.pyg.DataLoader(store, batch_size=None), GRAPHS, strict=True):
        assert_same(found, expected)


def test_other_loaders_views_and_collate_functions_are_refused() -> None:
    store = stored(GRAPHS)
    for dataset in (store, GRAPHS, UNLIKE["text"]):
        with refused(InputError, "ignores collate_fn=<class 'list'>", "leave it out", "packed_loader"):
            tp.pyg.DataLoader(dataset, batch_size=4, collate_fn=list)
    with refused(InputError, "single graphs", "tp.pyg.DataLoader(store, batch_size=64, shuffle=True)"):
        next(iter(DataLoader(store.batched(framework="pyg"), batch_size=4)))
    with refused(InputError, "tp.GraphDataLoader(store"):
        next(iter(tp.pyg.DataLoader(store.batched(), batch_size=4)))
