"""Run a benchmark: `python scripts/benchmark.py COMMAND`. Each command has a file in `benchmarks/`."""

from __future__ import annotations

import typer
from benchmarks import ablation, balance, latency, lists, loading, packing, partition, pyg, ranks, shards, training, zoo

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Benchmarks of dgl_tuplepack.")
for module in (packing, ablation, latency, loading, balance, shards, training, lists, zoo, ranks, pyg, partition):
    app.add_typer(module.app)

if __name__ == "__main__":
    app()
