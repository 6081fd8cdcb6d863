"""The runs of the study, and the file with a row for each finished run."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Arm:
    """One arm of the study: how batches are made and how the loss of a batch is computed."""

    batches: str
    packs: int
    content: str = ""
    loss: str = "unbiased"

    def __str__(self) -> str:
        packs = "1 pack" if self.packs == 1 else f"{self.packs} packs"
        if self.batches != "packed":
            return f"{self.batches}, as many graphs as {packs}"
        return f"{packs}, {self.content}, {self.loss} loss"


# Plain and exact batches have the mean number of graphs of `packs` packs; all are equally large, so their mean loss is
# unbiased. Exact batches are those of `StaticBatchSampler`.
ARMS = (
    Arm("plain", 1),
    Arm("exact", 1),
    Arm("packed", 1, "resample"),
    Arm("packed", 1, "resample", "biased"),
    Arm("plain", 8),
    Arm("exact", 8),
    Arm("packed", 8, "resample"),
    Arm("packed", 8, "fixed"),
    Arm("packed", 8, "exchange"),
)


@dataclass(frozen=True)
class Run:
    """The results of one training; ROC-AUC at the epoch with the best validation score and at the last epoch."""

    arm: Arm
    seed: int
    epochs: int
    graphs_a_batch: float
    steps: int
    best_epoch: int
    valid: float
    test: float
    last_test: float
    losses: tuple[float, ...]
    valids: tuple[float, ...]

    def row(self) -> dict[str, str]:
        """Return the cells of the run's row by column."""
        own = {name: _cell(value) for name, value in vars(self).items() if name != "arm"}
        return {name: str(value) for name, value in vars(self.arm).items()} | own

    @classmethod
    def of_row(cls, row: dict[str, str]) -> Run:
        """Return the run of a row of the file."""
        arm = Arm(row["batches"], int(row["packs"]), row["content"], row["loss"])
        whole = {name: int(row[name]) for name in ("seed", "epochs", "steps", "best_epoch")}
        real = {name: float(row[name]) for name in ("graphs_a_batch", "valid", "test", "last_test")}
        curves = {name: tuple(map(float, row[name].split())) for name in ("losses", "valids")}
        return cls(arm, **whole, **real, **curves)


def _cell(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_cell, value))
    return f"{value:.5f}" if isinstance(value, float) else str(value)


def read_runs(path: Path) -> Iterator[Run]:
    """Yield the finished runs."""
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            yield from map(Run.of_row, csv.DictReader(file))


def append_run(path: Path, run: Run) -> None:
    """Append a run; a process that is killed leaves only whole lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        # Link the header into place, so that only one of two processes writes it, and before any row.
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(",".join(run.row()) + "\n", encoding="utf-8")
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
        partial.unlink()
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(run.row().values())
        file.flush()
        os.fsync(file.fileno())
