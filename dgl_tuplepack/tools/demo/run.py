"""A demo on synthetic molecules: a short training by the two lines, a comparison of plans, and pictures."""

from __future__ import annotations

import copy
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

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
from dgl_tuplepack.compiling.compile import compile
from dgl_tuplepack.compiling.torch_versions import OLDEST, release_of
from dgl_tuplepack.errors import MissingDependencyError, SizesError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, GraphBlock
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.loading.make_loader import packed_loader
from dgl_tuplepack.loading.packed_loader import PackedLoader
from dgl_tuplepack.nn import convert, masked, masked_loss
from dgl_tuplepack.planning.histogram import SizeHistogram, load_example
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.fit import NAMES
from dgl_tuplepack.planning.plan import PackPlan, summarise
from dgl_tuplepack.planning.sizes import HOMOGENEOUS, GraphSizes
from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler
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
        framework, why = "pyg", str(error).partition(";")[0]
        console.print(f"Using PyG: {why}.", markup=False)
    network = GIN(framework)
    loader = _ordinary(store, framework, seed)
    model = compile(network, loader, disable=release_of(torch.__version__) < OLDEST)
    step = _Step(model, framework)
    losses: list[float] = []
    for epoch in range(epochs):
        losses += map(step, progress_bar(loader, desc=f"training, epoch {epoch}", leave=False))
    is_compiled = getattr(getattr(model, "_static_calls", None), "is_compiled", False)
    # The compiler must not fail, and warn, again.
    accuracy = _accuracy(model if is_compiled else network, _ordinary(store, framework, seed, shuffle=False))

    rows = _contenders(histogram, store, seed)
    # Of several plans with the fewest packs, choose the last, because the baselines come first.
    best = min(reversed(rows), key=lambda row: row.summary["packs"])
    if is_compiled:
        rows.append(_two_lines(histogram, loader))
    _measure(rows, step, _Step(convert(copy.deepcopy(network), verbose=False), framework))
    console.print(_table(rows, best))
    window = max(1, len(losses) // 10)
    first, last = float(np.mean(losses[:window])), float(np.mean(losses[-window:]))
    console.print(
        f"Training a GIN by the two lines, {'compiled' if is_compiled else 'but uncompiled'}, on shuffled batches of "
        f"{GRAPHS_PER_BATCH}, to recognise molecules with an N-O bond: {len(losses)} steps, mean loss "
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
            "compiled": is_compiled, "steps": len(losses), "first_loss": first, "last_loss": last, "accuracy": accuracy,
        },
        "pictures": [str(path) for path in pictures],
    }  # fmt: skip


def _ordinary(store: GraphStore, framework: str, seed: int, shuffle: bool = True) -> PackedLoader:
    """Return a loader of ordinary batches of the framework."""
    # 32,901 molecules would end with a batch of a single one, which batch norms do not survive.
    drop_last = shuffle and len(store) >= GRAPHS_PER_BATCH
    if framework == "dgl":
        return packed_loader(store, batch_size=GRAPHS_PER_BATCH, shuffle=shuffle, seed=seed, drop_last=drop_last)
    # The store does not come from PyG, so `packed_loader` would make DGLGraphs.
    sampler = StaticBatchSampler(store, GRAPHS_PER_BATCH, shuffle=shuffle, seed=seed, drop_last=drop_last)
    return PackedLoader(store.batched(framework="pyg"), sampler=sampler, padded=False)


def _parts(batch: Any) -> tuple[Any, Tensor]:
    """Return the graph and the labels of an ordinary batch."""
    graph, labels = batch if isinstance(batch, tuple | list) else (batch, batch.y)
    return graph, labels


class _Step:
    """A model and its optimiser; a call trains on one batch, ordinary or padded, and returns the loss."""

    def __init__(self, model: nn.Module, framework: str) -> None:
        self.model, self.attribute = model, "graph" if framework == "dgl" else "pyg"
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        self.loss, self.losses = nn.BCEWithLogitsLoss(), nn.BCEWithLogitsLoss(reduction="none")

    def __call__(self, batch: Any) -> float:
        if isinstance(batch, PaddedBatch):
            with masked(batch):
                out = self.model(getattr(batch, self.attribute))
            # The `count` does not affect the speed, so any number will do.
            loss: Any = masked_loss(self.losses, out, batch.labels, batch, count=GRAPHS_PER_BATCH)
        else:
            graph, labels = _parts(batch)
            loss = self.loss(self.model(graph), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())


def _accuracy(model: nn.Module, loader: PackedLoader) -> float:
    model.eval()
    with torch.no_grad():
        right = torch.cat([(model(graph) > 0) == labels.bool() for graph, labels in map(_parts, loader)])
    model.train()
    return float(right.double().mean())


# Measured rounds, and steps of each contender in a round.
_ROUNDS, _STEPS = 5, 4


def _measure(rows: list[Contender], ordinary: _Step, padded: _Step) -> None:
    """Measure and set the speed of each contender.

    The contenders take turns, so that a busy moment of the machine does not slow only one of them.
    """
    # Each iteration of a loader is another epoch.
    streams = [itertools.chain.from_iterable(itertools.repeat(row.loader)) for row in rows]
    seconds: list[list[float]] = [[] for _ in rows]
    turns = [(round_number, row) for round_number in range(_ROUNDS + 1) for row in range(len(rows))]
    for round_number, row in progress_bar(turns, desc="measuring each method", leave=False):
        # Round 0 is not measured: its only step warms up.
        for _ in range(_STEPS if round_number else 1):
            begin = time.perf_counter()
            (padded if rows[row].plan else ordinary)(next(streams[row]))
            if round_number:
                seconds[row].append(time.perf_counter() - begin)
    for contender, measured in zip(rows, seconds, strict=True):
        contender.graphs_per_second = contender.loader.graphs_per_batch / statistics.median(measured)


def _table(rows: list[Contender], best: Contender) -> Table:
    """Return the table of the comparison, with the row `best` in bold."""
    table = Table(title="One epoch in batches of a static shape (gap: packs above the lower bound)")
    for heading in ("method", "packs", "gap", "nodes", "edges", "empty", "graphs/s"):
        table.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    # All plans have the same limits, so the largest of their lower bounds holds for all of them.
    bound = max(row.plan.lower_bound for row in rows if row.plan)
    for row in rows:
        packs = [f"{number:,}" for number in (row.plan.num_packs, row.plan.num_packs - bound)] if row.plan else ["", ""]
        efficiency = [f"{value:.2%}" for value in row.summary["efficiency"].values()]
        numbers = (f"{number:,.0f}" for number in (row.summary["empty_slots"]["nodes"], row.graphs_per_second))
        table.add_row(row.name, *packs, *efficiency, *numbers, style="bold green" if row is best else None)
    table.caption = (
        "plain batching: one graph per pack, because only one graph is sure to fit; next fit: in random order, as "
        "dynamic batch samplers do; "
        "empty: node slots that hold padding; "
        "graphs/s: fetching, collating and training a small GIN on the CPU, by the median time of a step"
        + f"; batches of {GRAPHS_PER_BATCH}: ordinary shuffled batches by the two lines, packed_loader and tp.compile, "
        "padded and compiled inside the model" * any(row.plan is None for row in rows)
    )
    return table


def _draw(histogram: SizeHistogram, rows: list[Contender], best: Contender, out: Path) -> list[Path]:
    sizes = plot_sizes(histogram, LIMITS, axes_or_new(None, 7.5, 6.5))
    sizes.figure.suptitle(f"Sizes of {histogram.num_graphs:,} graphs (ogbg-molhiv, training)")
    # Titles of subfigures are above the legends; titles of Axes would overlap the legends.
    left, right = load("matplotlib.figure").Figure(figsize=(13, 5.8), layout="constrained").subfigures(1, 2)
    assert best.plan is not None
    fill = plot_fill(best.plan, left.add_subplot())
    left.suptitle(f"Fill of the packs: {best.name}")
    plot_methods({row.name: row.plan for row in rows if row.plan}, right.add_subplot())
    right.suptitle("Packs of each method")
    pictures = {out / "sizes.png": sizes, out / "fill.png": fill}
    for path, ax in pictures.items():
        save_picture(ax, path, dpi=130)
    return list(pictures)


@dataclass
class Contender:
    """One row of the table that the demo prints: a batching method, its loader, its plan if it has one, its speed."""

    name: str
    loader: PackedLoader
    summary: dict[str, Any]
    plan: PackPlan | None = None
    graphs_per_second: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"name": self.name, "graphs_per_second": self.graphs_per_second, **self.summary}


def _contenders(histogram: SizeHistogram, store: GraphStore, seed: int) -> list[Contender]:
    """Make a plan and a loader of padded packs with each method; the baselines come first."""
    methods: dict[str, Any] = {"plain batching": ("none",), "next fit": ("next_fit",)}
    methods |= {f"best fit, {name}": ("best_fit", name) for name in NAMES} | {"auto": ("auto",)}
    return [
        Contender(
            name,
            packed_loader(store, limits=LIMITS, plan=plan, packs_per_batch=PACKS_PER_BATCH, seed=seed),
            summarise(plan),
            plan,
        )
        for name, plan in plan_by(methods, histogram, LIMITS, seed).items()
    ]


def _two_lines(histogram: SizeHistogram, loader: PackedLoader) -> Contender:
    """Return the row of the two lines, whose model pads each batch to the shape of the loader."""
    shape, graphs = cast(Limits, loader.shape), loader.graphs_per_batch
    slots = {name: len(loader) * shape.maxima[name] for name in shape.components}
    # Means over all graphs, since each epoch leaves out others.
    real = {name: len(loader) * graphs * total / histogram.num_graphs for name, total in histogram.totals().items()}
    summary = {
        "graphs": histogram.num_graphs, "batches": len(loader), "shape": shape.to_dict(),
        "efficiency": {name: real[name] / slots[name] for name in slots},
        "empty_slots": {name: slots[name] - real[name] for name in slots},
    }  # fmt: skip
    return Contender(f"batches of {GRAPHS_PER_BATCH}", loader, summary)


class GIN(nn.Module):
    """GIN with edge features (GINE), batch norms and a mean readout, for batches of DGL or PyG.

    Source: Hu et al. 2020, "Strategies for pre-training graph neural networks" (GINE); Xu et al. 2019 (GIN).
    """

    def __init__(self, framework: str, num_layers: int = 3) -> None:
        super().__init__()
        self.is_dgl, layers = framework == "dgl", range(num_layers)
        library = load("dgl.nn.pytorch" if self.is_dgl else "torch_geometric.nn")
        self.pool = library.AvgPooling() if self.is_dgl else library.global_mean_pool
        self.atoms, self.head = nn.Embedding(NUM_ATOM_KINDS, _WIDTH), nn.Linear(_WIDTH, 1)
        self.bonds = nn.ModuleList(nn.Embedding(NUM_BOND_KINDS, _WIDTH) for _ in layers)
        perceptrons = (nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH)) for _ in layers)
        self.layers = nn.ModuleList(map(library.GINEConv, perceptrons))
        self.norms = nn.ModuleList(nn.BatchNorm1d(_WIDTH) for _ in layers)

    def forward(self, graph: Any) -> Tensor:
        """Return a logit for each graph of a DGLGraph or of PyG's Batch, ``[G, 1]``."""
        kinds, of_edges = (graph.ndata["kind"], graph.edata["kind"]) if self.is_dgl else (graph.kind, graph.edge_kind)
        x = self.atoms(kinds)
        for bonds, layer, norm in zip(self.bonds, self.layers, self.norms, strict=True):
            edges = bonds(of_edges)
            x = x + norm(layer(graph, x, edges) if self.is_dgl else layer(x, graph.edge_index, edges)).relu()
        pooled = self.pool(graph, x) if self.is_dgl else self.pool(x, graph.batch, graph.num_graphs)
        result: Tensor = self.head(pooled)
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
