"""A demo on synthetic molecules, from sizes to training: plans, padded batches, a short training run, and pictures."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from dgl_tuplepack._core.checks import printable
from dgl_tuplepack._core.files import writing
from dgl_tuplepack._core.kernels.molecules import draw_bonds, draw_kinds
from dgl_tuplepack._core.kernels.random import derive_key
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.compiling.compile import compile
from dgl_tuplepack.compiling.torch_versions import OLDEST, release_of
from dgl_tuplepack.errors import MissingDependencyError, SizesError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, GraphBlock
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.loading.make_loader import packed_loader
from dgl_tuplepack.loading.packed_loader import PackedLoader
from dgl_tuplepack.loading.predictions import Predictions
from dgl_tuplepack.nn import MaskedBatchNorm1d, masked_loss
from dgl_tuplepack.planning.histogram import SizeHistogram, load_example
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.fit import NAMES
from dgl_tuplepack.planning.plan import PackPlan, summarise
from dgl_tuplepack.planning.sizes import HOMOGENEOUS, GraphSizes
from dgl_tuplepack.storage.graph_store import GraphStore
from dgl_tuplepack.tools.drawing import axes_or_new
from dgl_tuplepack.tools.plots import plan_by, plot_fill, plot_methods, plot_sizes, save_picture

LIMITS = Limits(nodes=222, edges=502)
# Packs of the method "auto" hold 8.8 graphs on average, so 8 packs hold about GRAPHS_PER_BATCH graphs.
GRAPHS_PER_BATCH, PACKS_PER_BATCH = 70, 8
_WIDTH = 48


def run_demo(console: Console, out: Path, num_graphs: int | None, epochs: int, seed: int) -> dict[str, Any]:
    """Run all steps from sizes to training, print the results, and return them as plain data.

    Write two pictures to the folder `out`. Use `num_graphs` of ogbg-molhiv's training sizes; None: all.
    """
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    example = load_example("ogbg-molhiv")
    order = np.repeat(np.arange(len(example)), example.counts)
    rows = shuffled(order, key_of(seed, 0, example.num_graphs))[:num_graphs]
    sizes = GraphSizes(example.sizes[rows], example.components)
    histogram = SizeHistogram.from_sizes(sizes)
    console.print(
        f"[bold]{len(sizes):,} synthetic molecules[/bold]: random graphs with exactly the sizes of the "
        f"ogbg-molhiv training molecules ({len(histogram)} distinct sizes); only the sizes are real.\n"
        f"Batches of {GRAPHS_PER_BATCH} graphs on average: {PACKS_PER_BATCH} packs of at most {LIMITS.nodes} nodes and "
        f"{LIMITS.edges} edges each."
    )
    with tempfile.TemporaryDirectory() as folder:
        store = GraphStore.write(Path(folder, "store"), Molecules(sizes, seed))
        return _compare(console, out, histogram, store, epochs, seed)


def _compare(
    console: Console, out: Path, histogram: SizeHistogram, store: GraphStore, epochs: int, seed: int
) -> dict[str, Any]:
    framework = "dgl"
    try:
        load("dgl")
    except MissingDependencyError as error:
        framework, why = "torch", str(error).partition(";")[0]
        console.print(f"Using plain tensors and a network without DGL: {why}.", markup=False)
    rows = _contenders(histogram, seed)
    # Of several plans with the fewest packs, choose the last, because the baselines come first.
    best = min(reversed(rows), key=lambda row: row.plan.num_packs)
    rows.append(Contender(f"{best.name}, compiled", best.plan, compiled=True))
    if not _measure(rows, store, framework, seed):
        # Without a working compiler, this row would repeat another.
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
            "plan": best.name, "steps": len(losses), "first_loss": first, "last_loss": last, "accuracy": accuracy,
        },
        "pictures": [str(path) for path in pictures],
    }  # fmt: skip


def _loader(store: GraphStore, plan: PackPlan, seed: int) -> PackedLoader:
    return packed_loader(store, limits=LIMITS, plan=plan, packs_per_batch=PACKS_PER_BATCH, seed=seed)


class _Trainer:
    """A small GIN and its optimiser; a call trains on one batch, compiled or not, and returns the loss."""

    def __init__(self, framework: str, learning_rate: float = 2e-3) -> None:
        nodes, bonds = nn.Embedding(NUM_ATOM_KINDS, _WIDTH), (lambda: nn.Embedding(NUM_BOND_KINDS, _WIDTH))
        self.model = MaskedGIN(nodes, bonds, "kind", width=_WIDTH, framework=framework)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=learning_rate)
        self.losses = nn.BCEWithLogitsLoss(reduction="none")
        self.compiled_loss = compile(self.loss, disable=release_of(torch.__version__) < OLDEST)

    def loss(self, batch: PaddedBatch | BatchTensors, count: float | Tensor) -> Tensor:
        return masked_loss(self.losses, self.model(batch), batch.labels, batch, count=count)

    def __call__(self, batch: PaddedBatch, count: float, compiled: bool = False) -> float:
        loss = self.compiled_loss(batch.tensors, torch.tensor(count)) if compiled else self.loss(batch, count)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


# Measured rounds, and steps of each contender in a round.
_ROUNDS, _STEPS = 5, 4


def _measure(rows: list[Contender], store: GraphStore, framework: str, seed: int) -> bool:
    """Measure and set the speed of each contender; return whether compilation succeeded.

    The contenders take turns, so that a busy moment of the machine does not slow only one of them.
    """

    def batches_of(plan: PackPlan) -> Iterator[PaddedBatch]:
        loader = _loader(store, plan, seed)
        for epoch in itertools.count():
            loader.set_epoch(epoch)
            yield from loader

    trainer = _Trainer(framework)
    streams = [batches_of(row.plan) for row in rows]
    seconds: list[list[float]] = [[] for _ in rows]
    turns = [(round_number, row) for round_number in range(_ROUNDS + 1) for row in range(len(rows))]
    for round_number, row in progress_bar(turns, desc="measuring each method", leave=False):
        # Round 0 is not measured: its only step warms up and compiles.
        for _ in range(_STEPS if round_number else 1):
            begin = time.perf_counter()
            batch = next(streams[row])
            # The `count` of the loss does not affect the speed, so any number will do.
            trainer(batch, len(batch.graph_mask), rows[row].compiled)
            if round_number:
                seconds[row].append(time.perf_counter() - begin)
    for contender, measured in zip(rows, seconds, strict=True):
        graphs_per_step = contender.plan.histogram.num_graphs / contender.plan.num_packs * PACKS_PER_BATCH
        contender.graphs_per_second = graphs_per_step / statistics.median(measured)
    return getattr(trainer.compiled_loss, "is_compiled", False)


def _train(plan: PackPlan, store: GraphStore, framework: str, epochs: int, seed: int) -> tuple[list[float], float]:
    """Train a new network; return the losses of all steps, and its accuracy on all graphs."""
    loader, trainer = _loader(store, plan, seed), _Trainer(framework)
    losses: list[float] = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        bar = progress_bar(loader, desc=f"training, epoch {epoch}", leave=False)
        losses += [trainer(batch, loader.graphs_per_batch) for batch in bar]
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
        numbers = (summary["packs"], summary["packs"] - bound, summary["empty_slots"]["nodes"], row.graphs_per_second)
        packs, gap, empty, speed = (f"{number:,.0f}" for number in numbers)
        table.add_row(row.name, packs, gap, *efficiency, empty, speed, style="bold green" if row is best else None)
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
    sizes = plot_sizes(histogram, LIMITS, axes_or_new(None, 7.5, 6.5))
    sizes.figure.suptitle(f"Sizes of {histogram.num_graphs:,} graphs (ogbg-molhiv, training)")
    # Titles of subfigures are above the legends; titles of Axes would overlap the legends.
    left, right = load("matplotlib.figure").Figure(figsize=(13, 5.8), layout="constrained").subfigures(1, 2)
    fill = plot_fill(best.plan, left.add_subplot())
    left.suptitle(f"Fill of the packs: {best.name}")
    plot_methods({row.name: row.plan for row in rows}, right.add_subplot())
    right.suptitle("Packs of each method")
    pictures = {out / "sizes.png": sizes, out / "fill.png": fill}
    for path, ax in pictures.items():
        save_picture(ax, path, dpi=130)
    return list(pictures)


@dataclass
class Contender:
    """One row of the table that the demo prints: a batching method, its plan and its speed."""

    name: str
    plan: PackPlan
    graphs_per_second: float = 0.0
    compiled: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"name": self.name, "graphs_per_second": self.graphs_per_second, **summarise(self.plan)}


def _contenders(histogram: SizeHistogram, seed: int) -> list[Contender]:
    """Make a plan with each method; the baselines come first."""
    methods: dict[str, Any] = {"plain batching": ("none",), "next fit": ("next_fit",)}
    methods |= {f"best fit, {name}": ("best_fit", name) for name in NAMES} | {"auto": ("auto",)}
    return [Contender(name, plan) for name, plan in plan_by(methods, histogram, LIMITS, seed).items()]


class PlainGINE(nn.Module):
    """GINE layer on plain tensors: apply a perceptron to the features of each node plus the sum of its messages."""

    def __init__(self, perceptron: nn.Module) -> None:
        super().__init__()
        self.perceptron = perceptron

    def forward(self, x: Tensor, edge_index: Tensor, messages: Tensor) -> Tensor:
        """Return new node features, ``[V, width]``; `messages` has the encoded edge features, ``[E, width]``."""
        src, dst = edge_index
        result: Tensor = self.perceptron(x.index_add(0, dst, (x.index_select(0, src) + messages).relu()))
        return result


def _mean_by_slot(x: Tensor, slots: Tensor, number: int) -> Tensor:
    """Return the mean of the rows of `x` in each of `number` graph slots, or 0 for a slot without rows."""
    counts = x.new_zeros(number).index_add(0, slots, x.new_ones(len(slots)))
    return x.new_zeros(number, x.shape[1]).index_add(0, slots, x) / counts.clamp(min=1).unsqueeze(1)


class MaskedGIN(nn.Module):
    """GIN with edge features (GINE), masked batch norm and a mean readout.

    Source: Hu et al. 2020, "Strategies for pre-training graph neural networks" (GINE); Xu et al. 2019 (GIN).

    `encode_nodes` maps node features ``[V, ...]`` to ``[V, width]``; `encode_edges` makes such a module for the edge
    features of each layer. `feature` is the name of both features; `framework` is "dgl" or "torch".
    """

    def __init__(
        self,
        encode_nodes: nn.Module,
        encode_edges: Callable[[], nn.Module],
        feature: str,
        num_outputs: int = 1,
        width: int = 64,
        num_layers: int = 3,
        framework: str = "dgl",
    ) -> None:
        super().__init__()
        gine = load("dgl.nn.pytorch").GINEConv if framework == "dgl" else PlainGINE
        self.framework, self.feature = framework, feature
        self.encode_nodes = encode_nodes
        self.encode_edges = nn.ModuleList(encode_edges() for _ in range(num_layers))
        perceptrons = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)) for _ in range(num_layers)
        )
        self.layers = nn.ModuleList(map(gine, perceptrons))
        self.norms = nn.ModuleList(MaskedBatchNorm1d(width) for _ in range(num_layers))
        self.head = nn.Linear(width, num_outputs)

    def forward(self, batch: PaddedBatch | BatchTensors) -> Tensor:
        """Return the outputs of each graph slot, ``[G, num_outputs]``; those of padding are arbitrary but finite."""
        x = self.encode_nodes(batch.node_features[self.feature])
        graph: Any = batch.graph if self.framework == "dgl" else torch.stack([batch.src, batch.dst])
        for encode_edges, layer, norm in zip(self.encode_edges, self.layers, self.norms, strict=True):
            edges = encode_edges(batch.edge_features[self.feature])
            out = layer(graph, x, edges) if self.framework == "dgl" else layer(x, graph, edges)
            x = x + torch.relu(norm(out, batch.node_mask))
        result: Tensor = self.head(_mean_by_slot(x, batch.node_graph_slots, batch.graph_mask.shape[0]))
        return result


# Running sums of the frequencies of atom kinds, in thousandths, roughly as in drug-like molecules: C, N, O, S,
# halogens, others.
_ATOMS = np.cumsum([740, 100, 120, 20, 15, 5])
# Running sums of the frequencies of bond kinds, in thousandths: aromatic, single, double, triple.
_BONDS = np.cumsum([480, 420, 95, 5])
# Indices in _ATOMS.
_NITROGEN, _OXYGEN = 1, 2

NUM_ATOM_KINDS, NUM_BOND_KINDS = len(_ATOMS), len(_BONDS)


class Molecules(Source):
    """One random molecule-like graph for each size, with the components ("nodes", "edges"), as plain arrays.

    Equal seeds, in 0..2**64-1, give equal graphs on every platform. Nodes and edges have a feature ``"kind"``, int64.
    The label, float32 ``[1]``, is 1 if the graph has an edge from a nitrogen to an oxygen, else 0.
    """

    knows_sizes = True

    def __init__(self, sizes: GraphSizes, seed: int = 0) -> None:
        super().__init__("synthetic molecules")
        if sizes.components != HOMOGENEOUS:
            raise SizesError(f"molecules need the components {HOMOGENEOUS}, but got {sizes.components}.")
        impossible = np.flatnonzero((sizes.num_nodes == 0) & (sizes.num_edges > 0))
        if len(impossible):
            raise SizesError(f"graph {impossible[0]} has edges but no nodes; give it at least one node.")
        self._sizes, self._seed = sizes, seed

    def sizes(self) -> GraphSizes:
        """Return the sizes."""
        return self._sizes

    def num_graphs(self) -> int:
        """Return the number of sizes."""
        return len(self._sizes)

    def block(self) -> GraphBlock:
        """Return all molecules as one block."""
        sizes = self._sizes
        first_nodes, first_edges = (np.cumsum(numbers) - numbers for numbers in sizes.array.T)
        num_nodes, num_edges = sizes.array.sum(axis=0)
        # The kernels fill these arrays; ends: source and destination of each edge, as indices within its graph.
        ends = np.empty((2, num_edges), dtype=np.int64)
        atoms, bonds = np.empty(num_nodes, dtype=np.int64), np.empty(num_edges, dtype=np.int64)
        keys = [np.uint64(derive_key(np.uint64(self._seed), np.uint64(0), np.uint64(purpose))) for purpose in range(3)]
        draw_bonds(sizes.array, np.append(first_edges, num_edges), ends, keys[0])
        draw_kinds(_ATOMS, atoms, keys[1])
        draw_kinds(_BONDS, bonds, keys[2])

        graph_of_edge = np.repeat(np.arange(len(sizes)), sizes.num_edges)
        # Kinds of the atoms at both ends of each edge.
        src, dst = atoms[ends + first_nodes[graph_of_edge]]
        bound = np.bincount(graph_of_edge[(src == _NITROGEN) & (dst == _OXYGEN)], minlength=len(sizes)) > 0
        return GraphBlock(
            {NODE_TYPE: np.ascontiguousarray(sizes.num_nodes), EDGE_TYPE: np.ascontiguousarray(sizes.num_edges)},
            {EDGE_TYPE: (ends[0], ends[1])},
            {NODE_TYPE: {"kind": atoms}, EDGE_TYPE: {"kind": bonds}},
            {"": bound.astype(np.float32)[:, None]},
        )

    def blocks(self) -> Iterator[GraphBlock]:
        """Return an iterator over one block, which holds all molecules."""
        return iter([self.block()])
