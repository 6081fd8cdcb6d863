"""Run a benchmark: `python scripts/benchmark.py COMMAND`. Each command has a file in `benchmarks/`."""

from __future__ import annotations

import typer
from benchmarks import (
    ablation,
    attention,
    balance,
    batches,
    compare,
    costs,
    exact,
    forces,
    gpu,
    latency,
    lists,
    loading,
    packing,
    partition,
    pyg,
    ranks,
    shards,
    training,
    weights,
    zoo,
)

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Benchmarks of dgl_tuplepack.")
MODULES = (
    packing, ablation, latency, batches, exact, weights, balance, loading, costs, training, attention, lists, zoo,
    forces, ranks, pyg, shards, partition, gpu, compare,
)  # fmt: skip
for module in MODULES:
    app.add_typer(module.app)

if __name__ == "__main__":
    app()
