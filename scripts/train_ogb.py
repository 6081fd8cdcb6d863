"""Train a GIN on an OGB graph-property dataset in packed batches of one static shape; evaluate it with OGB.

    python scripts/train_ogb.py --root DIR --name ogbg-molhiv --content resample --epochs 1
    python scripts/train_ogb.py --root DIR --name ogbg-molhiv --compile --framework pyg

`--root` contains OGB's folder of the dataset (ogbg_molhiv, for example); if it is missing, OGB downloads it there. OGB
stores its processed files next to it. The script supports molecule datasets with binary classification tasks; labels
may be missing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

import dgl_tuplepack as tp
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import progress_bar
from dgl_tuplepack.batches.tensors import BatchTensors
from dgl_tuplepack.errors import InputError, TuplepackError
from dgl_tuplepack.planning.plan import summarise

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from dgl_tuplepack.tools.demo.run import MaskedGIN


Content = StrEnum("Content", ["fixed", "resample", "exchange"])
Framework = StrEnum("Framework", ["dgl", "pyg"])

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def train(
    root: Annotated[Path, typer.Option(help="Folder that contains OGB's folder of the dataset.")],
    name: Annotated[str, typer.Option(help="Name of the dataset.")] = "ogbg-molhiv",
    content: Annotated[
        Content, typer.Option(help="How the content of packs changes between epochs.")
    ] = Content.resample,
    epochs: Annotated[int, typer.Option(min=1)] = 1,
    graphs_per_batch: Annotated[int, typer.Option(min=1, help="Mean number of graphs per training batch.")] = 64,
    width: Annotated[int, typer.Option(min=1, help="Width of the network.")] = 64,
    layers: Annotated[int, typer.Option(min=1)] = 3,
    framework: Annotated[Framework, typer.Option(help="Framework of the layers.")] = Framework.dgl,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile the training step; pays off after a minute.")
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
    splits = dataset.get_idx_split()
    settings: dict[str, Any] = {"num_workers": workers, "seed": seed}
    # One shape for all splits, so that compiled code is reused.
    loaders = tp.packed_loader(dataset, graphs_per_batch, splits=splits, content=content.value, **settings)
    training = loaders["train"]
    console.print(f"{training!r}", highlight=False)
    for split, loader in loaders.items():
        plan = summarise(loader.plan)
        filled = ", ".join(f"{value:.2%} of {component}" for component, value in plan["efficiency"].items())
        console.print(f"{split}: {plan['graphs']:,} graphs in {plan['packs']:,} packs, {filled}", highlight=False)

    label_mask = ~dataset.labels[splits["train"]].isnan()
    model = _model(dataset.num_tasks, width, layers, framework.value).to(device)
    loss_of = _loss_of(model, compiled)
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    for epoch in range(epochs):
        training.set_epoch(epoch)
        begin = time.perf_counter()
        model.train()
        count = torch.tensor(training.sampler.labels_per_batch(label_mask), dtype=torch.float64, device=device)
        loss, graphs = _train_epoch(loss_of, training, optimizer, device, epoch, count)
        seconds = time.perf_counter() - begin
        scores = {
            split: _evaluate(model, loader, splits[split], dataset.labels, name, device)
            for split, loader in loaders.items()
        }
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


def _model(num_tasks: int, width: int, layers: int, framework: str) -> MaskedGIN:
    from dgl_tuplepack.tools.demo.run import MaskedGIN

    encoders = load("ogb.graphproppred.mol_encoder")
    encode_nodes = encoders.AtomEncoder(width)
    return MaskedGIN(encode_nodes, lambda: encoders.BondEncoder(width), "feat", num_tasks, width, layers, framework)


def _loss_of(model: MaskedGIN, compiled: bool) -> Callable[[tp.PaddedBatch, Tensor], Tensor]:
    """Return a function of a batch and the mean number of labels per batch; it computes the loss."""
    loss_fn = load("torch.nn").BCEWithLogitsLoss(reduction="none")

    def loss_of(batch: tp.PaddedBatch | BatchTensors, count: Tensor) -> Tensor:
        # OGB marks missing labels with NaN; the loss ignores them like padding.
        return tp.nn.masked_loss(loss_fn, model(batch), batch.labels.float(), batch, count=count)

    if not compiled:
        return loss_of
    step = tp.compile(loss_of)
    return lambda batch, count: step(batch.tensors, count)


def _train_epoch(
    loss_of: Callable[[tp.PaddedBatch, Tensor], Tensor],
    loader: Any,
    optimizer: torch.optim.Optimizer,
    device: str,
    epoch: int,
    count: Tensor,
) -> tuple[float, int]:
    """Train for an epoch; return the mean loss over all labels (`count` per batch on average) and the graphs."""
    total, graphs = 0.0, 0
    for batch in progress_bar(loader, desc=f"epoch {epoch}", unit=" batches"):
        loss = loss_of(batch.to(device), count)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        graphs += batch.num_real_graphs
    return total / len(loader), graphs


def _evaluate(model: MaskedGIN, loader: Any, ids: Tensor, labels: Tensor, name: str, device: str) -> float:
    """Return OGB's score over the graphs `ids`, which the loader has in any order."""
    predictions = tp.Predictions(ids)
    model.eval()
    with load("torch").no_grad():
        for batch in progress_bar(loader, desc="evaluating", unit=" batches"):
            batch = batch.to(device)
            predictions.add(batch, model(batch))
    evaluator = load("ogb.graphproppred").Evaluator(name)
    score = evaluator.eval({"y_true": labels[ids], "y_pred": predictions.result()})
    return float(score[evaluator.eval_metric])


if __name__ == "__main__":
    try:
        app()
    except TuplepackError as error:
        print(f"train_ogb.py: {error}", file=sys.stderr)
        sys.exit(1)
