"""Convert patterns of an instance to patterns of a relaxation that merges its classes, and back."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack.planning.bounds.instance import Relaxation
from dgl_tuplepack.planning.packing.patterns import Patterns, collected
from dgl_tuplepack.planning.sizes import IntArray


def merged(patterns: Patterns, relaxation: Relaxation) -> Patterns:
    """Convert patterns of an instance to its relaxation; patterns that hold only left-out graphs disappear."""
    classes = len(relaxation.instance.counts)
    # rows[i]: the relaxation's class of entry i. pattern[i]: the pattern of kept entry i.
    rows = relaxation.rows[patterns.classes]
    kept = rows >= 0
    pattern = np.repeat(np.arange(len(patterns)), np.diff(patterns.offsets))[kept]
    # keys: the distinct (pattern, class) pairs, each as an integer. entries[i]: index in `keys` of kept entry i.
    keys, entries = np.unique(pattern * classes + rows[kept], return_inverse=True)
    multiplicities = np.zeros(len(keys), dtype=np.int64)
    np.add.at(multiplicities, entries.reshape(-1), patterns.multiplicities[kept])
    present, starts = np.unique(keys // classes, return_index=True)
    offsets = np.append(starts, len(keys)).astype(np.int64)
    return Patterns(offsets, keys % classes, multiplicities, patterns.repeats[present])


def spread(patterns: Patterns, relaxation: Relaxation, counts: IntArray) -> Patterns:
    """Convert patterns of a relaxation that keeps all components to the instance.

    The patterns must hold every graph of the relaxation exactly once. `counts` ``[C]`` are the graphs of each class of
    the instance. Classes that the relaxation merged are used up one after another. Graphs that the relaxation leaves
    out have size 0 and go into the first pack.

    Time O(entries + C), and O(entries of a pattern) more for every class that was merged.
    """
    assert relaxation.whole
    order = np.argsort(relaxation.rows, kind="stable")
    # The instance's classes that were merged into class `row` are in `order`, from position begins[row] on.
    begins = np.searchsorted(relaxation.rows[order], np.arange(len(relaxation.instance.counts)))
    # at[row]: position in `order` of the class that is being used up now. left[c]: graphs of class c that are left.
    at, left = begins.tolist(), counts.tolist()
    rows: list[tuple[dict[int, int], int]] = []
    for pattern, repeats in enumerate(patterns.repeats.tolist()):
        entries = range(int(patterns.offsets[pattern]), int(patterns.offsets[pattern + 1]))
        # The pattern as pairs of a class of the relaxation and its graphs in a pack.
        asked = [(int(patterns.classes[entry]), int(patterns.multiplicities[entry])) for entry in entries]
        while repeats > 0:
            content, number = _dealt(asked, repeats, order, at, left)
            rows.append((content, number))
            repeats -= number
    without_size = np.flatnonzero(relaxation.rows < 0).tolist()
    if without_size:
        # rows[0] stands for `number` equal packs. Make one of them a row of its own, and put these graphs into it.
        content, number = rows[0]
        rows[:1] = [(content, number - 1)] if number > 1 else []
        rows.append((content | {row: int(counts[row]) for row in without_size}, 1))
    return collected(rows)


def _dealt(
    asked: list[tuple[int, int]], repeats: int, order: IntArray, at: list[int], left: list[int]
) -> tuple[dict[int, int], int]:
    """Return the content of the next pack of a pattern, and how many successive packs can have this content.

    The content has the number of graphs of each class of the instance. Subtract the graphs of these packs, at most
    `repeats` packs, from `left`. `asked` has pairs of a class of the relaxation and its graphs in a pack. For `order`,
    `at` and `left`, see `spread`.
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
                # A pack with graphs of several merged classes uses up all but the last of them, so it cannot repeat.
                number = min(number, left[member] // taken) if taken == multiplicity else 1
            missing -= taken
            # If graphs are missing, this class is used up, and the missing graphs come from the next class.
            at[row] += missing > 0
    for member, taken in content.items():
        left[member] -= number * taken
    return content, number
