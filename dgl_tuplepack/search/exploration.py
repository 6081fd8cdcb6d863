"""A derivative-free search: limits along the mean size, then ever closer around the most promising ones."""

from __future__ import annotations

from typing import Protocol

from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.sizes import IntArray

# Of all plans, the parts that are spread along the mean size: over all scales, and below the best of these.
_SPREAD, _CLOSER = 0.35, 0.25
# Each round of refining plans so many more, as a part of all plans; then leaders are chosen anew.
_ROUND = 0.125
_FEWEST_IN_ROUND = 8


class Rule(Protocol):
    """What a way of searching looks for."""

    def order(self, evaluation: Evaluation) -> IntArray:
        """Numbers of the candidates known so far, the most promising first; the very first is the one to advise."""

    def promising(self, evaluation: Evaluation, rows: list[Row]) -> list[Row]:
        """Those of these limits that may be worth a plan, by what is known before."""

    def proposals(self, row: Row, scale: float) -> list[Row]:
        """Limits around `row`, some `scale` mean graphs away."""


def explore(
    evaluation: Evaluation,
    space: Space,
    first: float,
    last: float,
    plans: int,
    rule: Rule,
    starts: tuple[Row, ...],
) -> None:
    """Search limits that hold `first` to `last` mean graphs, and what lies around them.

    Parameters
    ----------
    evaluation
        Holds what is known; it is added to.
    plans
        Most candidates, >= 1.
    rule
        What is looked for.
    starts
        Limits to begin with, beside those along the mean size.

    Notes
    -----
    Every round is fixed before its plans are made, so nothing depends on which of them ends first.
    """
    spread = max(2, int(_SPREAD * plans))
    evaluation.add(rule.promising(evaluation, [*starts, *space.ray(first, last, spread)])[:plans])
    rows = list(evaluation.found)
    reached = space.scale_of(rows[rule.order(evaluation)[0]])
    closer = rule.promising(evaluation, space.ray(min(first, reached), reached, max(2, int(_CLOSER * plans))))
    evaluation.add(closer, most=plans - len(evaluation.found))
    _refine(evaluation, space, (last - first) / spread, plans, rule)


def _refine(evaluation: Evaluation, space: Space, scale: float, plans: int, rule: Rule) -> None:
    """Plan what lies around the leaders, half as far away each round."""
    while len(evaluation.found) < plans:
        room = min(max(_FEWEST_IN_ROUND, int(_ROUND * plans)), plans - len(evaluation.found))
        rows = list(evaluation.found)
        fresh: dict[Row, None] = {}
        for number in rule.order(evaluation).tolist():
            leader = rows[number]
            near = [*rule.proposals(leader, scale), space.rounded(evaluation.used(leader))]
            unknown = [row for row in near if row not in evaluation.found and row not in fresh]
            fresh.update(dict.fromkeys(rule.promising(evaluation, unknown)))
            if len(fresh) >= room:
                break
        evaluation.add(list(fresh), most=room)
        if not fresh and scale <= space.finest:
            break
        scale = max(scale / 2, space.finest)
