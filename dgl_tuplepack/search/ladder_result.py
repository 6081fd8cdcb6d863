"""The result of a search for a ladder: candidates, and the best of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgl_tuplepack._checks import UINT64_MAX, whole_number
from dgl_tuplepack._csv import csv_text
from dgl_tuplepack._files import JsonFormat, write_text
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.ladder import Ladder, steps_of
from dgl_tuplepack.metrics import harmonic_mean
from dgl_tuplepack.plan import library_versions
from dgl_tuplepack.sizes import components_of_kind

_FILE = JsonFormat("dgl_tuplepack.ladder_search", 1, "search", "repeat the search")


@dataclass(frozen=True)
class LadderCandidate:
    """A ladder that was tried, and what a plan of it needs.

    Parameters
    ----------
    limits
        Limits of each shape, the smallest first, with the cap on graphs that was asked for.
    packs
        Packs of each shape.
    num_graphs
        Graphs N that were packed.
    totals
        Component -> sum over all graphs.
    packs_per_batch
        Packs of a batch.
    """

    limits: Ladder
    packs: tuple[int, ...]
    num_graphs: int
    totals: Mapping[str, int]
    packs_per_batch: int = 1

    @property
    def graphs_per_batch(self) -> float:
        """Mean graphs of a batch on one rank, as a sampler makes them: a batch has packs of one shape."""
        return self.num_graphs / sum(steps_of(self.packs, self.packs_per_batch, drop_last=False))

    @property
    def slots(self) -> dict[str, int]:
        """Component -> slots of all packs, reserved ones not counted."""
        of_shapes = list(zip(self.packs, self.limits, strict=True))
        return {name: sum(packs * each.maxima[name] for packs, each in of_shapes) for name in self.totals}

    @property
    def padded_slots(self) -> int:
        """Slots of an epoch with one pack a batch, a reserved node of each type included."""
        reserved = len(components_of_kind(self.limits.components, "nodes"))
        return sum(self.slots.values()) + reserved * sum(self.packs)

    @property
    def efficiency(self) -> dict[str, float]:
        """Component -> real content / slots, a fraction in [0, 1]."""
        return {name: self.totals[name] / slots for name, slots in self.slots.items()}

    @property
    def harmonic_mean(self) -> float:
        """Harmonic mean of the efficiencies, without components that are 0 in all graphs."""
        return harmonic_mean(self.efficiency)

    @property
    def empty_slots(self) -> dict[str, int]:
        """Component -> slots that hold padding in one epoch, reserved ones not counted."""
        return {name: slots - self.totals[name] for name, slots in self.slots.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "limits": self.limits.to_dict(), "packs": list(self.packs), "graphs_per_batch": self.graphs_per_batch,
            "efficiency": self.efficiency, "harmonic_mean": self.harmonic_mean, "padded_slots": self.padded_slots,
            "empty_slots": self.empty_slots,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class LadderSearch(Sequence[LadderCandidate]):
    """The result of ``search_limits(..., shapes=...)``: a sequence of candidates, the most promising first.

    Parameters
    ----------
    asked
        Graphs of a batch that were asked for.
    candidates
        The ladders that were planned.
    best_index
        Position of the one to advise.
    method, seed, multiple_of, versions
        How candidates were planned.

    Raises
    ------
    SearchError
        Candidates contradict each other.
    """

    asked: int
    candidates: tuple[LadderCandidate, ...]
    best_index: int
    method: str
    seed: int = 0
    multiple_of: int = 1
    versions: Mapping[str, str] = field(default_factory=library_versions)

    def __post_init__(self) -> None:
        if not self.candidates:
            raise SearchError("the search has no candidates; it is damaged, repeat the search.")
        whole_number("the best of a search", self.best_index, 0, len(self.candidates) - 1, SearchError)
        whole_number("seed of a search", self.seed, 0, UINT64_MAX, SearchError)
        for name in ("asked", "multiple_of"):
            whole_number(f"{name} of a search", getattr(self, name), 1, error=SearchError)
        first = self.candidates[0]
        for each in self.candidates:
            for packs in each.packs:
                whole_number("packs of a search", packs, 0, error=SearchError)
            same = (each.num_graphs, dict(each.totals), each.packs_per_batch, len(each.packs))
            sound = (
                same == (first.num_graphs, dict(first.totals), first.packs_per_batch, len(each.limits))
                and each.limits.components == tuple(first.totals)
                and 1 <= sum(each.packs) <= each.num_graphs
                and min(each.empty_slots.values()) >= 0
            )
            if not sound:
                raise SearchError("a candidate of the search contradicts itself or another one; it is damaged.")

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: Any) -> Any:
        return self.candidates[index]

    @property
    def best(self) -> LadderCandidate:
        """The candidate that the search advises: the fewest slots among batches of about so many graphs."""
        return self.candidates[self.best_index]

    @property
    def shapes(self) -> int:
        """Shapes of each ladder."""
        return len(self.best.packs)

    @property
    def packs_per_batch(self) -> int:
        """Packs of a batch, as `PackBatchSampler` takes it."""
        return self.best.packs_per_batch

    @property
    def graphs_per_batch(self) -> float:
        """Mean graphs of a batch within the best limits."""
        return self.best.graphs_per_batch

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the settings, the best candidate, and all candidates."""
        return {
            "way": "ladder", "shapes": self.shapes, "aim": {"graphs_per_batch": self.asked}, "method": self.method,
            "seed": self.seed, "multiple_of": self.multiple_of, "graphs": self.best.num_graphs,
            "packs_per_batch": self.packs_per_batch, "graphs_per_batch": self.graphs_per_batch,
            "best": self.best.to_dict(), "candidates": [each.to_dict() for each in self],
        }  # fmt: skip

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the table as CSV text; write it to `path` as well if one is given.

        Columns: limits of each component and packs, of each shape; graphs of a batch, efficiencies, harmonic mean,
        padded slots of an epoch, empty slots, and 1 or 0 for the best.
        """
        text = csv_text([
            {
                **{f"limit {number}": each.maxima for number, each in enumerate(candidate.limits)},
                **{f"packs {number}": packs for number, packs in enumerate(candidate.packs)},
                "graphs_per_batch": candidate.graphs_per_batch, "efficiency": candidate.efficiency,
                "harmonic_mean": candidate.harmonic_mean, "padded_slots": candidate.padded_slots,
                "empty_slots": candidate.empty_slots, "best": int(row == self.best_index),
            }
            for row, candidate in enumerate(self)
        ])  # fmt: skip
        if path is not None:
            write_text(path, text)
        return text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the search as JSON, completely or not at all."""
        best = self.best
        _FILE.write(path, {
            "totals": dict(best.totals), "num_graphs": best.num_graphs, "packs_per_batch": best.packs_per_batch,
            "limits": [each.limits.to_dict() for each in self], "packs": [list(each.packs) for each in self],
            **{name: getattr(self, name) for name in _PLAIN}, "versions": dict(self.versions),
        })  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LadderSearch:
        """Read what `save` wrote, and check it.

        Raises
        ------
        FormatError
            The file is missing, foreign, newer, or altered.
        """
        with _FILE.reading(path) as document:
            common = (document["num_graphs"], document["totals"], document["packs_per_batch"])
            graphs, per_batch = (whole_number("a number of a search", n, 1) for n in (common[0], common[2]))
            totals = {name: whole_number("a total of a search", value, 0) for name, value in common[1].items()}
            candidates = tuple(
                LadderCandidate(Ladder.from_dict(limits), tuple(packs), graphs, totals, per_batch)
                for limits, packs in zip(document["limits"], document["packs"], strict=True)
            )
            rest = {name: document[name] for name in (*_PLAIN, "versions")}
            search = cls(candidates=candidates, **rest)
        return search

    def __repr__(self) -> str:
        best = self.best
        packs = ", ".join(f"{n} packs of {each!r}" for n, each in zip(best.packs, best.limits, strict=True))
        return (
            f"LadderSearch({len(self)} candidates by {self.method!r}, best: {packs}, {best.graphs_per_batch:.1f} "
            f"graphs a batch, harmonic mean {best.harmonic_mean:.2%})"
        )


_PLAIN = ("asked", "best_index", "method", "seed", "multiple_of")
