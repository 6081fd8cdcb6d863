"""Models of PyG compile once, and give several types or graphs the same on padded batches as on plain ones.

`test_pyg_layers.py` compares every layer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import dgl_tuplepack as tp
from tests.support.pyg import RELATIONS, batch_of, bipartites_of, pairs_of, random_heterodata, room_for, stored

from torch_geometric import nn as gnn  # isort: skip
from torch_geometric.data import Data  # isort: skip

WIDTH = 4
SIZES = ((5, 8), (1, 0), (3, 7), (6, 9), (2, 1))
IDS = ([0, 1, 2], [3, 4], [2], [4, 3, 1])


class Block(nn.Module):
    """A convolution, a pool and a head."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv, self.head = conv, nn.Linear(WIDTH, 2)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_attr: Tensor, batch: Tensor, num_graphs: int
    ) -> tuple[Tensor, Tensor]:
        h = self.conv(x, edge_index, edge_attr)
        return h, self.head(gnn.global_mean_pool(h.tanh(), batch, size=num_graphs))


class NoEdges(nn.Module):
    """A convolution that takes no edge features."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        return out


CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "GINEConv": lambda: gnn.GINEConv(nn.Linear(WIDTH, WIDTH), edge_dim=3),
    "GCNConv": lambda: NoEdges(gnn.GCNConv(WIDTH, WIDTH)),
    "GATv2Conv": lambda: gnn.GATv2Conv(WIDTH, WIDTH, edge_dim=3),
    "TransformerConv": lambda: gnn.TransformerConv(WIDTH, WIDTH, edge_dim=3),
}


@pytest.fixture(scope="module")
def graphs() -> list[Any]:
    gen = torch.Generator().manual_seed(0)
    return [
        Data(
            x=torch.randn(n, WIDTH, generator=gen),
            edge_index=torch.randint(0, n, (2, e), generator=gen),
            edge_attr=torch.randn(e, 3, generator=gen),
            y=torch.randn(1, 2, generator=gen),
        )
        for n, e in SIZES
    ]


@pytest.fixture(scope="module")
def padded(graphs: list[Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        store = tp.GraphStore.write(folder + "/store", graphs)
    return store.padded(tp.Limits(nodes=20, edges=24, graphs=4))


def inputs(batch: Any) -> tuple[Any, ...]:
    return batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_model_is_compiled_once_for_all_batches(name: str, padded: Any) -> None:
    torch.manual_seed(1)
    model = Block(CONVOLUTIONS[name]())
    counted = CompileCounter()
    compiled = torch.compile(model, fullgraph=True, dynamic=False, backend=counted)
    for ids in IDS:
        batch = padded[ids].pyg
        torch.testing.assert_close(compiled(*inputs(batch)), model(*inputs(batch)))
    assert counted.frame_count == 1


class OfType(nn.Module):
    """Two layers for one type, which `to_hetero` copies for all."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = gnn.SAGEConv((-1, -1), WIDTH), gnn.SAGEConv((-1, -1), WIDTH)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.second(self.first(x, edge_index).relu(), edge_index)
        return out


def test_heterogeneous_models_of_to_hetero_give_the_same_on_padded_batches() -> None:
    gen = torch.Generator().manual_seed(0)
    specs: dict[Any, Any] = {"user": {"x": ((3,), torch.float32)}, "item": {"x": ((2,), torch.float32)}}
    graphs = [
        random_heterodata(gen, {"user": n, "item": n + 1}, {e: 2 * n for e in RELATIONS}, specs) for n in (2, 4, 3)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = tp.GraphStore.write(folder + "/store", graphs)
    limits = tp.Limits(nodes={"user": 12, "item": 14}, edges=dict.fromkeys(RELATIONS, 20), graphs=4)
    model = gnn.to_hetero(OfType(), graphs[0].metadata())
    for ids in ([0, 1, 2], [2], [1, 0]):
        plain, batch = batch_of([graphs[i] for i in ids]), store.padded(limits)[ids].pyg
        expected = model(plain.x_dict, plain.edge_index_dict)
        found = model(batch.x_dict, batch.edge_index_dict)
        for t, value in expected.items():
            torch.testing.assert_close(found[t][: len(value)], value)
            pooled = gnn.global_mean_pool(found[t], batch[t].batch, batch.num_graphs)
            torch.testing.assert_close(
                pooled[: len(ids)], gnn.global_mean_pool(value, plain[t].batch, plain.num_graphs)
            )


class PairNetwork(nn.Module):
    """Encodes both graphs of a pair, by one convolution each, and compares them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = gnn.GINEConv(nn.Linear(2, 2), edge_dim=3), gnn.GCNConv(2, 2)
        self.head = nn.Linear(4, 1)

    def forward(self, batch: Any, number: int) -> Any:
        s = self.first(batch.x_s, batch.edge_index_s, batch.edge_attr_s).tanh()
        t = self.second(batch.x_t, batch.edge_index_t).tanh()
        pooled = [gnn.global_add_pool(s, batch.x_s_batch, number), gnn.global_mean_pool(t, batch.x_t_batch, number)]
        return self.head(torch.cat(pooled, 1))


class BipartiteNetwork(nn.Module):
    """Passes messages from the nodes of one kind to those of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = gnn.SAGEConv((3, 4), 2), nn.Linear(2, 1)

    def forward(self, batch: Any, number: int) -> Any:
        h = self.conv((batch.x_s, batch.x_t), batch.edge_index).tanh()
        return self.head(gnn.global_add_pool(h, batch.x_t_batch, number))


@pytest.mark.parametrize(("make", "network"), [(pairs_of, PairNetwork), (bipartites_of, BipartiteNetwork)])
def test_networks_of_several_graphs_give_the_same_on_padded_batches(make: Any, network: type[nn.Module]) -> None:
    torch.manual_seed(1)
    graphs, model = make(torch.Generator().manual_seed(0)), network()
    store = stored(graphs)

    def trained(batch: Any, number: int, real: int) -> Any:
        model.zero_grad()
        out = model(batch, number)[:real]
        (out**2).sum().backward()
        return out, [p.grad.clone() for p in model.parameters() if p.grad is not None]

    for ids in ([0, 1, 2], [2], [1, 0]):
        plain = batch_of([graphs[i] for i in ids], follow_batch=["x_s", "x_t"])
        padded = store.padded(room_for(store))[ids].pyg
        expected, found = trained(plain, len(ids), len(ids)), trained(padded, padded.num_graphs, len(ids))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
