"""Sizes of the graphs of any source, without a look at their features."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from tqdm import tqdm

from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.items import WithIds, is_graph, parts_of
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.sizes import HOMOGENEOUS, GraphSizes, as_int64, edge_component, node_component
from dgl_tuplepack.sources.ogb_folder import OgbFolder
from dgl_tuplepack.sources.sizes_cache import cached_sizes

_PROGRESS_FROM = 50_000


def sizes_of(source: Any, *, cache: str | os.PathLike[str] | None = None) -> GraphSizes:
    """Sizes of all graphs of a source, in its order.

    Parameters
    ----------
    source
        A list of DGLGraph, (DGLGraph, label) or (DGLGraph, label, id); a DGLDataset, OGB's DglGraphPropPredDataset or
        a subset of one (anything with a length and items of that kind); a `GraphStore`; an `OgbFolder` or the path of
        one; a pair of arrays ``(num_nodes, num_edges)``, each ``[N]``; an array ``[N, 2]`` or a list of such rows; or
        `GraphSizes`, handed back as it is.
    cache
        File that keeps the sizes of a dataset whose graphs are fetched one by one; made if it is not there. Sources
        that know their sizes neither read nor write it. See Notes.

    Returns
    -------
    GraphSizes
        Components ``("nodes", "edges")``; for heterographs one component for each node type and each
        canonical edge type, such as ``"nodes:user"`` and ``"edges:user:follows:user"``.

    Raises
    ------
    SizesError
        The source is empty, or sizes are malformed.
    SchemaError
        An item is no graph, or graphs differ in their node or edge types.
    FormatError
        The folder is no OGB dataset; or the cache is damaged, cannot be written, or belongs to another dataset.

    Notes
    -----
    Time O(N); every item is fetched once, features are never copied.

    With a cache, 18 items are fetched instead: the first, the last, and 16 that a hash of the length chooses. Compared
    with the file are their sizes, the types of the graphs, the number of items, the class of the dataset, and its
    attribute ``name`` if that is text. A change of other items alone is not noticed: remove the file then.

    Examples
    --------
    >>> sizes_of(([3, 2], [4, 2])).array.tolist()
    [[3, 4], [2, 2]]
    """
    if isinstance(source, GraphSizes):
        return source
    if isinstance(source, SizeHistogram):
        raise SizesError("a SizeHistogram does not know single graphs; give the sizes or the dataset itself.")
    if isinstance(source, WithIds):
        return sizes_of(source.dataset, cache=cache)
    if isinstance(source, str | os.PathLike):
        return OgbFolder(source).sizes
    if isinstance(getattr(source, "sizes", None), GraphSizes):
        # A store, or an OgbFolder.
        return cast(GraphSizes, source.sizes)
    if isinstance(source, np.ndarray) or _is_torch_tensor(source):
        return GraphSizes(source)
    if isinstance(source, tuple) and source and not any(_holds_graph(part) for part in source):
        return _from_columns(source)
    if isinstance(source, list) and source and _is_row(source[0]):
        return GraphSizes(cast(Any, source))
    try:
        number = len(source) if hasattr(source, "__getitem__") and not isinstance(source, Mapping) else None
    except TypeError:
        number = None
    if number is None:
        raise SizesError(
            f"sizes cannot be read from {type(source).__name__}: it has no length or no order; give a list of graphs, "
            "a dataset with a length, or a pair of arrays (num_nodes, num_edges)."
        )
    if not number:
        raise SizesError("the dataset has no graphs; at least one is needed.")
    return _from_graphs(source, number) if cache is None else cached_sizes(Path(cache), source, number, _from_graphs)


def graph_of(item: Any, where: str) -> Any:
    """Graph of a dataset's item, see `parts_of`.

    Raises
    ------
    SchemaError
        It is no item of a dataset; `where` says which one it is.
    """
    return parts_of(item, where).graph


def _from_columns(columns: tuple[Any, ...]) -> GraphSizes:
    # Each for itself: stacked first, a pair of integers and floats would hide which one is wrong.
    arrays = [as_int64(column, "graph sizes") for column in columns]
    if len(arrays) != 2 or any(array.ndim != 1 or len(array) != len(arrays[0]) for array in arrays):
        raise SizesError(
            "a pair of arrays (num_nodes, num_edges) of equal length is needed, but got "
            f"{len(arrays)} arrays of shapes {[array.shape for array in arrays]}; for other components use GraphSizes."
        )
    return GraphSizes(np.stack(arrays, axis=1))


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


def _from_graphs(source: Any, number: int, ids: Sequence[int] | None = None) -> GraphSizes:
    """Sizes of the items of a dataset, or of those named by `ids`."""
    size_of = SizeReader(source[0], "item 0")
    chosen = range(number) if ids is None else ids
    rows = np.empty((len(chosen), len(size_of.components)), dtype=np.int64)
    quiet = len(chosen) < _PROGRESS_FROM or not sys.stderr.isatty()
    for row, index in enumerate(tqdm(chosen, desc="sizes", unit=" graphs", disable=quiet)):
        rows[row] = size_of(source[index], f"item {index}")
    return GraphSizes(rows, size_of.components)


def _types(graph: Any) -> tuple[list[str], list[tuple[str, str, str]]]:
    return graph.ntypes, graph.canonical_etypes


def _is_row(item: Any) -> bool:
    return (
        isinstance(item, list | tuple) and bool(item) and all(isinstance(n, int | np.integer | np.bool_) for n in item)
    )


def _holds_graph(item: Any) -> bool:
    return is_graph(item) or (isinstance(item, (tuple, list)) and bool(item) and is_graph(item[0]))


def _is_torch_tensor(item: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(item, torch.Tensor)
