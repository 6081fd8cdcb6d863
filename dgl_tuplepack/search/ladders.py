"""Search ladders: limits of several shapes with few slots, whose batches hold about so many graphs on average."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack.errors import LimitsError, SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.ladder import FEWEST, MOST, Ladder
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing import pack_shapes
from dgl_tuplepack.packing.settings import Settings
from dgl_tuplepack.search.evaluation import available_cores
from dgl_tuplepack.search.graphs_per_batch import TOLERANCE
from dgl_tuplepack.search.result import Candidate, LimitsSearch
from dgl_tuplepack.search.space import Row, Space

# Ladders that are planned at first, by default, and those of them that are planned thoroughly in the end.
PLANS = 60
_THOROUGH = 4
# The smallest shape holds so many mean graphs, as a multiple of the number asked for.
_FIRST, _LAST = 0.6, 1.4
_SCALES = 33
# Fraction of the plans for ladders along the mean size; the others are for ladders around the best of these.
_SPREAD = 0.6
# Middle shapes lie at these fractions of the way from the smallest shape to the largest, by ratios.
_BETWEEN = (0.25, 0.4, 0.55, 0.7)

Rows = tuple[Row, ...]


@dataclass(frozen=True)
class LadderTask:
    """Plans a ladder. It holds all data for that, so that it can be sent to other processes."""

    histogram: SizeHistogram
    cap: int | None
    packs_per_batch: int

    def __call__(self, rows: Rows, thorough: bool = False) -> Candidate:
        """Return the packs of each shape, one for each of `rows`."""
        ladder = Ladder([self._limits(row) for row in rows])
        plan = pack_shapes(self.histogram, ladder, "auto", Settings(effort=0.0), thorough)
        totals = self.histogram.totals()
        return Candidate(ladder, plan.packs_of_shapes, self.histogram.num_graphs, totals, self.packs_per_batch)

    def _limits(self, row: Row) -> Limits:
        return Limits.from_components(dict(zip(self.histogram.components, row, strict=True)), self.cap)


def search_ladders(
    space: Space,
    shapes: int,
    graphs_per_batch: int,
    task: LadderTask,
    multiple_of: int,
) -> LimitsSearch:
    """Return ladders of so many shapes, the best being the one with the fewest slots for that many graphs.

    The largest shape is the smallest that holds every graph. The smallest shape grows along the mean size, the others
    lie in between; ladders around the best are tried afterwards. All are planned quickly, and the best few thoroughly.
    """
    number = graphs_per_batch / task.packs_per_batch
    largest = space.rounded(space.smallest)
    free = replace(space, smallest=(1,) * len(largest))
    scale = number * (_LAST - _FIRST) / (_SCALES - 1)
    scales = [number * _FIRST + i * scale for i in range(_SCALES)]
    first = list(dict.fromkeys(_ladders(free, scales, largest, shapes)))
    if not first:
        raise SearchError(
            f"batches of {graphs_per_batch} graphs are as large as the smallest limits that hold every graph, "
            f"{dict(zip(space.components, largest, strict=True))}, so {shapes} shapes would save nothing; leave "
            "shapes= (--shapes) out, ask for smaller batches, or for more packs_per_batch."
        )
    step = max(1, math.ceil(len(first) / max(2, int(_SPREAD * PLANS))))
    found: dict[Rows, Candidate] = {}
    with ThreadPoolExecutor(available_cores()) as threads:
        run = partial(_planned, task, threads)
        run(found, first[::step])
        order = _order(graphs_per_batch)
        while len(found) < PLANS:
            best = min(found, key=lambda rows: order(found[rows]))
            near = [rows for rows in _around(free, best, scale) if rows not in found]
            if not near and scale <= space.finest:
                break
            run(found, near[: PLANS - len(found)])
            scale = max(scale / 2, space.finest)
        leaders = sorted(found, key=lambda rows: order(found[rows]))[:_THOROUGH]
        done: dict[Rows, Candidate] = {}
        _planned(partial(task, thorough=True), threads, done, leaders)
    candidates = sorted({**found, **done}.values(), key=order)
    best_one = min(done.values(), key=order)
    _check_reached(best_one, graphs_per_batch, shapes)
    aim = {"graphs_per_batch": graphs_per_batch, "packs_per_batch": task.packs_per_batch, "shapes": shapes}
    return LimitsSearch("graphs_per_batch", aim, tuple(candidates), candidates.index(best_one), multiple_of)


def _check_reached(best: Candidate, asked: int, shapes: int) -> None:
    """Refuse (SearchError) batches of another number of graphs: off by more than the tolerance and half a graph."""
    mean, graphs = best.graphs_per_batch, best.num_graphs
    # With few graphs, the last batch, which is not full, decides the mean; plain batches have one too.
    as_plain = round(graphs / mean) in (graphs // asked, -(-graphs // asked))
    if abs(mean - asked) > max(TOLERANCE * asked, 0.5) and not as_plain:
        packs = f" in {best.packs_per_batch} packs" if best.packs_per_batch > 1 else ""
        raise SearchError(
            f"graphs_per_batch={asked}{packs} is out of reach with {shapes} shapes: batches of the best ladder found, "
            f"{best.limits!r}, hold {mean:.1f} graphs on average; ask for about that many, for another number of "
            "shapes or of packs_per_batch, or set a cap (graphs=, --graphs)."
        )


def check_shapes(shapes: object) -> int:
    """Return the number of shapes; SearchError unless it is one of a ladder."""
    return whole_number("shapes", shapes, FEWEST, MOST, SearchError)


def _planned(
    task: Callable[[Rows], Candidate], executor: Executor, found: dict[Rows, Candidate], new: list[Rows]
) -> None:
    """Plan ladders and add them to those found."""
    for rows, future in [(rows, executor.submit(task, rows)) for rows in new]:
        found[rows] = future.result()


def _order(graphs_per_batch: int) -> Callable[[Candidate], tuple[float, int]]:
    """Return what candidates are sorted by: those within the tolerance first, by slots; the others by distance."""

    def key(candidate: Candidate) -> tuple[float, int]:
        return max(TOLERANCE, abs(candidate.graphs_per_batch / graphs_per_batch - 1)), candidate.padded_slots

    return key


def _ladders(space: Space, scales: Iterable[float], largest: Row, shapes: int) -> Iterator[Rows]:
    """Yield ladders whose smallest shape holds about `scales` mean graphs, in turn with a component a little larger."""
    k = len(largest)
    for turn, scale in enumerate(scales):
        slack = [1.02 if turn % (k + 1) == 1 + component else 1.0 for component in range(k)]
        smallest = space.rounded(
            min(most, scale * m * more) for m, more, most in zip(space.mean, slack, largest, strict=True)
        )
        for fractions in combinations(_BETWEEN, shapes - 2):
            between = (
                space.rounded(a ** (1 - f) * b**f for a, b in zip(smallest, largest, strict=True)) for f in fractions
            )
            rows = (smallest, *between, largest)
            if _ascend(rows):
                yield rows


def _around(space: Space, rows: Rows, scale: float) -> Iterator[Rows]:
    """Yield ladders in which one shape, but the largest, is about `scale` mean graphs larger or smaller."""
    for number in range(len(rows) - 1):
        for row in space.neighbours(rows[number], scale):
            changed = (*rows[:number], row, *rows[number + 1 :])
            if _ascend(changed):
                yield changed


def _ascend(rows: Rows) -> bool:
    try:
        Ladder([Limits.from_components({str(i): value for i, value in enumerate(row)}) for row in rows])
    except LimitsError:
        return False
    return True
