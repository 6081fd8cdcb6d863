"""Convert patterns of an instance to patterns of a relaxation that merges its classes, and back."""

from __future__ import annotations

from collections import deque

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
    begins = np.searchsorted(relaxation.rows[order], np.arange(len(relaxation.instance.counts)))
    # merged_classes[row]: the instance's classes that were merged into class `row`; used-up classes are removed.
    without_size, *merged_classes = [deque(group.tolist()) for group in np.split(order, begins)]
    # left[c]: graphs of class c that are in no pack yet.
    left = counts.tolist()
    rows: list[tuple[dict[int, int], int]] = []
    for pattern, repeats in enumerate(patterns.repeats.tolist()):
        entries = slice(int(patterns.offsets[pattern]), int(patterns.offsets[pattern + 1]))
        asked = list(zip(patterns.classes[entries].tolist(), patterns.multiplicities[entries].tolist(), strict=True))
        missing = repeats
        while missing > 0:
            content = _next_content(asked, merged_classes, left)
            # As many packs have this content as the graphs that are left allow.
            packs = min([missing, *(left[member] // number for member, number in content.items())])
            for member, number in content.items():
                left[member] -= packs * number
            rows.append((content, packs))
            missing -= packs
    if without_size:
        # One of the equal packs of rows[0] gets a row of its own, with all graphs of size 0.
        content, packs = rows.pop(0)
        if packs > 1:
            rows.insert(0, (content, packs - 1))
        rows.append((content | {member: int(counts[member]) for member in without_size}, 1))
    return collected(rows)


def _next_content(asked: list[tuple[int, int]], merged_classes: list[deque[int]], left: list[int]) -> dict[int, int]:
    """Return the content of the next pack of a pattern: class of the instance -> number of graphs.

    `asked` is the pattern: pairs (class of the relaxation, number of its graphs). A class with too few graphs left for
    this pack is removed from `merged_classes`. For these arguments, see `spread`.
    """
    content: dict[int, int] = {}
    for row, multiplicity in asked:
        members = merged_classes[row]
        missing = multiplicity
        while missing:
            taken = min(missing, left[members[0]])
            if taken:
                content[members[0]] = taken
            missing -= taken
            if missing:
                members.popleft()
    return content
