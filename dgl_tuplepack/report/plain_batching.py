"""Slots of each component that batches without packing take in one epoch."""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack._random import key_of, shuffled
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.sizes import IntArray

_PURPOSE = 0x9A7C


def padded_to_largest(histogram: SizeHistogram) -> dict[str, int]:
    """Return the slots if every graph is padded to the largest one: the usual way to a static shape.

    Examples
    --------
    >>> padded_to_largest(SizeHistogram.from_counts({(3, 4): 2, (5, 2): 1}))
    {'nodes': 15, 'edges': 12}
    """
    return {name: histogram.num_graphs * most for name, most in histogram.maxima().items()}


def padded_by_batch(histogram: SizeHistogram, batch_size: int) -> dict[str, float]:
    """Return the expected slots if each graph is padded to the largest of its batch, in random order.

    The last batch takes the rest of the N graphs.

    Exact, up to rounding of floating-point numbers. The largest of B graphs drawn from N without replacement is at
    most v with probability C(n, B) / C(N, B), where n graphs are at most v. Time O(k V B) for V distinct values of
    a component.

    Examples
    --------
    >>> padded_by_batch(SizeHistogram.from_counts({(3, 4): 2, (5, 2): 1}), 3)
    {'nodes': 15.0, 'edges': 12.0}
    """
    size = whole_number("the batch size", batch_size, 1, error=InputError)
    full, rest = divmod(histogram.num_graphs, size)
    slots = {}
    for column, name in enumerate(histogram.components):
        values, members = np.unique(histogram.sizes[:, column], return_inverse=True)
        up_to = np.zeros(len(values), dtype=np.int64)
        np.add.at(up_to, members.reshape(-1), histogram.counts)
        up_to = np.cumsum(up_to)
        batches = [(full, size)] * (full > 0) + [(1, rest)] * (rest > 0)
        slots[name] = sum(number * graphs * _expected_largest(values, up_to, graphs) for number, graphs in batches)
    return slots


def joined_batches(histogram: SizeHistogram, batch_size: int, seed: int = 0) -> tuple[dict[str, int], dict[str, int]]:
    """Return shape and slots if B graphs are joined, and every batch is padded to the fullest one of a random epoch.

    By component: content of the fullest batch, and slots of all batches at that shape. Another epoch can need more than
    this shape. The last batch takes the rest of the N graphs. Simulated: time and memory O(N).

    Examples
    --------
    >>> joined_batches(SizeHistogram.from_counts({(3, 4): 4}), 3)
    ({'nodes': 9, 'edges': 12}, {'nodes': 18, 'edges': 24})
    """
    size = whole_number("the batch size", batch_size, 1, error=InputError)
    order = shuffled(np.repeat(np.arange(len(histogram)), histogram.counts), key_of(seed, 0, _PURPOSE))
    contents = np.add.reduceat(histogram.sizes[order], np.arange(0, len(order), size), axis=0)
    shape = dict(zip(histogram.components, contents.max(axis=0).tolist(), strict=True))
    return shape, {name: len(contents) * most for name, most in shape.items()}


def _expected_largest(values: IntArray, up_to: IntArray, graphs: int) -> float:
    """Return the mean of the largest of `graphs` drawn without replacement; ``up_to[i]`` have at most ``values[i]``."""
    total = int(up_to[-1])
    drawn = np.arange(graphs)
    # C(n, B) / C(N, B) as a product of B factors; one of them is 0 if fewer than B graphs are small enough.
    at_most = np.array([np.prod((n - drawn) / (total - drawn)) for n in up_to.tolist()])
    return float(np.dot(values, np.diff(at_most, prepend=0.0)))
