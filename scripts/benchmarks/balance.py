"""Measure how evenly work is spread over ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import typer

from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphSizes, Limits, PackBatchSampler, load_example, pack
from dgl_tuplepack.sampling.epoch_sampler import NONE
from dgl_tuplepack.sampling.pack_sampler import Balance, deal

app = typer.Typer()

MOLHIV = Limits(222, 502)
RANKS = (2, 4, 8)


@app.command()
def balance(json_path: JsonOption = None) -> None:
    """Measure the spread of real nodes + edges over the ranks of a step: packs in random order and as dealt."""
    histogram = load_example("ogbg-molhiv")
    sizes, plan = GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0)), pack(histogram, MOLHIV)
    rows = []
    for ranks in RANKS:
        for packs_per_batch in (1, 4):
            settings: dict[str, Any] = {"num_replicas": ranks, "rank": 0, "packs_per_batch": packs_per_batch}
            dealt = PackBatchSampler(sizes, MOLHIV, plan=plan, **settings).balance()
            work = np.repeat(plan.pattern_contents.sum(axis=1, dtype=np.float64), plan.repeats)
            work = np.random.default_rng(0).permutation(work)
            packs_of = deal(work, ranks, packs_per_batch, drop_last=False)
            random = Balance(np.where(packs_of == NONE, 0, work[packs_of]).sum(axis=2))
            for order, found in (("random", random), ("dealt", dealt)):
                rows.append(
                    {
                        "ranks": ranks, "packs a batch": packs_per_batch, "order": order,
                        "mean spread": found.mean_spread, "largest spread": found.largest_spread, "idle": found.idle,
                    }
                )  # fmt: skip
    show("Work of ranks in a step, ogbg-molhiv at 222/502 (fractions of a batch's mean)", rows)
    write_json(json_path, rows)
