"""Lists, iterators and datasets of graphs (such as DGL's and OGB's), and ``.bin`` files, as sources of single items."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.files import open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.blocks import EdgeType, components_of
from dgl_tuplepack.graphs.items import is_iterable, parts_of
from dgl_tuplepack.graphs.named import check_types, counts_of, graph_names, is_pyg
from dgl_tuplepack.graphs.readers.source import Source, reading
from dgl_tuplepack.planning.sizes import GraphSizes


class Items(Source):
    """Anything that can be iterated, or an object with an attribute `sizes`.

    Datasets with a length are read by index, since their own iterators may be endless.
    """

    def __init__(self, given: Any) -> None:
        super().__init__(f"the {type(given).__name__} given")
        # A pandas Series looks up items by its own index.
        given = given.to_list() if hasattr(given, "iloc") else given
        self._given = given
        known = getattr(given, "sizes", None)
        self._known = known if isinstance(known, GraphSizes) else None
        self.knows_sizes = self._known is not None
        try:
            self._number: int | None = len(given)
        except TypeError:
            self._number = None
        # An `IterableDataset` may have a length, but has no items by index.
        data = sys.modules.get("torch.utils.data")
        only_iterates = data is not None and isinstance(given, data.IterableDataset)
        self._is_indexed = self._number is not None and hasattr(given, "__getitem__") and not only_iterates
        self.is_stream = not self._is_indexed

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise objects with `sizes`, and iterables other than single graphs and mappings."""
        can_be = is_iterable(given) and not isinstance(given, Mapping)
        return cls(given) if can_be or isinstance(getattr(given, "sizes", None), GraphSizes) else None

    def sizes(self) -> GraphSizes:
        """Return the attribute `sizes`, or the sizes of all items."""
        if self._known is not None:
            return self._known
        if self._number is None or not self._is_indexed:
            raise SizesError(
                f"cannot read sizes from {type(self._given).__name__}: it has no length or no order; give a list of "
                "graphs, a dataset with a length, or a pair of arrays (num_nodes, num_edges)."
            )
        if not self._number:
            raise SizesError("the dataset has no graphs; at least one is needed.")
        ids = progress_bar(range(self._number), desc="sizes", unit=" graphs", delay=DELAY)
        return sizes_of_items((self._given[i] for i in ids), self.levels)

    def num_graphs(self) -> int | None:
        """Return the length; None if the source has no length."""
        return self._number

    def splits(self) -> Mapping[str, Any]:
        """Return the splits of an OGB dataset, or the attribute `splits`.

        A subset ``dataset[ids]`` of a PyG dataset inherits splits of the whole dataset; they are ignored.
        """
        pyg = sys.modules.get("torch_geometric.data")
        is_pyg_dataset = pyg is not None and isinstance(self._given, pyg.Dataset)
        if is_pyg_dataset and [*self._given.indices()] != [*range(self._given.len())]:
            return {}
        if not hasattr(self._given, "get_idx_split"):
            splits = getattr(self._given, "splits", None)
            return splits if isinstance(splits, Mapping) else {}
        return {split: np.asarray(ids, dtype=np.int64) for split, ids in self._given.get_idx_split().items()}

    def items(self) -> Iterable[Any]:
        """Return the items, by index if possible."""
        if not is_iterable(self._given):
            return super().items()
        return (self._given[i] for i in range(self._number or 0)) if self._is_indexed else self._given

    def by_position(self) -> Any:
        """Return the dataset itself, or a list of its items if it cannot be indexed."""
        return self._given if self._is_indexed else list(self.items())


class SizeReader:
    """Callable that returns the size of an item. All items must have the types of the item `first`."""

    def __init__(self, first: Any, where: str, levels: Mapping[str, str | None] | None = None) -> None:
        self._levels, self._where = levels, where
        counts, self._names = self._counts_and_names(first, where)
        self._types = tuple(counts)
        self.components = components_of(*_by_node_or_edge(self._types), bool(self._names))

    def __call__(self, item: Any, where: str) -> tuple[int, ...]:
        """Return the size of an item, one number for each component; errors call the item `where`."""
        counts, names = self._counts_and_names(item, where)
        if (tuple(counts), names) != (self._types, self._names):
            found, expected = _by_node_or_edge(counts), _by_node_or_edge(self._types)
            # Raises SchemaError.
            check_types(found, expected, where, self._where, (names, self._names))
        return tuple(counts.values())

    def _counts_and_names(self, item: Any, where: str) -> tuple[dict[Any, int], tuple[str, ...]]:
        """Return the number of nodes (edges) of each type of an item, and the names of its graphs, if any."""
        graph = parts_of(item, where).graph
        return counts_with_levels(graph, where, self._levels), graph_names(graph)


def counts_with_levels(graph: Any, where: str, levels: Mapping[str, str | None] | None) -> dict[Any, int]:
    """Return the number of nodes (edges) of each type of a graph, of named graphs together, or of a PyG graph."""
    if not is_pyg(graph):
        return counts_of(graph)
    from dgl_tuplepack.graphs.pyg_read import counts_of_graph

    return counts_of_graph(graph, where, levels or {})


def _by_node_or_edge(types: Iterable[Any]) -> tuple[list[str], list[EdgeType]]:
    """Return the types that are node types (strings), and the types that are edge types (tuples)."""
    types = list(types)
    return [t for t in types if isinstance(t, str)], [t for t in types if not isinstance(t, str)]


def sizes_of_items(items: Iterable[Any], levels: Mapping[str, str | None] | None) -> GraphSizes:
    """Return the sizes of items; there must be at least one item."""
    iterator = iter(items)
    first = next(iterator)
    with_names = ((item, f"item {i}") for i, item in enumerate(chain([first], iterator)))
    graph = parts_of(first, "item 0").graph
    if is_pyg(graph):
        from dgl_tuplepack.graphs.pyg_read import has_usual_types, sizes_of_graphs

        # Other PyG graphs have further types, so their components are known only when the levels are applied.
        if not has_usual_types(graph, levels or {}):
            return sizes_of_graphs(((parts_of(item, where).graph, where) for item, where in with_names), levels or {})
    size_of = SizeReader(first, "item 0", levels)
    rows = [size_of(item, where) for item, where in with_names]
    return GraphSizes(np.array(rows, dtype=np.int64), size_of.components)


class BinFile(Source):
    """A ``.bin`` file."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.files = self._path = path

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a path by its suffix, even if the file does not exist."""
        return cls(path) if path.suffix == ".bin" else None

    def sizes(self) -> GraphSizes:
        """Return the sizes of the saved graphs."""
        return Items(self.items()).sizes()

    def by_position(self) -> Any:
        """Return all items, since the file is read as a whole."""
        return self.items()

    def items(self) -> Iterable[Any]:
        """Return a list of graphs, or of pairs (graph, label). If the file has several labels, each label is a dict."""
        dgl = load("dgl")
        with reading(self._path, "it is damaged, or not a file of dgl.save_graphs; write it again"):
            # If the file is missing, opening it first gives a shorter message than DGL's.
            open_file(self._path).close()
            graphs, labels = dgl.load_graphs(str(self._path))
        for name, values in labels.items():
            if values.shape[:1] != (len(graphs),):
                raise FormatError(
                    f"{self._path} has {len(graphs)} graphs, but labels {name!r:.200} of the shape "
                    f"{list(values.shape)}; write it again."
                )
        if len(labels) < 2:
            return list(zip(graphs, next(iter(labels.values())), strict=True)) if labels else list(graphs)
        return [(graph, {name: values[i] for name, values in labels.items()}) for i, graph in enumerate(graphs)]
