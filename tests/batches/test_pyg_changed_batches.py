"""Batches of PyG whose attributes were changed or removed, and what norms and PyG read of those that come out."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError, SchemaError
from tests.support.messages import refused
from tests.support.pyg import PAIR, InMemory, Pair, assert_same, batch_of, molecule

import torch_geometric.transforms as pyg_transforms  # isort: skip
from torch_geometric import nn as gnn  # isort: skip
from torch_geometric.data import Batch, Data, HeteroData  # isort: skip

LIMITS = tp.Limits(nodes=20, edges=24, graphs=4)
IDS = [1, 0, 3]


@pytest.fixture
def molecules() -> list[Any]:
    return [molecule(n, e, i) for i, (n, e) in enumerate([(3, 4), (5, 2), (1, 1), (4, 6)])]


@pytest.fixture
def store(molecules: list[Any], tmp_path: Path) -> Any:
    return tp.GraphStore.write(tmp_path / "store", molecules)


def batches(store: Any) -> list[Any]:
    """One batch with padding, and one without."""
    return [store.padded(LIMITS)[IDS].pyg, store.batched(framework="pyg")[IDS]]


def test_single_graphs_lack_what_was_removed_from_the_batch(store: Any, molecules: list[Any]) -> None:
    for batch in batches(store):
        del batch.edge_attr
        expected = copy.copy(molecules[0])
        del expected.edge_attr
        assert_same(batch[1], expected)
        # As ToSparseTensor does.
        del batch.edge_index
        assert [graph.num_nodes for graph in batch.to_data_list()] == [5, 3, 4]


def test_a_type_that_was_removed_from_a_batch_does_not_come_back(tmp_path: Path) -> None:
    graph = HeteroData()
    graph["user"].x, graph["item"].x = torch.rand(3, 2), torch.rand(2, 2)
    graph["user", "buys", "item"].edge_index = torch.tensor([[0, 2], [1, 0]])
    store = tp.GraphStore.write(tmp_path / "store", [graph, graph])
    limits = tp.Limits.from_components(dict.fromkeys(store.sizes.components, 9), graphs=2)
    for batch in (store.padded(limits)[[0, 1]].pyg, store.batched(framework="pyg")[[0, 1]]):
        left = batch.node_type_subgraph(["item"])
        assert [one.node_types for one in left.to_data_list()] == [["item"], ["item"]]
        assert (left.node_types, left.edge_types) == (["item"], [])


@pytest.mark.parametrize(
    "change",
    [
        pyg_transforms.AddSelfLoops(),
        pyg_transforms.ToUndirected(),
        pyg_transforms.VirtualNode(),
        lambda batch: batch.subgraph(torch.arange(9)),
        # As many edges as before.
        lambda batch: batch.update({"edge_index": batch.edge_index.flip(1)}),
        lambda batch: batch.update({"x": 1.0}),
        lambda batch: batch.update({"y": batch.y[:2]}),
    ],
)
def test_graphs_whose_rows_are_not_known_any_more_are_refused(change: Any, store: Any) -> None:
    for batch in batches(store):
        changed = change(batch.clone())
        with refused(SchemaError, "of the batch was changed", "before the change"):
            changed.to_data_list()


def test_new_values_of_all_slots_or_of_real_rows_are_those_of_the_graphs(store: Any, molecules: list[Any]) -> None:
    batch = store.padded(LIMITS)[IDS].pyg
    batch.x = torch.arange(2 * batch.num_nodes).view(-1, 2)
    assert batch[1].x.tolist() == [[10, 11], [12, 13], [14, 15]]
    batch.x, batch.y = batch.x[batch.node_mask], batch.y[batch.graph_mask]
    assert batch[1].x.tolist() == [[10, 11], [12, 13], [14, 15]]
    assert torch.equal(batch[2].y, molecules[3].y)


def test_stores_whose_graphs_are_those_of_dgl_say_so(store: Any) -> None:
    with refused(InputError, "framework is 'pyg'", 'store.batched(framework="pyg")'):
        store.to("cpu").batched(framework="pyg")


def test_norms_read_the_masks_of_the_batch_of_pyg(store: Any) -> None:
    padded = store.padded(LIMITS)[IDS]
    norm = tp.nn.convert(nn.BatchNorm1d(padded.pyg.x.shape[1]), verbose=False)
    with tp.nn.masked(padded):
        expected = norm(padded.pyg.x.float())
    for batch in (padded.pyg, padded.pyg.clone()):
        with tp.nn.masked(batch):
            torch.testing.assert_close(norm(batch.x.float()), expected)
    plain = store.batched(framework="pyg")[IDS]
    with tp.nn.masked(plain):
        torch.testing.assert_close(norm(plain.x.float()), expected[: plain.num_nodes])
    with refused(SchemaError, "PyG made this batch from other batches"):
        tp.nn.masked(Batch.from_data_list([padded.pyg, padded.pyg]))


def test_the_masks_of_a_batch_of_pyg_have_the_names_of_the_padded_batch(tmp_path: Path) -> None:
    graph = HeteroData()
    graph["user"].x, graph["item"].x = torch.rand(3, 2), torch.rand(2, 2)
    graph["user", "buys", "item"].edge_index = torch.tensor([[0, 2], [1, 0]])
    pair = Pair(
        x_s=torch.rand(3, 2), edge_index_s=torch.tensor([[0], [2]]),
        x_t=torch.rand(2, 2), edge_index_t=torch.tensor([[1], [0]]),
    )  # fmt: skip
    for number, (one, levels) in enumerate(((graph, None), (pair, PAIR))):
        store = tp.GraphStore.write(tmp_path / str(number), [one, one], levels=levels)
        limits = tp.Limits.from_components(dict.fromkeys(store.sizes.components, 9), graphs=2)
        padded = store.padded(limits)[[0]]
        found, expected = padded.pyg.row_masks(), padded.row_masks()
        assert list(found) == list(expected)
        for name, rows in found.items():
            assert torch.equal(rows.mask, expected[name].mask)
            assert rows.num_real == expected[name].num_real == int(rows.mask.sum())


def test_a_norm_reads_the_mask_of_nodes_that_the_user_reordered(store: Any) -> None:
    data = store.padded(LIMITS)[[0, 1]].pyg
    order = torch.arange(len(data.x)).flip(0)
    norm = tp.nn.convert(nn.BatchNorm1d(3), verbose=False)
    with tp.nn.masked(data):
        expected = norm(data.x.float())[order]
    data.x, data.node_mask = data.x[order], data.node_mask[order]
    assert data.row_masks()["nodes"].num_real is None, "real rows do not come first any more"
    with tp.nn.masked(data):
        torch.testing.assert_close(norm(data.x.float()), expected)


def test_a_step_on_batches_of_pyg_is_compiled_once_with_the_masks_inside(store: Any) -> None:
    torch.manual_seed(0)
    model = tp.nn.convert(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), verbose=False)
    counted = CompileCounter()

    def loss_of(data: Any, count: torch.Tensor) -> torch.Tensor:
        with tp.nn.masked(data):
            h = model(data.x.float())
        out = gnn.global_add_pool(h, data.batch, data.num_graphs).sum(1)
        return tp.nn.masked_mean(out.square(), data.graph_mask, count=count)

    torch._dynamo.reset()
    step, count = tp.compile(loss_of, backend=counted), torch.tensor(2.0)
    for ids in ([0, 1, 2], [3], [2, 0]):
        padded = store.padded(LIMITS)[ids]
        torch.testing.assert_close(step(padded.pyg, count), loss_of(padded.pyg, count), rtol=1e-3, atol=1e-4)
    assert counted.frame_count == 1


def test_graphs_that_any_data_joins_rightly_are_data(tmp_path: Path) -> None:
    graphs = [
        Data(x=torch.rand(n, 2), edge_index=torch.tensor([[0], [1]]), edge_label_index=torch.tensor([[0] * n, [1] * n]))
        for n in (3, 4)
    ]
    dataset = tp.GraphStore.write(tmp_path / "store", graphs).batched(framework="pyg")
    assert [type(graph) for graph in dataset] == [Data, Data]
    saved = InMemory(list(dataset))
    saved.save(list(dataset), str(tmp_path / "data.pt"))
    saved.load(str(tmp_path / "data.pt"))
    assert_same(batch_of(list(saved)), batch_of(graphs))


@pytest.mark.filterwarnings("ignore:Weights only load failed")
def test_a_saved_dataset_never_loses_silently_how_its_graphs_are_joined(tmp_path: Path) -> None:
    pair = Pair(
        x_s=torch.rand(3, 2), edge_index_s=torch.tensor([[0], [2]]),
        x_t=torch.rand(2, 2), edge_index_t=torch.tensor([[1], [0]]),
    )  # fmt: skip
    store = tp.GraphStore.write(tmp_path / "store", [pair, pair], levels=PAIR)
    out = list(store.batched(framework="pyg"))
    dataset = InMemory(out)
    dataset.save(out, str(tmp_path / "data.pt"))
    with refused(InputError, "from_dict(graph.to_dict())"):
        dataset.load(str(tmp_path / "data.pt"))
    own = [Pair.from_dict(graph.to_dict()) for graph in out]
    dataset.save(own, str(tmp_path / "data.pt"))
    dataset.load(str(tmp_path / "data.pt"), data_cls=Pair)
    assert_same(batch_of(list(dataset)), batch_of([pair, pair]))
