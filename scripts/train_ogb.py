"""Train a GIN on an OGB graph-property dataset, plain or padded and compiled; evaluate it with OGB.

    python scripts/train_ogb.py --root DIR --name ogbg-molhiv --epochs 1
    python scripts/train_ogb.py --root DIR --name ogbg-molhiv --compile --framework pyg

`--root` contains OGB's folder of the dataset (ogbg_molhiv, for example); if it is missing, OGB downloads it there. OGB
stores its processed files next to it. The script supports molecule datasets with binary classification tasks; labels
may be missing. Of the training, only the loaders and `tp.compile` come from dgl_tuplepack.
"""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import dgl_tuplepack as tp
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.errors import InputError, TuplepackError

Framework = StrEnum("Framework", ["dgl", "pyg"])

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def train(
    root: Annotated[Path, typer.Option(help="Folder that contains OGB's folder of the dataset.")],
    name: Annotated[str, typer.Option(help="Name of the dataset.")] = "ogbg-molhiv",
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of graphs per batch.")] = 64,
    width: Annotated[int, typer.Option(min=1, help="Width of the network.")] = 64,
    layers: Annotated[int, typer.Option(min=1)] = 3,
    framework: Annotated[Framework, typer.Option(help="Framework of the layers.")] = Framework.dgl,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Pad batches inside the model and compile it; pays off after a minute.")
    ] = False,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Show each class of the first task equally often in training.")
    ] = False,
    learning_rate: Annotated[float, typer.Option(min=0)] = 1e-3,
    workers: Annotated[int, typer.Option(min=0, help="Worker processes of each loader.")] = 0,
    device: Annotated[str, typer.Option(help="Device, such as cpu or cuda.")] = "cpu",
    seed: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Train and evaluate; print the loss and the scores after each epoch."""
    console = Console()
    torch = load("torch")
    load("dgl")
    torch.manual_seed(seed)
    dataset = _dataset(root, name)
    splits, weights = dataset.get_idx_split(), None
    if balanced:
        weights = tp.class_weights(dataset.labels[splits["train"], 0])
    loaders = tp.packed_loader(
        dataset, batch_size=batch_size, splits=splits, num_workers=workers, seed=seed, weights=weights
    )
    for split, loader in loaders.items():
        console.print(
            f"{split}: {len(loader.dataset):,} graphs in {len(loader):,} batches within {loader.shape}", highlight=False
        )

    model = _model(dataset.num_tasks, width, layers, framework.value).to(device)
    if compiled:
        model = tp.compile(model, loaders["train"])
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    for epoch in range(epochs):
        begin = time.perf_counter()
        loss, graphs = _train_epoch(model, loaders["train"], optimizer, device, epoch)
        seconds = time.perf_counter() - begin
        scores = {split: _evaluate(model, loader, name, device) for split, loader in loaders.items()}
        shown = ", ".join(f"{split} {value:.4f}" for split, value in scores.items())
        console.print(
            f"epoch {epoch}: {graphs:,} graphs in {seconds:.1f} s, mean loss {loss:.4f}\n"
            f"{dataset.eval_metric}: {shown}",
            highlight=False,
        )


def _dataset(root: Path, name: str) -> Any:
    ogb = load("ogb.graphproppred")
    if not root.is_dir():
        raise InputError(f"the folder {root} does not exist; give the folder that contains {name.replace('-', '_')}.")
    try:
        dataset = ogb.DglGraphPropPredDataset(name, root=str(root))
    except (OSError, EOFError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"OGB cannot read {name} in {root} ({reason}); give a folder that contains it.") from error
    if dataset.task_type != "binary classification":
        raise InputError(
            f"{name} is a task of {dataset.task_type}, but this script trains binary classification only; "
            "try ogbg-molhiv or ogbg-molpcba."
        )
    return dataset


def _model(num_tasks: int, width: int, layers: int, framework: str) -> Any:
    """Return a GIN with edge features (GINE), batch norms and a mean readout, with layers of DGL or PyG."""
    torch, nn, dgl_nn = load("torch"), load("torch.nn"), load("dgl.nn.pytorch")
    gine = dgl_nn.GINEConv if framework == "dgl" else load("torch_geometric.nn").GINEConv
    encoders = load("ogb.graphproppred.mol_encoder")

    class GIN(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encode_nodes = encoders.AtomEncoder(width)
            self.encode_edges = nn.ModuleList(encoders.BondEncoder(width) for _ in range(layers))
            self.layers = nn.ModuleList(
                gine(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))) for _ in range(layers)
            )
            self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(layers))
            self.pool, self.head = dgl_nn.AvgPooling(), nn.Linear(width, num_tasks)

        def forward(self, graph: Any) -> Any:
            x = self.encode_nodes(graph.ndata["feat"])
            for encode_edges, layer, norm in zip(self.encode_edges, self.layers, self.norms, strict=True):
                edges = encode_edges(graph.edata["feat"])
                out = layer(graph, x, edges) if framework == "dgl" else layer(x, torch.stack(graph.edges()), edges)
                x = x + norm(out).relu()
            return self.head(self.pool(graph, x))

    return GIN()


def _train_epoch(model: Any, loader: Any, optimizer: Any, device: str, epoch: int) -> tuple[float, int]:
    """Train for an epoch; return the mean loss over all graphs, and their number."""
    loss_fn = load("torch.nn").BCEWithLogitsLoss()
    model.train()
    total, graphs = 0.0, 0
    for graph, labels in progress_bar(loader, desc=f"epoch {epoch}", unit=" batches"):
        graph, labels = graph.to(device), labels.to(device).float()
        # OGB marks missing labels with NaN.
        is_labeled = ~labels.isnan()
        loss = loss_fn(model(graph)[is_labeled], labels[is_labeled])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * graph.batch_size
        graphs += graph.batch_size
    return total / graphs, graphs


def _evaluate(model: Any, loader: Any, name: str, device: str) -> float:
    """Return OGB's score over the graphs of a loader."""
    torch = load("torch")
    y_true, y_pred = [], []
    model.eval()
    with torch.no_grad():
        for graph, labels in progress_bar(loader, desc="evaluating", unit=" batches"):
            y_true.append(labels)
            y_pred.append(model(graph.to(device)).cpu())
    evaluator = load("ogb.graphproppred").Evaluator(name)
    score = evaluator.eval({"y_true": torch.cat(y_true), "y_pred": torch.cat(y_pred)})
    return float(score[evaluator.eval_metric])


if __name__ == "__main__":
    try:
        app()
    except TuplepackError as error:
        print(f"train_ogb.py: {error}", file=sys.stderr)
        sys.exit(1)
