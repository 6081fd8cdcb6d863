"""Compare several ways to run whole training steps of a network: loader, forward, backward and optimiser."""

from __future__ import annotations

import gc
import re
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
import torch
import typer

import dgl_tuplepack as tp
from benchmarks.loading import Blocks, SourceOption
from benchmarks.networks import LAYERS
from benchmarks.tables import JsonOption, show, write_json
from benchmarks.ways import STAGES, WAYS, Data, Training, available_ways
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, GraphBlock

app = typer.Typer()

# Ways that use nothing of this package.
_THEIRS = ("DGL", "PyG", "PyG, torch.compile(dynamic=True)")
_THEIRS_WITH_OURS = "PyG, tp.compile(dynamic=True)"


@app.command()
def training(
    source: SourceOption = None,
    network: Annotated[list[str] | None, typer.Option(help="LAYERSxWIDTH; may be repeated.")] = None,
    layer: Annotated[str, typer.Option(help=f"One of {', '.join(LAYERS)}.")] = "GINE",
    threads: Annotated[list[int] | None, typer.Option(min=1, help="Threads of torch; may be repeated.")] = None,
    way: Annotated[list[str] | None, typer.Option(help="Compare only these ways; may be repeated.")] = None,
    compiled: Annotated[bool, typer.Option(help="Also measure the compiled ways.")] = True,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all ways; results are medians.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps per way and round.")] = 12,
    graphs: Annotated[int | None, typer.Option(min=512, help="Number of training graphs; default: all.")] = None,
    json_path: JsonOption = None,
) -> None:
    """Measure graphs per second of whole training steps (OGB's encoders, batch norm, Adam) and the stages of a step.

    All ways have the same mean number of graphs per batch. Ratios compare with DGL's loader and layers and, if
    installed, PyG's; they are medians over interleaved rounds. Compiled ways take up to a minute to start, and those
    with the two lines begin with 65 steps, until which they compare their results several times.
    """
    networks = networks_of(network)
    if layer not in LAYERS:
        raise typer.BadParameter(f"{layer!r} is not one of {', '.join(LAYERS)}.", param_hint="--layer")
    if unknown := [name for name in way or [] if name not in WAYS]:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of: {'; '.join(WAYS)}.", param_hint="--way")
    chosen = way or [name for name in available_ways() if compiled or not WAYS[name].compiler]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = tp.GraphStore.write(folder, source or Molecules(32_901), compact=True)
        data = Data.of(store.subset(store.splits["train"][:graphs]))
        for number in threads or [1, 2]:
            torch.set_num_threads(number)
            for name, (layers, width) in networks.items():
                title = f"{layer} {name}, {number} thread{'s' * (number > 1)}, {data.size} graphs a batch"
                trainings = ready({known: Training(data, WAYS[known], layers, width, layer) for known in chosen})
                rates = measured(trainings, rounds, steps)
                rows = _rows(trainings, rates, rounds * steps)
                show(title, rows)
                show(f"{title}: ours and theirs", _summary(rates))
                results += [{"network": name, "layer": layer, "threads": number, **row} for row in rows]
                torch.compiler.reset()
    write_json(json_path, results)


def networks_of(names: list[str] | None) -> dict[str, tuple[int, int]]:
    """Return name -> (layers, width) for names such as 5x64; without names, the networks of the tables."""
    names = names or ["2x32", "5x64", "5x300"]
    if wrong := [name for name in names if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", name)]:
        raise typer.BadParameter(f"{wrong[0]!r} is not LAYERSxWIDTH, such as 5x64.", param_hint="--network")
    sizes = {name: name.split("x") for name in names}
    return {name: (int(layers), int(width)) for name, (layers, width) in sizes.items()}


class Molecules(Blocks):
    """Random graphs with molhiv's sizes and features in the range of OGB's encoders."""

    def blocks(self) -> Iterator[GraphBlock]:
        """Yield the graphs in blocks."""
        from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

        for block in super().blocks():
            block.features[NODE_TYPE]["feat"] %= np.array(get_atom_feature_dims())
            block.features[EDGE_TYPE]["feat"] %= np.array(get_bond_feature_dims())
            yield block


def ready(trainings: dict[str, Training]) -> dict[str, Training]:
    """Run the warm-up steps of each way, which compile; print their duration."""
    for name, training in trainings.items():
        begin = time.perf_counter()
        for _ in range(training.warm_up):
            training.step()
        print(f"{name}: ready after {time.perf_counter() - begin:.1f} s", flush=True)
        training.seconds = dict.fromkeys(STAGES, 0.0)
    return trainings


def measured(trainings: Mapping[str, Any], rounds: int, steps: int) -> dict[str, list[float]]:
    """Return graphs per second of each way in each interleaved round."""
    rates: dict[str, list[float]] = {name: [] for name in trainings}
    gc.collect()
    for _ in range(rounds):
        for name, training in trainings.items():
            begin = time.perf_counter()
            number = sum(training.step() for _ in range(steps))
            rates[name].append(number / (time.perf_counter() - begin))
    return rates


def ratio(rates: Mapping[Any, list[float]], way: Any, to: Any) -> float:
    """Return the median ratio of the rates of two ways over the rounds; NaN if `to` was not measured."""
    if to not in rates:
        return float("nan")
    return statistics.median(own / other for own, other in zip(rates[way], rates[to], strict=True))


def _rows(trainings: dict[str, Training], rates: dict[str, list[float]], steps: int) -> list[dict[str, Any]]:
    return [
        {
            "way": name,
            "graphs/s": statistics.median(rates[name]),
            "times DGL": f"{ratio(rates, name, 'DGL'):.2f}",
            "times PyG": f"{ratio(rates, name, 'PyG'):.2f}",
            **{f"{stage}_ms": f"{1000 * spent / steps:.2f}" for stage, spent in training.seconds.items()},
        }
        for name, training in trainings.items()
    ]


def _summary(rates: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return the ratios of our best way to the best other one, and of the steps in between."""

    def best(names: Iterator[str]) -> str:
        return max(names, key=lambda name: statistics.median(rates[name]), default="")

    ours = best(name for name in rates if name.startswith("packs"))
    on_tensors = "packs, DGL's layers on TensorGraph"
    pairs = [
        (ours, best(name for name in rates if name in _THEIRS)),
        (ours, _THEIRS_WITH_OURS),
        (f"{on_tensors}, tp.compile", "DGL"),
        (on_tensors, "packs, DGL's layers"),
        (on_tensors, "DGL"),
    ]
    return [
        {"way": way, "to": to, "ratio": f"{ratio(rates, way, to):.2f}"}
        for way, to in pairs
        if way in rates and to in rates
    ]
