"""Counter-based random numbers, which are equal on every platform; a key determines a stream of them.

The generator is SplitMix64 (Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators").
"""

from __future__ import annotations

import numpy as np

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLY_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)


@jit
def random_bits(key: np.uint64, counter: np.uint64) -> np.uint64:
    """Return 64 random bits: number `counter` of the stream `key`."""
    bits = key + (counter + np.uint64(1)) * _GAMMA
    bits = (bits ^ (bits >> np.uint64(30))) * _MULTIPLY_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MULTIPLY_2
    return bits ^ (bits >> np.uint64(31))


@jit
def derive_key(seed: np.uint64, epoch: np.uint64, purpose: np.uint64) -> np.uint64:
    """Return the key of a stream for a seed, an epoch and a purpose; different arguments give independent streams."""
    return random_bits(random_bits(random_bits(seed, epoch), purpose), np.uint64(0))


@jit
def shuffle_segments(values: IntVector, offsets: ConstIntVector, key: np.uint64) -> None:
    """Shuffle each segment ``values[offsets[s]:offsets[s + 1]]`` of fewer than 2**32 values in place, uniformly.

    Fisher-Yates, with bounded numbers by Lemire 2019, "Fast random integer generation in an interval".
    """
    counter = np.uint64(0)
    for segment in range(len(offsets) - 1):
        first = offsets[segment]
        for last in range(offsets[segment + 1] - first - 1, 0, -1):
            bound = np.uint64(last + 1)
            product = (random_bits(key, counter) >> np.uint64(32)) * bound
            counter += np.uint64(1)
            # `threshold` is below `bound`, and needs a slow division, so it is computed only if needed.
            if product & _LOW < bound:
                threshold = (np.uint64(0x100000000) - bound) % bound
                while product & _LOW < threshold:
                    product = (random_bits(key, counter) >> np.uint64(32)) * bound
                    counter += np.uint64(1)
            other = first + np.int64(product >> np.uint64(32))
            values[first + last], values[other] = values[other], values[first + last]
