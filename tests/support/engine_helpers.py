"""Plain helpers for the tests of the packing engine: the optimum of a histogram and random small instances."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from tests.support.reference import fewest_packs

NAMES = ("a", "b", "c", "d", "e", "f")


def exact_optimum(histogram: SizeHistogram, limits: Limits) -> int:
    """Fewest packs of a histogram, by the reference."""
    graphs = np.repeat(histogram.sizes, histogram.counts, axis=0)
    return fewest_packs([tuple(row) for row in graphs.tolist()], limits.values, limits.graphs)


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
