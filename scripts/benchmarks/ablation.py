"""What each stage of "auto" is worth: a fixed set of instances, packed without one stage after the other."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.literature import CLASSES, FAMILIES, Case, literature
from benchmarks.packing import instance
from benchmarks.tables import show
from dgl_tuplepack.packing.auto import STAGES, auto
from dgl_tuplepack.packing.settings import Settings

app = typer.Typer()

Groups = Mapping[str, Sequence[Case]]

_DATASETS = ("molhiv 222/502", "molhiv 256/550", "molhiv 1024/2200", "molpcba-shaped", "code2-shaped, cap")
_FULL = ("planted 10^3, k=2", "planted 10^3, k=3", "planted 10^4, k=2", "triplets 200, k=1")


def groups(seed: int) -> Groups:
    """Instances by group, from the seed: datasets, full packs cut into graphs, literature, families."""
    return {
        "datasets": [Case(name, *instance(name, seed)[:2]) for name in _DATASETS],
        "cut from full packs": [Case(name, *instance(name, seed)[:2]) for name in _FULL],
        "classes": [literature(number, graphs, seed) for number in CLASSES for graphs in (100, 200)],
        "families": [made(np.random.default_rng([seed, row]), 300) for row, made in enumerate(FAMILIES.values())],
    }


def measured_stages(chosen: Groups, seed: int, effort: float = 1.0) -> list[dict[str, Any]]:
    """One row for all stages, and one without each: packs above the best bound of all rows, plans proven, seconds."""
    settings = Settings(seed=seed, effort=effort)
    names, plans, seconds = ["(all stages)", *(stage.__name__ for stage in STAGES)], [], []
    for name in names:
        typer.echo(f"without {name}", err=True)
        stages = tuple(stage for stage in STAGES if stage.__name__ != name)
        start = time.process_time()
        plans.append(
            {
                group: [auto(case.histogram, case.limits, settings, stages) for case in cases]
                for group, cases in chosen.items()
            }
        )
        seconds.append(time.process_time() - start)
    bounds = {
        group: [max(p.lower_bound for p in same) for same in zip(*(made[group] for made in plans), strict=True)]
        for group in chosen
    }
    return [
        {
            "without": name,
            **{group: sum(p.num_packs for p in made[group]) - sum(bounds[group]) for group in chosen},
            "proven": sum(plan.is_optimal for same in made.values() for plan in same),
            "cpu_s": cpu_s,
        }
        for name, made, cpu_s in zip(names, plans, seconds, strict=True)
    ]


@app.command()
def ablation(
    effort: Annotated[float, typer.Option(min=0, help="Effort of each plan.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the instances and of the plans.")] = 0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all results here.")] = None,
) -> None:
    """Packs above the bound of "auto" without one stage after the other, plans proven optimal, and CPU seconds."""
    chosen = groups(seed)
    rows = measured_stages(chosen, seed, effort)
    show(f"packs above the best bound, {sum(map(len, chosen.values()))} instances", rows)
    if json_path is not None:
        json_path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
