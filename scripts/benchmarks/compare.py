"""Measure a few figures that stand for the whole package, and compare them with a stored run."""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

import dgl_tuplepack as tp
from benchmarks import loading
from benchmarks.distinct import materials, materials_limits
from benchmarks.packing import instance
from benchmarks.tables import in_a_folder, show
from benchmarks.training import Molecules, measured, ratio, ready
from benchmarks.ways import WAYS as TRAINING_WAYS
from benchmarks.ways import Data, Training

app = typer.Typer()

BASELINE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "baseline.json"
# Network of the trainings: layers, width.
NETWORK = (5, 64)
TRAININGS = {"DGL": "two lines, DGL's layers", "PyG": "two lines, PyG's layers"}


@dataclass(frozen=True)
class Figure:
    """What a figure is worth: whether less is better, and how much worse than the stored one it may be.

    Counted figures are equal on every machine; the others are speeds relative to DGL or PyG in the same run.
    """

    less_is_better: bool
    tolerance: float

    def is_worse(self, found: float, stored: float) -> bool:
        """Return whether a figure is worse than the stored one by more than the tolerance."""
        change = found / stored - 1
        return (change if self.less_is_better else -change) > self.tolerance


FIGURES: Mapping[str, Figure] = {
    "packs / lower bound, ogbg-molhiv in 222/502": Figure(True, 0.0),
    "packs / lower bound, 100,000 materials in 1,024 atoms": Figure(True, 1e-4),
    "shape / mean batch, 64 graphs of ogbg-molhiv, nodes": Figure(True, 1e-3),
    "loading, 128 graphs: tp.GraphDataLoader / DGL": Figure(False, 0.25),
    "loading, 128 graphs: padded tensors / DGL": Figure(False, 0.25),
    "training, GINE 5 x 64: two lines / DGL": Figure(False, 0.15),
    "training, GINE 5 x 64: two lines / PyG": Figure(False, 0.15),
}


@app.command()
def compare(
    baseline: Annotated[Path, typer.Option(callback=in_a_folder, help="File of the stored run.")] = BASELINE,
    save: Annotated[bool, typer.Option("--save", help="Store this run instead of comparing.")] = False,
    graphs: Annotated[int, typer.Option(min=512, help="Number of graphs that are loaded and trained on.")] = 16_384,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each speed; results are medians.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Training steps per round.")] = 12,
) -> None:
    """Compare seven figures with a stored run; exit with 1 if one is worse by more than its tolerance."""
    stored = {} if save else _stored(baseline)
    torch.set_num_threads(1)
    found = dict(zip(FIGURES, [*_counted(), *_speeds(graphs, rounds, steps)], strict=True))
    if save:
        written = {"command": "python scripts/benchmark.py compare --save", **_system(), "figures": found}
        baseline.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    worse = {name for name, value in stored.items() if FIGURES[name].is_worse(found[name], value)}
    rows = [
        {"figure": name, "found": f"{value:.4f}", "stored": f"{stored.get(name, value):.4f}",
         "tolerance": f"{FIGURES[name].tolerance:.2%}", "": "worse" if name in worse else ""}
        for name, value in found.items()
    ]  # fmt: skip
    show(f"figures of {baseline.name}", rows)
    if worse:
        raise typer.Exit(1)


def _stored(baseline: Path) -> dict[str, float]:
    """Return the figures of a stored run."""
    try:
        found: dict[str, float] = json.loads(baseline.read_text(encoding="utf-8"))["figures"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise typer.BadParameter(f"{baseline} is no stored run ({error}); make one with --save.") from error
    if found.keys() != FIGURES.keys():
        raise typer.BadParameter(f"{baseline} has other figures than this command; store a run with --save.")
    return found


def _system() -> dict[str, str]:
    """Return the machine and the versions."""
    names = ("dgl_tuplepack", "torch", "dgl", "torch_geometric", "numpy", "numba")
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, one thread"
    return {"machine": machine, "python": platform.python_version()} | {name: version(name) for name in names}


def _counted() -> list[float]:
    """Return the figures that are counted, in the order of `FIGURES`."""
    histogram, limits, _ = instance("molhiv 222/502")
    sizes = materials(100_000)
    plans = [tp.pack(histogram, limits), tp.pack(tp.SizeHistogram.from_sizes(sizes), materials_limits(sizes, 1024))]
    molecules = np.repeat(histogram.sizes, histogram.counts, axis=0)
    shape = tp.StaticBatchSampler(molecules, 64, num_replicas=1, rank=0).limits
    assert shape.nodes is not None
    return [*(plan.num_packs / plan.lower_bound for plan in plans), shape.nodes / (64 * molecules[:, 0].mean())]


def _speeds(graphs: int, rounds: int, steps: int) -> list[float]:
    """Return the speeds relative to DGL or PyG, in the order of `FIGURES`."""
    with tempfile.TemporaryDirectory() as folder:
        store = tp.GraphStore.write(folder, Molecules(graphs))
        plain, *ours = loading.medians(_loops(store, list(store)), rounds).values()
        found = [plain / seconds for seconds in ours]
        data = Data.of(store)
        for plain_way, our_way in TRAININGS.items():
            ways = ready({way: Training(data, TRAINING_WAYS[way], *NETWORK) for way in (plain_way, our_way)})
            found.append(ratio(measured(ways, rounds, steps), our_way, plain_way))
    return found


def _loops(store: tp.GraphStore, items: list[Any]) -> dict[str, Callable[[], object]]:
    """Return an epoch of each loader, all with the same batches of 128 graphs; DGL's is first."""
    from dgl.dataloading import GraphDataLoader

    loaders = {
        "DGL": GraphDataLoader(items, batch_size=128),
        "tp.GraphDataLoader": tp.GraphDataLoader(store, batch_size=128),
        "padded tensors": tp.packed_loader(store, batch_size=128, padded=True, shuffle=False),
    }
    return {name: lambda loader=loader: [None for _ in loader] for name, loader in loaders.items()}
