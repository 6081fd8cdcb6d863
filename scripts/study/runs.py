"""The runs of the study, and the file with a row for each that ended."""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COLUMNS = ("batches", "packs", "content", "loss", "seed", "epochs", "graphs_a_batch", "steps", "best_epoch")
_SCORES = ("valid", "test", "last_test")
_CURVES = ("losses", "valids")


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

    def row(self) -> list[str]:
        """Cells of the file."""
        arm = (self.arm.batches, str(self.arm.packs), self.arm.content, self.arm.loss)
        numbers = (
            str(self.seed),
            str(self.epochs),
            f"{self.graphs_a_batch:.3f}",
            str(self.steps),
            str(self.best_epoch),
        )
        scores = (f"{getattr(self, name):.5f}" for name in _SCORES)
        return [*arm, *numbers, *scores, *(" ".join(f"{v:.5f}" for v in getattr(self, name)) for name in _CURVES)]

    @classmethod
    def of_row(cls, row: dict[str, str]) -> Run:
        """A run out of a line of the file."""
        losses, valids = (tuple(map(float, row[name].split())) for name in _CURVES)
        return cls(
            Arm(row["batches"], int(row["packs"]), row["content"], row["loss"]),
            int(row["seed"]),
            int(row["epochs"]),
            float(row["graphs_a_batch"]),
            int(row["steps"]),
            int(row["best_epoch"]),
            *(float(row[name]) for name in _SCORES),
            losses,
            valids,
        )


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
        partial.write_text(",".join((*_COLUMNS, *_SCORES, *_CURVES)) + "\n", encoding="utf-8")
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
        partial.unlink()
    with path.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerow(run.row())
        file.flush()
        os.fsync(file.fileno())
