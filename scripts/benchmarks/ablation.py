"""Measure the value of the stages of "auto": pack a fixed set of instances without some stages."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.distinct import combined_cases, distinct_cases
from benchmarks.literature import CLASSES, FAMILIES, Case, literature
from benchmarks.packing import instance
from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack.planning.packing.auto import STAGES, auto
from dgl_tuplepack.planning.packing.fit import Settings

app = typer.Typer()

Groups = Mapping[str, Sequence[Case]]

_DATASETS = (
    "molhiv 222/502", "molhiv 256/550", "molhiv 1024/2200", "molpcba-shaped", "code2-shaped, cap",
    "pcqm4mv2-shaped 20/54", "pcqm4mv2-shaped 30/62",
)  # fmt: skip
_RANDOM = ("planted 10^3, k=2", "planted 10^3, k=3", "planted 10^4, k=2", "triplets 200, k=1", "uniform 1000")
# Numbers of graphs of the instances of each family.
_GRAPHS = (300, 1500)


def groups(seed: int) -> Groups:
    """Return instances by group; those of nearly distinct sizes, and of combinations, do not depend on the seed."""
    return {
        "datasets": [Case(name, *instance(name, seed)[:2]) for name in _DATASETS],
        "random": [Case(name, *instance(name, seed)[:2]) for name in _RANDOM],
        "literature": [literature(number, graphs, seed) for number in CLASSES for graphs in (100, 200)],
        "families": [
            made(np.random.default_rng([seed, size, row]), size)
            for size in _GRAPHS
            for row, made in enumerate(FAMILIES.values())
        ],
        "distinct": distinct_cases(),
        "combined": combined_cases(),
    }


def measured_stages(
    chosen: Groups, without: Sequence[Sequence[str]], seed: int, effort: float = 1.0
) -> list[dict[str, Any]]:
    """Return a row for all stages and a row without each set: packs above the best bound, proven plans, seconds."""
    plans, seconds = [], []
    for names in ((), *without):
        typer.echo(f"without {', '.join(names) or 'nothing'}", err=True)
        stages = tuple(stage for stage in STAGES if stage.__name__ not in names)
        start = time.process_time()
        # Settings hold the effort left, so each plan needs its own.
        plans.append({
            group: [auto(c.histogram, c.limits, Settings(seed=seed, effort=effort), stages) for c in cases]
            for group, cases in chosen.items()
        })  # fmt: skip
        seconds.append(time.process_time() - start)
    bounds = {g: [max(p.lower_bound for p in same) for same in zip(*(made[g] for made in plans), strict=True)]
              for g in chosen}  # fmt: skip
    return [
        {
            "without": ", ".join(names) or "(all stages)",
            **{group: sum(p.num_packs for p in made[group]) - sum(bounds[group]) for group in chosen},
            "proven": sum(plan.is_optimal for same in made.values() for plan in same),
            "cpu_s": cpu_s,
        }
        for names, made, cpu_s in zip(((), *without), plans, seconds, strict=True)
    ]


@app.command()
def ablation(
    without: Annotated[
        list[str] | None,
        typer.Option(help="Stages to leave out together, separated by commas; default: one at a time."),
    ] = None,
    effort: Annotated[float, typer.Option(min=0, help="Effort of each plan.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the instances and of the plans.")] = 0,
    json_path: JsonOption = None,
) -> None:
    """Measure "auto" without sets of its stages: packs above the bound, plans proven optimal, and CPU seconds."""
    chosen, names = groups(seed), [stage.__name__ for stage in STAGES]
    sets = [text.split(",") for text in without or names]
    if unknown := {name for each in sets for name in each} - {*names}:
        raise typer.BadParameter(f"there is no stage {', '.join(sorted(unknown))}; choose from {', '.join(names)}.")
    rows = measured_stages(chosen, sets, seed, effort)
    show(f"packs above the best bound, {sum(map(len, chosen.values()))} instances", rows)
    write_json(json_path, rows)
