"""Subsets of datasets, as torch and DGL make them."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from dgl_tuplepack.planning.sizes import IntArray


class Chosen(NamedTuple):
    """The dataset that a subset chooses from, and the positions of the chosen items, int64 ``[n]``, >= 0."""

    dataset: Any
    positions: IntArray


def chosen_from(given: Any) -> Chosen | None:
    """Return the dataset and the positions of a `torch.utils.data.Subset` or `dgl.data.utils.Subset`.

    Return None for other objects, for subclasses (which may change items), and for indices that are malformed or not
    in the dataset.
    """
    modules = (sys.modules.get(name) for name in ("torch.utils.data", "dgl.data.utils"))
    if type(given) not in [module.Subset for module in modules if module is not None]:
        return None
    # Other types, such as a pandas Series, may look up indices in another way.
    if type(given.indices) not in (list, tuple, range, np.ndarray, Tensor):
        return None
    try:
        positions, number = np.asarray(given.indices), len(given.dataset)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        # The indices are no numbers, or are on a device; or the dataset has no length.
        return None
    if positions.ndim != 1 or (len(positions) and positions.dtype.kind not in "iu"):
        return None
    if len(positions) and not -number <= int(positions.min()) <= int(positions.max()) < number:
        return None
    positions = positions.astype(np.int64)
    return Chosen(given.dataset, np.where(positions < 0, positions + number, positions))
