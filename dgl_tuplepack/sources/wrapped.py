"""Any source wrapped by `with_ids`."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from dgl_tuplepack.graphs.items import Identified, WithIds
from dgl_tuplepack.sources.kind import Source, resolve


class Wrapped(Source):
    """The wrapped source itself, with positions as the ids of its items."""

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise what `with_ids` returns."""
        if not isinstance(given, WithIds):
            return None
        inner = resolve(given.dataset)
        source = copy.copy(inner)
        # Positions replace ids inside items; blocks count graphs by position.
        source.items = lambda: map(Identified, itertools.count(), inner.items())  # type: ignore[method-assign]
        source.by_position = lambda: _with_ids(inner.by_position())  # type: ignore[method-assign]
        return source


def _with_ids(dataset: Any) -> Any:
    """Wrap items by position; None, for graphs that are read in blocks alone, stays."""
    return None if dataset is None else WithIds(dataset)
