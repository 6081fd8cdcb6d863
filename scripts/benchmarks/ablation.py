"""What each stage of "auto" is worth: a fixed set of instances, packed without one stage after the other."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from tqdm import tqdm

from benchmarks.literature import CLASSES, Case, literature, medium_cases
from benchmarks.packing import instance
from benchmarks.tables import show
from dgl_tuplepack import PackPlan
from dgl_tuplepack.packing.auto import STAGES, auto
from dgl_tuplepack.packing.settings import Settings

app = typer.Typer()

Groups = Mapping[str, Sequence[Case]]

_DATASETS = ("molhiv 222/502", "molhiv 256/550", "molhiv 1024/2200", "ppa-shaped", "code2-shaped, cap")
_FULL = ("planted 10^3, k=2", "planted 10^3, k=3", "planted 10^4, k=2", "triplets 200, k=1", "triplets 200, k=2")


def groups(seed: int) -> Groups:
    """Instances by group, from the seed: datasets, packs cut into graphs, small ones and medium ones."""
    return {
        "datasets": [Case(name, *instance(name, seed)[:2]) for name in _DATASETS],
        "cut from full packs": [Case(name, *instance(name, seed)[:2]) for name in _FULL],
        "small": [literature(number, graphs, seed) for number in CLASSES for graphs in (50, 100, 200)],
        "medium": medium_cases(14, seed),
    }


def measured_stages(chosen: Groups, seed: int, effort: float = 1.0) -> list[dict[str, Any]]:
    """One row for all stages, and one without each: packs above the best bound of all rows, plans proven, seconds."""
    settings = Settings(seed=seed, effort=effort)
    plans: list[dict[str, list[PackPlan]]] = []
    rows: list[dict[str, Any]] = []
    total = (1 + len(STAGES)) * sum(map(len, chosen.values()))
    with tqdm(total=total, desc="plans", disable=not sys.stderr.isatty()) as progress:
        for off in (None, *STAGES):
            stages = tuple(stage for stage in STAGES if stage is not off)
            made: dict[str, list[PackPlan]] = {}
            start = time.perf_counter()
            for group, cases in chosen.items():
                made[group] = []
                for case in cases:
                    made[group].append(auto(case.histogram, case.limits, settings, stages))
                    progress.update()
            plans.append(made)
            rows.append({"without": off.__name__ if off else "(all stages)", "all_s": time.perf_counter() - start})
    for group in chosen:
        bounds = [max(plan.lower_bound for plan in same) for same in zip(*(made[group] for made in plans), strict=True)]
        for row, made in zip(rows, plans, strict=True):
            row[group] = sum(plan.num_packs - bound for plan, bound in zip(made[group], bounds, strict=True))
    for row, made in zip(rows, plans, strict=True):
        row["proven"] = sum(plan.is_optimal for same in made.values() for plan in same)
        row["all_s"] = row.pop("all_s")
    return rows


@app.command()
def ablation(
    effort: Annotated[float, typer.Option(min=0, help="Effort of each plan.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the instances and of the plans.")] = 0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all results here.")] = None,
) -> None:
    """Packs above the bound of "auto" without one stage after the other, plans proven optimal, and seconds."""
    chosen = groups(seed)
    rows = measured_stages(chosen, seed, effort)
    show(f"packs above the best bound, {sum(map(len, chosen.values()))} instances", rows)
    if json_path is not None:
        json_path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
