"""Subsets of datasets, as torch and DGL make them."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.items import WithIds
from dgl_tuplepack.planning.sizes import IntArray


class Chosen(NamedTuple):
    """The dataset that a subset chooses from, and the positions of the chosen items, int64 ``[n]``, >= 0."""

    dataset: Any
    positions: IntArray


def ids_in(source: Any, given: Any) -> Any:
    """Return the positions in `source` that a `Subset` of it has; return anything else, such as ids, unchanged."""
    if not (hasattr(given, "indices") and hasattr(given, "dataset")):
        return given
    dataset, chosen = source.dataset if type(source) is WithIds else source, chosen_from(given)
    while chosen is not None and chosen.dataset is not dataset and chosen.dataset is not source:
        inner = chosen_from(chosen.dataset)
        chosen = None if inner is None else Chosen(inner.dataset, inner.positions[chosen.positions])
    if chosen is None:
        raise InputError("a split is a Subset, but not of the source; make it from the source, or give ids.")
    return chosen.positions


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
