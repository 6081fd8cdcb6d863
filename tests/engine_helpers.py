"""Plain helpers for the tests of the packing engine: an exhaustive optimum and random small instances."""

from __future__ import annotations

import functools

import numpy as np
from hypothesis import strategies as st

from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits

NAMES = ("a", "b", "c", "d", "e", "f")


def exact_optimum(histogram: SizeHistogram, limits: Limits) -> int:
    """Fewest packs, by trying every way to fill one pack with the first graph left."""
    sizes = [tuple(row) for row in histogram.sizes.tolist()]
    cap = histogram.num_graphs if limits.graphs is None else limits.graphs

    def fillings(counts, position, room, graphs):
        if position == len(sizes):
            yield counts
            return
        yield from fillings(counts, position + 1, room, graphs)
        left = list(counts)
        while left[position] and graphs and all(s <= r for s, r in zip(sizes[position], room, strict=True)):
            left[position] -= 1
            graphs -= 1
            room = tuple(r - s for s, r in zip(sizes[position], room, strict=True))
            yield from fillings(tuple(left), position + 1, room, graphs)

    @functools.lru_cache(None)
    def fewest(counts):
        if not any(counts):
            return 0
        first = next(i for i, count in enumerate(counts) if count)
        left = list(counts)
        left[first] -= 1
        room = tuple(m - s for s, m in zip(sizes[first], limits.values, strict=True))
        return 1 + min(fewest(rest) for rest in set(fillings(tuple(left), first, room, cap - 1)))

    return fewest(tuple(histogram.counts.tolist()))


@st.composite
def small_instances(draw, most_graphs: int = 8, most_size: int = 9):
    """A histogram of few graphs and limits that every graph keeps, 1 to 3 components."""
    k = draw(st.integers(1, 3))
    size = st.tuples(*[st.integers(0, most_size)] * k)
    counts: dict[tuple[int, ...], int] = {}
    for row in draw(st.lists(size, min_size=1, max_size=most_graphs)):
        counts[row] = counts.get(row, 0) + 1
    histogram = SizeHistogram.from_counts(counts, NAMES[:k])
    maxima = {name: draw(st.integers(max(1, largest), 2 * most_size)) for name, largest in histogram.maxima().items()}
    return histogram, Limits.from_components(maxima, draw(st.none() | st.integers(1, 5)))


def random_histogram(seed: int, classes: int, k: int, most_size: int, most_count: int) -> SizeHistogram:
    """Random distinct sizes with random counts."""
    rng = np.random.default_rng(seed)
    sizes = np.unique(rng.integers(1, most_size + 1, (classes, k)), axis=0)
    return SizeHistogram(sizes, rng.integers(1, most_count + 1, len(sizes)), NAMES[:k])
