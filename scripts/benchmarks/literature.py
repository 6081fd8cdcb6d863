"""Generate small instances from the literature and medium ones of mixed structure, by class or family and seed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dgl_tuplepack import Limits, SizeHistogram, lower_bound, pack
from dgl_tuplepack._core.progress import progress_bar

SIZES = (25, 50, 100, 200)
INSTANCES = 10

# Class -> ((smallest, largest) of both sizes, limit).
_RANGES = {
    1: ((100, 400), 1000), 2: ((1, 1000), 1000), 3: ((200, 800), 1000), 4: ((50, 200), 1000), 5: ((25, 100), 1000),
    6: ((20, 100), 150),
}  # fmt: skip
CLASSES = (*_RANGES, 7, 8)

Sizes = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """An instance and its class or family."""

    family: str
    histogram: SizeHistogram
    limits: Limits


def literature(number: int, graphs: int, seed: int) -> Case:
    """Return an instance of class `number` (1 to 8) with `graphs` graphs.

    Source: Caprara & Toth 2001, "Lower bounds and algorithms for the 2-dimensional vector packing problem", section 7,
    after Spieksma 1994.
    """
    draw = np.random.default_rng([number, graphs, seed])
    if number in _RANGES:
        (least, most), limit = _RANGES[number]
        sizes = draw.integers(least, most + 1, (graphs, 2))
    else:
        limit = 150
        first = draw.integers(20, 101, graphs)
        # In class 7 both sizes are similar; in class 8 a larger first size means a smaller second one.
        second = draw.integers(first - 10, first + 11) if number == 7 else draw.integers(110 - first, 131 - first)
        sizes = np.column_stack([first, second])
    return _case(f"class {number}, {graphs} graphs", sizes, (limit, limit))


def small_cases(seed: int) -> Iterator[Case]:
    """Yield ten instances of each class and number of graphs."""
    for number, graphs in itertools.product(CLASSES, SIZES):
        for instance in range(INSTANCES):
            yield literature(number, graphs, INSTANCES * seed + instance)


def medium_cases(count: int, seed: int) -> list[Case]:
    """Return `count` instances of 300 to 3,000 graphs, from all families in turn."""
    names = list(FAMILIES)
    cases = []
    for number in range(count):
        draw = np.random.default_rng([1000, seed, number])
        cases.append(FAMILIES[names[number % len(names)]](draw, int(draw.integers(300, 3001))))
    return cases


def measured_families(cases: Iterable[Case], seed: int) -> list[dict[str, Any]]:
    """Return a row for each class or family: proven and near-optimal plans, raised bounds, and seconds."""
    pack(SizeHistogram.from_counts({(3, 4): 5, (2, 2): 3}), Limits(9, 9))
    found: dict[str, list[tuple[int, int, int, float]]] = {}
    for case in progress_bar(cases, desc="instances"):
        start = time.perf_counter()
        plan = pack(case.histogram, case.limits, seed=seed)
        seconds = time.perf_counter() - start
        closed = lower_bound(case.histogram, case.limits, effort=0)
        found.setdefault(case.family, []).append((plan.num_packs, plan.lower_bound, closed, seconds))
    return [
        {
            "instances of": family,
            "number": len(rows),
            "proven": sum(packs == bound for packs, bound, _, _ in rows),
            "proven or below 1 %": sum(100 * (packs - bound) < max(bound, 1) for packs, bound, _, _ in rows),
            "bound raised": sum(bound > closed for _, bound, closed, _ in rows),
            "worst gap, lost": max((packs - bound) / bound for packs, bound, _, _ in rows),
            "mean_s": sum(seconds for *_, seconds in rows) / len(rows),
            "largest_s": max(seconds for *_, seconds in rows),
        }
        for family, rows in found.items()
    ]


def _case(family: str, sizes: Sizes, maxima: tuple[int, ...], graphs: int | None = None) -> Case:
    names = ("nodes", "edges", "triplets")[: len(maxima)]
    rows, counts = np.unique(np.maximum(sizes, 0), axis=0, return_counts=True)
    limits = Limits.from_components(dict(zip(names, maxima, strict=True)), graphs)
    return Case(family, SizeHistogram(rows, counts, names), limits)


def _uniform(number: str, least: int, most: int, limit: int) -> Callable[[Generator, int], Case]:
    """Return a function that makes instances of uniform sizes; about `number` graphs fit in a pack."""
    return lambda draw, graphs: _case(
        f"uniform, {number} a pack", draw.integers(least, most + 1, (graphs, 2)), (limit, limit)
    )


def _molecules(draw: Generator, graphs: int) -> Case:
    nodes = np.clip(draw.lognormal(3.2, 0.4, graphs).astype(np.int64), 3, 200)
    rings = draw.binomial(nodes // 4 + 1, 0.4)
    return _case("molecules", np.column_stack([nodes, 2 * (nodes - 1 + rings)]), (256, 560), graphs=64)


def _heavy_tail(draw: Generator, graphs: int) -> Case:
    nodes = np.clip((8 * (1 + draw.pareto(1.2, graphs))).astype(np.int64), 8, 900)
    edges = np.minimum(nodes * draw.integers(2, 7, graphs), 4500)
    return _case("heavy tail", np.column_stack([nodes, edges]), (1000, 4500))


def _alike(draw: Generator, graphs: int) -> Case:
    first = draw.integers(60, 401, graphs)
    return _case("correlated", np.column_stack([first, first + draw.integers(-30, 31, graphs)]), (1000, 1000))


def _opposed(draw: Generator, graphs: int) -> Case:
    first = draw.integers(20, 101, graphs)
    return _case("anti-correlated", np.column_stack([first, 120 - first + draw.integers(-10, 11, graphs)]), (150, 150))


def _triples(draw: Generator, graphs: int) -> Case:
    """Make triples of graphs that fill a pack in both components; a larger first size means a smaller second one."""
    packs = graphs // 3
    first = draw.integers(200, 480, (packs, 2))
    first = np.column_stack([first, 1000 - first.sum(axis=1)])
    second = 667 - first + draw.integers(-15, 16, first.shape)
    second[:, 2] = 1000 - second[:, 0] - second[:, 1]
    sizes = np.column_stack([first.ravel(), second.ravel()])
    return _case("anti-correlated triples", sizes[(sizes >= 0).all(axis=1)], (1000, 1000))


def _thirds(draw: Generator, graphs: int) -> Case:
    """Make graphs of which three fill a pack on average, but hardly any three fit together."""
    first = draw.integers(100, 568, graphs)
    sizes = np.column_stack([first, 667 - first + draw.integers(-10, 11, graphs)])
    return _case("anti-correlated thirds", sizes, (1000, 1000))


def _planted(draw: Generator, graphs: int) -> Case:
    """Cut packs that are full in both components into two to six graphs each."""
    rows = []
    while len(rows) < graphs:
        pieces = int(draw.integers(2, 7))
        cuts = np.sort(draw.integers(1, 1000, (pieces - 1, 2)), axis=0)
        rows += np.diff(np.vstack([[0, 0], cuts, [1000, 1000]]), axis=0).tolist()
    return _case("planted", np.array(rows), (1000, 1000))


def _repeated(draw: Generator, graphs: int) -> Case:
    sizes = draw.integers(20, 400, (40, 2))
    return _case("few classes", sizes[draw.integers(0, 40, graphs)], (1000, 1000))


def _three(draw: Generator, graphs: int) -> Case:
    sizes = draw.integers(20, 201, (graphs, 3))
    return _case("three components", sizes, (500, 500, 500))


def _capped(draw: Generator, graphs: int) -> Case:
    sizes = np.column_stack([draw.integers(1, 60, graphs), draw.integers(1, 120, graphs)])
    return _case("capped", sizes, (256, 512), graphs=8)


def _two_kinds(draw: Generator, graphs: int) -> Case:
    """Make small graphs and some large ones of about half a pack."""
    large = draw.random(graphs) < 0.2
    sizes = np.where(large[:, None], draw.integers(350, 701, (graphs, 2)), draw.integers(5, 120, (graphs, 2)))
    return _case("large and small", sizes, (1000, 1000))


FAMILIES: dict[str, Callable[[Generator, int], Case]] = {
    "uniform few": _uniform("4", 100, 400, 1000), "uniform many": _uniform("16", 10, 115, 1000),
    "two or three": _uniform("2 or 3", 20, 100, 150), "molecules": _molecules, "heavy tail": _heavy_tail,
    "correlated": _alike, "anti-correlated": _opposed, "triples": _triples, "thirds": _thirds, "planted": _planted,
    "few classes": _repeated, "three components": _three, "capped": _capped, "large and small": _two_kinds,
}  # fmt: skip
