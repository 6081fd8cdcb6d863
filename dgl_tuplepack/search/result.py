"""The result of a search for limits: a table of candidates, the best of them, and the Pareto front."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._checks import INT64_MAX, UINT64_MAX, whole_number
from dgl_tuplepack._csv import csv_text
from dgl_tuplepack._files import JsonFormat, write_text
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.metrics import harmonic_mean
from dgl_tuplepack.plan import library_versions
from dgl_tuplepack.sizes import FloatArray, IntArray, as_int64, component_names

_FILE = JsonFormat("dgl_tuplepack.limits_search", 1, "search", "repeat the search")

WAYS = ("grid", "target", "graphs_per_batch", "budget", "auto")


@dataclass(frozen=True)
class Candidate:
    """Limits that were tried, and what a plan within them needs.

    Parameters
    ----------
    limits
        The limits, with the cap on graphs that was asked for.
    packs
        Packs P of the plan.
    most_graphs
        Most graphs in any pack.
    effective_limits
        Largest content that any pack really has, in each component.
    num_graphs
        Graphs N that were packed.
    totals
        Component -> sum over all graphs.
    score
        What the search compares candidates by: the harmonic mean, or the value of the objective.
    """

    limits: Limits
    packs: int
    most_graphs: int
    effective_limits: Limits
    num_graphs: int
    totals: Mapping[str, int]
    score: float

    @property
    def efficiency(self) -> dict[str, float]:
        """Component -> real content / (packs x limit), a fraction in [0, 1]."""
        return {name: self.totals[name] / (self.packs * limit) for name, limit in self.limits.maxima.items()}

    @property
    def harmonic_mean(self) -> float:
        """Harmonic mean of the efficiencies, without components that are 0 in all graphs."""
        return harmonic_mean(self.efficiency)

    @property
    def graphs_per_pack(self) -> float:
        """Mean graphs in a pack, N / P."""
        return self.num_graphs / self.packs

    @property
    def slots(self) -> int:
        """Slots of one pack: the sum of the limits."""
        return sum(self.limits.values)

    @property
    def empty_slots(self) -> dict[str, int]:
        """Component -> slots that hold padding in one epoch, P x limit - total, not counting reserved slots."""
        return {name: self.packs * limit - self.totals[name] for name, limit in self.limits.maxima.items()}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "limits": self.limits.to_dict(), "packs": self.packs, "efficiency": self.efficiency,
            "harmonic_mean": self.harmonic_mean, "graphs_per_pack": self.graphs_per_pack,
            "most_graphs": self.most_graphs, "effective_limits": self.effective_limits.to_dict(),
            "slots": self.slots, "empty_slots": self.empty_slots, "score": self.score,
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class LimitsSearch(Sequence[Candidate]):
    """The result of `search_limits`: a sequence of M `Candidate`, in ascending order of the limits.

    Its attributes hold the same as arrays.

    Parameters
    ----------
    way
        One of "grid", "target", "graphs_per_batch", "budget", "auto".
    components
        k names.
    num_graphs, totals
        Graphs that were packed, and the sums of their sizes by component, int64 ``[k]``.
    cap
        Most graphs in a pack, None: no cap.
    limits
        int64 ``[M, k]``, distinct.
    packs, most_graphs
        int64 ``[M]``: packs of each plan, and most graphs in any pack of it.
    used
        int64 ``[M, k]``: largest content of a pack.
    scores
        float64 ``[M]``: what candidates were compared by.
    best_index
        The candidate that the search advises.
    method, heuristic, seed
        How plans were made; see `pack`.
    multiple_of
        The padded shape of a pack is a multiple of this.
    dropped
        Graphs that were left out because they exceed the limits.
    aim
        The settings of the way, as plain data.
    """

    way: str
    components: tuple[str, ...]
    num_graphs: int
    totals: IntArray
    cap: int | None
    limits: IntArray
    packs: IntArray
    most_graphs: IntArray
    used: IntArray
    scores: FloatArray
    best_index: int
    method: str
    heuristic: str | None = None
    seed: int = 0
    multiple_of: int = 1
    dropped: int = 0
    aim: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=library_versions)

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            array = as_int64(getattr(self, name), f"{name} of a search")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        scores = np.array(self.scores, dtype=np.float64)
        scores.setflags(write=False)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "components", component_names(self.components, len(self.totals)))
        self._check()

    def _check(self) -> None:
        """Refuse fields that cannot be the result of one search."""
        number, k = len(self.packs), len(self.components)
        shapes = [(number,), (number,), (number,), (number, k), (number, k), (k,)]
        arrays = (self.packs, self.most_graphs, self.scores, self.limits, self.used, self.totals)
        if not number or [array.shape for array in arrays] != shapes:
            raise SearchError("the arrays of the search do not fit together; it is damaged, repeat the search.")
        # Slots are summed up in 64 bits.
        slots = sum(int(column.max()) for column in self.limits.T)
        if slots > INT64_MAX:
            raise SearchError(f"the largest limits add up to {slots} slots, above 2**63-1; the search is damaged.")
        whole_number("graphs of a search", self.num_graphs, 1, error=SearchError)
        cap = self.num_graphs if self.cap is None else whole_number("graphs", self.cap, 1, error=SearchError)
        whole_number("the best row of a search", self.best_index, 0, number - 1, SearchError)
        whole_number("seed of a search", self.seed, 0, UINT64_MAX, SearchError)
        whole_number("multiple_of", self.multiple_of, 1, error=SearchError)
        whole_number("dropped graphs of a search", self.dropped, 0, error=SearchError)
        if isinstance(self.aim, Mapping):
            whole_number("packs_per_batch of a search", self.aim.get("packs_per_batch", 1), 1, error=SearchError)
        sound = (
            (self.limits >= 1).all() and (self.used <= self.limits).all()
            and (np.lexsort(self.limits.T[::-1]) == np.arange(number)).all()
            and (np.diff(self.limits, axis=0) != 0).any(axis=1).all()
            and ((self.packs >= 1) & (self.packs <= self.num_graphs)).all()
            and ((self.most_graphs >= 1) & (self.most_graphs <= cap)).all()
            and (self.packs >= np.ceil(self.totals / self.limits).max(axis=1)).all()
            and np.isfinite(self.scores).all()
        )  # fmt: skip
        if not sound:
            raise SearchError("a row of the search contradicts itself or is out of order; it is damaged.")
        texts = (self.method, self.heuristic or "", *self.versions, *self.versions.values())
        if self.way not in WAYS or not all(isinstance(text, str) for text in texts):
            raise SearchError(f"the way of a search must be one of {', '.join(WAYS)}, but is {self.way!r}.")

    def __len__(self) -> int:
        return len(self.packs)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = range(len(self))[index]
        limits, totals = (dict(zip(self.components, v.tolist(), strict=True)) for v in (self.limits[row], self.totals))
        packs, most = int(self.packs[row]), int(self.most_graphs[row])
        effective = effective_limits(self.components, self.used[row].tolist(), most)
        limited = Limits.from_components(limits, self.cap)
        return Candidate(limited, packs, most, effective, self.num_graphs, totals, float(self.scores[row]))

    @property
    def best(self) -> Candidate:
        """The candidate that the search advises; see `search_limits` for the rule."""
        best: Candidate = self[self.best_index]
        return best

    @property
    def packs_per_batch(self) -> int:
        """Packs of a batch that hold the graphs asked for, as `PackBatchSampler` takes it; 1 for other ways."""
        packs: int = self.aim.get("packs_per_batch", 1)
        return packs

    @property
    def graphs_per_batch(self) -> float:
        """Mean graphs of a batch of `packs_per_batch` packs within the best limits."""
        return self.num_graphs / -(-self.best.packs // self.packs_per_batch)

    @functools.cached_property
    def efficiency(self) -> FloatArray:
        """Real content / (packs x limit), float64 ``[M, k]``, against the limits asked for."""
        return efficiencies(self.totals, self.packs, self.limits)

    @functools.cached_property
    def harmonic_mean(self) -> FloatArray:
        """Harmonic mean of the efficiencies of each candidate, float64 ``[M]``."""
        return harmonic_means(self.efficiency)

    @functools.cached_property
    def slots(self) -> IntArray:
        """Slots of one pack, the sum of the limits, int64 ``[M]``."""
        return np.asarray(self.limits.sum(axis=1), dtype=np.int64)

    @functools.cached_property
    def pareto_indices(self) -> IntArray:
        """Indices of the Pareto front, ascending in slots per pack and in score."""
        order = np.lexsort((np.arange(len(self)), -self.scores, self.slots))
        scores = self.scores[order]
        before = np.concatenate([[-np.inf], np.maximum.accumulate(scores)[:-1]])
        return order[scores > before]

    @property
    def pareto(self) -> list[Candidate]:
        """Candidates of the Pareto front, by slots, ascending: no other has a higher score with as few slots."""
        return [self[int(i)] for i in self.pareto_indices]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the settings, the best candidate, the Pareto front, and all candidates."""
        return {
            "way": self.way, "aim": dict(self.aim), "method": self.method, "heuristic": self.heuristic,
            "seed": self.seed, "multiple_of": self.multiple_of, "graphs": self.num_graphs, "dropped": self.dropped,
            "packs_per_batch": self.packs_per_batch, "graphs_per_batch": self.graphs_per_batch,
            "best": self.best.to_dict(), "pareto": [c.to_dict() for c in self.pareto],
            "candidates": [c.to_dict() for c in self],
        }  # fmt: skip

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the table as CSV text; write it to `path` as well if one is given.

        Columns: limits and used maxima of each component, packs, efficiencies, harmonic mean, mean and most graphs
        of a pack, slots of a pack, empty slots of an epoch, score, and 1 or 0 for the Pareto front and for the best.
        """
        front = set(self.pareto_indices.tolist())
        text = csv_text([
            {
                "limit": c.limits.maxima, "packs": c.packs, "efficiency": c.efficiency,
                "harmonic_mean": c.harmonic_mean, "graphs_per_pack": c.graphs_per_pack, "most_graphs": c.most_graphs,
                "used": dict(zip(self.components, self.used[row].tolist(), strict=True)), "slots": c.slots,
                "empty_slots": c.empty_slots, "score": c.score, "pareto": int(row in front),
                "best": int(row == self.best_index),
            }
            for row, c in enumerate(self)
        ])  # fmt: skip
        if path is not None:
            write_text(path, text)
        return text

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the search as JSON, completely or not at all."""
        content: dict[str, Any] = {"components": list(self.components)}
        content |= {name: getattr(self, name).tolist() for name in (*_ARRAYS, "scores")}
        content |= {name: getattr(self, name) for name in _PLAIN}
        content |= {name: dict(getattr(self, name)) for name in ("aim", "versions")}
        _FILE.write(path, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> LimitsSearch:
        """Read what `save` wrote, and check it.

        Raises
        ------
        FormatError
            The file is missing, foreign, newer, or altered.
        """
        with _FILE.reading(path) as document:
            arrays: dict[str, Any] = {name: np.array(document[name]) for name in _ARRAYS}
            scores = np.array(document["scores"], dtype=np.float64)
            rest = {name: document[name] for name in (*_PLAIN, "aim", "versions")}
            search = cls(components=tuple(document["components"]), scores=scores, **arrays, **rest)
            if not isinstance(search.aim, dict):
                raise SearchError(f"its aim is {search.aim!r:.100}")
        return search

    def __repr__(self) -> str:
        best = self.best
        fractions = ", ".join(f"{name} {value:.2%}" for name, value in best.efficiency.items())
        dropped = f", {self.dropped} graphs dropped" if self.dropped else ""
        batches = f", {self.packs_per_batch} packs a batch" if self.packs_per_batch > 1 else ""
        return (
            f"LimitsSearch({self.way!r}, {len(self)} candidates by {self.method!r}, best {best.limits!r}: "
            f"{best.packs} packs of {best.graphs_per_pack:.1f} graphs{batches}, efficiency: {fractions}, harmonic mean "
            f"{best.harmonic_mean:.2%}{dropped})"
        )


def effective_limits(components: Sequence[str], used: Sequence[int], most_graphs: int) -> Limits:
    """Return the largest content of a pack as limits, which are at least 1."""
    return Limits.from_components({n: max(1, v) for n, v in zip(components, used, strict=True)}, most_graphs)


def efficiencies(totals: IntArray, packs: NDArray[Any], limits: IntArray) -> FloatArray:
    """Return total / (packs x limit), float64 ``[M, k]``, for packs ``[M]`` and limits ``[M, k]``."""
    return np.asarray(totals / (packs[:, None].astype(np.float64) * limits), dtype=np.float64)


def harmonic_means(efficiency: FloatArray) -> FloatArray:
    """Return the harmonic mean of each row of efficiencies ``[M, k]``, as `metrics.harmonic_mean` does."""
    present = efficiency[:, efficiency.any(axis=0)]
    if not present.size:
        return np.zeros(len(efficiency))
    return np.asarray(present.shape[1] / (1 / present).sum(axis=1), dtype=np.float64)


_ARRAYS = ("limits", "packs", "most_graphs", "used", "totals")
_PLAIN = (
    "way", "num_graphs", "cap", "best_index", "method", "heuristic", "seed", "multiple_of", "dropped",
)  # fmt: skip
