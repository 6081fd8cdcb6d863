"""Subsets of datasets, as torch and DGL make them."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from dgl_tuplepack.planning.sizes import IntArray


class Chosen(NamedTuple):
    """The dataset that a subset chooses from, and the positions of the chosen items, int64 ``[n]``, >= 0."""

    dataset: Any
    positions: IntArray


def chosen_from(given: Any) -> Chosen | None:
    """Return the dataset and the positions of a `torch.utils.data.Subset` or `dgl.data.utils.Subset`.

    Return None for other objects, for subclasses (which may change items), and if a position is not in the dataset.
    """
    modules = (sys.modules.get(name) for name in ("torch.utils.data", "dgl.data.utils"))
    if type(given) not in [module.Subset for module in modules if module is not None]:
        return None
    try:
        positions, number = np.asarray(given.indices, np.int64).reshape(-1), len(given.dataset)
    except (TypeError, ValueError):
        return None
    if len(positions) and not -number <= positions.min() <= positions.max() < number:
        return None
    return Chosen(given.dataset, np.where(positions < 0, positions + number, positions))
