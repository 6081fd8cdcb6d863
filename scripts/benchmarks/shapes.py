"""Synthetic histograms for benchmarks: shaped like well-known datasets, or with a known optimal packing.

Everything is integer arithmetic on a counter-based generator, so a name and a seed give the same histogram on
every platform. Dataset figures come from Table 1 in Krell et al. 2022 (arXiv 2209.06354).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels.random import derive_key, random_bits
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import IntArray


@dataclass(frozen=True)
class Planted:
    """A histogram cut from full packs; the optimum is `packs` packs."""

    histogram: SizeHistogram
    limits: Limits
    packs: int


class _Numbers:
    """Random integers from a seed and a purpose, in blocks."""

    def __init__(self, seed: int, purpose: int) -> None:
        self._key = np.uint64(derive_key(np.uint64(seed), np.uint64(0), np.uint64(purpose)))
        self._used = 0

    def below(self, bound: int | IntArray, number: int) -> IntArray:
        """Return `number` integers in ``0..bound - 1``, for bounds up to 2**31; the bias is below 2**-32."""
        counters = np.arange(self._used, self._used + number, dtype=np.uint64)
        self._used += number
        bits: NDArray[np.uint64] = random_bits.py_func(self._key, counters) >> np.uint64(32)
        return ((bits * np.asarray(bound).astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def molpcba(seed: int = 0) -> SizeHistogram:
    """Drug-like molecules: 576 size classes, 350,343 graphs, at most 313 nodes and 636 edges."""
    return _molecules(seed, classes=576, graphs=350_343, largest=(313, 636), centre=25, width=7)


def pcqm4mv2(seed: int = 0) -> SizeHistogram:
    """Small molecules: 152 size classes, 3,378,606 graphs, at most 20 nodes and 54 edges."""
    return _molecules(seed, classes=152, graphs=3_378_606, largest=(20, 54), centre=14, width=2)


def _molecules(
    seed: int, classes: int, graphs: int, largest: tuple[int, int], centre: int, width: int
) -> SizeHistogram:
    """Return sizes (n, 2 (n - 1 + rings)) with weights that decrease away from `centre` nodes and n / 8 rings."""
    numbers = _Numbers(seed, 1)
    weights: dict[tuple[int, int], int] = {}
    for nodes in range(2, largest[0] + 1):
        # -1 rings: a molecule of two unconnected pieces.
        for rings in range(-1, nodes // 2 + 2):
            size = (nodes, 2 * (nodes - 1 + rings))
            if size[1] <= largest[1]:
                away = 1 + abs(nodes - centre) // width
                off = 1 + abs(8 * rings - nodes) // 8
                noise = 700 + int(numbers.below(600, 1)[0])
                weights[size] = 10**15 * noise // (away**5 * off**4)
    weights[largest] = 10**18
    chosen = sorted(weights, key=lambda size: (-weights[size], size))[:classes]
    weights[largest] = 1
    return _allotted({size: weights[size] for size in chosen}, graphs)


def code2(seed: int = 0) -> SizeHistogram:
    """Syntax trees: 2,099 size classes, 407,976 graphs, mean 125 nodes, the largest 36,123; edges = nodes - 1."""
    numbers = _Numbers(seed, 2)
    nodes = set(range(11, 1400))
    while len(nodes) < 2098:
        nodes.add(1400 + int(numbers.below(1400, 1)[0]) * int(numbers.below(1400, 1)[0]) // 300)
    scale = 79
    weights = {(n, n - 1): 10**18 * n**2 // (scale**5 + n**5) for n in sorted(nodes)}
    weights[(36_123, 36_122)] = 1
    return _allotted(weights, 407_976)


def ppa(seed: int = 0) -> SizeHistogram:
    """Protein neighbourhoods: 35,981 size classes, 78,200 graphs, over half with exactly 300 nodes; many edges."""
    numbers = _Numbers(seed, 3)
    draws = 200_000
    nodes = np.where(numbers.below(1000, draws) < 415, 300, 60 + numbers.below(240, draws))
    mean_degree = 2 + numbers.below(40, draws) * numbers.below(40, draws) * numbers.below(40, draws) // 188
    edges = np.minimum(nodes * mean_degree // 2 + numbers.below(nodes, draws), 36_138)
    edges = np.minimum(edges, nodes * (nodes - 1) // 2)
    weights: dict[tuple[int, ...] | int, int] = {(300, 36_138): 1}
    graphs = 1
    for size in zip(nodes.tolist(), edges.tolist(), strict=True):
        if graphs == 78_200:
            break
        if size in weights or len(weights) < 35_981:
            weights[size] = weights.get(size, 0) + 1
            graphs += 1
    return SizeHistogram.from_counts(weights)


def _allotted(weights: dict[tuple[int, int], int], graphs: int) -> SizeHistogram:
    """Assign one graph to each size and the others by weight (largest remainders)."""
    spare, total = graphs - len(weights), sum(weights.values())
    shares = {size: divmod(spare * weight, total) for size, weight in weights.items()}
    missing = spare - sum(whole for whole, _ in shares.values())
    first = set(sorted(shares, key=lambda size: (-shares[size][1], size))[:missing])
    return SizeHistogram.from_counts({size: 1 + shares[size][0] + (size in first) for size in weights})


def planted(
    graphs: int,
    limits: tuple[int, ...] = (1000, 2200),
    seed: int = 0,
    items: tuple[int, int] = (5, 20),
    classes: int = 20_000,
) -> Planted:
    """Return about `graphs` graphs, cut from packs that are full in every component.

    Each pack is cut into `items` graphs (inclusive range). Packs are repeated if there would otherwise be more than
    `classes` size classes.
    """
    numbers = _Numbers(seed, 4)
    mean = (items[0] + items[1]) // 2
    packs = max(1, graphs // mean)
    distinct = min(packs, max(1, classes // (items[1] + 1)))
    rows = []
    for _ in range(distinct):
        number = items[0] + int(numbers.below(items[1] - items[0] + 1, 1)[0])
        shares = 20 + numbers.below(100, number)
        rows.append(np.stack([_cut(limit, shares * (90 + numbers.below(21, number))) for limit in limits], axis=1))
    copies = [packs // distinct + (row < packs % distinct) for row in range(distinct)]
    return Planted(_collected(rows, copies), _named(limits), packs)


def triplets(packs: int, limits: tuple[int, ...] = (1000,), seed: int = 0) -> Planted:
    """Return three graphs per pack, each between a quarter and half of a limit, as in Falkenauer 1996."""
    numbers = _Numbers(seed, 5)
    rows = []
    for _ in range(packs):
        columns = []
        for limit in limits:
            first = 38 * limit // 100 + int(numbers.below(limit // 10, 1)[0])
            rest = limit - first
            second = max(limit // 4 + 1, rest - limit // 2 + 1) + int(numbers.below(rest // 2 - limit // 4, 1)[0])
            columns.append([first, second, rest - second])
        rows.append(np.array(columns, dtype=np.int64).T)
    return Planted(_collected(rows, [1] * packs), _named(limits), packs)


def uniform(classes: int, limits: tuple[int, ...] = (1000, 2200), most: int = 3, seed: int = 0) -> SizeHistogram:
    """Return `classes` distinct random sizes up to the limits, with 1 to `most` graphs each."""
    numbers = _Numbers(seed, 6)
    sizes = np.zeros((0, len(limits)), dtype=np.int64)
    while len(sizes) < classes:
        drawn = np.stack([1 + numbers.below(limit, classes) for limit in limits], axis=1)
        both = np.concatenate([sizes, drawn])
        _, first = np.unique(both, axis=0, return_index=True)
        sizes = both[np.sort(first)]
    counts = 1 + numbers.below(most, classes)
    return SizeHistogram(sizes[:classes], counts, _named(limits).components)


def _cut(limit: int, shares: IntArray) -> IntArray:
    """Cut `limit` into integers of about these shares that add up exactly."""
    ends = np.cumsum(shares) * limit // int(shares.sum())
    return np.diff(ends, prepend=0)


def _collected(rows: Iterable[IntArray], copies: Iterable[int]) -> SizeHistogram:
    counts: dict[tuple[int, ...] | int, int] = {}
    k = 1
    for pack, number in zip(rows, copies, strict=True):
        k = pack.shape[1]
        for size in map(tuple, pack.tolist()):
            counts[size] = counts.get(size, 0) + number
    return SizeHistogram.from_counts(counts, _names(k))


def _names(k: int) -> tuple[str, ...]:
    return ("nodes", "edges", *(f"other_{i}" for i in range(k - 2)))[:k]


def _named(limits: tuple[int, ...]) -> Limits:
    return Limits.from_components(dict(zip(_names(len(limits)), limits, strict=True)))


SHAPES: dict[str, Callable[[int], SizeHistogram]] = {make.__name__: make for make in (molpcba, code2, pcqm4mv2, ppa)}
