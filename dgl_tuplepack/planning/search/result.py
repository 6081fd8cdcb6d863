"""The result of a search for limits: a table of candidates, the best of them, and the Pareto front."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgl_tuplepack._core.files import write_text
from dgl_tuplepack._core.text import csv_text
from dgl_tuplepack.planning.buckets import all_of, steps_of
from dgl_tuplepack.planning.plan import harmonic_mean, padded_slots_of, slots_of


@dataclass(frozen=True)
class Candidate:
    """Limits of one or several shapes that a search tried, and how many packs its plan within these limits has."""

    # `Limits`, or `Buckets` of several shapes, with the requested cap on graphs; and the number of packs of each shape.
    limits: Any
    packs_of_shapes: tuple[int, ...]
    num_graphs: int
    # Component -> sum over all graphs.
    totals: Mapping[str, int]
    packs_per_batch: int = 1

    @property
    def packs(self) -> int:
        """Number of packs P of the plan."""
        return sum(self.packs_of_shapes)

    @property
    def graphs_per_pack(self) -> float:
        """Mean number of graphs in a pack, N / P."""
        return self.num_graphs / self.packs

    @property
    def graphs_per_batch(self) -> float:
        """Mean number of graphs in a batch on a single rank; all packs of a batch have the same shape."""
        return self.num_graphs / sum(steps_of(self.packs_of_shapes, self.packs_per_batch, drop_last=False))

    @property
    def slots(self) -> int:
        """Slots of one pack of the largest shape: the sum of the limits."""
        return sum(all_of(self.limits)[-1].values)

    @property
    def epoch_slots(self) -> dict[str, int]:
        """Component -> slots of all packs, not counting reserved slots."""
        return slots_of(all_of(self.limits), self.packs_of_shapes)

    @property
    def padded_slots(self) -> int:
        """Node and edge slots of an epoch with one pack per batch, including a reserved node of each type per batch."""
        return padded_slots_of(self.epoch_slots, self.packs)

    @property
    def efficiency(self) -> dict[str, float]:
        """Component -> real content / slots of all packs, a fraction in [0, 1]."""
        return {name: self.totals[name] / slots for name, slots in self.epoch_slots.items()}

    @property
    def harmonic_mean(self) -> float:
        """Harmonic mean of the efficiencies; components that are 0 in all graphs do not count."""
        return harmonic_mean(self.efficiency)

    @property
    def empty_slots(self) -> dict[str, int]:
        """Component -> slots that hold padding in one epoch, not counting reserved slots."""
        return {name: slots - self.totals[name] for name, slots in self.epoch_slots.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"limits": self.limits.to_dict(), "packs_of_shapes": list(self.packs_of_shapes), **self._figures()}

    def _figures(self) -> dict[str, Any]:
        """Return the figures that `to_dict` and tables have in common."""
        return {
            "packs": self.packs, "graphs_per_pack": self.graphs_per_pack, "graphs_per_batch": self.graphs_per_batch,
            "efficiency": self.efficiency, "harmonic_mean": self.harmonic_mean, "slots": self.slots,
            "empty_slots": self.empty_slots, "padded_slots": self.padded_slots,
        }  # fmt: skip

    def _cells(self) -> dict[str, Any]:
        """Return a row of the table, column -> value."""
        shapes = all_of(self.limits)
        ends = [""] if len(shapes) == 1 else [f" {number}" for number in range(len(shapes))]
        limits = {f"limit{end}": each.maxima for end, each in zip(ends, shapes, strict=True)}
        packs = {f"packs{end}": number for end, number in zip(ends, self.packs_of_shapes, strict=True)}
        return {**limits, **packs, **self._figures()}


@dataclass(frozen=True, eq=False)
class LimitsSearch(Sequence[Candidate]):
    """The result of `search_limits`: a sequence of `Candidate`, by ascending limits; with several shapes, best first.

    `way` is the strategy ("smallest", "target", "graphs_per_batch" or "budget"), and `aim` its settings as plain data.
    """

    way: str
    aim: Mapping[str, Any]
    candidates: tuple[Candidate, ...] = field(repr=False)
    # Index of the candidate that the search advises.
    best_index: int
    # Each number of the padded shape of a pack is a multiple of this.
    multiple_of: int = 1
    # Number of graphs that were left out (oversize="drop").
    dropped: int = 0

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: Any) -> Any:
        return self.candidates[index]

    @property
    def best(self) -> Candidate:
        """The candidate that the search advises; see `search_limits` for the rule."""
        return self.candidates[self.best_index]

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the components."""
        return tuple(self.best.totals)

    @property
    def packs_per_batch(self) -> int:
        """Number of packs in a batch, for `PackBatchSampler`; 1 unless the search was for `graphs_per_batch`."""
        return self.best.packs_per_batch

    @property
    def graphs_per_batch(self) -> float:
        """Mean number of graphs in a batch of `packs_per_batch` packs within the best limits."""
        return self.best.graphs_per_batch

    @property
    def pareto_indices(self) -> list[int]:
        """Indices of the candidates of the Pareto front, ascending in slots per pack and in harmonic mean."""
        front: list[int] = []
        means = [candidate.harmonic_mean for candidate in self]
        for index in sorted(range(len(self)), key=lambda index: (self[index].slots, -means[index])):
            if not front or means[index] > means[front[-1]]:
                front.append(index)
        return front

    @property
    def pareto(self) -> list[Candidate]:
        """Candidates of the Pareto front: no other candidate has a higher harmonic mean without more slots per pack."""
        return [self[index] for index in self.pareto_indices]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON: the settings, the best candidate, the Pareto front, and all candidates."""
        return {
            "way": self.way, "aim": dict(self.aim), "multiple_of": self.multiple_of, "graphs": self.best.num_graphs,
            "dropped": self.dropped, "packs_per_batch": self.packs_per_batch,
            "graphs_per_batch": self.graphs_per_batch, "best": self.best.to_dict(),
            "pareto": [c.to_dict() for c in self.pareto], "candidates": [c.to_dict() for c in self],
        }  # fmt: skip

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the table as CSV text, one row for each candidate; if a path is given, also write the text to it.

        Columns: limits and packs of each shape; figures of `Candidate`; "pareto" and "best", 1 or 0.
        """
        front = set(self.pareto_indices)
        text = csv_text([
            {**c._cells(), "pareto": int(row in front), "best": int(row == self.best_index)}
            for row, c in enumerate(self)
        ])  # fmt: skip
        if path is not None:
            write_text(path, text)
        return text

    def __repr__(self) -> str:
        best = self.best
        of_shapes = zip(best.packs_of_shapes, all_of(best.limits), strict=True)
        packs = ", ".join(f"{number} packs of {limits!r}" for number, limits in of_shapes)
        fractions = ", ".join(f"{name} {value:.2%}" for name, value in best.efficiency.items())
        dropped = f", {self.dropped} graphs dropped" if self.dropped else ""
        return (
            f"LimitsSearch({self.way!r}, {len(self)} candidates, best: {packs}, graphs per batch "
            f"{self.graphs_per_batch:.1f}, packs per batch {self.packs_per_batch}, efficiency: {fractions}, "
            f"harmonic mean {best.harmonic_mean:.2%}{dropped})"
        )
