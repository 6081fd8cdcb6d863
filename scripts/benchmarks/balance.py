"""Even work among ranks, and streams."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.tables import show
from dgl_tuplepack import GraphSizes, Limits, PackBatchSampler, SizeHistogram, StreamPacker, load_example, pack
from dgl_tuplepack.sampler import Balance
from dgl_tuplepack.sampler.dealing import NONE, deal

app = typer.Typer()

MOLHIV = Limits(222, 502)
RANKS = (2, 4, 8)
LOOKAHEADS = (10, 100, 1000, 10_000)
Row = dict[str, Any]


def graphs_of(histogram: SizeHistogram, seed: int = 0) -> GraphSizes:
    """Graphs of these sizes, in random order."""
    rows = np.repeat(histogram.sizes, histogram.counts, axis=0)
    return GraphSizes(np.random.default_rng(seed).permutation(rows), histogram.components)


def balance_rows(_: int) -> list[Row]:
    """Spread of real nodes + edges over the ranks of a step: packs in random order, and as the sampler deals them."""
    histogram = load_example("ogbg-molhiv")
    sizes, plan = graphs_of(histogram), pack(histogram, MOLHIV)
    rows = []
    for ranks in RANKS:
        for packs_per_batch in (1, 4):
            settings: Row = {"num_replicas": ranks, "rank": 0, "packs_per_batch": packs_per_batch}
            dealt = PackBatchSampler(sizes, MOLHIV, plan=plan, **settings).balance()
            work = np.repeat(plan.pattern_contents.sum(axis=1, dtype=np.float64), plan.repeats)
            work = np.random.default_rng(0).permutation(work)
            places = deal(work, ranks, packs_per_batch, drop_last=False)
            random = Balance(np.where(places == NONE, 0, work[places]).sum(axis=2))
            for order, balance in (("random", random), ("dealt", dealt)):
                rows.append(
                    {
                        "ranks": ranks, "packs a batch": packs_per_batch, "order": order,
                        "mean spread": balance.mean_spread, "largest spread": balance.largest_spread,
                        "idle": balance.idle,
                    }
                )  # fmt: skip
    return rows


def stream_rows(repeats: int) -> list[Row]:
    """Efficiency and speed on molhiv in random order: next fit, and streams of several look-aheads."""
    histogram = load_example("ogbg-molhiv")
    sizes = graphs_of(histogram)
    items = list(map(tuple, sizes.array.tolist()))
    totals = histogram.totals()

    def streamed(lookahead: int) -> Callable[[], int]:
        packer: Any = StreamPacker(items, MOLHIV, lookahead=lookahead, size_of=lambda item: item)
        return lambda: sum(1 for _ in packer)

    ways = [("next fit", 0, lambda: _next_fit(items)), *(("stream", n, streamed(n)) for n in LOOKAHEADS)]
    rows = []
    for name, lookahead, run in ways:
        packs, seconds = run(), []
        for _ in range(repeats):
            begin = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - begin)
        used = {f"{kind} used": totals[kind] / (packs * most) for kind, most in MOLHIV.maxima.items()}
        speed = len(items) / statistics.median(seconds)
        rows.append({"method": name, "lookahead": lookahead, "packs": packs, **used, "sizes a second": round(speed)})
    return rows


def _next_fit(items: list[tuple[int, ...]]) -> int:
    """Packs of next fit in plain Python, the way dynamic batch samplers do it."""
    nodes, edges = MOLHIV.values
    packs, held = 1, [0, 0, 0]
    for size in items:
        held = [held[0] + size[0], held[1] + size[1], held[2] + 1]
        if held[0] > nodes or held[1] > edges or held[2] > (MOLHIV.graphs or held[2]):
            packs, held = packs + 1, [*size, 1]
    return packs


PARTS: dict[str, tuple[str, Callable[[int], list[Row]]]] = {
    "balance": ("Work of ranks in a step, ogbg-molhiv at 222/502 (fractions of a batch's mean)", balance_rows),
    "stream": ("StreamPacker, ogbg-molhiv in random order at 222/502", stream_rows),
}


@app.command()
def scaling(
    only: Annotated[str, typer.Option(help=f"One of {', '.join(PARTS)}; all of them without.")] = "",
    repeats: Annotated[int, typer.Option(min=1, help="Runs of which the median counts.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Even work among ranks, efficiency and speed of streams."""
    if only and only not in PARTS:
        raise typer.BadParameter(f"{only!r} is unknown; choose one of {', '.join(PARTS)}.", param_hint="--only")
    results = {}
    for name, (title, measure) in PARTS.items():
        if only in ("", name):
            results[name] = measure(repeats)
            if not as_json:
                show(title, results[name])
    if as_json:
        print(json.dumps(results, indent=1))
