"""Graphs in memory, or fetched one by one: lists, datasets and iterators, DGL's and OGB's among them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._progress import progress_bar
from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.items import is_iterable, parts_of
from dgl_tuplepack.sizes import HOMOGENEOUS, GraphSizes, edge_component, node_component
from dgl_tuplepack.sources.kind import Source
from dgl_tuplepack.sources.sizes_cache import cached_sizes

_PROGRESS_FROM = 50_000


class Items(Source):
    """Anything whose items can be taken one by one; or an object that only tells sizes, by an attribute of that name.

    Datasets have a length and items; their own iterators, if any, need not end.
    """

    def __init__(self, given: Any) -> None:
        super().__init__(f"the {type(given).__name__} given")
        self._given = given
        known = getattr(given, "sizes", None)
        self._known = known if isinstance(known, GraphSizes) else None
        self.knows_sizes = self._known is not None
        self._number = _length(given)
        self._is_indexed = self._number is not None and hasattr(given, "__getitem__") and not _only_iterates(given)

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise what can be iterated, but neither one graph nor a mapping; and what has sizes."""
        can_be = is_iterable(given) and not isinstance(given, Mapping)
        return cls(given) if can_be or isinstance(getattr(given, "sizes", None), GraphSizes) else None

    def sizes(self, cache: Path | None = None) -> GraphSizes:
        """Sizes of all items, each of which is fetched; those of the attribute where there is one."""
        if self._known is not None:
            return self._known
        if not self._is_indexed or self._number is None:
            raise SizesError(
                f"sizes cannot be read from {type(self._given).__name__}: it has no length or no order; give a list of "
                "graphs, a dataset with a length, or a pair of arrays (num_nodes, num_edges)."
            )
        if not self._number:
            raise SizesError("the dataset has no graphs; at least one is needed.")
        if cache is None:
            return _read_sizes(self._given, self._number)
        return cached_sizes(cache, self._given, self._number, _read_sizes)

    def num_graphs(self) -> int | None:
        """The length, where there is one."""
        return self._number

    def splits(self) -> Mapping[str, Any]:
        """Splits of an OGB dataset, or an attribute of that name."""
        if not hasattr(self._given, "get_idx_split"):
            splits = getattr(self._given, "splits", None)
            return splits if isinstance(splits, Mapping) else {}
        return {part: np.asarray(ids, dtype=np.int64) for part, ids in self._given.get_idx_split().items()}

    def items(self) -> Iterable[Any]:
        """The items, by index where there are indices."""
        if not is_iterable(self._given):
            return super().items()
        return (self._given[i] for i in range(self._number or 0)) if self._is_indexed else self._given


class SizeReader:
    """Reads the size of one graph after another; all must have the types of the first.

    Parameters
    ----------
    first
        An item: DGLGraph, (DGLGraph, label) or (DGLGraph, label, id).
    where
        What messages call it.

    Attributes
    ----------
    components
        Names of what a size counts, in order.
    """

    def __init__(self, first: Any, where: str) -> None:
        graph = graph_of(first, where)
        self._where = where
        self._types = node_types, edge_types = _types(graph)
        self._homogeneous = len(node_types) == 1 and len(edge_types) == 1
        self.components: tuple[str, ...] = HOMOGENEOUS
        if not self._homogeneous:
            self.components = (*map(node_component, node_types), *map(edge_component, edge_types))

    def __call__(self, item: Any, where: str) -> tuple[int, ...]:
        """Size of an item, one number for each component."""
        graph = graph_of(item, where)
        node_types, edge_types = self._types
        if _types(graph) != self._types:
            raise SchemaError(
                f"{where} has node types {graph.ntypes} and edge types {graph.canonical_etypes}, but {self._where} has "
                f"{node_types} and {edge_types}; all graphs must have the same types."
            )
        if self._homogeneous:
            return graph.num_nodes(), graph.num_edges()
        return (*(graph.num_nodes(t) for t in node_types), *(graph.num_edges(t) for t in edge_types))


def graph_of(item: Any, where: str) -> Any:
    """Graph of a dataset's item, see `parts_of`.

    Raises
    ------
    SchemaError
        It is no item of a dataset; `where` says which one it is.
    """
    return parts_of(item, where).graph


def _read_sizes(source: Any, number: int, ids: Sequence[int] | None = None) -> GraphSizes:
    """Sizes of the items of a dataset, or of those named by `ids`."""
    size_of = SizeReader(source[0], "item 0")
    chosen = range(number) if ids is None else ids
    rows = np.empty((len(chosen), len(size_of.components)), dtype=np.int64)
    items = progress_bar(chosen, desc="sizes", unit=" graphs", hidden=len(chosen) < _PROGRESS_FROM)
    for row, index in enumerate(items):
        rows[row] = size_of(source[index], f"item {index}")
    return GraphSizes(rows, size_of.components)


def _types(graph: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    return graph.ntypes, graph.canonical_etypes


def _length(given: Any) -> int | None:
    try:
        return len(given)
    except TypeError:
        return None


def _only_iterates(given: Any) -> bool:
    """Whether it is an `IterableDataset`, which may have a length, but no items by index."""
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(given, data.IterableDataset)
