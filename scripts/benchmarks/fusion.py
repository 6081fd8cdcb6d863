"""Message passing alone: which ways to sum messages write them out, and what that costs."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import dgl_tuplepack as tp
from benchmarks.tables import show

app = typer.Typer()
# Else the profiler writes lines of its own between the tables.
os.environ.setdefault("KINETO_LOG_LEVEL", "5")

KINDS = ("GCN", "GIN", "GINE", "GAT")
HEADS = 4
# Packs of ogbg-molhiv: the batch of `benchmark.py training`.
LIMITS, PACKS = tp.Limits(nodes=222, edges=502), 8

# Takes features of nodes ``[V, C]`` and of edges ``[E, C]``, returns those of nodes ``[V, C]``.
Step = Callable[[Tensor, Tensor], Tensor]


@app.command()
def fusion(
    width: Annotated[list[int] | None, typer.Option(min=HEADS, help="Width; may be repeated.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each through all ways; medians count.")] = 20,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all results here.")] = None,
) -> None:
    """Milliseconds and peak memory of message passing, forward and backward, without the layers' matrix products.

    GCN: x of the neighbours with weights of both degrees; GIN: x of the neighbours; GINE: relu(x + edge); GAT: x of the
    neighbours by attention, 4 heads. A message matrix of E x C floats is what a way writes out at least, if it writes
    messages out. Memory is what torch allocates during a step, beyond its inputs.
    """
    torch.set_num_threads(threads)
    if wrong := [each for each in width or [] if each % HEADS]:
        raise typer.BadParameter(f"{wrong[0]} is not divisible by the {HEADS} heads of GAT.", param_hint="--width")
    batch = _batch()
    results = []
    for channels in width or [64, 300]:
        for kind in KINDS:
            rows = _compare(batch, kind, channels, rounds)
            message_mb = len(batch.src) * channels * 4 / 1e6
            show(f"{kind}, width {channels}, messages of {message_mb:.1f} MB, {threads} thread(s)", rows)
            results += [{"kind": kind, "width": channels, "threads": threads, **row} for row in rows]
            torch.compiler.reset()
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _batch() -> tp.PaddedBatch:
    from benchmarks.loading import Blocks

    with tempfile.TemporaryDirectory() as folder:
        store = tp.GraphStore.write(folder, Blocks(2_000), compact=True)
        sampler = tp.PackBatchSampler(store, LIMITS, packs_per_batch=PACKS)
        batch: tp.PaddedBatch = store.padded(sampler.limits, PACKS, sort_edges=True)[next(iter(sampler))]
        return batch


def _compare(batch: tp.PaddedBatch, kind: str, width: int, rounds: int) -> list[dict[str, Any]]:
    """Interleaved rounds of all ways, after a check that they compute the same."""
    generator = torch.Generator().manual_seed(0)
    x, gradient = (torch.randn(len(batch.node_mask), width, generator=generator) for _ in range(2))
    edges = torch.randn(len(batch.src), width, generator=generator)
    ways = {name: _in_training(step, x, edges, gradient) for name, step in _ways(batch, kind)}
    expected: list[Tensor] | None = None
    for name, step in ways.items():
        done = step()
        expected = expected or done
        for ours, theirs in zip(done, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3, msg=lambda text, n=name: f"{n}: {text}")
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, step in ways.items():
            step()
            begin = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - begin)
    first = next(iter(seconds.values()))
    return [
        {
            "way": name,
            "ms": f"{1000 * statistics.median(each):.3f}",
            "times the first": f"{statistics.median(a / b for a, b in zip(first, each, strict=True)):.2f}",
            "peak_MB": f"{_peak_bytes(ways[name]) / 1e6:.2f}",
        }
        for name, each in seconds.items()
    ]


def _in_training(step: Step, x: Tensor, edges: Tensor, gradient: Tensor) -> Callable[[], list[Tensor]]:
    """Forward and backward: the result, and the gradients."""
    x, edges = x.clone().requires_grad_(), edges.clone().requires_grad_()

    def both() -> list[Tensor]:
        x.grad = edges.grad = None
        result = step(x, edges)
        result.backward(gradient)
        return [each for each in (result.detach(), x.grad, edges.grad) if each is not None]

    return both


def _peak_bytes(step: Callable[[], Any]) -> int:
    """Most bytes that torch holds during a step, beyond those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiled.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    changes = [(event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"]
    held = most = 0
    for _, change in sorted(changes):
        held += change
        most = max(most, held)
    return most


# Ways ---------------------------------------------------------------------------------------------------------------


def _ways(batch: tp.PaddedBatch, kind: str) -> Iterator[tuple[str, Step]]:
    tensors = batch.tensors
    yield "DGL, built-in functions", lambda x, e: _built_in(batch.graph, kind, x, e)
    if kind != "GAT":
        yield "DGL, user-defined messages", lambda x, e: _user_defined(batch.graph, kind, x, e)
    if find_spec("torch_geometric") is not None:
        yield from _ways_of_pyg(batch, kind)
    yield "TensorGraph", lambda x, e: _built_in(batch.tensors.graph, kind, x, e)
    compiled = tp.compile(lambda t, x, e: _built_in(t.graph, kind, x, e))
    yield "TensorGraph, tp.compile", lambda x, e: compiled(tensors, x, e)


def _built_in(graph: Any, kind: str, x: Tensor, edges: Tensor) -> Tensor:
    """Message passing on a DGLGraph or a `TensorGraph` by functions that DGL knows."""
    import dgl.function as fn

    with graph.local_scope():
        if kind == "GINE":
            graph.ndata["x"], graph.edata["e"] = x, edges
            graph.apply_edges(fn.u_add_e("x", "e", "m"))
            graph.edata["m"] = torch.relu(graph.edata["m"])
            graph.update_all(fn.copy_e("m", "m"), fn.sum("m", "h"))
            return x + graph.ndata["h"]
        if kind == "GAT":
            return _attention(graph, x)
        scale = graph.in_degrees().clamp(min=1).to(x.dtype).rsqrt()[:, None] if kind == "GCN" else None
        graph.ndata["x"] = x if scale is None else x * scale
        graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "h"))
        return x + graph.ndata["h"] if scale is None else graph.ndata["h"] * scale


def _attention(graph: Any, x: Tensor) -> Tensor:
    import dgl.function as fn
    from dgl.nn.functional import edge_softmax

    heads = x.view(len(x), HEADS, -1)
    graph.ndata["x"], graph.ndata["a"] = heads, heads.mean(-1, keepdim=True)
    graph.apply_edges(fn.u_add_v("a", "a", "a"))
    graph.edata["a"] = edge_softmax(graph, torch.nn.functional.leaky_relu(graph.edata["a"], 0.2))
    graph.update_all(fn.u_mul_e("x", "a", "m"), fn.sum("m", "h"))
    return graph.ndata["h"].flatten(1)


def _user_defined(graph: Any, kind: str, x: Tensor, edges: Tensor) -> Tensor:
    """The same with a Python function for the messages."""
    import dgl.function as fn

    with graph.local_scope():
        scale = graph.in_degrees().clamp(min=1).to(x.dtype).rsqrt()[:, None] if kind == "GCN" else None
        graph.ndata["x"] = x if scale is None else x * scale
        if kind == "GINE":
            graph.edata["e"] = edges
            graph.update_all(lambda e: {"m": torch.relu(e.src["x"] + e.data["e"])}, fn.sum("m", "h"))
        else:
            graph.update_all(lambda e: {"m": e.src["x"]}, fn.sum("m", "h"))
        return x + graph.ndata["h"] if scale is None else graph.ndata["h"] * scale


def _ways_of_pyg(batch: tp.PaddedBatch, kind: str) -> Iterator[tuple[str, Step]]:
    from torch_geometric.utils import degree, softmax

    from benchmarks.passing import Neighbours, Weighted, WithEdges

    number, index = len(batch.node_mask), torch.stack([batch.src, batch.dst])
    neighbours, with_edges, weighted = Neighbours(), WithEdges(), Weighted()

    def scaled(x: Tensor, edge_index: Tensor) -> Tensor:
        if kind == "GIN":
            total: Tensor = x + neighbours(edge_index, x)
            return total
        scale = degree(batch.dst, number, dtype=x.dtype).clamp(min=1).rsqrt()[:, None]
        total = neighbours(edge_index, x * scale) * scale
        return total

    def by_edges(x: Tensor, edges: Tensor) -> Tensor:
        if kind == "GINE":
            total: Tensor = x + with_edges(index, x, edges)
            return total
        if kind == "GAT":
            heads = x.view(len(x), HEADS, -1)
            a = heads.mean(-1, keepdim=True)
            a = softmax(torch.nn.functional.leaky_relu(a[batch.src] + a[batch.dst], 0.2), batch.dst, num_nodes=number)
            total = weighted(index, heads, a)
            return total.flatten(1)
        return scaled(x, index)

    yield "PyG, edge index", by_edges
    if kind in ("GCN", "GIN"):
        pointers = batch.tensors.row_pointers
        matrix = torch.sparse_csr_tensor(pointers, batch.src, torch.ones(len(batch.src)), (number, number))
        yield "PyG, sparse matrix", lambda x, edges: scaled(x, matrix)
