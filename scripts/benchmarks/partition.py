"""Measure partitions of whole graphs for `dgl.distributed`, next to DGL's random and METIS partitions."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.loading import Blocks, SourceOption
from benchmarks.packing import peak_mib
from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphSizes, GraphStore, load_example, partition
from dgl_tuplepack.planning.balance import balanced_parts, imbalance_bound, imbalance_of, totals_of

app = typer.Typer()
Row = dict[str, Any]


def ppa_sizes(number: int = 158_100) -> GraphSizes:
    """Return random sizes shaped as those of ogbg-ppa: about 243 nodes, at most 300, and 4,530 edges on average."""
    generator = np.random.default_rng(0)
    nodes = np.clip(generator.normal(243.4, 45, number), 50, 300).astype(np.int64)
    edges = 2 * np.minimum(nodes * (nodes - 1) // 2, (nodes * generator.gamma(4, 2.33, number)).astype(np.int64))
    return GraphSizes(np.stack([nodes, edges], axis=1))


def in_new_process(run: Callable[..., Row], *arguments: Any) -> Row:
    """Call a function in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(run, *arguments).result()


def shown(rows: list[Row]) -> list[Row]:
    """Return rows with all digits of the imbalance that matter."""
    return [
        {n: f"{v:.6f}" if n.endswith(("nodes", "edges")) and n != "cut edges" else v for n, v in row.items()}
        for row in rows
    ]


def balances() -> list[Row]:
    """Return the imbalance of assignments only, without files."""
    histogram = load_example("ogbg-molhiv")
    molhiv = GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0))
    rows = []
    for name, sizes, numbers in (("ogbg-molhiv", molhiv, (2, 4, 8, 16, 32, 64)), ("ppa-shaped", ppa_sizes(), (8,))):
        for parts in numbers:
            begin = time.perf_counter()
            assigned = balanced_parts(sizes, parts)
            seconds = time.perf_counter() - begin
            found = imbalance_of(totals_of(sizes.array, assigned, parts))
            bound = imbalance_bound(sizes, parts)
            rows.append(
                {
                    "sizes": name, "parts": parts, "nodes": found[0], "bound on nodes": bound[0], "edges": found[1],
                    "bound on edges": bound[1], "seconds": seconds,
                }
            )  # fmt: skip
    return rows


def ours(source: Any, folder: Path, parts: int) -> Row:
    """Partition by this package."""
    begin = time.perf_counter()
    done = partition(source, folder / "ours", parts, workers=1)
    return {
        "nodes": done.imbalance["nodes"], "edges": done.imbalance["edges"], "cut edges": 0,
        "seconds": time.perf_counter() - begin, "peak MiB": peak_mib(),
    }  # fmt: skip


def of_dgl(source: Any, folder: Path, parts: int, method: str) -> Row:
    """Partition one batch of all graphs by DGL."""
    import dgl

    store = source if isinstance(source, GraphStore) else GraphStore(source)
    begin = time.perf_counter()
    batch = store.batched()[list(range(len(store)))]
    graph = batch[0] if isinstance(batch, tuple) else batch
    # Only the structure and features of nodes and edges count; edges are balanced too where DGL can do so.
    settings = {"balance_edges": True} if method == "metis" else {}
    dgl.distributed.partition_graph(graph, "graphs", parts, str(folder / method), part_method=method, **settings)
    seconds = time.perf_counter() - begin
    counts, cut = np.zeros((parts, 2)), 0
    for part in range(parts):
        local, *_ = dgl.distributed.load_partition(str(folder / method / "graphs.json"), part)
        inner = local.ndata["inner_node"].bool()
        counts[part] = int(inner.sum()), int(local.edata["inner_edge"].sum())
        src, dst = local.edges()
        cut += int((~inner[src] & inner[dst]).sum())
    imbalance = counts.max(axis=0) / counts.mean(axis=0)
    return {
        "nodes": imbalance[0], "edges": imbalance[1], "cut edges": cut, "seconds": seconds, "peak MiB": peak_mib(),
    }  # fmt: skip


def written(graphs: int, folder: Path) -> Row:
    """Write a store of synthetic graphs."""
    begin = time.perf_counter()
    GraphStore.write(folder / "store", Blocks(graphs))
    return {"seconds": time.perf_counter() - begin, "peak MiB": peak_mib()}


def divided(graphs: int, folder: Path, workers: int) -> Row:
    """Partition that store."""
    begin = time.perf_counter()
    done = partition(folder / "store", folder / "parts", 8, workers=workers)
    row = {"seconds": time.perf_counter() - begin, "peak MiB": peak_mib()}
    shutil.rmtree(folder / "parts")
    return row | {"nodes": done.imbalance["nodes"], "edges": done.imbalance["edges"]}


@app.command(name="partition")
def measure(
    source: SourceOption = None,
    graphs: Annotated[int, typer.Option(min=1, help="Graphs of the comparison, if no source is given.")] = 41_127,
    parts: Annotated[list[int], typer.Option(help="Numbers of parts of the comparison.")] = [2, 8],  # noqa: B006
    many: Annotated[int, typer.Option(min=0, help="Molecules to write and to divide into 8 parts; 0: none.")] = 10**6,
    json_path: JsonOption = None,
) -> None:
    """Measure imbalance (largest part / mean), cut edges, seconds and memory, next to random and METIS parts of DGL."""
    result: dict[str, list[Row]] = {"balance": balances()}
    show("Imbalance of whole graphs in parts, without files", shown(result["balance"]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = folder / "store"
        GraphStore.write(store, source or Blocks(graphs))
        result["comparison"] = []
        for number in parts:
            for method, run in (("ours", ours), ("random", of_dgl), ("metis", of_dgl)):
                arguments = (store, folder, number, *(() if method == "ours" else (method,)))
                row = in_new_process(run, *arguments)
                result["comparison"].append({"parts": number, "method": method, **row})
                shutil.rmtree(folder / method)
    show("Partitions with files, one process each", shown(result["comparison"]))
    if many:
        with tempfile.TemporaryDirectory() as name:
            rows = [{"step": "write a store", **in_new_process(written, many, Path(name))}]
            rows += [
                {"step": f"8 parts, {workers} processes", **in_new_process(divided, many, Path(name), workers)}
                for workers in (1, 2)
            ]
        result["many"] = rows
        show(f"{many:,} molecules", shown(rows))
    write_json(json_path, [{"table": name, **row} for name, rows in result.items() for row in rows])
