"""Rates of loaders, and what opening and writing a store take."""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.packing import peak_mib
from dgl_tuplepack import (
    GraphSizes,
    GraphStore,
    Limits,
    PackBatchSampler,
    PaddedCollate,
    load_example,
)
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, GraphBlock
from dgl_tuplepack.sources import Source

app = typer.Typer()

_ENTRY = str(Path(__file__).resolve().parents[1] / "benchmark.py")
BATCH_SIZES = (32, 128, 512)
# Packs as a dataset: their limits, and packs of a batch.
PACK_LIMITS, PACKS = Limits(nodes=222, edges=502), (1, 4, 16)

# A program that opens a store and assembles one batch, with DGL or without.
FIRST_BATCH = """
import json, os, sys, time
begin = time.perf_counter()
import torch
if sys.argv[2] == "graph":
    os.environ.setdefault("DGLBACKEND", "pytorch")
    import dgl
import dgl_tuplepack as tp
tp.GraphStore
imported = time.perf_counter()
store = tp.GraphStore(sys.argv[1])
opened = time.perf_counter()
batch = store.batch(range(8), tp.Limits(2000, 4000, 8))
if sys.argv[2] == "graph":
    batch.graph
done = time.perf_counter()
print(json.dumps({"imports": imported - begin, "open": opened - imported, "batch": done - opened}))
"""

SourceOption = Annotated[
    Path | None, typer.Option(help="OGB folder of ogbg-molhiv; without it, random graphs of its sizes.")
]


def synthetic_blocks(number: int, seed: int = 0) -> Iterator[GraphBlock]:
    """Random graphs of molhiv's sizes with OGB's features: 9 int64 a node, 3 an edge, one label."""
    histogram, generator = load_example("ogbg-molhiv"), np.random.default_rng(seed)
    shares = histogram.counts / histogram.num_graphs
    for first in range(0, number, 4096):
        sizes = histogram.sizes[generator.choice(len(histogram), min(4096, number - first), p=shares)]
        nodes, edges = np.ascontiguousarray(sizes[:, 0]), np.ascontiguousarray(sizes[:, 1])
        most = np.repeat(nodes, edges)
        yield GraphBlock(
            {NODE_TYPE: nodes},
            {EDGE_TYPE: edges},
            {EDGE_TYPE: (generator.integers(0, most), generator.integers(0, most))},
            {NODE_TYPE: {"feat": generator.integers(0, 119, (int(nodes.sum()), 9))}},
            {EDGE_TYPE: {"feat": generator.integers(0, 5, (int(edges.sum()), 3))}},
            {"": generator.integers(0, 2, (len(nodes), 1))},
        )


def graphs_of(blocks: Iterator[GraphBlock]) -> Iterator[Any]:
    """Items (DGLGraph, label) of homogeneous blocks, one by one."""
    import dgl
    import torch

    for block in blocks:
        ends = np.cumsum(block.num_nodes[NODE_TYPE]), np.cumsum(block.num_edges[EDGE_TYPE])
        for i, (last_node, last_edge) in enumerate(zip(*ends, strict=True)):
            nodes = slice(last_node - block.num_nodes[NODE_TYPE][i], last_node)
            edges = slice(last_edge - block.num_edges[EDGE_TYPE][i], last_edge)
            src, dst = (torch.from_numpy(end[edges]) for end in block.endpoints[EDGE_TYPE])
            graph = dgl.graph((src, dst), num_nodes=int(nodes.stop - nodes.start))
            graph.ndata["feat"] = torch.from_numpy(block.node_features[NODE_TYPE]["feat"][nodes])
            graph.edata["feat"] = torch.from_numpy(block.edge_features[EDGE_TYPE]["feat"][edges])
            yield graph, torch.from_numpy(block.labels[""][i])


class Blocks(Source):
    """Synthetic blocks as a source, so that they are written as those of an OGB folder."""

    knows_sizes = True

    def __init__(self, number: int) -> None:
        super().__init__("synthetic graphs")
        self.number = number

    def sizes(self, cache: Path | None = None) -> GraphSizes:
        """Return the sizes of the blocks."""
        rows = [np.stack([b.num_nodes[NODE_TYPE], b.num_edges[EDGE_TYPE]], axis=1) for b in self.blocks()]
        return GraphSizes(np.concatenate(rows))

    def num_graphs(self) -> int:
        """Return the number of graphs."""
        return self.number

    def splits(self) -> dict[str, Any]:
        """Return one split of all graphs."""
        return {"train": np.arange(self.number)}

    def blocks(self) -> Iterator[GraphBlock]:
        """Return the blocks."""
        return synthetic_blocks(self.number)


@app.command()
def loading(
    source: SourceOption = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each through all ways; medians count.")] = 7,
    graphs: Annotated[int | None, typer.Option(min=512, help="Take so many training graphs; without it, all.")] = None,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all results here.")] = None,
) -> None:
    """Graphs a second of every way to a batch of 32, 128 and 512 graphs, in one process and one run.

    A round is an epoch: every graph once, in the same random batches for all ways. So graphs come from main memory,
    where there are more than caches hold, as they do in training. A second table has packs as a dataset.
    """
    import torch

    torch.set_num_threads(1)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            compact: GraphStore.write(f"{folder}/{compact}", source or Blocks(32_901), compact=compact)
            for compact in (False, True)
        }
        trains = {compact: store.subset(store.splits["train"][:graphs]) for compact, store in stores.items()}
        items = list(trains[False])
        for batch_size in BATCH_SIZES:
            results += _rates(trains, items, batch_size, rounds)
        packs = [row for p in PACKS for row in _pack_rates(trains[False], items, p, rounds)]
    for result in results:
        result["times GraphDataLoader"] = result["graphs/s"] / next(
            r["graphs/s"] for r in results if r["graphs a batch"] == result["graphs a batch"]
        )
    where = "synthetic graphs" if source is None else source
    _show(results, f"loading, {where}")
    _show(packs, f"packs of {PACK_LIMITS.nodes} nodes and {PACK_LIMITS.edges} edges, {where}")
    if json_path is not None:
        json_path.write_text(json.dumps(results + packs, indent=1) + "\n", encoding="utf-8")


def _medians(ways: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median seconds of each way; each round goes through all of them."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        for name, way in ways.items():
            # Processor time: all ways work in this thread, and the machine may have other work.
            begin = time.process_time()
            way()
            # The first round only warms up.
            if round_:
                seconds[name].append(time.process_time() - begin)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def _pack_rates(train: GraphStore, items: Sequence[Any], packs_per_batch: int, rounds: int) -> list[dict[str, Any]]:
    """Median rate of packs as a dataset through DGL's collate, and of `PaddedCollate`, with labels and masks."""
    from dgl.dataloading import GraphDataLoader

    from dgl_tuplepack import PackedDataset, flatten_packs

    sampler = PackBatchSampler(train, PACK_LIMITS, packs_per_batch=packs_per_batch, content="fixed")
    collate = PaddedCollate(sampler.limits, items[0], packs_per_batch)
    packed = PackedDataset(train, PACK_LIMITS, multiple_of=packs_per_batch, content="fixed")
    collated = GraphDataLoader(items, batch_sampler=sampler, collate_fn=collate)
    batched = GraphDataLoader(packed, batch_size=packs_per_batch, shuffle=True)

    def by_collate() -> None:
        for batch in collated:
            batch.graph  # noqa: B018 (built when asked for)

    def by_dataset() -> None:
        for graph, labels in batched:
            flatten_packs(graph, labels)

    taken = _medians({"PaddedCollate": by_collate, "PackedDataset": by_dataset}, rounds)
    return [
        {
            "packs a batch": packs_per_batch,
            "way": name,
            "us a batch": 1e6 * seconds / len(sampler),
            "graphs/s": len(items) / seconds,
            "times PaddedCollate": taken["PaddedCollate"] / seconds,
        }
        for name, seconds in taken.items()
    ]


def _rates(trains: dict[bool, GraphStore], items: Sequence[Any], batch_size: int, rounds: int) -> list[dict[str, Any]]:
    """Median rate of every way at one batch size; each round goes through all of them."""
    steps = len(items) // batch_size
    order = np.random.default_rng(batch_size).permutation(len(items))[: steps * batch_size]
    batches = order.reshape(steps, batch_size).tolist()
    sizes = trains[False].sizes
    most = np.max([sizes.take(ids).array.sum(axis=0) for ids in batches], axis=0)
    limits = Limits(int(most[0]), int(most[1]), batch_size)
    ways = dict(_ways(trains, items, batches, limits))
    medians = _medians(ways, rounds)
    return [
        {
            "graphs a batch": batch_size,
            "way": name,
            "us a batch": 1e6 * taken / steps,
            "graphs/s": steps * batch_size / taken,
        }
        for name, taken in medians.items()
    ]


def _ways(
    trains: dict[bool, GraphStore],
    items: Sequence[Any],
    batches: list[list[int]],
    limits: Limits,
) -> Iterator[tuple[str, Callable[[], None]]]:
    """Name and loop of each way; the first is what the others are compared with."""
    import torch
    from dgl.dataloading import GraphDataLoader

    from dgl_tuplepack import GraphDataLoader as WholeLoader

    def through(loader: Any, form: str | None = None) -> Callable[[], None]:
        def loop() -> None:
            for batch in loader:
                if form is not None:
                    # Built when asked for.
                    getattr(batch, form)

        return loop

    def ours(compact: bool = False, form: str | None = None, **settings: Any) -> Callable[[], None]:
        view = trains[compact].padded(limits, **settings)
        return through(GraphDataLoader(view, sampler=batches, batch_size=None), form)

    yield "GraphDataLoader + dgl.batch", through(GraphDataLoader(items, batch_sampler=batches))
    pyg = _pyg_loader(items, batches)
    if pyg is not None:
        yield "PyG DataLoader", through(pyg)
        yield "store, PyG batch", ours(form="pyg")
        yield "store, PyG batch, compact", ours(compact=True, form="pyg")
        plain = trains[False].batched(framework="pyg")
        yield "store, PyG batch without padding", through(GraphDataLoader(plain, sampler=batches, batch_size=None))
    for name, stored in (("store, without padding", False), ("store, without padding, compact", True)):
        yield name, through(GraphDataLoader(trains[stored].batched(), sampler=batches, batch_size=None))
    yield "store, tp.GraphDataLoader", through(WholeLoader(trains[False], batch_sampler=batches))
    yield "store, DGLGraph", ours(form="graph")
    yield "store, DGLGraph, compact", ours(compact=True, form="graph")
    yield "store, tensors", ours()
    yield "store, tensors, compact", ours(compact=True)
    yield "store, tensors, compact, as stored", ours(compact=True, as_stored=True)

    view = trains[False].padded(limits)
    ready = [view[ids] for ids in batches[:8]]

    def floor() -> None:
        for _, batch in zip(batches, itertools.cycle(ready), strict=False):
            batch._graph = None
            batch.graph  # noqa: B018

    yield "floor: the DGLGraph of ready tensors", floor

    # The same bytes, from memory that no cache holds any more.
    nbytes = view.shape.nbytes
    data, out = torch.ones(max(len(batches), 64) * nbytes, dtype=torch.uint8), torch.empty(nbytes, dtype=torch.uint8)

    def copies() -> None:
        for step in range(len(batches)):
            out.copy_(data[step * nbytes : (step + 1) * nbytes])

    yield "bare copy of as many bytes", copies


def _pyg_loader(items: Sequence[Any], batches: list[list[int]]) -> Any:
    try:
        from torch_geometric.data import Data
        from torch_geometric.loader import DataLoader
    except ImportError:
        return None
    import torch

    dataset = [
        Data(x=g.ndata["feat"], edge_index=torch.stack(g.edges()), edge_attr=g.edata["feat"], y=label)
        for g, label in items
    ]
    return DataLoader(dataset, batch_sampler=batches)


@app.command()
def store(
    source: SourceOption = None,
    graphs: Annotated[int, typer.Option(min=1, help="Graphs to write from an iterator.")] = 1_000_000,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all results here.")] = None,
) -> None:
    """Seconds and memory of writing a store, and of the first batch in a new process, with DGL and without."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        GraphStore.write(f"{folder}/first", source or Blocks(32_901))
        results.append({"what": "write the source", "seconds": time.perf_counter() - begin})
        for form in ("tensors", "graph"):
            # The first run of all may have to compile.
            found = [_in_new_process("-c", FIRST_BATCH, f"{folder}/first", form) for _ in range(4)][1:]
            medians = {key: statistics.median(run[key] for run in found) for key in found[0]}
            results.append({"what": f"first batch in a new process, {form}", **medians})
        written = _in_new_process(_ENTRY, "write", f"{folder}/many", graphs)
        results.append({"what": f"write {graphs:,} graphs from an iterator", **written})
    _show(results, f"store, {'synthetic graphs' if source is None else source}")
    if json_path is not None:
        json_path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _in_new_process(*arguments: Any) -> dict[str, Any]:
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=True)
    return {**json.loads(done.stdout), "whole process": time.perf_counter() - begin}


@app.command("write", hidden=True)
def write(path: Path, graphs: int) -> None:
    """Write graphs from an iterator and report the peak memory."""
    before, begin = peak_mib(), time.perf_counter()
    GraphStore.write(path, graphs_of(synthetic_blocks(graphs)))
    print(
        json.dumps({"seconds": time.perf_counter() - begin, "peak MiB": peak_mib(), "growth MiB": peak_mib() - before})
    )


def _show(results: list[dict[str, Any]], title: str) -> None:
    columns = list(dict.fromkeys(key for result in results for key in result))
    table = Table(title=title)
    for name in columns:
        table.add_column(name, justify="left" if name in ("way", "what") else "right")
    for result in results:
        table.add_row(*(_text(result.get(name, "")) for name in columns))
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"
