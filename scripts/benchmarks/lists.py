"""Train a small GIN from a list of DGLGraphs, by the loader of DGL and by ours, and collect predictions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import torch
import typer
from torch import nn

import dgl_tuplepack as tp
from benchmarks.loading import SourceOption
from benchmarks.tables import JsonOption, show, write_json
from benchmarks.training import Molecules, measured, ratio
from dgl_tuplepack._core.progress import progress_bar

app = typer.Typer()


class GIN(nn.Module):
    """Layers of DGL's GINConv with batch norms, mean readout and one output."""

    def __init__(self, width: int, layers: int) -> None:
        from dgl.nn import GINConv

        super().__init__()
        self.embed = nn.Embedding(128, width)
        self.layers = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())) for _ in range(layers)
        )
        self.head = nn.Linear(width, 1)

    def forward(self, graph: Any) -> Any:
        """Return one output for each graph."""
        import dgl

        with graph.local_scope():
            h = self.embed(graph.ndata["feat"][:, 0].long())
            for layer in self.layers:
                h = layer(graph, h)
            graph.ndata["h"] = h
            return self.head(dgl.mean_nodes(graph, "h"))


class Way:
    """A loader and a model of its own; `step` trains on the next batch, as `benchmarks.training` measures it."""

    def __init__(self, loader: Any, width: int, layers: int) -> None:
        torch.manual_seed(0)
        self.loader, self.padded = loader, isinstance(next(iter(loader)), tp.PaddedBatch)
        self.model = tp.nn.convert(GIN(width, layers)) if self.padded else GIN(width, layers)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.batches = self._batches()

    def _batches(self) -> Iterator[Any]:
        epoch = 0
        while True:
            if hasattr(self.loader.sampler, "set_epoch"):
                self.loader.set_epoch(epoch)
            yield from self.loader
            epoch += 1

    def step(self) -> int:
        """Train on the next batch; return its number of graphs."""
        batch, loss_fn = next(self.batches), nn.MSELoss(reduction="none")
        self.optimiser.zero_grad()
        if self.padded:
            number = batch.num_real_graphs
            with tp.nn.masked(batch):
                out = self.model(batch.graph)
            tp.nn.masked_loss(loss_fn, out, batch.labels.float(), batch, count=self.loader.graphs_per_batch).backward()
        else:
            graph, labels = batch
            number = graph.batch_size
            loss_fn(self.model(graph), labels.float()).mean().backward()
        self.optimiser.step()
        return int(number)


@app.command()
def lists(
    source: SourceOption = None,
    graphs: Annotated[int, typer.Option(min=512, help="Number of graphs in the list.")] = 6000,
    graphs_per_batch: Annotated[int, typer.Option(min=1)] = 128,
    width: Annotated[int, typer.Option(min=1)] = 16,
    layers: Annotated[int, typer.Option(min=1)] = 3,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; results are medians.")] = 9,
    json_path: JsonOption = None,
) -> None:
    """Measure graphs per second of training from a list, and of evaluation epochs with and without `Predictions`."""
    from dgl.dataloading import GraphDataLoader

    torch.set_num_threads(threads)
    store = tp.packed_loader(source or Molecules(graphs), graphs_per_batch).view.store
    items = [store[i] for i in progress_bar(range(min(graphs, len(store))), desc="reading", unit=" graphs")]
    size, seconds = {"graphs_per_batch": graphs_per_batch}, dict[str, float]()
    makers: dict[str, Callable[[], Any]] = {
        "DGL": lambda: GraphDataLoader(items, batch_size=graphs_per_batch, shuffle=True),
        "tp.GraphDataLoader(list)": lambda: tp.GraphDataLoader(items, batch_size=graphs_per_batch, shuffle=True),
        "packed_loader(list)": lambda: tp.packed_loader(items, **size),
        "packed_loader(list, in_memory=False)": lambda: tp.packed_loader(items, **size, in_memory=False),
    }
    ways = {}
    for name, make in makers.items():
        begin = time.perf_counter()
        loader = make()
        seconds[name] = time.perf_counter() - begin
        ways[name] = Way(loader, width, layers)
        for _ in range(3):
            ways[name].step()
    rates = measured(ways, rounds, len(items) // graphs_per_batch)
    rows = [
        {
            "way": name,
            "graphs/s": sorted(of_way)[len(of_way) // 2],
            "times DGL": f"{ratio(rates, name, 'DGL'):.2f}",
            "made in s": f"{seconds[name]:.1f}",
        }
        for name, of_way in rates.items()
    ]
    show(
        f"GIN {layers}x{width} from a list of {len(items)} graphs, {graphs_per_batch} a batch, {threads} threads", rows
    )
    evaluations = {name: _Evaluation(ways["packed_loader(list)"], len(items), name == "Predictions") for name in (
        "without", "Predictions"
    )}  # fmt: skip
    rates = measured(evaluations, 3 * rounds, 1)
    show("evaluation epochs", [{"way": n, "times without": f"{ratio(rates, n, 'without'):.3f}"} for n in rates])
    write_json(json_path, rows)


class _Evaluation:
    """An epoch of evaluation on padded batches; a step is the whole epoch."""

    def __init__(self, way: Way, number: int, collects: bool) -> None:
        self.way, self.number, self.collects = way, number, collects

    @torch.no_grad()
    def step(self) -> int:
        """Evaluate all graphs; return their number."""
        self.way.model.eval()
        predictions = tp.Predictions(self.number)
        for batch in self.way.loader:
            with tp.nn.masked(batch):
                out = self.way.model(batch.graph)
            if self.collects:
                predictions.add(batch, out)
        if self.collects:
            predictions.result()
        return self.number
