"""Every combination of ranges: the way of the paper."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dgl_tuplepack._checks import INT64_MAX, whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.search.way import Scored, by_component, in_order

Ranges = Mapping[str, Iterable[int]]

_MOST_COMBINATIONS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Grid(Scored):
    """Plan every combination; advise the fewest slots per pack among those that score about highest.

    Notes
    -----
    Source: Krell et al. 2022 (arXiv 2209.06354), sections 2.5 and 3.2.
    """

    name = "grid"
    # Component -> limits to try, for every component.
    ranges: Ranges

    def __post_init__(self) -> None:
        super().__post_init__()
        self._keep(ranges=checked_ranges(self.ranges))

    def for_histogram(self, histogram: SizeHistogram) -> Grid:
        """Return the way with its ranges in the order of the components."""
        return replace(self, ranges=in_order("ranges", self.ranges, histogram.components, every=True))

    def smallest(self, space: Space, drop: bool) -> Row:
        """Return the smallest of all combinations."""
        return tuple(column[0] for column in columns(self.ranges, space))

    def search(self, evaluation: Evaluation, space: Space) -> int:
        """Plan every combination, and return the index of the one to advise."""
        evaluation.add(combinations(self.ranges, space))
        return int(self.order(evaluation)[0])


def checked_ranges(ranges: object) -> dict[str, list[int]]:
    """Return ranges as lists of limits; refuse ranges that are empty or have too many values."""
    return by_component("ranges", ranges, _values)


def columns(ranges: Ranges, space: Space) -> list[list[int]]:
    """Return the limits of each component, ascending, rounded up to the multiples; refuse too many combinations."""
    aligned = [
        sorted({-(-(value + reserve) // step) * step - reserve for value in column})
        for column, step, reserve in zip(ranges.values(), space.multiples, space.reserve, strict=True)
    ]
    number, most = math.prod(map(len, aligned)), sum(column[-1] for column in aligned)
    if number > _MOST_COMBINATIONS or most > INT64_MAX:
        raise SearchError(
            f"the ranges have {number} combinations, the largest of {most} slots; at most {_MOST_COMBINATIONS} "
            "combinations and 2**63-1 slots are possible, so take larger steps or smaller values."
        )
    return aligned


def combinations(ranges: Ranges, space: Space) -> list[Row]:
    """Return all combinations of `columns`, by slots per pack, ascending."""
    return sorted(itertools.product(*columns(ranges, space)), key=lambda row: (sum(row), row))


def _values(name: str, values: object) -> list[int]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SearchError(f"the range of {name} must be whole numbers, but is {values!r:.100}; try range(20, 60).")
    # A range of 2**60 numbers is refused before it is written out.
    first = list(itertools.islice(values, _MOST_COMBINATIONS + 1))
    if not first:
        raise SearchError(f"the range of {name} is empty ({values!r}); give it at least one value.")
    if len(first) > _MOST_COMBINATIONS:
        raise SearchError(f"the range of {name} has over {_MOST_COMBINATIONS} values; take larger steps.")
    return [whole_number(f"a value in the range of {name}", value, 1, error=SearchError) for value in first]
