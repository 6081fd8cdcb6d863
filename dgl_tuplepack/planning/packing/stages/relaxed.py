"""Convert patterns of an instance to patterns of a relaxation that merges its classes, and back."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.planning.bounds.instance import Relaxation
from dgl_tuplepack.planning.packing.patterns import Patterns, collected
from dgl_tuplepack.planning.sizes import IntArray


def merged(patterns: Patterns, relaxation: Relaxation) -> Patterns:
    """Convert patterns of an instance to patterns of its relaxation, without the graphs that the relaxation leaves out.

    Empty patterns are left out, too.
    """
    classes = len(relaxation.instance.counts)
    # rows[i]: the relaxation's class of entry i, -1 if it is left out. pattern[j]: the pattern of kept entry j.
    rows = relaxation.rows[patterns.classes]
    kept = rows >= 0
    pattern = np.repeat(np.arange(len(patterns)), np.diff(patterns.offsets))[kept]
    # keys: the distinct (pattern, class) pairs, each as one integer. entries[j]: index in `keys` of kept entry j.
    keys, entries = np.unique(pattern * classes + rows[kept], return_inverse=True)
    multiplicities = np.zeros(len(keys), dtype=np.int64)
    np.add.at(multiplicities, entries.reshape(-1), patterns.multiplicities[kept])
    # present: the patterns that still have entries.
    present, starts = np.unique(keys // classes, return_index=True)
    offsets = np.append(starts, len(keys)).astype(np.int64)
    return Patterns(offsets, keys % classes, multiplicities, patterns.repeats[present])


def spread(patterns: Patterns, relaxation: Relaxation, counts: IntArray) -> Patterns:
    """Convert patterns of a relaxation back to patterns of the instance; the relaxation must have all components.

    The patterns must hold every graph of the relaxation exactly once. `counts` ``[C]`` has the number of graphs of each
    class of the instance. Graphs that the relaxation leaves out have size 0; they all go into one pack.

    Time O(entries + C), plus O(entries of a pattern) for each class that was merged.
    """
    assert relaxation.whole
    order = np.argsort(relaxation.rows, kind="stable")
    # The instance's classes that were merged into class `row` are in `order`, from position begins[row] on.
    begins = np.searchsorted(relaxation.rows[order], np.arange(len(relaxation.instance.counts)))
    # at[row]: position in `order` of the class to take graphs from. left[c]: graphs of class c that are in no pack yet.
    at, left = begins.tolist(), counts.tolist()
    rows: list[tuple[dict[int, int], int]] = []
    for pattern, repeats in enumerate(patterns.repeats.tolist()):
        entries = range(int(patterns.offsets[pattern]), int(patterns.offsets[pattern + 1]))
        # asked: the pattern as pairs (class of the relaxation, number of its graphs in a pack).
        asked = [(int(patterns.classes[entry]), int(patterns.multiplicities[entry])) for entry in entries]
        while repeats > 0:
            content, number = _dealt(asked, repeats, order, at, left)
            rows.append((content, number))
            repeats -= number
    without_size = np.flatnonzero(relaxation.rows < 0).tolist()
    if without_size:
        # One of the `number` equal packs of rows[0] gets a row of its own, with all graphs of size 0.
        content, number = rows[0]
        rows[:1] = [(content, number - 1)] if number > 1 else []
        rows.append((content | {row: int(counts[row]) for row in without_size}, 1))
    return collected(rows)


def _dealt(
    asked: list[tuple[int, int]], repeats: int, order: IntArray, at: list[int], left: list[int]
) -> tuple[dict[int, int], int]:
    """Return the content of the next pack of a pattern, and how many packs, at most `repeats`, can have this content.

    The content is a dict: class of the instance -> number of graphs. The graphs of these packs are subtracted from
    `left`. For the arguments, see `spread`.
    """
    content: dict[int, int] = {}
    number = repeats
    for row, multiplicity in asked:
        missing = multiplicity
        while missing:
            member = int(order[at[row]])
            taken = min(missing, left[member])
            if taken:
                content[member] = taken
                # A pack of several merged classes uses up all of them except the last, so it cannot repeat.
                number = min(number, left[member] // taken) if taken == multiplicity else 1
            missing -= taken
            # If graphs are still missing, class `member` is used up.
            at[row] += missing > 0
    for member, taken in content.items():
        left[member] -= number * taken
    return content, number
