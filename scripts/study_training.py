"""Study how packing affects training on ogbg-molhiv: accuracy with packs and with plain shuffling.

    python scripts/study_training.py run --source ogb/ogbg_molhiv --seeds 3 --epochs 20
    python scripts/study_training.py pairs --epochs 50
    python scripts/study_training.py page

`run` trains the runs missing from docs/results/training.csv and adds a row when a run ends, so you can stop and restart
it at any time. `pairs` counts pairs of graphs that share a batch. `page` writes docs/results/training.md and its
picture from both files.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from study.meetings import batches_of, expected_share, shares_met
from study.page import write_page
from study.runs import ARMS, Arm, append_run, read_runs
from study.training import LIMITS, Data, train

import dgl_tuplepack as tp
from dgl_tuplepack._core.files import write_text
from dgl_tuplepack.errors import FormatError, TuplepackError

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

OutOption = Annotated[Path, typer.Option(help="Folder of training.csv, training-pairs.csv, the page and its picture.")]


@app.command()
def run(
    source: Annotated[Path, typer.Option(help="OGB folder of ogbg-molhiv.")],
    epochs: Annotated[int, typer.Option(min=1)] = 20,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0, 1, ...")] = 3,
    threads: Annotated[int, typer.Option(min=1)] = 1,
    packs: Annotated[
        list[int] | None, typer.Option(help="Only runs with this many packs per batch; may be repeated.")
    ] = None,
    out: OutOption = RESULTS,
) -> None:
    """Train all runs missing from the file, seed by seed. Processes with different --packs may run at the same time."""
    if unknown := sorted({*(packs or ())} - {arm.packs for arm in ARMS}):
        raise typer.BadParameter(
            f"the study has runs with 1 and 8 packs per batch, not with {unknown[0]}.", param_hint="--packs"
        )
    arms = [arm for arm in ARMS if packs is None or arm.packs in packs]
    torch.set_num_threads(threads)
    done = {(each.arm, each.seed, each.epochs) for each in read_runs(out / "training.csv")}
    missing = [(arm, seed) for seed in range(seeds) for arm in arms if (arm, seed, epochs) not in done]
    if not missing:
        typer.echo("all runs are in the file")
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Data.of(tp.GraphStore.write(folder, source, compact=True))
        for arm, seed in missing:
            for epoch, ended in train(data, arm, seed, epochs):
                typer.echo(f"{arm}, seed {seed}: epoch {epoch}")
                if ended is not None:
                    append_run(out / "training.csv", ended)
                    typer.echo(f"{arm}, seed {seed}: valid {ended.valid:.4f}, test {ended.test:.4f}")


@app.command()
def pairs(epochs: Annotated[int, typer.Option(min=1)] = 50, out: OutOption = RESULTS) -> None:
    """Count the pairs of training graphs of ogbg-molhiv that share a batch; needs 1.1 GB of memory."""
    histogram = tp.load_example("ogbg-molhiv")
    sizes = tp.GraphSizes(np.repeat(histogram.sizes, histogram.counts, axis=0))
    arms = [arm for arm in ARMS if arm.loss == "unbiased"]
    arms += [Arm("packed", 1, "fixed"), Arm("packed", 1, "exchange")]
    lines = ["batches,packs,content,epochs,share,expected"]
    for arm in arms:
        share = list(shares_met(batches_of(sizes, LIMITS, arm, epochs), len(sizes)))[-1]
        steps = len(tp.PackBatchSampler(sizes, LIMITS, packs_per_batch=arm.packs))
        expected = expected_share(len(sizes), len(sizes) / steps, epochs)
        lines.append(f"{arm.batches},{arm.packs},{arm.content},{epochs},{share:.6f},{expected:.6f}")
        typer.echo(lines[-1])
    write_text(out / "training-pairs.csv", "\n".join(lines) + "\n")


@app.command()
def page(out: OutOption = RESULTS) -> None:
    """Write the page and its picture."""
    runs = list(read_runs(out / "training.csv"))
    if not runs:
        raise FormatError(f"{out / 'training.csv'} has no runs; run `study_training.py run` first.")
    write_page(runs, out)


if __name__ == "__main__":
    try:
        app()
    except TuplepackError as error:
        print(f"study_training.py: {error}", file=sys.stderr)
        sys.exit(1)
