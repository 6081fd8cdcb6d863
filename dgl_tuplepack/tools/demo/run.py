"""The steps of `dgl-tuplepack demo`."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn
from torch.utils.data import DataLoader

from dgl_tuplepack._core.files import writing
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack._core.text import printable
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.compiling.function import compile
from dgl_tuplepack.compiling.torch_versions import OLDEST, release_of
from dgl_tuplepack.errors import MissingDependencyError
from dgl_tuplepack.loading.predictions import Predictions
from dgl_tuplepack.nn import masked_loss
from dgl_tuplepack.planning.histogram import SizeHistogram, load_example
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.sampling.batches import PackBatchSampler
from dgl_tuplepack.storage.graph_store import GraphStore
from dgl_tuplepack.tools.demo.comparison import Contender, contenders, measure
from dgl_tuplepack.tools.demo.model import MaskedGIN
from dgl_tuplepack.tools.demo.molecules import NUM_ATOM_KINDS, NUM_BOND_KINDS, Molecules
from dgl_tuplepack.tools.plots import plot_fill, plot_methods, plot_sizes, save_picture

LIMITS = Limits(nodes=222, edges=502)
# Packs of the method "auto" hold 8.8 graphs on average, so 8 packs hold about GRAPHS_PER_BATCH graphs.
GRAPHS_PER_BATCH, PACKS_PER_BATCH = 70, 8
_WIDTH = 48


def run_demo(console: Console, out: Path, num_graphs: int | None, epochs: int, seed: int) -> dict[str, Any]:
    """Run all steps from sizes to training; return the results as plain data.

    Print the results to `console`, and write two pictures to the folder `out`, which is created if needed. Use
    `num_graphs` of the 32,901 sizes of ogbg-molhiv's training graphs; None: all sizes.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    sizes = _shuffled_sizes(load_example("ogbg-molhiv"), num_graphs, seed)
    histogram = SizeHistogram.from_sizes(sizes)
    console.print(
        f"[bold]{len(sizes):,} synthetic molecules[/bold]: random graphs with exactly the sizes of the "
        f"ogbg-molhiv training molecules ({len(histogram)} distinct sizes); only the sizes are real.\n"
        f"Batches of {GRAPHS_PER_BATCH} graphs on average: {PACKS_PER_BATCH} packs of at most {LIMITS.nodes} nodes and "
        f"{LIMITS.edges} edges each."
    )
    with tempfile.TemporaryDirectory() as folder:
        store = GraphStore.write(Path(folder, "store"), Molecules(sizes, seed))
        return _compare(console, out, store, _framework(console), epochs, seed)


def _compare(console: Console, out: Path, store: GraphStore, framework: str, epochs: int, seed: int) -> dict[str, Any]:
    histogram = SizeHistogram.from_sizes(store.sizes)
    rows = contenders(histogram, LIMITS, seed)
    # Of several plans with the fewest packs, choose the last, because the baselines come first.
    best = min(reversed(rows), key=lambda row: row.plan.num_packs)
    rows.append(Contender(f"{best.name}, compiled", best.plan, compiled=True))
    if not _measure(rows, store, framework, seed):
        # Without a working compiler, the compiled row would repeat the uncompiled row.
        rows = [row for row in rows if not row.compiled]
    losses, accuracy = _train(best.plan, store, framework, epochs, seed)
    console.print(_table(rows, best))
    window = max(1, len(losses) // 10)
    first, last = float(np.mean(losses[:window])), float(np.mean(losses[-window:]))
    console.print(
        f"Training a GIN on the packs of '{best.name}', filled with other graphs in each epoch, to recognise "
        f"molecules with an N-O bond: {len(losses)} steps, mean loss "
        f"{first:.3f} over the first {window} steps, {last:.3f} over the last {window} steps. "
        f"Accuracy on all {len(store):,} molecules: {accuracy:.2%}."
    )
    pictures = _draw(histogram, rows, best, out)
    console.print(Text("Pictures: " + ", ".join(printable(path) for path in pictures)))
    return {
        "graphs": len(store),
        "framework": framework,
        "limits": LIMITS.to_dict(),
        "packs_per_batch": PACKS_PER_BATCH,
        "contenders": [row.to_dict() for row in rows],
        "training": {
            "plan": best.name,
            "steps": len(losses),
            "first_loss": first,
            "last_loss": last,
            "accuracy": accuracy,
        },
        "pictures": [str(path) for path in pictures],
    }


def _shuffled_sizes(histogram: SizeHistogram, number: int | None, seed: int) -> GraphSizes:
    """Return the sizes of `number` random graphs of the histogram (None: of all graphs), in random order."""
    most = histogram.num_graphs
    rows = shuffled(np.repeat(np.arange(len(histogram)), histogram.counts), key_of(seed, 0, most))
    return GraphSizes(histogram.sizes[rows[:number]], histogram.components)


def _framework(console: Console) -> str:
    try:
        load("dgl")
    except MissingDependencyError as error:
        why = str(error).partition(";")[0]
        console.print(f"Using plain tensors and a network without DGL: {why}.", markup=False)
        return "torch"
    return "dgl"


def _loader(store: GraphStore, plan: PackPlan, seed: int) -> tuple[PackBatchSampler, Any]:
    """Return a sampler of the packs of a plan, and a loader of the batches that the sampler chooses."""
    sampler = PackBatchSampler(store, LIMITS, plan=plan, packs_per_batch=PACKS_PER_BATCH, seed=seed)
    batches: Any = store.padded(sampler.limits, PACKS_PER_BATCH)
    return sampler, DataLoader(batches, sampler=sampler, batch_size=None)


class _Trainer:
    """A small GIN and its optimiser; a call trains on one batch, compiled or not, and returns the loss."""

    def __init__(self, framework: str, learning_rate: float = 2e-3) -> None:
        nodes, bonds = nn.Embedding(NUM_ATOM_KINDS, _WIDTH), (lambda: nn.Embedding(NUM_BOND_KINDS, _WIDTH))
        self.model = MaskedGIN(nodes, bonds, "kind", width=_WIDTH, framework=framework)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=learning_rate)
        self.losses = nn.BCEWithLogitsLoss(reduction="none")
        self.compiled_loss = compile(self.loss, disable=release_of(torch.__version__) < OLDEST)

    def loss(self, batch: PaddedBatch | BatchTensors, count: float | Tensor) -> Tensor:
        """Return the loss of a batch; `count` is the mean number of graphs per batch."""
        return masked_loss(self.losses, self.model(batch), batch.labels, batch, count=count)

    def __call__(self, batch: PaddedBatch, count: float, compiled: bool = False) -> float:
        """Train on one batch and return its loss."""
        loss = self.compiled_loss(batch.tensors, torch.tensor(count)) if compiled else self.loss(batch, count)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def _measure(rows: list[Contender], store: GraphStore, framework: str, seed: int) -> bool:
    """Measure the speed of each contender, and store the speed in its row; return whether compilation succeeded."""

    def batches_of(plan: PackPlan) -> Iterator[PaddedBatch]:
        """Yield the batches of a plan, epoch after epoch, without end."""
        sampler, loader = _loader(store, plan, seed)
        for epoch in itertools.count():
            sampler.set_epoch(epoch)
            yield from loader

    trainer = _Trainer(framework)
    # The `count` of the loss does not affect the speed, so any number will do.
    measure(rows, batches_of, PACKS_PER_BATCH, lambda batch, compiled: trainer(batch, len(batch.graph_mask), compiled))
    return getattr(trainer.compiled_loss, "is_compiled", False)


def _train(plan: PackPlan, store: GraphStore, framework: str, epochs: int, seed: int) -> tuple[list[float], float]:
    """Train a new network; return the losses of all steps, and the accuracy of the trained network on all graphs."""
    (sampler, loader), trainer = _loader(store, plan, seed), _Trainer(framework)
    losses: list[float] = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        count = sampler.graphs_per_batch
        bar = progress_bar(loader, desc=f"training, epoch {epoch}", leave=False)
        losses += [trainer(batch, count) for batch in bar]
    predictions = Predictions(len(store))
    trainer.model.eval()
    with torch.no_grad():
        for batch in loader:
            predictions.add(batch, {"score": trainer.model(batch), "label": batch.labels})
    found = predictions.result()
    return losses, float(((found["score"] > 0) == found["label"].bool()).double().mean())


def _table(rows: list[Contender], best: Contender) -> Table:
    """Return the table of the comparison, with the row `best` in bold."""
    table = Table(title="One epoch at the same static shape (gap: packs above the lower bound)")
    for heading in ("method", "packs", "gap", "nodes", "edges", "empty", "graphs/s"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    # All plans have the same limits, so the largest of their lower bounds holds for all of them.
    bound = max(row.plan.lower_bound for row in rows)
    for row in rows:
        summary = row.to_dict()
        efficiency = [f"{value:.2%}" for value in summary["efficiency"].values()]
        counts = (summary["packs"], summary["packs"] - bound)
        rest = (summary["empty_slots"]["nodes"], round(row.graphs_per_second or 0))
        cells = [row.name, *(f"{n:,}" for n in counts), *efficiency, *(f"{n:,}" for n in rest)]
        table.add_row(*cells, style="bold green" if row is best else None)
    table.caption = (
        "plain batching: one graph per pack, because only one graph is sure to fit; next fit: in random order, as "
        "dynamic batch samplers do; "
        "empty: node slots that hold padding; "
        "graphs/s: fetching, collating and training a small GIN on the CPU, by the median time of a step"
        + "; compiled: the same network and packs with tp.compile"
        * any(row.compiled for row in rows)
    )
    return table


def _draw(histogram: SizeHistogram, rows: list[Contender], best: Contender, out: Path) -> list[Path]:
    figures = load("matplotlib.figure")
    sizes_figure = figures.Figure(figsize=(7.5, 6.5), layout="constrained")
    sizes_ax = plot_sizes(histogram, LIMITS, sizes_figure.add_subplot())
    sizes_figure.suptitle(f"Sizes of {histogram.num_graphs:,} graphs (ogbg-molhiv, training)")
    fill_figure = figures.Figure(figsize=(13, 5.8), layout="constrained")
    # Titles of subfigures are above the legends; titles of Axes would overlap the legends.
    left, right = fill_figure.subfigures(1, 2)
    fill_ax = plot_fill(best.plan, left.add_subplot())
    left.suptitle(f"Fill of the packs: {best.name}")
    plot_methods({row.name: row.plan for row in rows}, right.add_subplot())
    right.suptitle("Packs of each method")
    pictures = {out / "sizes.png": sizes_ax, out / "fill.png": fill_ax}
    for path, ax in pictures.items():
        save_picture(ax, path, dpi=130)
    return list(pictures)
