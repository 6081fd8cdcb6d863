"""Hypothesis strategies for planning: whole problems that have a solution, small first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from hypothesis import strategies as st

from dgl_tuplepack import Limits, SizeHistogram
from dgl_tuplepack.planning.packing import METHODS
from dgl_tuplepack.planning.packing.fit import Heuristic
from tests.support import reference
from tests.support.reference import Size

_NAMES = {
    1: ("nodes",),
    2: ("nodes", "edges"),
    3: ("nodes", "edges", "triplets"),
    4: ("nodes:atom", "nodes:ring", "edges:atom:bond:atom", "edges:atom:in:ring"),
    5: ("edges:u:likes:v", "nodes:u", "nodes:v", "angles", "edges:v:liked:u"),
    6: ("nodes:a", "nodes:b", "nodes:c", "edges:a:x:b", "edges:b:y:c", "edges:c:z:a"),
}


@dataclass(frozen=True)
class Problem:
    """What is to be packed, in plain Python."""

    counts: dict[Size, int]
    maxima: Size
    cap: int | None

    @property
    def components(self) -> tuple[str, ...]:
        return _NAMES[len(self.maxima)]

    @property
    def graphs(self) -> list[Size]:
        return [size for size, count in self.counts.items() for _ in range(count)]

    @property
    def histogram(self) -> SizeHistogram:
        return SizeHistogram.from_counts(self.counts, self.components)

    @property
    def limits(self) -> Limits:
        return Limits.from_components(dict(zip(self.components, self.maxima, strict=True)), self.cap)

    def scaled(self, factor: int) -> Problem:
        """All sizes and limits (but not the cap on graphs) times `factor`."""
        counts = {tuple(factor * s for s in size): count for size, count in self.counts.items()}
        return Problem(counts, tuple(factor * m for m in self.maxima), self.cap)


@dataclass(frozen=True)
class Rule:
    """A heuristic as it is handed to the package, and the same for the reference."""

    given: Heuristic
    obvious: Callable[[Size], int | Fraction]

    def __repr__(self) -> str:
        return f"Rule({self.given!r})"


def caps(*, most: int = 6) -> st.SearchStrategy[int | None]:
    """No cap, one graph a pack, or a few."""
    return st.one_of(st.none(), st.just(1), st.integers(2, most))


def counts(
    *, components: int, values: st.SearchStrategy[int] | None = None, most_classes: int = 8, most_graphs: int = 6
) -> st.SearchStrategy[dict[Size, int]]:
    """Size -> graphs of that size: any mixture, all equal, or small ones beside a huge one."""
    values = st.integers(0, 12) if values is None else values
    size = st.tuples(*[values] * components)
    number = st.integers(1, most_graphs)
    mixture = st.dictionaries(size, number, min_size=1, max_size=most_classes)
    all_equal = st.builds(lambda s, n: {s: n}, size, number)
    huge = st.tuples(*[st.integers(60, 70)] * components)
    one_huge = st.builds(lambda small, s: {**small, s: 1}, mixture, huge)
    return st.one_of(mixture, all_equal, one_huge)


@st.composite
def limits_of(draw: st.DrawFn, *, of: dict[Size, int], slack: st.SearchStrategy[int] | None = None) -> Size:
    """Limits that hold every size alone; without slack the largest sizes are exactly at the limit."""
    slack = st.one_of(st.just(0), st.integers(0, 40)) if slack is None else slack
    return tuple(max(1, max(column)) + draw(slack) for column in zip(*of, strict=True))


@st.composite
def problems(
    draw: st.DrawFn,
    *,
    components: st.SearchStrategy[int] | None = None,
    cap: st.SearchStrategy[int | None] | None = None,
    most_classes: int = 8,
    most_graphs: int = 6,
) -> Problem:
    k = draw(st.integers(1, 6) if components is None else components)
    of = draw(counts(components=k, most_classes=most_classes, most_graphs=most_graphs))
    return Problem(of, draw(limits_of(of=of)), draw(caps() if cap is None else cap))


def tiny_problems(*, most: int = 7) -> st.SearchStrategy[Problem]:
    """At most `most` graphs, few enough for an exhaustive search."""
    value = st.integers(0, 9)

    def of_sizes(sizes: list[Size]) -> st.SearchStrategy[Problem]:
        of = {size: sizes.count(size) for size in sizes}
        return st.builds(Problem, st.just(of), limits_of(of=of, slack=st.integers(0, 6)), caps(most=3))

    return st.integers(1, 3).flatmap(
        lambda k: st.lists(st.tuples(*[value] * k), min_size=1, max_size=most).flatmap(of_sizes)
    )


def named_heuristics(*, of: Problem) -> st.SearchStrategy[str]:
    """Names that can be used: "node" and "edge" need such a component."""
    kinds = {component.split(":")[0] for component in of.components}
    names = ["product", "sum", "maximum", "minimum"]
    return st.sampled_from(names + [kind[:-1] for kind in ("nodes", "edges") if kind in kinds])


@st.composite
def heuristics(draw: st.DrawFn, *, of: Problem) -> Rule:
    """A name, or weights (some of them 0, not all)."""
    if draw(st.booleans()):
        name = draw(named_heuristics(of=of))
        return Rule(name, reference.named_heuristic(name, of.components))
    k = len(of.maxima)
    weights = draw(st.lists(st.sampled_from([0, 0.1, 0.25, 1, 1.5, 3]), min_size=k, max_size=k))
    weights[draw(st.integers(0, k - 1))] = draw(st.sampled_from([1, 0.3, 2]))
    return Rule(tuple(weights), reference.weighted(weights))


def methods(*, of: Problem) -> st.SearchStrategy[str]:
    """Every registered method that the components allow."""
    return st.sampled_from([name for name in METHODS if usable(name, of)])


def usable(method: str, problem: Problem) -> bool:
    """Whether the components allow a method: "edge_only" needs one that counts edges."""
    kinds = {component.split(":")[0] for component in problem.components}
    return not method.endswith("_only") or method.removesuffix("_only") + "s" in kinds
