"""What all ways to search limits share: the interface, and constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import compress
from typing import Any, ClassVar

from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.settings import CHECKS, in_order
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.sizes import IntArray

# Largest limits of a search without batches or budget, as a multiple of what the largest graph needs.
REACH = 3.0


@dataclass(frozen=True, kw_only=True)
class Way(ABC):
    """One way to search limits: its settings, and what it looks for.

    The fields are the arguments of `search_limits` that the way takes, checked and as plain data.
    """

    name: ClassVar[str]
    # Most candidates.
    plans: ClassVar[int] = 200

    def __post_init__(self) -> None:
        for name, value in self.aim.items():
            object.__setattr__(self, name, CHECKS[name](value))

    @property
    def aim(self) -> dict[str, Any]:
        """Settings that are not None, by name, as plain data."""
        settings = {name: getattr(self, name) for name in sorted(field.name for field in fields(self))}
        return {name: value for name, value in settings.items() if value is not None}

    @property
    def packs(self) -> int:
        """Packs of a batch."""
        return 1

    def for_histogram(self, histogram: SizeHistogram) -> Way:
        """Return the way with settings in the order of the components of `histogram`; refuse settings for others."""
        by_component = {name: value for name, value in self.aim.items() if isinstance(value, Mapping)}
        ordered = {name: in_order(name, value, histogram.components) for name, value in by_component.items()}
        return replace(self, **ordered)

    def settled(self, space: Space, cap: int | None) -> Way:
        """Return the way with settings that depend on the graphs, and on the cap on graphs of a pack."""
        return self

    def largest_wanted(self, space: Space) -> Row | None:
        """Return limits beyond which graphs are dropped if the caller allows it; None if all limits hold all graphs."""
        return None

    @abstractmethod
    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Evaluate candidates, the one to advise among them; refuse aims that are out of reach."""

    @abstractmethod
    def order(self, evaluation: Evaluation) -> IntArray:
        """Return the indices of all candidates, the most promising first; the very first is the one to advise."""

    def promising(self, evaluation: Evaluation, space: Space, rows: list[Row]) -> list[Row]:
        """Return those of the limits `rows` that may be worth a plan, given the candidates evaluated so far."""
        return list(compress(rows, self.may_improve(evaluation, rows))) if evaluation.results else rows

    def may_improve(self, evaluation: Evaluation, rows: list[Row]) -> Iterable[bool]:
        """Return whether each of the limits `rows` can be better than the best candidate so far, by bounds."""
        return [True] * len(rows)

    def proposals(self, space: Space, row: Row, scale: float) -> list[Row]:
        """Return limits around `row`, some of them `scale` mean graphs away."""
        return space.neighbours(row, scale)
