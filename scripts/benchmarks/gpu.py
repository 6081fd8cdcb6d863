"""Measure in a few minutes all that a GPU can tell: results, speeds, memory, loading, random programs; PyG only."""

from __future__ import annotations

import gc
import itertools
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import torch
import typer
from torch import Tensor, nn

import dgl_tuplepack as tp
from benchmarks.gpu_models import OnBatches, molecules, network, positions_of
from benchmarks.gpu_run import Rows, Run, Size
from benchmarks.tables import in_a_folder
from benchmarks.ways import for_ever

# The tests of the checkout are not installed as a package.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

app = typer.Typer()

PLAIN, DYNAMIC, TWO_LINES, TWO_GRAPHS, PADDED, PADDED_GRAPHS = (
    "PyG", "PyG, torch.compile(dynamic=True)", "two lines", "two lines, CUDA graphs", "padded steps",
    "padded steps, CUDA graphs",
)  # fmt: skip
WAYS = (PLAIN, TWO_LINES, DYNAMIC, TWO_GRAPHS, PADDED)
WITH_CUDA_GRAPHS = (TWO_GRAPHS, PADDED_GRAPHS)
# Share of the whole time after which a part starts nothing more.
SHARES = {"check": 0.3, "training": 0.75, "pinned": 1.0, "programs": 1.0}
# Largest relative difference of an evaluation in float32; losses of training may also differ this much.
TOLERANCE = 1e-4

FULL = Size(
    graphs=16_384, batch=64, check_steps=20, warm_up=5, steps=30, rounds=7, programs=20,
    checked=(("GIN", 4, 48), ("SchNet", 3, 48), ("GAT", 3, 48)),
    trained=(
        ("GIN", 5, 64, 64, WAYS), ("SchNet", 5, 64, 64, WAYS), ("GIN", 2, 32, 64, WAYS), ("GIN", 5, 300, 64, WAYS),
        ("GIN", 5, 64, 1024, (PLAIN, TWO_LINES, PADDED_GRAPHS)), ("SchNet", 2, 32, 64, WAYS),
        ("SchNet", 5, 300, 64, WAYS),
    ),
)  # fmt: skip
SMALL = Size(
    graphs=48, batch=8, check_steps=2, warm_up=1, steps=2, rounds=1, programs=1, small=True,
    checked=(("GIN", 1, 8), ("SchNet", 1, 8)),
    trained=(("GIN", 1, 4, 8, WAYS),),
)  # fmt: skip


@app.command()
def gpu(
    out: Annotated[
        Path, typer.Option(dir_okay=False, callback=in_a_folder, help="JSON file, written again after each result.")
    ],
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    small: Annotated[bool, typer.Option("--small", help="Only test that all parts run.")] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="Start nothing new that may end after this time.")] = 8.0,
) -> None:
    """Compare compiled models with plain ones, measure training and loading, and compile random programs.

    A part that fails leaves its error in the file, and the next one begins.
    """
    if device not in ("cuda", "cpu"):
        raise typer.BadParameter(f"{device!r} is not cuda or cpu.", param_hint="--device")
    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("torch finds no CUDA device.", param_hint="--device")
    if device == "cpu":
        torch.set_num_threads(1)
    run = Run(out, device, SMALL if small else FULL, SHARES, math.inf if small else minutes)
    with tempfile.TemporaryDirectory(prefix="compiled-") as folder, ExitStack() as stack:
        if not small:
            # The seconds of first steps are those without compiled code on disk.
            stack.enter_context(patch.dict(os.environ, {"TORCHINDUCTOR_CACHE_DIR": folder}))
        for name, part in {"check": check, "training": training, "pinned": pinned, "programs": programs}.items():
            run.part(name, part)


def check(run: Run) -> Rows:
    """Train each model compiled and plain on the same batches; compare losses and an evaluation."""
    for kind, layers, width in run.size.checked:
        yield run.attempt({"model": kind, "network": f"{layers}x{width}"}, lambda: _compared(run, kind, layers, width))  # noqa: B023
        torch.compiler.reset()


def _compared(run: Run, kind: str, layers: int, width: int) -> dict[str, Any]:
    steps = run.size.check_steps
    loader = tp.packed_loader(molecules(run.size.graphs, kind), batch_size=run.size.batch)
    batches = [batch.to(run.device) for batch in itertools.islice(for_ever(loader), steps)]
    torch.manual_seed(0)
    model = OnBatches(network(kind, layers, width), kind).to(run.device)
    begin = {name: deepcopy(model) for name in ("float32", "compiled", "float64")}
    begin["float64"].double()
    compiled = tp.compile(begin["compiled"], loader)
    losses = {}
    for name, each in {**begin, "compiled": compiled}.items():
        torch.manual_seed(0)
        optimiser = torch.optim.Adam(each.parameters(), lr=1e-3)
        losses[name] = [_step(each(batch), batch.y, optimiser).item() for batch in batches]
    with torch.no_grad():
        ours, theirs = (each.eval()(batches[0]) for each in (compiled, begin["compiled"]))
    of_eval = _distance(ours, theirs)
    of_losses, rounding = (
        max(abs(a / b - 1) for a, b in zip(losses[name], losses[other], strict=True))
        for name, other in (("compiled", "float32"), ("float32", "float64"))
    )
    # With dropout, each run draws other numbers; the first call of the compiled model is compared with the same ones.
    is_random = any(isinstance(each, nn.Dropout) for each in model.modules())
    return {
        "agrees": of_eval <= TOLERANCE and (is_random or of_losses <= TOLERANCE + 10 * rounding),
        "is padded": bool(compiled._static_calls._calls),
        "evaluation differs by": of_eval,
        "losses differ by": of_losses,
        "float32 from float64": rounding,
        "dropout": is_random,
        "losses": losses,
    }


def _distance(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def _step(out: Tensor, labels: Tensor, optimiser: torch.optim.Optimizer) -> Tensor:
    loss = nn.functional.binary_cross_entropy_with_logits(out, labels.to(out.dtype))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.detach()


class Training:
    """A network that is trained in one of the ways, a step at a time; `loading` adds up the seconds for batches."""

    def __init__(self, run: Run, case: tuple[str, int, int], batch: int, way: str, *, pin: bool = False) -> None:
        self.run, self.way, self.pin, self.loading = run, way, pin, 0.0
        kind, layers, width = case
        graphs = molecules(run.size.graphs, kind)
        torch.manual_seed(0)
        net = network(kind, layers, width).to(run.device)
        options = {"triton.cudagraphs": True} if way in WITH_CUDA_GRAPHS else None
        settings: dict[str, Any] = {"pin_memory": pin}
        self.model: Any = OnBatches(net, kind)
        self.padded, is_compiled = way.startswith("padded"), not way.endswith("uncompiled")
        if way.startswith("PyG"):
            from torch_geometric.loader import DataLoader

            self.batches = for_ever(DataLoader(graphs, batch_size=batch, shuffle=True, **settings))
            if way == DYNAMIC:
                self.model = OnBatches(torch.compile(net, dynamic=True), kind)
        elif self.padded:
            tp.nn.convert(net, verbose=False)
            loader = tp.packed_loader(graphs, graphs_per_batch=batch, **positions_of(kind), **settings)
            self.batches, count = for_ever(loader, loader.set_epoch), loader.sampler.count_tensor.to(run.device)
            loss = _loss_of_padded(self.model, kind)
            step = tp.compile(loss, options=options) if is_compiled else loss
            self.loss = lambda batch: step(batch.tensors, count)
        else:
            loader = tp.packed_loader(graphs, batch_size=batch, **settings)
            self.batches = for_ever(loader)
            self.model = tp.compile(self.model, loader, options=options) if is_compiled else self.model
        self.optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)

    def load(self) -> tuple[Any, int]:
        """Return the next batch on the device, and its number of graphs."""
        begin = time.perf_counter()
        batch = next(self.batches)
        number = batch.num_real_graphs if self.padded else batch.num_graphs
        batch = batch.to(self.run.device, non_blocking=self.pin)
        self.loading += time.perf_counter() - begin
        return batch, number

    def step(self) -> int:
        """Train on the next batch; return the number of its graphs."""
        batch, number = self.load()
        if self.padded:
            self.optimiser.zero_grad()
            self.loss(batch).backward()
            self.optimiser.step()
        else:
            _step(self.model(batch), batch.y, self.optimiser)
        return number


def _loss_of_padded(model: OnBatches, kind: str) -> Callable[[Any, Tensor], Tensor]:
    def loss(t: Any, count: Tensor) -> Tensor:
        more = t.node_features["pos"] if kind == "SchNet" else t.edge_features["edge_attr"]
        with tp.nn.masked(t):
            ends = torch.stack([t.src, t.dst])
            out = model.network(t.node_features["x"], ends, more, t.node_graph_slots, t.graph_mask.shape[0])
        losses = nn.functional.binary_cross_entropy_with_logits(out, t.labels.to(out.dtype), reduction="none")
        return tp.nn.masked_mean(losses, t.graph_mask, count=count)

    return loss


def training(run: Run) -> Rows:
    """Measure whole training steps of each network in each way."""
    for kind, layers, width, batch, ways in run.size.trained:
        about = {"model": kind, "network": f"{layers}x{width}", "batch": batch}
        trainings: dict[str, Training] = {}
        rows = {}
        for way in ways:
            if way not in WITH_CUDA_GRAPHS or run.device == "cuda":
                # The rest of the row follows when all ways are ready.
                rows[way] = run.attempt(
                    {**about, "way": way},
                    lambda: _made(run, trainings, (kind, layers, width), batch, way),  # noqa: B023
                )
                yield rows[way]
        rates = run.rates({name: each.step for name, each in trainings.items()}, rows)
        for way, of_way in rates.items():
            run.add(rows[way], lambda: _speed(run, trainings[way], of_way, rates.get(PLAIN)))  # noqa: B023
        trainings.clear()
        run.forget()


def _made(run: Run, trainings: dict[str, Training], case: Any, batch: int, way: str) -> dict[str, Any]:
    """Add a training to `trainings`; return the seconds of its first step and the memory of later ones."""
    on_cuda = run.device == "cuda"
    before = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) if on_cuda else (0, 0)
    times = [time.perf_counter()]
    made = Training(run, case, batch, way)
    for steps in (0, 1, run.size.warm_up):
        for _ in range(steps):
            made.step()
        run.synchronise()
        times.append(time.perf_counter())
    _, built, first, warm = (end - begin for begin, end in zip([0.0, *times[:-1]], times, strict=True))
    row: dict[str, Any] = {"made_s": built, "first step_s": first, "warm-up_s": warm}
    if on_cuda:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        made.step()
        run.synchronise()
        peak = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        row |= {"peak bytes": peak[0] - before[0], "reserved bytes": peak[1] - before[1]}
    trainings[way] = made
    made.loading = 0.0
    return row


def _per_second(rates: list[tuple[int, float]]) -> list[float]:
    return [number / seconds for number, seconds in rates]


def _speed(run: Run, made: Training, rates: Any, plain: Any) -> dict[str, Any]:
    step = statistics.median(seconds for _, seconds in rates) / run.size.steps
    loading = made.loading / (run.size.rounds * run.size.steps)
    row = {"graphs/s": statistics.median(_per_second(rates)), "step_ms": 1000 * step, "loading_ms": 1000 * loading}
    if plain is not None:
        pairs = zip(_per_second(rates), _per_second(plain), strict=True)
        row["times PyG"] = statistics.median(own / other for own, other in pairs)
    busy = run.busy_seconds(made.step, min(10, run.size.steps))
    return {**row, "busy_ms": 1000 * busy, "idle": max(0.0, 1 - busy / step)}


def pinned(run: Run) -> Rows:
    """Measure loading, and training without a compiler, with and without pinned memory."""
    kind, layers, width, batch, _ = run.size.trained[0]
    for way in (PLAIN, "two lines, uncompiled", "padded steps, uncompiled"):
        yield run.attempt({"loader": way}, lambda: _pinned(run, (kind, layers, width), batch, way))  # noqa: B023


def _pinned(run: Run, case: tuple[str, int, int], batch: int, way: str) -> dict[str, Any]:
    both = {name: Training(run, case, batch, way, pin=name == "pinned") for name in ("unpinned", "pinned")}
    for made in both.values():
        made.step()
    row: dict[str, Any] = {}
    for what in ("loading", "training"):
        steps = {name: (lambda m=m: m.load()[1]) if what == "loading" else m.step for name, m in both.items()}  # type: ignore[misc]
        rates = {name: _per_second(of_way) for name, of_way in run.rates(steps).items()}
        row |= {f"{what}, {name}, graphs/s": statistics.median(of_way) for name, of_way in rates.items()}
        pairs = zip(rates["pinned"], rates["unpinned"], strict=True)
        row[f"{what}, pinned / unpinned"] = statistics.median(own / other for own, other in pairs)
    return row


def programs(run: Run) -> Rows:
    """Compile random networks of the tests and compare all that they compute."""
    try:
        from tests.fuzzing.comparison import MODES, compare, compiled
        from tests.fuzzing.networks import Network
    except ImportError as error:
        yield {"skipped": f"the tests of the checkout cannot be imported: {error}"}
        return

    def compared(network: Any) -> dict[str, Any]:
        modes = MODES[:1] if run.size.small else MODES
        found = compare(network, lambda module: compiled(module, {}), modes, "pyg", run.device)
        return {"agrees": not found.differences, "ratio": found.ratio, "differences": found.differences}

    for seed in range(run.size.programs):
        # Networks by DGL's functions need DGL.
        drawn = replace(Network.of(seed), by_graph=False)
        if run.size.small:
            drawn = replace(drawn, width=8, aggregations=("sum",), products=(False,), nodes=40, edges=60, graphs=4)
        yield run.attempt({"seed": seed}, lambda: compared(drawn))  # noqa: B023
        torch.compiler.reset()
