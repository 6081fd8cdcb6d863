"""Sizes given as numbers, for each graph or as a histogram."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.items import begins_with_graph
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.histogram import SizeHistogram, is_row
from dgl_tuplepack.planning.sizes import GraphSizes, as_int64


class Numbers(Source):
    """`GraphSizes`, an array or rows ``[N, k]``, or a pair of columns (num_nodes, num_edges)."""

    knows_sizes = True

    def __init__(self, given: Any) -> None:
        super().__init__(f"the {type(given).__name__} given")
        self._given = given

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise `GraphSizes`, arrays and tuples without graphs, and lists whose first item is a row of numbers."""
        if isinstance(given, GraphSizes):
            return cls(given)
        if hasattr(given, "__array__"):
            is_object = str(getattr(given, "dtype", "")) == "object"
            return None if is_object and any(map(begins_with_graph, np.asarray(given).flat)) else cls(given)
        if isinstance(given, tuple):
            return cls(given) if given and not any(map(begins_with_graph, given)) else None
        # Empty rows are not recognised.
        first = given[0] if isinstance(given, list) and given else []
        return None if (isinstance(first, list | tuple) and not first) or not is_row(first) else cls(given)

    def sizes(self) -> GraphSizes:
        """Return the numbers as `GraphSizes`, which are checked."""
        if isinstance(self._given, GraphSizes):
            return self._given
        return _from_columns(self._given) if isinstance(self._given, tuple) else GraphSizes(self._given)


class Counted(Source):
    """A histogram, the result of `load`."""

    def __init__(self, title: str, load: Callable[[], SizeHistogram]) -> None:
        super().__init__(title)
        self._load = load

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise a `SizeHistogram`."""
        return cls("a SizeHistogram", lambda: given) if isinstance(given, SizeHistogram) else None

    def histogram(self) -> SizeHistogram:
        """Return the histogram."""
        return self._load()

    def sizes(self) -> GraphSizes:
        """Raise SizesError, since a histogram has no sizes of single graphs."""
        raise SizesError(f"{self.title} has no sizes of single graphs; give the sizes or the dataset itself.")


def _from_columns(columns: tuple[Any, ...]) -> GraphSizes:
    """Return the sizes in a pair (num_nodes, num_edges); raise SizesError for other tuples."""
    # Check each column before stacking, since stacking integers and floats would turn the integers into floats.
    arrays = [as_int64(column, "graph sizes") for column in columns]
    if len(arrays) != 2 or any(array.ndim != 1 or len(array) != len(arrays[0]) for array in arrays):
        raise SizesError(
            "a pair of arrays (num_nodes, num_edges) of equal length is needed, but got "
            f"{len(arrays)} arrays of shapes {[array.shape for array in arrays]}; for other components use GraphSizes."
        )
    return GraphSizes(np.stack(arrays, axis=1))
