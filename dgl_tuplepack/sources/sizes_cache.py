"""A file of the sizes of a dataset whose graphs are fetched one by one; it is compared with samples of the dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._files import is_there
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.sizes import GraphSizes

# Items of a sample, in addition to the first and the last.
_SAMPLES = 16
# Items of a sample that can only be iterated.
FIRST_ITEMS = 16


def cached_sizes(path: Path, source: Any, number: int, read: Callable[..., GraphSizes]) -> GraphSizes:
    """Return the sizes of the `number` items of a dataset from the file `path`, which is written if it does not exist.

    `read` returns the sizes of all items, or of the items that its third argument names. FormatError if the file is
    damaged, cannot be written, or does not match the samples of the dataset.
    """
    kind, name = type(source), getattr(source, "name", None)
    origin = {"class": f"{kind.__module__}.{kind.__qualname__}", "name": name if isinstance(name, str) else ""}
    if not is_there(path):
        sizes = read(source, number)
        sizes.save(path, origin)
        return sizes
    sizes = GraphSizes.load(path, origin)
    if len(sizes) != number:
        raise FormatError(f"{path} holds the sizes of {len(sizes)} graphs, but the dataset has {number}{_REMOVE}")
    ids = sample_ids(number)
    sample = read(source, number, ids)
    if sample.components != sizes.components:
        raise FormatError(
            f"{path} holds sizes of {sizes.components!s:.200}, but the graphs have {sample.components!s:.200}{_REMOVE}"
        )
    differ = np.flatnonzero((sample.array != sizes.array[ids]).any(axis=1))
    if len(differ):
        item = ids[int(differ[0])]
        now, before = (tuple(array.tolist()) for array in (sample.array[differ[0]], sizes.array[item]))
        raise FormatError(f"item {item} has the size {now}, but {before} in {path}{_REMOVE}")
    return sizes


_REMOVE = "; the dataset was changed, remove the file."


def sample_ids(number: int) -> list[int]:
    """Return the first and the last item, and some that depend on the number of items alone, in ascending order."""
    digests = (hashlib.sha256(f"{number} {i}".encode()).digest() for i in range(_SAMPLES))
    return sorted({0, number - 1, *(int.from_bytes(digest[:8], "little") % number for digest in digests)})
