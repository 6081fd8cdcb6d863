"""Every combination of ranges: the paper's way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping

from dgl_tuplepack._checks import INT64_MAX, whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.search.auto import Scoring
from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.space import Row, Space, by_component

Ranges = Mapping[str, Iterable[int]]

_MOST_COMBINATIONS = 1_000_000


def search_grid(evaluation: Evaluation, rows: list[Row], scoring: Scoring) -> int:
    """Plan every combination.

    Notes
    -----
    Source: Krell et al. 2022 (arXiv 2209.06354), sections 2.5 and 3.2.
    """
    evaluation.add(rows)
    return int(scoring.fewest_slots(evaluation)[0])


def values_of(ranges: Ranges, components: tuple[str, ...]) -> dict[str, list[int]]:
    """Ranges written out, in the order of the components.

    Raises
    ------
    SearchError
        The ranges are for other components, one is empty, or a value is no limit.
    """
    return {name: _values(name, of) for name, of in by_component("ranges", ranges, components, every=True).items()}


def combinations(values: Mapping[str, list[int]], space: Space) -> list[Row]:
    """All limits of the ranges, by slots per pack, rising.

    Values are rounded up to the multiples that are asked for.

    Raises
    ------
    SearchError
        There are too many combinations.
    """
    aligned = [
        sorted({-(-(value + reserve) // step) * step - reserve for value in column})
        for column, step, reserve in zip(values.values(), space.multiples, space.reserve, strict=True)
    ]
    number = math.prod(map(len, aligned))
    if number > _MOST_COMBINATIONS or sum(column[-1] for column in aligned) > INT64_MAX:
        raise SearchError(
            f"the ranges have {number} combinations, the largest of {sum(column[-1] for column in aligned)} slots; at "
            f"most {_MOST_COMBINATIONS} and 2**63-1 are possible, so take larger steps or smaller values."
        )
    return sorted(itertools.product(*aligned), key=lambda row: (sum(row), row))


def _values(name: str, values: Iterable[int]) -> list[int]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SearchError(f"the range of {name} must be whole numbers, but is {values!r}; write range(20, 60), say.")
    # A range of 2**60 numbers is refused before it is written out.
    first = list(itertools.islice(values, _MOST_COMBINATIONS + 1))
    if not first:
        raise SearchError(f"the range of {name} is empty ({values!r}); give it at least one value.")
    if len(first) > _MOST_COMBINATIONS:
        raise SearchError(f"the range of {name} has over {_MOST_COMBINATIONS} values; take larger steps.")
    return [whole_number(f"a value in the range of {name}", value, 1, error=SearchError) for value in first]
