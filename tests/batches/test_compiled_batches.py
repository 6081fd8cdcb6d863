"""A compiled training step meets the batches of whole epochs, and is compiled once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dgl.function as fn
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from torch import Tensor, nn
from torch._dynamo.utils import counters

import dgl_tuplepack as tp
from tests.support.graphs import generator, random_graph

pytestmark = [pytest.mark.compile, pytest.mark.slow]

GRAPHS, PACKS = 21, 2


def homogeneous() -> list[Any]:
    """Labelled graphs; some have no edges."""
    gen = generator(0)
    features = {"x": ((3,), torch.float32), "kind": ((), torch.int64)}, {"w": ((2, 2), torch.float32)}
    sizes = torch.randint(1, 7, (GRAPHS, 2), generator=gen).tolist()
    graphs = [random_graph(gen, nodes, edges - 1, *features) for nodes, edges in sizes]
    return [(graph, torch.randn(2, generator=gen)) for graph in graphs]


class Net(nn.Module):
    """One round of messages, a norm and a readout, by plain operations or by message passing on `t.graph`."""

    def __init__(self, by_graph: bool) -> None:
        super().__init__()
        self.by_graph, self.linear, self.norm, self.head = by_graph, nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, t: Any) -> Tensor:
        x = t.node_features["x"]
        if self.by_graph:
            graph = t.graph
            graph.ndata["x"] = x
            graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "total"))
            total = graph.ndata["total"]
        else:
            weights = t.edge_features["w"].flatten(1).sum(1, keepdim=True)
            messages = x.index_select(0, t.src) * t.edge_mask[:, None] * weights
            total = x.new_zeros(t.node_mask.shape[0], 3).index_add(0, t.dst, messages)
        h = self.norm(self.linear(total))
        return self.head(h.new_zeros(t.graph_mask.shape[0], 4).index_add(0, t.node_graph_slots, h))


def step_of(net: Net) -> Callable[[Any, Any], Tensor]:
    """The function that is compiled: a loss of the tensors of a batch."""

    def loss_of(t: Any, count: Any) -> Tensor:
        with tp.nn.masked(t):
            out = net(t)
        return tp.nn.masked_mean((out - t.labels).square(), t.graph_mask, count=count)

    return loss_of


@contextlib.contextmanager
def compiled_once(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Compile a function into one graph; a second compilation or a graph break is an error."""
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(error_on_recompile=True):
        yield torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=False)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def net_of(by_graph: bool) -> Net:
    """A network whose norms read masks."""
    torch.manual_seed(0)
    return tp.nn.convert(Net(by_graph), verbose=False)


def ways_of(items: list[Any], store: tp.GraphStore, sort_edges: bool) -> Iterator[tuple[str, Any, Any, Any]]:
    """Ways to the batches of an epoch, all of one shape: a name, the sampler, the loader, and an empty batch."""
    maxima = dict(zip(store.sizes.components, (2 * store.sizes.array.max(axis=0)).tolist(), strict=True))
    limits = tp.Limits.from_components(maxima, graphs=4)
    dataset = tp.with_ids(items)
    for content in ("fixed", "resample", "exchange"):
        for workers in (0, 2) if content == "resample" else (0,):
            sampler = tp.PackBatchSampler(
                store, limits, packs_per_batch=PACKS, content=content, num_replicas=2, rank=1, seed=1
            )
            ways = {
                "store": store.padded(limits, PACKS, sort_edges=sort_edges),
                "device": store.to("cpu").padded(limits, PACKS, sort_edges=sort_edges),
            }
            for name, view in ways.items():
                if not (workers and name == "device"):
                    loader = GraphDataLoader(view, sampler=sampler, batch_size=None, num_workers=workers)
                    yield f"{name}, {content}, {workers} workers", sampler, loader, view[[]]
            collate = tp.PaddedCollate(limits, dataset[0], PACKS, sort_edges=sort_edges)
            loader = GraphDataLoader(dataset, batch_sampler=sampler, collate_fn=collate, num_workers=workers)
            yield f"collate, {content}, {workers} workers", sampler, loader, collate([])


@pytest.mark.parametrize("sort_edges", [False, True], ids=["as they come", "sorted"])
def test_a_training_compiles_once(sort_edges: bool, tmp_path: Path) -> None:
    """Use batches of a store, a collate and a device, with workers, for each content, also empty batches."""
    items = homogeneous()
    store = tp.GraphStore.write(tmp_path / "store", items)
    net, plain = net_of(by_graph=sort_edges), net_of(by_graph=sort_edges)
    optimizers = [torch.optim.SGD(each.parameters(), 1e-2) for each in (net, plain)]
    sizes: set[int] = set()
    with compiled_once(step_of(net)) as step:
        eager = step_of(plain)
        for name, sampler, loader, empty in ways_of(items, store, sort_edges):
            for epoch in range(2):
                sampler.set_epoch(epoch)
                for batch in [*loader, empty]:
                    sizes.add(batch.num_real_graphs)
                    for optimizer, loss_of in zip(optimizers, (step, eager), strict=True):
                        loss = loss_of(batch.tensors, sampler.count_tensor)
                        optimizer.zero_grad()
                        loss.backward()
                        optimizer.step()
                for found, right in zip(net.state_dict().values(), plain.state_dict().values(), strict=True):
                    torch.testing.assert_close(found, right, msg=f"{name}, epoch {epoch}")
    assert len(sizes) > 2


def test_features_written_into_a_batch_or_its_graph_compile_once(tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", homogeneous())
    limits = tp.Limits.from_components(store.sizes.totals(), graphs=GRAPHS)
    view = store.padded(limits)

    def total(t: Any) -> Tensor:
        return t.node_features["x"].sum() + t.node_features["degree"].sum()

    with compiled_once(total) as step:
        for ids in ([], [0], [3, 4, 5], range(GRAPHS)):
            batch = view[list(ids)]
            batch.graph.ndata["degree"] = torch.ones(len(batch.node_mask), 2)
            t = batch.tensors
            assert step(t) == total(t)
