"""Every combination of ranges: the way of the paper."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.settings import MOST_COMBINATIONS, Ranges
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.search.way import Scored


@dataclass(frozen=True, kw_only=True)
class Grid(Scored):
    """Plan every combination; advise the fewest slots per pack among those that score about highest.

    Source: Krell et al. 2022 (arXiv 2209.06354), sections 2.5 and 3.2.
    """

    name = "grid"
    # Component -> limits to try, for every component.
    ranges: Ranges

    def smallest(self, space: Space, drop: bool) -> Row:
        """Return the smallest of all combinations."""
        return tuple(column[0] for column in columns(self.ranges, space))

    def search(self, evaluation: Evaluation, space: Space) -> None:
        """Plan every combination."""
        evaluation.add(combinations(self.ranges, space))


def columns(ranges: Ranges, space: Space) -> list[list[int]]:
    """Return the limits of each component, ascending, rounded up to the multiples; refuse too many combinations."""
    aligned = [
        sorted({-(-(value + reserve) // step) * step - reserve for value in column})
        for column, step, reserve in zip(ranges.values(), space.multiples, space.reserve, strict=True)
    ]
    number, most = math.prod(map(len, aligned)), sum(column[-1] for column in aligned)
    if number > MOST_COMBINATIONS or most > INT64_MAX:
        raise SearchError(
            f"the ranges have {number} combinations, the largest of {most} slots; at most {MOST_COMBINATIONS} "
            "combinations and 2**63-1 slots are possible, so take larger steps or smaller values."
        )
    return aligned


def combinations(ranges: Ranges, space: Space) -> list[Row]:
    """Return all combinations of `columns`, by slots per pack, ascending."""
    return sorted(itertools.product(*columns(ranges, space)), key=lambda row: (sum(row), row))
