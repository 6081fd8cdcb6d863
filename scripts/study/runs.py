"""The runs of the study, and the file with a row for each that ended."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Arm:
    """One way to make batches and the loss of a batch."""

    batches: str
    packs: int
    content: str = ""
    loss: str = "unbiased"

    def __str__(self) -> str:
        packs = "1 pack" if self.packs == 1 else f"{self.packs} packs"
        if self.batches == "plain":
            return f"plain, as many graphs as {packs}"
        return f"{packs}, {self.content}, {self.loss} loss"


# Plain batches have the mean number of graphs of so many packs; their mean is unbiased, since all have equally many.
ARMS = (
    Arm("plain", 1),
    Arm("packed", 1, "resample"),
    Arm("packed", 1, "resample", "biased"),
    Arm("plain", 8),
    Arm("packed", 8, "resample"),
    Arm("packed", 8, "fixed"),
    Arm("packed", 8, "repack"),
)


@dataclass(frozen=True)
class Run:
    """What one training came to; ROC-AUC at the epoch with the best validation, and at the last."""

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
        """Return the cells of the file by column."""
        own = {name: _cell(value) for name, value in vars(self).items() if name != "arm"}
        return {name: str(value) for name, value in vars(self.arm).items()} | own

    @classmethod
    def of_row(cls, row: dict[str, str]) -> Run:
        """Return the run of a line of the file."""
        arm = Arm(row["batches"], int(row["packs"]), row["content"], row["loss"])
        whole = {name: int(row[name]) for name in ("seed", "epochs", "steps", "best_epoch")}
        parts = {name: float(row[name]) for name in ("graphs_a_batch", "valid", "test", "last_test")}
        curves = {name: tuple(map(float, row[name].split())) for name in ("losses", "valids")}
        return cls(arm, **whole, **parts, **curves)


def _cell(value: float | tuple[float, ...]) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_cell, value))
    return f"{value:.5f}" if isinstance(value, float) else str(value)


def read_runs(path: Path) -> Iterator[Run]:
    """The runs that have ended."""
    if path.is_file():
        with path.open(newline="", encoding="utf-8") as file:
            yield from map(Run.of_row, csv.DictReader(file))


def append_run(path: Path, run: Run) -> None:
    """Add a run; a process that is stopped leaves whole lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file():
        # Linked into place, so that of two processes one alone writes the header, before any row.
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(",".join(run.row()) + "\n", encoding="utf-8")
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
        partial.unlink()
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(run.row().values())
        file.flush()
        os.fsync(file.fileno())
