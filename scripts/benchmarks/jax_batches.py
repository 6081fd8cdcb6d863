"""Batches as JAX arrays, compared with `jraph.dynamically_batch`."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.loading import BATCH_SIZES, Blocks, SourceOption
from benchmarks.tables import show
from dgl_tuplepack import GraphStore, packed_loader
from dgl_tuplepack._optional import load

app = typer.Typer()

_WIDTH, _LAYERS, _KINDS = 64, 3, 128
THEIRS = "jraph.dynamically_batch"


@app.command("jax")
def jax_batches(
    source: SourceOption = None,
    rounds: Annotated[int, typer.Option(min=1, help="Epochs of each way, interleaved; medians count.")] = 3,
    graphs: Annotated[int | None, typer.Option(min=512, help="Take so many training graphs; without it, all.")] = None,
    steps: Annotated[int, typer.Option(min=2, help="Training steps measured in each way.")] = 40,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all results here.")] = None,
) -> None:
    """Graphs a second of loaders of JAX arrays, and of training steps of a small GIN in plain JAX, in one process.

    Both ways have one shape of batches. A round is an epoch in random order. Packages: jax and jraph.
    """
    load("torch").set_num_threads(1)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        store = GraphStore.write(f"{folder}/store", source or Blocks(32_901), compact=True)
        train = store.subset(store.splits["train"][:graphs])
        items = list(_graphs_tuples(train))
        for batch_size in BATCH_SIZES:
            results += _rows(train, items, batch_size, rounds, steps)
    show(f"JAX, {'synthetic graphs' if source is None else source}", results)
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _graphs_tuples(store: GraphStore) -> Iterator[Any]:
    """Each graph as jraph has it in memory: numpy arrays, integers of 32 bits."""
    jraph = load("jraph")
    for first in range(0, len(store), 4096):
        ids = range(first, min(first + 4096, len(store)))
        nodes, edges = store.sizes.array[list(ids)].sum(axis=0).tolist()
        batch = store.batch(ids, _limits(nodes, edges, len(ids)))
        columns = [batch.node_features["feat"], batch.edge_features["feat"], batch.dst, batch.src, batch.labels]
        x, e, dst, src, y = (column.numpy() for column in columns)
        a = b = 0
        for i, (n, m) in enumerate(store.sizes.array[list(ids)].tolist()):
            ends = ((end[b : b + m] - a).astype(np.int32) for end in (dst, src))
            yield jraph.GraphsTuple(
                x[a : a + n].astype(np.int32), e[b : b + m].astype(np.int32), *ends, y[i : i + 1].astype(np.float32),
                np.array([n], np.int32), np.array([m], np.int32),
            )  # fmt: skip
            a, b = a + n, b + m


def _limits(nodes: int, edges: int, graphs: int) -> Any:
    from dgl_tuplepack import Limits

    return Limits(nodes, max(edges, 1), graphs)


def _rows(store: GraphStore, items: list[Any], batch_size: int, rounds: int, steps: int) -> list[dict[str, Any]]:
    """Figures of each way at one number of graphs a batch."""
    torch, jax, jraph = load("torch"), load("jax"), load("jraph")
    wide = packed_loader(store, graphs_per_batch=batch_size)
    small = packed_loader(store, graphs_per_batch=batch_size, idtype=torch.int32, as_stored=True)
    packs, limits = wide.packs_per_batch, wide.limits
    shape = packs * limits.nodes + 1, packs * limits.edges, packs * limits.graphs + 1

    def theirs(epoch: int) -> Iterator[Any]:
        order = np.random.default_rng(epoch).permutation(len(items))
        for batch in jraph.dynamically_batch((items[i] for i in order), *shape):
            yield jax.device_put(batch)

    def ours(loader: Any) -> Callable[[int], Iterator[Any]]:
        def batches(epoch: int) -> Iterator[Any]:
            loader.set_epoch(epoch)
            for batch in loader:
                yield batch.jraph

        return batches

    ways: dict[str, Callable[[int], Iterator[Any]]] = {
        THEIRS: theirs,
        "store, batch.jraph": ours(wide),
        "store, as stored, int32": ours(small),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    batches: dict[str, int] = {}
    for epoch in range(rounds + 1):
        for name, way in ways.items():
            # Processor time: the machine may have other work.
            begin = time.process_time()
            batches[name] = sum(1 for _ in way(epoch))
            # The first round only warms up.
            if epoch:
                seconds[name].append(time.process_time() - begin)
    slowest = statistics.median(seconds[THEIRS])
    rows = []
    for name, way in ways.items():
        rate, compiled = _training(way, steps)
        taken, per_batch = statistics.median(seconds[name]), len(items) / batches[name]
        rows.append(
            {
                "graphs a batch": batch_size,
                "way": name,
                "loader graphs/s": len(items) / taken,
                "times jraph": f"{slowest / taken:.1f}",
                "node slots used": store.sizes.num_nodes.sum() / (batches[name] * (shape[0] - 1)),
                "training graphs/s": rate * per_batch,
                "compilations": compiled,
            }
        )
    return rows


def _training(way: Callable[[int], Iterator[Any]], steps: int) -> tuple[float, int]:
    """Return steps a second, loader and step, and how often the step was compiled."""
    jax = load("jax")
    jnp = load("jax.numpy")
    keys = iter(jax.random.split(jax.random.PRNGKey(0), 3 + 2 * _LAYERS))

    def normal(*shape: int) -> Any:
        return jax.random.normal(next(keys), shape) * shape[-2] ** -0.5

    parameters = {
        "nodes": normal(_KINDS, _WIDTH),
        "edges": normal(_KINDS, _WIDTH),
        "layers": [(normal(_WIDTH, _WIDTH), normal(_WIDTH, _WIDTH)) for _ in range(_LAYERS)],
        "head": normal(_WIDTH, 1),
    }
    compiled = 0

    def loss_of(parameters: Any, graphs: Any) -> Any:
        # A batch of jraph has the features themselves, ours by name; labels likewise.
        x, e, y = (given if not isinstance(given, dict) else given[name] for given, name in (
            (graphs.nodes, "feat"), (graphs.edges, "feat"), (graphs.globals, "labels"),
        ))  # fmt: skip
        slots, number = len(x), len(graphs.n_node)
        x, e = (parameters[name][rows].sum(axis=1) for name, rows in (("nodes", x), ("edges", e)))
        for first, second in parameters["layers"]:
            messages = jax.nn.relu(x[graphs.senders] + e)
            sums = jax.ops.segment_sum(messages, graphs.receivers, slots)
            x = x + jax.nn.relu((x + sums) @ first) @ second * 0.1
        of_graph = jnp.repeat(jnp.arange(number), graphs.n_node, total_repeat_length=slots)
        mean = jax.ops.segment_sum(x, of_graph, number) / jnp.maximum(graphs.n_node, 1)[:, None]
        out = mean @ parameters["head"]
        losses = jnp.logaddexp(0, out) - out * y
        mask = load("jraph").get_graph_padding_mask(graphs)
        return jnp.where(mask[:, None], losses, 0).mean()

    @jax.jit
    def step(parameters: Any, graphs: Any) -> Any:
        nonlocal compiled
        compiled += 1
        loss, gradients = jax.value_and_grad(loss_of)(parameters, graphs)
        return loss, jax.tree_util.tree_map(lambda p, g: p - 0.01 * g, parameters, gradients)

    done, begin = 0, 0.0
    for epoch in range(1_000_000):
        for graphs in way(epoch):
            if done == 2:
                jax.block_until_ready(parameters)
                begin = time.perf_counter()
            _, parameters = step(parameters, graphs)
            done += 1
            if done == steps + 2:
                jax.block_until_ready(parameters)
                return steps / (time.perf_counter() - begin), compiled
    raise AssertionError("the loop returns")
