"""Small random molecules for the scripts of this folder, as arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

NUM_ATOMS, NUM_BONDS = 6, 3


def draw(number: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield kinds of atoms, int64 [V], both directions of bonds, [2, E], and their kinds, [E], of chains with rings."""
    generator = np.random.default_rng(seed)
    for _ in range(number):
        n = int(generator.integers(4, 16))
        after = np.arange(1, n)
        before = after - generator.integers(1, np.minimum(after, 3) + 1)
        if generator.random() < 0.6:
            before, after = np.append(before, 0), np.append(after, n - 1)
        atoms = generator.choice(NUM_ATOMS, n, p=[0.6, 0.15, 0.15, 0.05, 0.03, 0.02])
        bonds = generator.choice(NUM_BONDS, len(after), p=[0.6, 0.3, 0.1])
        ends = np.stack([np.append(before, after), np.append(after, before)])
        yield torch.from_numpy(atoms), torch.from_numpy(ends), torch.from_numpy(np.append(bonds, bonds))
