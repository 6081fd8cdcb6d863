"""Compare three ways to run whole training steps of the potentials in `tests/zoo`, whose loss contains forces."""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import dgl_tuplepack as tp
from benchmarks.tables import show
from benchmarks.training import ratio
from benchmarks.ways import for_ever

# The tests of the checkout are not installed as a package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

app = typer.Typer()

NAMES = ("SchNet", "PaiNN", "EGNN")
PLAIN, TORCH, TWO_LINES = "plain", "torch.compile(dynamic=True)", "two lines"
ATOMS = (10, 30)
# For float32 sums in a different order.
TOLERANCE = 1e-3


@app.command()
def forces(
    model: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(NAMES)}; may be repeated.")] = None,
    framework: Annotated[list[str] | None, typer.Option(help="dgl or pyg; may be repeated. Default: both.")] = None,
    width: Annotated[int, typer.Option(min=4, help="Width of all layers, an even number.")] = 64,
    batch_size: Annotated[int, typer.Option(min=1, help="Molecules per batch.")] = 32,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, each with all ways; results are medians.")] = 7,
    steps: Annotated[int, typer.Option(min=1, help="Steps per way and round.")] = 10,
    graphs: Annotated[int, typer.Option(min=64, help="Number of molecules.")] = 2048,
    seed: Annotated[int, typer.Option(help="Seed of molecules, weights and orders.")] = 0,
) -> None:
    """Measure molecules per second of whole steps (loader, forward, backward, Adam) on energies and forces.

    Molecules have 10 to 30 atoms at random places; edges are all pairs within 5 A. Ratios compare with the framework's
    own loader and uncompiled models; they are medians over interleaved rounds. Times are CPU times of one thread, which
    other programs on the machine change less. An error of `torch.compile` is printed. Before measuring, losses and
    gradients of two batches must be those of the uncompiled model.
    """
    from tests.zoo.forces import POTENTIALS, Molecule

    for option, given, known in (("--model", model, NAMES), ("--framework", framework, ("dgl", "pyg"))):
        if unknown := [name for name in given or [] if name not in known]:
            raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(known)}.", param_hint=option)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(seed)
    sizes = torch.randint(ATOMS[0], ATOMS[1] + 1, (graphs,), generator=gen).tolist()
    molecules = [Molecule.random(number, gen, torch.float32) for number in sizes]
    found: list[float] = []
    for kind, name in itertools.product(framework or ["dgl", "pyg"], model or NAMES):
        potential = POTENTIALS[name]
        if kind not in potential.classes:
            continue
        items = [each.item(kind) for each in molecules]
        ways, errors = {}, []
        for way in (PLAIN, TORCH, TWO_LINES):
            torch.manual_seed(seed)
            training = Training(items, kind, way, potential.new(kind, width, potential.layers), batch_size)
            try:
                training.try_out()
            except Exception as error:
                if way != TORCH:
                    raise
                errors.append(f"{way} fails: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
            else:
                ways[way] = training
        _measured(ways, 1, steps)
        rates = _measured(ways, rounds, steps)
        rows = [
            {
                "way": way,
                "molecules/s": statistics.median(rates[way]),
                "times plain": f"{ratio(rates, way, PLAIN):.2f}",
                "first step_s": training.first_seconds,
            }
            for way, training in ways.items()
        ]
        show(f"{name}, {kind}, {potential.layers} x {width}, {batch_size} a batch", rows)
        for line in errors:
            print(line)
        found.append(ratio(rates, TWO_LINES, PLAIN))
        torch.compiler.reset()
    print(f"geometric mean of two lines / plain: {statistics.geometric_mean(found):.2f}")


class Training:
    """A potential trained in one way, one step at a time.

    Attributes
    ----------
    first_seconds
        Duration of the first step, which compiles.
    """

    def __init__(self, items: list[Any], framework: str, way: str, model: Any, batch_size: int) -> None:
        self.framework, self.plain, self.first_seconds = framework, model, 0.0
        self.batches: Iterator[Any]
        if way == TWO_LINES:
            loader = tp.packed_loader(items, batch_size=batch_size, drop_last=True)
            self.model, self.batches = tp.compile(model, loader), for_ever(loader, loader.set_epoch)
        else:
            loader = _plain_loader(items, framework, batch_size=batch_size, shuffle=True, drop_last=True)
            self.model, self.batches = torch.compile(model, dynamic=True) if way == TORCH else model, for_ever(loader)
        self.optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def backward(self, model: Any, batch: Any) -> Tensor:
        """Compute the gradients of a batch; return the loss."""
        from tests.zoo.forces import loss_of

        self.optimiser.zero_grad()
        # Torch traces `torch.autograd.grad` only with this setting, which `tp.compile` makes itself.
        with torch._dynamo.config.patch(trace_autograd_ops=True):
            loss = loss_of(self.framework, model, batch)
        loss.backward()
        return loss.detach()

    def try_out(self) -> None:
        """Compare losses and gradients with those of the uncompiled model; the first call compiles."""
        for _ in range(2):
            batch = next(self.batches)
            begin = time.perf_counter()
            found = self._found(self.model, batch)
            self.first_seconds = self.first_seconds or time.perf_counter() - begin
            expected = self._found(self.plain, batch)
            if not torch.allclose(found, expected, rtol=TOLERANCE):
                raise RuntimeError(f"loss and norm of gradients are {found}, but those of the model are {expected}.")

    def _found(self, model: Any, batch: Any) -> Tensor:
        loss = self.backward(model, batch)
        gradients = [p.grad.norm() for p in self.plain.parameters() if p.grad is not None]
        return torch.stack([loss, torch.stack(gradients).norm()])

    def step(self) -> int:
        """Train on the next batch; return its number of molecules."""
        batch = next(self.batches)
        self.backward(self.model, batch)
        self.optimiser.step()
        return len(batch[1]) if self.framework == "dgl" else int(batch.num_graphs)


def _measured(ways: dict[str, Training], rounds: int, steps: int) -> dict[str, list[float]]:
    """Return molecules per second of CPU time of each way in each interleaved round."""
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, training in ways.items():
            begin = time.process_time()
            number = sum(training.step() for _ in range(steps))
            rates[way].append(number / (time.process_time() - begin))
    return rates


def _plain_loader(items: list[Any], framework: str, **settings: Any) -> Any:
    """Return the framework's own loader."""
    if framework == "dgl":
        from dgl.dataloading import GraphDataLoader

        return GraphDataLoader(items, **settings)
    from torch_geometric.loader import DataLoader

    return DataLoader(items, **settings)
