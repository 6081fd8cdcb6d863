"""Measure what options of a batch cost or save: sorted edges, transforms, and access to `batch.tensors`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from benchmarks.loading import medians
from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphStore, Limits, PaddedBatch, PaddedCollate, transforms

if TYPE_CHECKING:
    from torch import Tensor

app = typer.Typer()

# Graphs of a batch for sorted edges; each graph has NODES nodes and EDGES edges.
GRAPHS, NODES, EDGES = (72, 287, 717), 26, 56
WIDTHS = (1, 16, 64)

Call = Callable[[], object]


@app.command()
def costs(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all calls; results are medians.")] = 51,
    json_path: JsonOption = None,
) -> None:
    """Measure sorted edges, transforms and `batch.tensors`, in microseconds on one core."""
    import torch

    torch.set_num_threads(1)
    rows = list(_sorted_edges(rounds))
    with tempfile.TemporaryDirectory() as folder:
        others = _others(f"{folder}/store", rounds)
    show("Sorted edges: forward and backward of copy_u_sum, time with row pointers / time without", rows)
    show("Other costs", others)
    write_json(json_path, rows + others)


def _random_graphs(number: int, feature: str = "x") -> list[Any]:
    """Return random graphs with a node feature and an edge feature."""
    import dgl
    import torch

    dgl.seed(0)
    graphs = [dgl.rand_graph(NODES, EDGES) for _ in range(number)]
    for graph in graphs:
        graph.ndata[feature] = torch.randn(NODES, 3)
        graph.edata["w"] = torch.randn(EDGES, 1)
    return graphs


def _sorted_edges(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each number of edges: times of a graph with row pointers, relative to the graph without them."""
    import torch

    for number in GRAPHS:
        graphs = _random_graphs(number)
        limits = Limits(number * NODES + 1, number * EDGES, number)
        batch = PaddedCollate(limits, graphs[0], sort_edges=True)(graphs)
        row: dict[str, Any] = {"edges": len(batch.src)}
        for width in WIDTHS:
            x = torch.randn(len(batch.node_mask), width, requires_grad=True)
            row[f"width {width}: forward"] = _relative_time(batch, x, False, rounds)
            row[f"width {width}: with backward"] = _relative_time(batch, x, True, rounds)
        yield row


def _relative_time(batch: PaddedBatch, x: Tensor, backward: bool, rounds: int) -> float:
    """Return the time to build the graph with row pointers and to sum over incoming edges, relative to without them."""
    import dgl

    from dgl_tuplepack.graphs.build import build_graph

    edge_type = ("_N", "_E", "_N")

    def step(row_pointers: dict[Any, Tensor] | None) -> None:
        ends = {edge_type: (batch.src, batch.dst)}
        graph = build_graph(ends, {"_N": len(x)}, {"_N": {}, edge_type: {}}, row_pointers)
        out = dgl.ops.copy_u_sum(graph, x)
        if backward:
            out.sum().backward()

    calls: dict[str, Call] = {"with": lambda: step({edge_type: batch.row_pointers}), "without": lambda: step(None)}
    taken = medians(calls, rounds)
    return taken["with"] / taken["without"]


def _others(path: str, rounds: int) -> list[dict[str, Any]]:
    """Return the costs of transforms, of sorted edges and of `batch.tensors`, for batches of 128 graphs."""
    graphs, size = _random_graphs(1024, "pos"), 128
    limits = Limits(size * NODES + 1, size * EDGES, size)
    store = GraphStore.write(path, graphs)
    orders = np.random.default_rng(0).permutation(len(graphs)).reshape(-1, size).tolist()
    settings: dict[str, dict[str, Any]] = {
        "plain": {}, "sorted": {"sort_edges": True}, "noise": {"batch_transform": transforms.AddNoise("pos", 0.1)},
        "each graph": {"transform": lambda graph: graph},
    }  # fmt: skip
    views = {name: store.padded(limits, **given) for name, given in settings.items()}
    views["noise"].set_epoch(0)
    collates = {name: PaddedCollate(limits, graphs[0], **settings[name]) for name in ("plain", "sorted")}
    batches = [views["plain"][ids] for ids in orders]

    def each(read: Callable[[Any], object], given: list[Any]) -> Call:
        return lambda: [read(entry) for entry in given]

    items = [[graphs[i] for i in ids] for ids in orders]
    calls = {f"view, {name}": each(view.__getitem__, orders) for name, view in views.items()}
    calls |= {f"collate, {name}": each(collate, items) for name, collate in collates.items()}
    calls["batch.tensors"] = each(lambda batch: batch.tensors, batches)
    taken = {name: 1e6 * seconds / len(orders) for name, seconds in medians(calls, max(rounds // 5, 1)).items()}
    plain = taken["view, plain"]
    return [
        {"cost": "sorting the edges of a batch, store", "us": taken["view, sorted"] - plain},
        {"cost": "sorting the edges of a batch, collate", "us": taken["collate, sorted"] - taken["collate, plain"]},
        {"cost": "AddNoise on a batch of 128 graphs", "us": taken["view, noise"] - plain},
        {"cost": "a transform that does nothing, per graph", "us": (taken["view, each graph"] - plain) / size},
        {"cost": "batch.tensors", "us": taken["batch.tensors"]},
    ]
