"""Make keys of random streams, and shuffle arrays, in code that is not compiled; see `kernels.random`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def key_of(seed: int, epoch: int, purpose: int) -> np.uint64:
    """Return the key of a stream for a seed, an epoch and a purpose, each in 0..2**64-1; see `derive_key`."""
    from dgl_tuplepack._core.kernels.random import derive_key

    # A kernel that is called from Python returns the key as a plain int.
    return np.uint64(derive_key(np.uint64(seed), np.uint64(epoch), np.uint64(purpose)))


def shuffled(values: NDArray[np.int64], key: np.uint64) -> NDArray[np.int64]:
    """Shuffle `values` in place, uniformly, and return them."""
    from dgl_tuplepack._core.kernels.random import shuffle_segments

    shuffle_segments(values, np.array([0, len(values)]), key)
    return values


def random_fractions(key: np.uint64, number: int) -> NDArray[np.float64]:
    """Return `number` random numbers in [0, 1), float64, from the stream `key`."""
    from dgl_tuplepack._core.kernels.random import random_bits

    bits = random_bits.py_func(key, np.arange(number, dtype=np.uint64))  # type: ignore[attr-defined]
    return (bits >> np.uint64(11)) / np.float64(1 << 53)  # type: ignore[no-any-return]
