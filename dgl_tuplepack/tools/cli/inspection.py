"""``dgl-tuplepack inspect``: what batches of SOURCE are like, before training."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.planning.search import GRAPHS_PER_BATCH
from dgl_tuplepack.tools import plots
from dgl_tuplepack.tools.cli import options
from dgl_tuplepack.tools.cli.output import print_json, print_line, save_to
from dgl_tuplepack.tools.cli.planned import searched
from dgl_tuplepack.tools.cli.sources import read_sizes
from dgl_tuplepack.tools.drawing import ENDINGS


def inspect(
    source: options.Source,
    batch_size: Annotated[
        int | None,
        options.number(f"Graphs in each batch; default: {GRAPHS_PER_BATCH}, or all if there are fewer.", 2**31),
    ] = None,
    graphs_per_batch: Annotated[
        int | None, options.number("Instead of --batch-size: mean number of graphs in batches of packs.", 2**31)
    ] = None,
    oversize: options.Oversize = "error",
    multiple_of: options.MultipleOf = 1,
    ranks: Annotated[int, options.number("Number of processes that share each epoch.", 2**31)] = 1,
    seed: options.Seed = 0,
    out: Annotated[Path | None, options.out("Draw the first twelve batches into this .png, .svg or .pdf file.")] = None,
    root: options.Root = None,
    split: options.Split = None,
    as_json: options.Json = False,
) -> None:
    """Show what batches of SOURCE are like: shape, bytes, padding and its causes, and the balance of ranks.

    The last two lines are the Python code that makes these batches and compiles a model for them. In Python,
    loader.describe() returns the same.
    """
    if batch_size is not None and graphs_per_batch is not None:
        raise typer.BadParameter(
            "--batch-size is for exact batches, --graphs-per-batch for packs; leave one of them out."
        )
    if oversize != "error" and graphs_per_batch is None:
        raise typer.BadParameter("--oversize is for packs; give --graphs-per-batch in place of --batch-size.")
    options.check_file("--out", out, ENDINGS)
    sizes, opened, ids = read_sizes(source, root, split)
    # These imports load torch and kernels, which --help and wrong usage do not need.
    from dgl_tuplepack.loading.static_loader import bytes_of, slots_of
    from dgl_tuplepack.planning.histogram import SizeHistogram
    from dgl_tuplepack.sampling.description import described
    from dgl_tuplepack.sampling.pack_sampler import PackBatchSampler
    from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler
    from dgl_tuplepack.storage.write import blocks_of

    sampler: Any
    aim: dict[str, Any] = {}
    if graphs_per_batch is None:
        number = min(GRAPHS_PER_BATCH, len(sizes)) if batch_size is None else batch_size
        sampler = StaticBatchSampler(sizes, number, multiple_of=multiple_of, seed=seed, num_replicas=ranks, rank=0)
    else:
        histogram = SizeHistogram.from_sizes(sizes)
        with warnings.catch_warnings():
            # The sampler warns about dropped graphs itself, once the limits are known.
            warnings.filterwarnings("ignore", message=".* graphs exceed .* and are left out")
            search = searched(histogram, graphs_per_batch, multiple_of=multiple_of, oversize=oversize)
        aim = dict(search.aim)
        sampler = PackBatchSampler(
            sizes, search.best.limits, packs_per_batch=search.packs_per_batch, seed=seed, num_replicas=ranks, rank=0,
            oversize=oversize,
        )  # fmt: skip
    shape = slots_of(sampler.limits, getattr(sampler, "packs_per_batch", 1), multiple_of)
    try:
        size = bytes_of(blocks_of(opened, None, None)[0], shape)
    except SchemaError:
        # The source has only sizes.
        size = None
    found = described(sampler, (shape,), size, False, multiple_of, aim, ids)
    if ids is None:
        found = replace(found, largest=found.largest | {"id": None})
    save_to(out, lambda path: plots.save_picture(plots.plot_batches(found), path))
    if as_json:
        print_json(found.to_dict())
        return
    for line in str(found).splitlines():
        print_line(line)
