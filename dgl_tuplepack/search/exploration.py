"""A derivative-free search: limits along the mean size, then closer and closer around the most promising ones."""

from __future__ import annotations

from dgl_tuplepack.search.evaluation import Evaluation
from dgl_tuplepack.search.space import Row, Space
from dgl_tuplepack.search.way import Way

# Fractions of all plans that are spread along the mean size: over all scales, and below the best of these.
_SPREAD, _CLOSER = 0.35, 0.25
# Plans of each round of refining, as a fraction of all plans; leaders are chosen again after each round.
_ROUND = 0.125
_FEWEST_IN_ROUND = 8


def explore(evaluation: Evaluation, space: Space, way: Way, first: float, last: float, starts: tuple[Row, ...]) -> None:
    """Evaluate limits that hold `first` to `last` mean graphs, and limits around the most promising ones.

    The evaluation then has at most `way.plans` candidates, promising ones of `starts` among them. Candidates of a round
    are chosen before any of them is planned, so the result does not depend on which plan is done first.
    """
    plans = way.plans
    spread = max(2, int(_SPREAD * plans))
    evaluation.add(way.promising(evaluation, space, [*starts, *space.ray(first, last, spread)])[:plans])
    rows = list(evaluation.results)
    reached = space.scale_of(rows[way.order(evaluation)[0]])
    closer = way.promising(evaluation, space, space.ray(min(first, reached), reached, max(2, int(_CLOSER * plans))))
    evaluation.add(closer, most=plans - len(evaluation.results))
    _refine(evaluation, space, way, (last - first) / spread)


def _refine(evaluation: Evaluation, space: Space, way: Way, scale: float) -> None:
    """Evaluate limits around the leaders, half as far away in each round."""
    while len(evaluation.results) < way.plans:
        room = min(max(_FEWEST_IN_ROUND, int(_ROUND * way.plans)), way.plans - len(evaluation.results))
        rows = list(evaluation.results)
        fresh: dict[Row, None] = {}
        for number in way.order(evaluation).tolist():
            leader = rows[number]
            near = [*way.proposals(space, leader, scale), space.rounded(evaluation.results[leader][1:])]
            unknown = [row for row in near if row not in evaluation.results and row not in fresh]
            fresh.update(dict.fromkeys(way.promising(evaluation, space, unknown)))
            if len(fresh) >= room:
                break
        evaluation.add(list(fresh), most=room)
        if not fresh and scale <= space.finest:
            break
        scale = max(scale / 2, space.finest)
