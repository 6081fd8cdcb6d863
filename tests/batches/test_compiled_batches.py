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
from tests.support.graphs import ITEM, RELATIONS, USER, generator, random_graph, random_heterograph

pytestmark = [pytest.mark.compile, pytest.mark.slow]

GRAPHS, PACKS = 21, 2


def homogeneous() -> list[Any]:
    """Labelled graphs; some have no edges."""
    gen = generator(0)
    features = {"x": ((3,), torch.float32), "kind": ((), torch.int64)}, {"w": ((2, 2), torch.float32)}
    sizes = torch.randint(1, 7, (GRAPHS, 2), generator=gen).tolist()
    graphs = [random_graph(gen, nodes, edges - 1, *features) for nodes, edges in sizes]
    return [(graph, torch.randn(2, generator=gen)) for graph in graphs]


def heterogeneous() -> list[Any]:
    """Labelled heterographs, with dicts of labels."""
    gen = generator(1)
    node_features = {USER: {"x": ((3,), torch.float32)}, ITEM: {"x": ((3,), torch.float32)}}
    edge_features = {RELATIONS[1]: {"w": ((1,), torch.float32)}}
    sizes = torch.randint(1, 4, (GRAPHS, 5), generator=gen).tolist()
    return [
        (
            random_heterograph(
                gen,
                dict(zip((USER, ITEM), size[:2], strict=True)),
                dict(zip(RELATIONS, size[2:], strict=True)),
                node_features,
                edge_features,
            ),
            {"y": torch.randn(2, generator=gen), "weight": 1.0},
        )
        for size in sizes
    ]


class Net(nn.Module):
    """One round of messages, a norm and a readout, by plain operations or by message passing on `t.graph`."""

    def __init__(self, types: list[str], by_graph: bool) -> None:
        super().__init__()
        self.by_graph = by_graph
        self.layers = nn.ModuleDict({t: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for t in types})
        self.head = nn.Linear(4, 2)

    def forward(self, t: Any) -> Tensor:
        return self.head(sum(self._pooled(t, *part) for part in self._parts(t)))

    def _parts(self, t: Any) -> list[tuple[Any, ...]]:
        """Layer, node and edge type: None for homogeneous graphs."""
        if not isinstance(t.src, dict):
            return [("_N", None, None)]
        return [(e[2], e[2], e) for e in t.src]

    def _pooled(self, t: Any, layer: str, node_type: Any, edge_type: Any) -> Tensor:
        def of(value: Any, key: Any) -> Any:
            return value if key is None else value[key]

        source = None if edge_type is None else edge_type[0]
        x, mask = of(t.node_features, source)["x"], of(t.node_mask, node_type)
        if self.by_graph:
            graph = t.graph if edge_type is None else t.graph[edge_type]
            graph.srcdata["x"] = x
            graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "total"))
            total = graph.dstdata["total"]
        else:
            messages = x.index_select(0, of(t.src, edge_type)) * of(t.edge_mask, edge_type)[:, None]
            weights = of(t.edge_features, edge_type)
            if "w" in weights:
                messages = messages * weights["w"].flatten(1).sum(1, keepdim=True)
            total = x.new_zeros(mask.shape[0], 3).index_add(0, of(t.dst, edge_type), messages)
        linear, norm = self.layers[layer]
        h = norm(linear(total))
        pooled = h.new_zeros(t.graph_mask.shape[0], 4)
        return pooled.index_add(0, of(t.node_graph_slots, node_type), h)


def step_of(net: Net) -> Callable[[Any, Any], Tensor]:
    """The function that is compiled: a loss of the tensors of a batch."""

    def loss_of(t: Any, count: Any) -> Tensor:
        with tp.nn.masked(t):
            out = net(t)
        labels = t.labels["y"] if isinstance(t.labels, dict) else t.labels
        return tp.nn.masked_mean((out - labels).square(), t.graph_mask, count=count)

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


def net_of(example: Any, by_graph: bool) -> Net:
    """A network for graphs like the example, whose norms read masks."""
    torch.manual_seed(0)
    types = {"_N": "nodes"} if len(example.ntypes) == 1 else {USER: f"nodes:{USER}", ITEM: f"nodes:{ITEM}"}
    rows = {f"layers.{t}.1": component for t, component in types.items()}
    return tp.nn.convert(Net(list(types), by_graph), rows, verbose=False)


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
@pytest.mark.parametrize("items", [homogeneous(), heterogeneous()], ids=["homogeneous", "heterogeneous"])
def test_a_training_compiles_once(items: list[Any], sort_edges: bool, tmp_path: Path) -> None:
    """Use batches of a store, a collate and a device, with workers, for each content, also empty batches."""
    by_graph = sort_edges == (len(items[0][0].ntypes) == 1)
    store = tp.GraphStore.write(tmp_path / "store", items)
    net = net_of(items[0][0], by_graph)
    plain = net_of(items[0][0], by_graph)
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


@pytest.mark.parametrize("items", [homogeneous(), heterogeneous()], ids=["homogeneous", "heterogeneous"])
def test_features_written_into_a_batch_or_its_graph_compile_once(items: list[Any], tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", items)
    limits = tp.Limits.from_components(store.sizes.totals(), graphs=GRAPHS)
    view = store.padded(limits)

    def total(t: Any) -> Tensor:
        features = t.node_features if "x" in t.node_features else t.node_features[USER]
        return features["x"].sum() + features["degree"].sum()

    with compiled_once(total) as step:
        for ids in ([], [0], [3, 4, 5], range(GRAPHS)):
            batch = view[list(ids)]
            data = batch.graph.nodes[batch.node_types[-1]].data
            data["degree"] = torch.ones(len(data["x"]), 2)
            t = batch.tensors
            assert step(t) == total(t)


def test_a_scope_around_a_compiled_module_compiles_once(tmp_path: Path) -> None:
    store = tp.GraphStore.write(tmp_path / "store", homogeneous())
    view = store.padded(tp.Limits.from_components(store.sizes.totals(), graphs=GRAPHS))
    norm, plain = (tp.nn.convert(nn.Sequential(nn.BatchNorm1d(3)), verbose=False) for _ in range(2))
    with compiled_once(norm) as compiled:
        for number, ids in enumerate(([0], [1, 2, 3], [], range(GRAPHS), [4, 5])):
            batch = view[list(ids)]
            # As a batch, whose numbers of real rows differ, and as its tensors.
            for each in (batch, batch.tensors) if number % 2 else (batch.tensors, batch):
                with tp.nn.masked(each):
                    found, right = (norm_(batch.node_features["x"]) for norm_ in (compiled, plain))
                torch.testing.assert_close(found, right)
        torch.testing.assert_close(norm.state_dict(), plain.state_dict())


def test_a_scope_inside_a_compiled_function_ends_there(tmp_path: Path) -> None:
    """Batches compile once; afterwards the masks are those from before."""
    store = tp.GraphStore.write(tmp_path / "store", homogeneous())
    view = store.padded(tp.Limits.from_components(store.sizes.totals(), graphs=GRAPHS))
    norm = tp.nn.convert(nn.Sequential(nn.BatchNorm1d(3)), verbose=False)

    def normalised(batch: Any) -> Tensor:
        with tp.nn.masked(batch):
            return norm(batch.node_features["x"])

    outer, inner = view[[0, 1, 2, 3]], view[[5]]
    with compiled_once(normalised) as step:
        for ids in ([0], [1, 2, 3], [], range(GRAPHS)):
            batch = view[list(ids)]
            assert not step(batch)[~batch.node_mask].any()
        with pytest.raises(tp.errors.SchemaError, match="has no mask"):
            norm(inner.node_features["x"])
    torch._dynamo.reset()
    compiled = torch.compile(normalised, backend="aot_eager", fullgraph=True)
    with tp.nn.masked(outer):
        compiled(inner.tensors)
        out = norm(outer.node_features["x"])
    assert out[outer.node_mask].any(dim=1).all()
    assert not out[~outer.node_mask].any()
