"""Compare five ways to run whole training steps of the models in `tests/zoo`."""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

import dgl_tuplepack as tp
from benchmarks.loading import SourceOption
from benchmarks.tables import show
from benchmarks.training import Molecules, measured, ratio
from benchmarks.ways import for_ever

# The tests of the checkout are not installed as a package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

app = typer.Typer()

NAMES = (
    "GIN-JK", "GIN-VN", "GAT", "GatedGCN", "MPNN", "SchNet", "GraphSAGE", "DeeperGCN", "AttentiveFP",
    "GraphGPS", "R-GCN", "ALIGNN", "Graphormer", "Autoencoder",
)  # fmt: skip
GRAPHS_PER_BATCH = 64
PLAIN, UNPADDED, PADDED, COMPILED = "plain", "store, unpadded", "padded", "padded, tp.compile"
# Batches of `packed_loader(batch_size=)`, and the plain loss of a model compiled by `tp.compile(model, loader)`.
TWO_LINES = "two lines"
WAYS = (PLAIN, UNPADDED, PADDED, COMPILED, TWO_LINES)
# For float32 sums in a different order.
TOLERANCE = 1e-3


@app.command()
def zoo(
    source: SourceOption = None,
    model: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(NAMES)}; may be repeated.")] = None,
    framework: Annotated[list[str] | None, typer.Option(help="dgl or pyg; may be repeated. Default: both.")] = None,
    width: Annotated[int, typer.Option(min=4, help="Width of all layers, a multiple of 4.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all ways; results are medians.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps per way and round.")] = 10,
    graphs: Annotated[int, typer.Option(min=512, help="Maximum number of training graphs.")] = 8192,
    seed: Annotated[int, typer.Option(help="Seed of weights, orders and coordinates.")] = 0,
) -> None:
    """Measure graphs per second of whole steps (loader, forward, backward, Adam) of complete models.

    Each way has 64 graphs per batch, packed batches on average. "Two lines" runs the loop of the plain way with
    `packed_loader(batch_size=64)` and `tp.compile(model, loader)`. Ratios compare with the framework's own loader and
    batches; they are medians over interleaved rounds. Before measuring, the losses of all ways on the same two batches
    must agree. Models of positions get random ones; those with attention in a fixed number of slots get no graph with
    more nodes than that. Numbers of layers are those of papers and baselines.
    """
    for option, given, known in (("--model", model, NAMES), ("--framework", framework, ("dgl", "pyg"))):
        if unknown := [name for name in given or [] if name not in known]:
            raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(known)}.", param_hint=option)
    torch.set_num_threads(threads)
    ratios: dict[str, list[float]] = {PADDED: [], COMPILED: [], TWO_LINES: []}
    of_compiled: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        whole = tp.GraphStore.write(f"{folder}/all", source or Molecules(graphs), compact=True)
        plain = list(whole.subset(whole.splits["train"][:graphs]))
        for kind, name in itertools.product(framework or ["dgl", "pyg"], model or NAMES):
            with tempfile.TemporaryDirectory() as own:
                data = Data(own, plain, name, kind, seed)
                ways = {way: Training(data, way, width, seed) for way in WAYS}
                _check(data, ways)
                measured(ways, 1, steps)
                rates = measured(ways, rounds, steps)
            rows = _rows(ways, rates)
            size = f"{data.loader.graphs_per_batch:.1f} graphs in packed batches"
            show(f"{name}, {kind}, {data.model.layers} x {width}, threads: {threads}, {size}", rows)
            for way, found in ratios.items():
                found.append(ratio(rates, way, PLAIN))
            of_compiled.append(ratio(rates, TWO_LINES, COMPILED))
            torch.compiler.reset()
    print(f"geometric mean of padded / plain: {statistics.geometric_mean(ratios[PADDED]):.2f}")
    print(f"geometric mean of compiled / plain: {statistics.geometric_mean(ratios[COMPILED]):.2f}")
    print(f"geometric mean of two lines / plain: {statistics.geometric_mean(ratios[TWO_LINES]):.2f}")
    spread = f"{min(of_compiled):.2f} to {max(of_compiled):.2f}"
    print(f"geometric mean of two lines / compiled: {statistics.geometric_mean(of_compiled):.2f} ({spread})")


class Data:
    """The graphs of a model in a framework: items, a store of them, and a loader of packs."""

    def __init__(self, folder: str, plain: list[Any], name: str, framework: str, seed: int) -> None:
        from tests.zoo.models import MODELS

        self.name, self.framework, self.seed, self.model = name, framework, seed, MODELS[name]
        if self.model.positions:
            plain = _with_positions(plain, seed)
        fitting = [item for item in plain if item[0].num_nodes() <= (self.model.most_nodes or item[0].num_nodes())]
        self.items = [self.model.item(framework, graph, label.float()) for graph, label in fitting]
        ties = self.model.ties.get(framework)
        self.store = tp.GraphStore.write(f"{folder}/{name}", self.items, compact=True, ties=ties)
        self.loader = self.packed_loader()

    def packed_loader(self) -> Any:
        """Return a new loader of padded batches; a loader has an epoch, so each way needs its own."""
        return tp.packed_loader(self.store, graphs_per_batch=GRAPHS_PER_BATCH, seed=self.seed, **self.model.loading)

    def exact_loader(self) -> Any:
        """Return a loader of ordinary batches that fit one shape."""
        return tp.packed_loader(self.store, batch_size=GRAPHS_PER_BATCH, seed=self.seed, drop_last=True)

    def plain_loader(self, items: Any, **settings: Any) -> Any:
        """Return the framework's own loader."""
        if self.framework == "dgl":
            from dgl.dataloading import GraphDataLoader

            return GraphDataLoader(items, **settings)
        from torch_geometric.loader import DataLoader

        return DataLoader(items, **settings)


def _with_positions(items: list[Any], seed: int) -> list[Any]:
    """Return copies of the graphs with random coordinates, and without loops, which have no direction."""
    from dgl import remove_self_loop

    gen = torch.Generator().manual_seed(seed)
    copies = [(remove_self_loop(graph), label) for graph, label in items]
    for graph, _ in copies:
        graph.ndata["pos"] = 3 * torch.rand(graph.num_nodes(), 3, generator=gen)
    return copies


class Training:
    """A model trained in one way, one step at a time.

    Attributes
    ----------
    first_seconds
        Duration of the first step, which compiles.
    """

    def __init__(self, data: Data, way: str, width: int, seed: int) -> None:
        from ogb.utils.features import get_atom_feature_dims, get_bond_feature_dims

        from tests.zoo.parts import Categories

        model, framework = data.model, data.framework
        self.data, self.way, self.first_seconds = data, way, 0.0
        self.padded = way in (PADDED, COMPILED)
        torch.manual_seed(seed)
        categories = Categories(get_atom_feature_dims(), get_bond_feature_dims())
        self.model: nn.Module = model.new(framework, width, model.layers, categories)
        if self.padded:
            tp.nn.convert(self.model, verbose=False)
        self.loss: Callable[..., Tensor] = partial(
            model.loss_of_padded if self.padded else model.loss_of_plain, framework, self.model
        )
        compiling = model.compiling.get(framework, {})
        if way == COMPILED:
            self.loss = tp.compile(self.loss, **compiling)
        elif way == TWO_LINES:
            self.exact = data.exact_loader()
            self.model = tp.compile(self.model, self.exact, **compiling)
            self.loss = partial(model.loss_of_plain, framework, self.model)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.batches = self._batches()

    def _batches(self) -> Iterator[Any]:
        if self.padded:
            packed = self.data.packed_loader()
            return for_ever(packed, packed.set_epoch)
        if self.way == TWO_LINES:
            return for_ever(self.exact, self.exact.set_epoch)
        items, kind = self.data.items, self.data.plain_loader
        if self.way == UNPADDED:
            items, kind = self.data.store, tp.GraphDataLoader if self.data.framework == "dgl" else tp.pyg.DataLoader
        return for_ever(kind(items, batch_size=GRAPHS_PER_BATCH, shuffle=True, drop_last=True))

    def batch_of(self, ids: list[int]) -> Any:
        """Return the batch of these graphs as the loader of this way makes it."""
        if self.padded:
            return self.data.loader.view[ids]
        if self.way == UNPADDED:
            return self.data.store.batched(framework=self.data.framework)[ids]
        return next(iter(self.data.plain_loader(self.data.items, batch_sampler=[ids])))

    def backward(self, batch: Any) -> Tensor:
        """Compute the gradients of a batch; return the loss."""
        if self.data.framework == "pyg" and self.padded:
            batch = batch.pyg
        elif self.way == COMPILED:
            batch = batch.tensors
        loader = self.data.loader
        loss = self.loss(batch, loader.sampler.count_tensor if self.padded else loader.graphs_per_batch)
        self.optimiser.zero_grad()
        loss.backward()
        return loss.detach()

    def step(self) -> int:
        """Train on the next batch; return the number of its real graphs."""
        batch = next(self.batches)
        self.backward(batch)
        self.optimiser.step()
        if self.padded:
            return int(batch.num_real_graphs)
        return len(batch[1]) if self.data.framework == "dgl" else int(batch.num_graphs)


def _check(data: Data, ways: dict[str, Training]) -> None:
    """Raise RuntimeError unless each way has the losses and gradient norms of the plain way on the same two batches."""
    ids = [batch.graph_ids[batch.graph_mask].tolist() for batch in itertools.islice(data.loader, 2)]
    expected = _found(data, ways[PLAIN], map(ways[PLAIN].batch_of, ids))
    for way, training in ways.items():
        batches = list(itertools.islice(data.exact_loader(), 2)) if way == TWO_LINES else map(training.batch_of, ids)
        found = _found(data, training, batches)
        if way == TWO_LINES:
            expected = _found(data, ways[PLAIN], batches)
        if not torch.allclose(torch.stack(found), torch.stack(expected), rtol=TOLERANCE):
            raise RuntimeError(
                f"{data.name}, {data.framework}: losses and gradient norms of {way!r} are {found}, but plain batches "
                f"give {expected}."
            )


def _found(data: Data, training: Training, batches: Iterable[Any]) -> list[Tensor]:
    """Return the loss and the norm of the gradients of each batch."""
    found = []
    for batch in batches:
        begin = time.perf_counter()
        # Torch 2.13 compiles no float32 LSTM (Set2Set has one) unless oneDNN is off.
        with torch.backends.mkldnn.flags(enabled=False) if data.name == "MPNN" else nullcontext():
            loss = training.backward(batch)
        training.first_seconds = training.first_seconds or time.perf_counter() - begin
        gradients = [p.grad.norm() for p in training.model.parameters() if p.grad is not None]
        found += [loss, torch.stack(gradients).norm()]
    return found


def _rows(ways: dict[str, Training], rates: dict[str, list[float]]) -> list[dict[str, Any]]:
    return [
        {
            "way": way,
            "graphs/s": statistics.median(rates[way]),
            "times plain": f"{ratio(rates, way, PLAIN):.2f}",
            "first step_s": training.first_seconds,
        }
        for way, training in ways.items()
    ]
