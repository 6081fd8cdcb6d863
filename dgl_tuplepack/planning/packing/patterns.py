"""Patterns as arrays, before they become a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from dgl_tuplepack.planning.bounds.instance import Instance, as_instance
from dgl_tuplepack.planning.bounds.quick import quick_bound
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing.settings import Settings
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import FloatArray, IntArray, exact_sum


@dataclass(frozen=True, eq=False)
class Patterns:
    """Q patterns in CSR arrays, the same int64 arrays as in `PackPlan`."""

    # A pack of pattern q holds multiplicities[i] graphs of class classes[i], for each i in offsets[q]:offsets[q + 1].
    offsets: IntArray
    classes: IntArray
    multiplicities: IntArray
    repeats: IntArray

    def __len__(self) -> int:
        return len(self.repeats)

    @property
    def num_packs(self) -> int:
        """Number of packs of all patterns."""
        return exact_sum(self.repeats)

    @property
    def graphs(self) -> IntArray:
        """Number of graphs in one pack of each pattern, int64 ``[Q]``."""
        return np.add.reduceat(self.multiplicities, self.offsets[:-1])

    def contents(self, sizes: IntArray) -> IntArray:
        """Return the content of one pack of each pattern, int64 ``[Q, d]``; `sizes` ``[C, d]`` has a row per class."""
        return np.add.reduceat(sizes[self.classes] * self.multiplicities[:, None], self.offsets[:-1], axis=0)

    def room(self, instance: Instance) -> FloatArray:
        """Return the room left in one pack of each pattern, as a share of each limit, float64 ``[Q, d]``."""
        return (instance.limits - self.contents(instance.sizes)) / instance.limits

    def packed(self, classes: int) -> IntArray:
        """Return how many graphs of each class all packs together hold, int64 ``[C]``; `classes` is C."""
        held = np.zeros(classes, dtype=np.int64)
        np.add.at(held, self.classes, self.multiplicities * np.repeat(self.repeats, np.diff(self.offsets)))
        return held

    def dense(self, classes: int, most: int) -> IntArray:
        """Return the first `most` patterns as rows: graphs of each class, int64 ``[M, C]``; `classes` is C."""
        number = min(most, len(self))
        rows = np.zeros((number, classes), dtype=np.int64)
        last = int(self.offsets[number])
        entry_rows = np.repeat(np.arange(number), np.diff(self.offsets[: number + 1]))
        np.add.at(rows, (entry_rows, self.classes[:last]), self.multiplicities[:last])
        return rows

    def with_classes(self, classes: IntArray) -> Patterns:
        """Return the same patterns with `classes` as the class of each entry."""
        return replace(self, classes=classes)

    def take(self, rows: IntArray, repeats: IntArray) -> Patterns:
        """Return the patterns at the indices `rows`; pattern ``rows[i]`` gets ``repeats[i]``, >= 1."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        # entries[i]: index in `self.classes` of entry i of the result.
        entries = np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Patterns(offsets, self.classes[entries], self.multiplicities[entries], repeats.astype(np.int64))

    def replaced(self, chosen: IntArray, fresh: Patterns) -> Patterns:
        """Return the patterns with ``chosen[q]`` fewer packs of pattern q, and after them the patterns `fresh`."""
        left = self.repeats - chosen
        kept = np.flatnonzero(left)
        return joined([self.take(kept, left[kept]), fresh])


def joined(several: Iterable[Patterns]) -> Patterns:
    """Join several `Patterns` into one, in order."""
    several = list(several)
    empty = np.zeros(0, dtype=np.int64)
    lengths = [np.diff(each.offsets) for each in several]
    return Patterns(
        np.concatenate([[0], np.cumsum(np.concatenate([*lengths, empty]))]).astype(np.int64),
        np.concatenate([*(each.classes for each in several), empty]),
        np.concatenate([*(each.multiplicities for each in several), empty]),
        np.concatenate([*(each.repeats for each in several), empty]),
    )


def collected(rows: Iterable[tuple[dict[int, int], int]]) -> Patterns:
    """Make patterns from pairs (content, repeats); a content is a dict, class -> number of graphs."""
    rows = list(rows)
    lengths = [len(content) for content, _ in rows]
    classes = [size_class for content, _ in rows for size_class in content]
    multiplicities = [number for content, _ in rows for number in content.values()]
    return Patterns(
        np.cumsum([0, *lengths], dtype=np.int64),
        np.array(classes, dtype=np.int64),
        np.array(multiplicities, dtype=np.int64),
        np.array([repeats for _, repeats in rows], dtype=np.int64),
    )


def taken_packs(remaining: IntArray, content: IntArray, most: int) -> tuple[dict[int, int], int]:
    """Subtract `most` packs of `content` ``[C]`` from `remaining` ``[C]``, or fewer if the graphs do not suffice.

    Return the content as a dict (class -> number of graphs), and the number of packs. `remaining` changes in place.
    """
    entries = np.flatnonzero(content)
    packs = min(most, int((remaining[entries] // content[entries]).min()))
    remaining -= packs * content
    return dict(zip(entries.tolist(), content[entries].tolist(), strict=True)), packs


def of_packs(packs: IntArray, classes: IntArray) -> Patterns:
    """Make one pattern for each pack that has graphs, given the pack and the class of every graph."""
    # Entries are the distinct (pack, class) pairs in ascending order, each as one integer key.
    width = int(classes.max(initial=0)) + 1
    keys, multiplicities = np.unique(packs * width + classes, return_counts=True)
    starts = np.flatnonzero(np.diff(keys // width, prepend=-1))
    offsets = np.append(starts, len(keys))
    return Patterns(offsets, keys % width, multiplicities, np.ones(len(starts), dtype=np.int64))


def as_plan(
    patterns: Patterns,
    histogram: SizeHistogram,
    limits: Limits,
    method: str,
    settings: Settings,
    *,
    heuristic: str | None = None,
    bound: int | None = None,
) -> PackPlan:
    """Make a plan from patterns."""
    return PackPlan(
        histogram, limits, patterns.offsets, patterns.classes, patterns.multiplicities, patterns.repeats,
        quick_bound(as_instance(histogram, limits)) if bound is None else bound,
        method, heuristic, settings.seed, settings.random_ties and heuristic is not None,
    )  # fmt: skip
