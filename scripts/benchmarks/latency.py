"""Measure how long users wait for a plan: processor time of single calls, and of first calls with an empty cache."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks import shapes
from benchmarks.literature import FAMILIES, Case
from benchmarks.packing import BENCHMARK, in_new_process
from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphSizes, Limits, SizeHistogram, load_example, pack, search_limits

app = typer.Typer()

Call = Callable[[], Any]

SEEDS = 5
# The programs of a cold start, in order; each has a process of its own, and they share a cache of kernels.
PLAN = "import dgl_tuplepack as tp\ntp.pack([[3, 4], [2, 2], [5, 9]], tp.Limits(9, 9))"
STORE = """
import sys
import dgl
import dgl_tuplepack as tp
tp.GraphStore.write(sys.argv[1], [dgl.rand_graph(n, 2 * n) for n in range(3, 53)])
"""
BATCH = """
import sys
import dgl_tuplepack as tp
next(iter(tp.packed_loader(tp.GraphStore(sys.argv[1]), graphs_per_batch=8)))
"""


def capped(seed: int) -> Case:
    """Return 3,000 graphs of random sizes, at most 8 of them in a pack."""
    draw = np.random.default_rng(1 + seed)
    sizes = np.stack([draw.integers(1, 60, 3000), np.minimum(draw.integers(0, 200, 3000), 150)], axis=1)
    return Case("capped", SizeHistogram.from_sizes(sizes), Limits(64, 160, 8))


def random_cases() -> Iterator[Case]:
    """Yield the 50 instances of random sizes on which defaults are compared, ten kinds with five seeds each."""
    for seed in range(SEEDS):
        yield capped(seed)
        for classes in (1_000, 10_000, 100_000):
            limits = (1000, 2200)
            yield Case(f"uniform {classes}", shapes.uniform(classes, limits, seed=seed), Limits(*limits))
        first = np.random.default_rng([1, seed]).integers(1, 10**6, 5000)
        opposed = SizeHistogram.from_sizes(np.stack([first, 10**6 - first], axis=1))
        yield Case("opposed", opposed, Limits(10**6, 10**6))
        for name, draw, graphs, limit in (("eight a pack", 2, 10_000, 4000), ("many a pack", 3, 100_000, 32_000)):
            sizes = np.random.default_rng([draw, seed]).integers(1, 1001, (graphs, 2))
            yield Case(name, SizeHistogram.from_sizes(sizes), Limits(limit, limit))
        for family in ("three components", "two or three", "heavy tail"):
            yield FAMILIES[family](np.random.default_rng([4, seed]), 3000)


def with_relations(relations: int) -> SizeHistogram:
    """Return the sizes of 12 heterographs, each with edges of a fifth of the relations."""
    sizes = [[3 + i % 4, *[int((k + i) % 5 == 0) for k in range(relations)]] for i in range(12)]
    return SizeHistogram.from_sizes(GraphSizes(sizes, ("nodes:e", *[f"edges:e:r{k}:e" for k in range(relations)])))


def calls() -> Mapping[str, Call]:
    """Return the calls to measure, by name."""
    many = SizeHistogram.from_sizes(np.random.default_rng(1).integers(1, 1001, (100_000, 2)))
    few, molhiv = capped(0), load_example("ogbg-molhiv")
    cases = {f"pack {case.family}": case for case in list(random_cases())[:10]}
    packed: dict[str, Call] = {
        name: (lambda case=case: pack(case.histogram, case.limits))  # type: ignore[misc]
        for name, case in cases.items()
    }
    typed: dict[str, Call] = {
        f"limits {number} relations": (lambda number=number: search_limits(with_relations(number), graphs_per_batch=4))  # type: ignore[misc]
        for number in (15, 30, 60, 100)
    }
    ascending = [Limits(500, 500), Limits(750, 750), Limits(1000, 1000)]
    return (
        packed
        | typed
        | {
            "pack molhiv": lambda: pack(molhiv, Limits(222, 502, 256)),
            "pack 3,000, three shapes": lambda: pack(
                few.histogram, [Limits(64, 160, 8), Limits(128, 320, 16), Limits(256, 640, 32)]
            ),
            "pack 100,000, three shapes": lambda: pack(many, ascending),
            "limits molhiv": lambda: search_limits(molhiv, graphs_per_batch=64),
            "limits 3,000": lambda: search_limits(few.histogram, graphs_per_batch=64),
            "limits 100,000": lambda: search_limits(many, graphs_per_batch=64),
            "limits 100,000, smallest": lambda: search_limits(many),
            "limits 100,000, two shapes": lambda: search_limits(many, graphs_per_batch=2, shapes=2),
        }
    )


@app.command("latency-one", hidden=True)
def one(name: str) -> None:
    """Measure one call in this process and print JSON."""
    call = calls()[name]
    small = SizeHistogram.from_counts({(3, 4): 5, (2, 2): 3, (9, 1): 2})
    pack(small, Limits(9, 9))
    search_limits(small, graphs_per_batch=3)
    begin = time.process_time()
    found = call()
    seconds = time.process_time() - begin
    packs = found.num_packs if name.startswith("pack") else found.best.packs
    print(json.dumps({"call": name, "processor_s": seconds, "packs": packs}))


@app.command()
def latency(
    only: Annotated[str, typer.Option(help="Measure only calls whose name contains this.")] = "",
    cold: Annotated[bool, typer.Option(help="Measure also first calls with an empty cache of kernels.")] = True,
    compare: Annotated[
        float, typer.Option(min=0, help="Compare the packs of 50 random instances at effort 1 with this effort.")
    ] = 0,
    json_path: JsonOption = None,
) -> None:
    """Measure the processor time of plans and searches, each in a process of its own, and of cold starts."""
    chosen = [name for name in calls() if only in name]
    rows = [in_new_process(BENCHMARK, "latency-one", name) for name in chosen]
    show("latency", rows)
    if cold:
        rows += _cold()
        show("cold start", rows[len(chosen) :])
    if compare:
        rows += _compared(compare)
        show(f"packs at effort 1, more than at effort {compare:g}", rows[-1:])
    write_json(json_path, rows)


def _cold() -> list[dict[str, Any]]:
    """Return rows for programs that start with an empty cache of kernels, and again with the cache that they filled."""
    shown = "import time\nprint('{\"processor_s\": %f}' % time.process_time())"
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        subprocess.run([sys.executable, "-c", STORE, store], check=True, stdout=subprocess.DEVNULL)
        programs = {"plan": PLAN, "store, first padded batch": BATCH}
        return [
            {
                "program": name,
                "cache": cache,
                **in_new_process("-c", f"{program}\n{shown}", store, NUMBA_CACHE_DIR=f"{folder}/{name}"),
            }
            for name, program in programs.items()
            for cache in ("empty", "filled")
        ]


def _compared(effort: float) -> list[dict[str, Any]]:
    """Return a row with the mean of the packs at effort 1, relative to the packs at another effort."""
    more = [
        pack(case.histogram, case.limits).num_packs / pack(case.histogram, case.limits, effort=effort).num_packs - 1
        for case in random_cases()
    ]
    return [{"instances": len(more), "mean, lost": statistics.mean(more), "worst, lost": max(more)}]
