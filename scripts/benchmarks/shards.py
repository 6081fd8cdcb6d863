"""Measure sharded datasets: processes, efficiency lost by packing shards separately, growth, and loading."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import shapes
from benchmarks.loading import synthetic_blocks
from benchmarks.packing import BENCHMARK, in_new_process, peak_mib
from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import (
    GraphSizes,
    GraphStore,
    Limits,
    MultiStore,
    PackBatchSampler,
    SizeHistogram,
    load_example,
    pack,
)
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE
from dgl_tuplepack.storage.format import Manifest, ShardEntry
from dgl_tuplepack.storage.shards import preprocess_shards

app = typer.Typer()

MOLHIV = Limits(222, 502)
GRAPHS = 10_000
Row = dict[str, Any]


def write_ogb(folder: Path, graphs: int, seed: int) -> None:
    """Write random graphs with molhiv's sizes in OGB's binary format."""
    raw = folder / "raw"
    raw.mkdir(parents=True)
    blocks = list(synthetic_blocks(graphs, seed))

    def joined(arrays: Iterable[Any]) -> Any:
        return np.concatenate(list(arrays))

    ends = [joined(block.endpoints[EDGE_TYPE][end] for block in blocks) for end in (0, 1)]
    np.savez_compressed(
        raw / "data.npz", edge_index=np.stack(ends),
        num_nodes_list=joined(block.lengths[NODE_TYPE] for block in blocks),
        num_edges_list=joined(block.lengths[EDGE_TYPE] for block in blocks),
        node_feat=joined(block.features[NODE_TYPE]["feat"] for block in blocks),
        edge_feat=joined(block.features[EDGE_TYPE]["feat"] for block in blocks),
    )  # fmt: skip
    np.savez_compressed(raw / "graph-label.npz", graph_label=joined(block.labels[""] for block in blocks))


def ready_pool(processes: int) -> tuple[ProcessPoolExecutor, float]:
    """Return a pool whose processes have imported and compiled everything, and the seconds to start it."""
    begin = time.perf_counter()
    executor = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))
    pids: set[int] = set()
    while len(pids) < processes:
        pids |= set(executor.map(_warm, range(processes)))
    return executor, time.perf_counter() - begin


def _warm(_: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        write_ogb(Path(folder) / "shard", 50, 0)
        preprocess_shards([Path(folder) / "shard"], Path(folder) / "out", limits=MOLHIV, workers=1)
    # Long enough for every other process to receive a task.
    time.sleep(0.5)
    return os.getpid()


def process_rows(shards: int, repeats: int, compact: bool) -> list[Row]:
    """Measure one process and two, alternating; every shard is read, decompressed, written and planned."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i in range(10):
            write_ogb(folder / f"source-{i}", GRAPHS, i)
        # Reads may come from the page cache in both cases; every write is a different file.
        sources = {f"shard-{i}": folder / f"source-{i % 10}" for i in range(shards)}
        _warm(0)
        executor, start = ready_pool(2)
        ways: dict[int, dict[str, Any]] = {1: {"workers": 1}, 2: {"executor": executor}}
        with executor:
            for _ in range(repeats):
                for processes, way in ways.items():
                    begin = time.perf_counter()
                    preprocess_shards(sources, folder / "out", limits=MOLHIV, compact=compact, **way)
                    seconds[processes].append(time.perf_counter() - begin)
                    shutil.rmtree(folder / "out")
    medians = {processes: statistics.median(found) for processes, found in seconds.items()}
    return [
        {
            "processes": processes, "shards": shards, "graphs": shards * GRAPHS, "compact": str(compact),
            "seconds_s": medians[processes], "graphs a second": shards * GRAPHS / medians[processes],
            "times one process": f"{medians[1] / medians[processes]:.2f}",
            "pool start_s": 0.0 if processes == 1 else start,
        }
        for processes in ways
    ]  # fmt: skip


def efficiency_rows(shards: int, repeats: int, compact: bool) -> list[Row]:
    """Count the packs of 1,000,000 and of 10,000 graphs, packed together and in shards."""
    rows = []
    molhiv = load_example("ogbg-molhiv")
    for name, histogram, limits in (("molhiv", molhiv, MOLHIV), ("pcqm4mv2", shapes.pcqm4mv2(), Limits(160, 432))):
        for total, numbers in ((1_000_000, (1, 10, 100)), (10_000, (1, 10, 100))):
            chosen = _drawn(histogram, total)
            whole = pack(_counted(chosen), limits).num_packs
            for number in numbers:
                packs = sum(pack(_counted(shard), limits).num_packs for shard in np.array_split(chosen, number))
                rows.append(
                    {
                        "sizes": name, "graphs": total, "shards": number, "graphs a shard": total // number,
                        "packs": packs, "efficiency lost": 1 - whole / packs,
                    }
                )  # fmt: skip
    return rows


def _drawn(histogram: SizeHistogram, number: int) -> Any:
    """Return sizes of `number` graphs in random order, ``[number, 2]``."""
    shares = histogram.counts / histogram.num_graphs
    return histogram.sizes[np.random.default_rng(0).choice(len(histogram), number, p=shares)]


def _counted(sizes: Any) -> SizeHistogram:
    return SizeHistogram.from_sizes(GraphSizes(sizes)).without_ids()


def growth_rows(shards: int, repeats: int, compact: bool) -> list[Row]:
    """Measure time and memory from 10^4 to 10^7 graphs, each in a new process."""
    rows = []
    for exponent in range(4, 8):
        runs = [in_new_process(BENCHMARK, "growth-once", 10**exponent) for _ in range(repeats)]
        rows.append({name: statistics.median(run[name] for run in runs) for name in runs[0]})
    return rows


@app.command("growth-once", hidden=True)
def growth_once(graphs: int) -> None:
    """Measure planning and the order of one epoch in this process and print JSON."""
    sizes = GraphSizes(_drawn(shapes.pcqm4mv2(), graphs))
    pack(_counted(sizes.array[:1000]), MOLHIV)
    next(iter(PackBatchSampler(GraphSizes([[1, 1]]), Limits(1, 1))))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, times = peak_mib(), [time.perf_counter()]

    def done() -> float:
        times.append(time.perf_counter())
        return times[-1] - times[-2]

    histogram = SizeHistogram.from_sizes(sizes).without_ids()
    counted = done()
    plan = pack(histogram, Limits(160, 432))
    planned = done()
    sampler = PackBatchSampler(sizes, plan.limits, plan=plan)
    made = done()
    next(iter(sampler))
    ordered = done()
    with tempfile.TemporaryDirectory() as folder:
        plan.save(f"{folder}/plan.json")
        kilobytes = Path(folder, "plan.json").stat().st_size / 1000
    print(
        json.dumps({
            "graphs": graphs, "size classes": len(histogram), "patterns": plan.num_patterns, "plan kB": kilobytes,
            "histogram_s": counted, "plan_s": planned, "sampler_s": made, "epoch order_s": ordered,
            "sizes MiB": sizes.array.nbytes / 2**20, "peak growth MiB": peak_mib() - before,
        })
    )  # fmt: skip


def loading_rows(shards: int, repeats: int, compact: bool) -> list[Row]:
    """Measure microseconds per batch from one store and from the same graphs in shards; CPU time of this thread."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_ogb(folder / "source", GRAPHS, 0)
        whole = GraphStore.write(folder / "whole", folder / "source", compact=compact)
        stores: dict[int, Any] = {1: whole}
        opening = {}
        for number in (10, 100):
            out, entries = folder / f"shards-{number}", []
            for i, ids in enumerate(np.array_split(np.arange(len(whole)), number)):
                shard = GraphStore.write(out / f"part-{i}", [whole[int(j)] for j in ids], compact=compact)
                entries.append(ShardEntry(f"part-{i}", len(shard), shard.checksum))
            Manifest(len(whole), MOLHIV, 0, tuple(entries)).save(out)
            begin = time.perf_counter()
            stores[number] = MultiStore(out)
            opening[number] = time.perf_counter() - begin
        generator = np.random.default_rng(0)
        for batch_size in (32, 128, 512):
            batches = [generator.choice(len(whole), batch_size, replace=False) for _ in range(8192 // batch_size)]
            most = np.max([whole.sizes.take(ids).array.sum(axis=0) for ids in batches], axis=0)
            views = {n: s.padded(Limits(int(most[0]), int(most[1]), batch_size)) for n, s in stores.items()}
            taken: dict[int, list[float]] = {number: [] for number in views}
            for round_, (number, view) in itertools.product(range(repeats + 1), views.items()):
                begin = time.process_time()
                for ids in batches:
                    view[ids]
                # The first round only warms up.
                if round_:
                    taken[number].append((time.process_time() - begin) / len(batches))
            for number, found in taken.items():
                median = statistics.median(found)
                rows.append({
                    "graphs a batch": batch_size, "shards": number, "us a batch": 1e6 * median,
                    "times one store": f"{median / statistics.median(taken[1]):.2f}",
                    "open_s": opening.get(number, 0.0),
                })  # fmt: skip
    return rows


MEASUREMENTS: dict[str, tuple[str, Callable[[int, int, bool], list[Row]]]] = {
    "processes": ("Preprocessing shards of 10,000 graphs in OGB's binary format", process_rows),
    "efficiency": ("Efficiency lost by packing shards separately", efficiency_rows),
    "growth": ("Planning and one epoch, pcqm4mv2-shaped sizes at 160/432/256", growth_rows),
    "loading": ("Batches from one store and from shards, 10,000 graphs in total", loading_rows),
}


@app.command()
def shards(
    only: Annotated[str, typer.Option(help=f"One of {', '.join(MEASUREMENTS)}; default: all.")] = "",
    number: Annotated[int, typer.Option("--shards", min=2, help="Shards of 10,000 graphs to preprocess.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Runs; results are medians.")] = 3,
    compact: Annotated[bool, typer.Option("--compact", help="Store integers in the narrowest dtype.")] = False,
    json_path: JsonOption = None,
) -> None:
    """Measure preprocessing with one process and two, efficiency lost by separate packing, growth, and loading."""
    if only and only not in MEASUREMENTS:
        raise typer.BadParameter(f"{only!r} is unknown; choose one of {', '.join(MEASUREMENTS)}.", param_hint="--only")
    results = []
    for name, (title, measure) in MEASUREMENTS.items():
        if only in ("", name):
            rows = measure(number, repeats, compact)
            show(title, rows)
            results += [{"measurement": name, **row} for row in rows]
    write_json(json_path, results)
