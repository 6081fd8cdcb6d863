"""Measure reading sizes and writing a store of an in-memory PyG dataset, compared with copying its tensors."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.tables import JsonOption, show, write_json
from dgl_tuplepack import GraphStore, load_example, sizes_of

app = typer.Typer()


@app.command()
def pyg(
    graphs: Annotated[int, typer.Option(min=1, help="Molecules of the dataset.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all steps; results are medians.")] = 3,
    folder: Annotated[Path | None, typer.Option(help="Folder for the files; default: a temporary folder.")] = None,
    json_path: JsonOption = None,
) -> None:
    """Measure the seconds for sizes and store of an InMemoryDataset, and for writing and flushing only its tensors."""
    dataset = _molecules(graphs)
    sizes_of(dataset)
    seconds: dict[str, list[float]] = {}
    for round_number in range(rounds):
        root = Path(tempfile.mkdtemp(dir=folder))
        steps = {
            "copy of the tensors": lambda to: _copy(dataset, to),
            "store": lambda to: GraphStore.write(to, dataset),
            "store, compact": lambda to: GraphStore.write(to, dataset, compact=True),
            "sizes": lambda to: sizes_of(dataset),
        }
        # The speed of a disk depends on what was written before, so the order alternates.
        for number, (name, step) in list(enumerate(steps.items()))[:: 1 if round_number % 2 else -1]:
            begin = time.perf_counter()
            step(root / str(number))
            seconds.setdefault(name, []).append(time.perf_counter() - begin)
            shutil.rmtree(root / str(number), ignore_errors=True)
        shutil.rmtree(root)
    copied = statistics.median(seconds["copy of the tensors"])
    results = [
        {
            "what": name,
            "graphs": graphs,
            "seconds": statistics.median(taken),
            "times a copy": statistics.median(taken) / copied,
        }
        for name, taken in seconds.items()
    ]
    show("an InMemoryDataset of PyG", results)
    write_json(json_path, results)


def _copy(dataset: Any, to: Path) -> None:
    to.mkdir()
    for name, tensor in dataset._data.to_dict().items():
        with open(to / f"{name}.npy", "wb") as file:
            np.save(file, tensor.numpy())
            file.flush()
            os.fsync(file.fileno())


def _molecules(number: int) -> Any:
    """Return a collated dataset of random graphs with molhiv's sizes and OGB's features."""
    import torch
    from torch_geometric.data import Data, InMemoryDataset

    class Molecules(InMemoryDataset):
        pass

    histogram, generator = load_example("ogbg-molhiv"), np.random.default_rng(0)
    chosen = generator.choice(len(histogram), number, p=histogram.counts / histogram.num_graphs)
    nodes, edges = (torch.from_numpy(histogram.sizes[chosen, i].copy()) for i in range(2))
    dataset, most = Molecules(), torch.repeat_interleave(nodes, edges)
    rows, ends = int(nodes.sum()), int(edges.sum())
    dataset._data = Data(
        x=torch.randint(0, 119, (rows, 9)),
        edge_index=(torch.rand(2, ends, dtype=torch.float64) * most).long(),
        edge_attr=torch.randint(0, 5, (ends, 3)),
        y=torch.randint(0, 2, (number, 1)),
    )
    slices = [torch.nn.functional.pad(count.cumsum(0), (1, 0)) for count in (nodes, edges)]
    dataset.slices = {
        "x": slices[0], "edge_index": slices[1], "edge_attr": slices[1], "y": torch.arange(number + 1)
    }  # fmt: skip
    return dataset
