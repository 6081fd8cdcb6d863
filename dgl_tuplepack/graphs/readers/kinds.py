"""Recognise a path or an object as a source of graphs or sizes, for every function and command; read its sizes."""

from __future__ import annotations

import copy
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from dgl_tuplepack._core.checks import as_path
from dgl_tuplepack._core.files import cannot
from dgl_tuplepack._core.optional import is_loaded, load, registered
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.items import Identified, WithIds, begins_with_graph
from dgl_tuplepack.graphs.readers.chunked import ChunkedSource
from dgl_tuplepack.graphs.readers.datasets import BinFile, Items
from dgl_tuplepack.graphs.readers.large_graph import PartSource
from dgl_tuplepack.graphs.readers.ogb_folder import OgbSource
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


class Wrapped(Source):
    """A source whose items have their positions as ids."""

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise a dataset that `with_ids` has wrapped."""
        if not isinstance(given, WithIds):
            return None
        inner = resolve(given.dataset)
        source = copy.copy(inner)
        # Blocks need no change, since they have no ids.
        source.items = lambda: map(Identified, itertools.count(), inner.items())  # type: ignore[method-assign]
        source.by_position = lambda: (  # type: ignore[method-assign]
            None if (dataset := inner.by_position()) is None else WithIds(dataset)
        )
        return source


@dataclass(frozen=True)
class Kind:
    """One kind of source."""

    # Called only when the kind is tried, so unneeded modules stay unloaded.
    load: Callable[[], type[Source]]
    # Names for lists in messages, which leave out empty names.
    path: str = ""
    object: str = ""
    # Every folder of this kind has at least one of these files. If `signs` is empty, every folder is opened.
    signs: tuple[str, ...] = ()
    # Returns False if the module of such objects is not loaded.
    may_be_object: Callable[[], bool] = lambda: True
    # An optional package that is loaded before the class (a key of `_core.optional.EXTRAS`), or empty.
    needs: str = ""

    def recognised(self, given: Any, path: Path | None, settings: Mapping[str, Any]) -> Source | None:
        """Return the source of `given`, or None if it is of another kind. `path` is None for an object."""
        has_sign = path is None or not self.signs or any(os.path.exists(path / sign) for sign in self.signs)
        if not has_sign or (path is None and not self.may_be_object()):
            return None
        if self.needs:
            load(self.needs)
        source = self.load()
        return source.of_object(given) if path is None else source.of_path(path, settings)


def _pyg_dataset() -> type[Source]:
    from dgl_tuplepack.graphs.readers.pyg_dataset import PygDataset

    return PygDataset


# The first kind that recognises a source reads it.
KINDS = [
    Kind(lambda: Wrapped),
    Kind(lambda: Numbers, object="sizes (GraphSizes, rows of integers, a pair of arrays (num_nodes, num_edges))"),
    Kind(lambda: Counted),
    Kind(
        lambda: ChunkedSource,
        path="a folder in DGL's chunked graph format",
        object="a ChunkedGraph",
        signs=("metadata.json",),
    ),
    Kind(
        lambda: registered("stored"),
        path="a store, a dataset of shards",
        object="a GraphStore or MultiStore",
        signs=("metadata.json", "manifest.json"),
        may_be_object=lambda: is_loaded("stored"),
        needs="torch",
    ),
    Kind(
        lambda: PartSource, path="a part that partition wrote (such as out/part0)", signs=("graph.dgl",), needs="torch"
    ),
    Kind(lambda: BinFile, path="a .bin file of dgl.save_graphs"),
    Kind(lambda: OgbSource, path="an OGB folder (such as root/ogbg_molhiv, which holds raw/)", object="an OgbFolder"),
    Kind(
        _pyg_dataset,
        object="a PyG InMemoryDataset or a subset of it",
        may_be_object=lambda: "torch_geometric.data" in sys.modules,
    ),
    # Recognises anything that can be iterated.
    Kind(
        lambda: Items,
        object="a list of graphs, a dataset or an iterator of DGLGraph, (DGLGraph, label) or (DGLGraph, label, id), or "
        "of PyG's Data or HeteroData",
    ),
]


def recognised(given: Any, settings: Mapping[str, Any] | None = None) -> Source | None:
    """Return the source of a path or an object; None if no kind recognises it."""
    if isinstance(given, Source):
        return given
    path = as_path(given) if isinstance(given, str | os.PathLike) else None
    sources = (kind.recognised(given, path, settings or {}) for kind in KINDS)
    return next((source for source in sources if source is not None), None)


def resolve(given: Any, settings: Mapping[str, Any] | None = None, also: Sequence[str] = ()) -> Source:
    """Return the source of a path (FormatError if no kind recognises it) or of an object (SizesError).

    `also` has display names of other paths that the caller accepts.
    """
    source = recognised(given, settings)
    if source is None:
        _refuse(given, also)
    return source


def paths(also: Sequence[str] = ()) -> str:
    """Return a text for messages: the kinds of paths that can be read, followed by `also`."""
    return _joined([*(kind.path for kind in KINDS if kind.path), *also])


def _joined(texts: Sequence[str]) -> str:
    """Return a list of texts as one text: "a, b, or c"."""
    return ", ".join(texts[:-1]) + f", or {texts[-1]}"


def _refuse(given: Any, also: Sequence[str]) -> NoReturn:
    """Raise the error for a path or an object that no kind recognises."""
    if not isinstance(given, str | os.PathLike):
        objects = _joined([kind.object for kind in KINDS if kind.object])
        raise SizesError(
            f"cannot read graphs or sizes from {type(given).__name__}; give {objects}, or the path of {paths()}."
        )
    try:
        as_path(given).stat()
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"there is no {given}; give {paths(also)}.") from None
    except (OSError, ValueError) as error:
        raise FormatError(cannot("read", as_path(given), error)) from error
    hint = ""
    if as_path(given).suffix.lower() in (".pt", ".pth", ".pkl", ".pickle"):
        hint = " A pickle may run any code: load it yourself, and write a store, tp.GraphStore.write(path, dataset)."
    raise FormatError(f"{given} cannot be read as graphs or sizes; give {paths(also)}.{hint}")


def sizes_of(source: Any, *, levels: Mapping[str, str | None] | None = None) -> GraphSizes:
    """Return the sizes of all graphs of a source, in the order of the source.

    Parameters
    ----------
    source
        Graphs, a path or sizes.

        Graphs: a list or dataset whose items are DGLGraph, (DGLGraph, label), (DGLGraph, label, id), or PyG's Data or
        HeteroData. A dict of named graphs ``{"atoms": g, "bonds": h}`` may take the place of the DGLGraph. A dataset
        is anything with a length and such items: a DGLDataset, a PyG InMemoryDataset, a dataset object of OGB, or a
        subset of a dataset. Or a `GraphStore`, a `MultiStore`, an `OgbFolder` or a `ChunkedGraph`.

        A path: of a store, a dataset of shards, an OGB folder, a folder in DGL's chunked graph format, a part that
        `partition` wrote, or a ``.bin`` file of `dgl.save_graphs`.

        Sizes: a pair of arrays ``(num_nodes, num_edges)``, each ``[N]``; an array ``[N, k]``, or a list of N rows of
        k numbers; or `GraphSizes`, which is returned unchanged.
    levels
        For PyG graphs: the level of each attribute, as in `GraphStore.write`. An attribute of endpoints, such as
        `edge_label_index`, is an edge type and has a component, unless it has another level.

    Returns
    -------
    GraphSizes
        Components ``("nodes", "edges")``; for heterographs such as ``"nodes:user"`` and
        ``"edges:user:follows:user"``, one for each type; for named graphs ``"nodes:atoms"`` and ``"edges:atoms"``.

    Raises
    ------
    SizesError
        The source is empty or cannot be read as graphs or sizes, or its sizes are malformed.
    SchemaError
        An item is not a graph, or graphs differ in their node or edge types.
    FormatError
        The path does not exist, cannot be read as graphs or sizes, or is damaged.

    Notes
    -----
    Every item is read once. Features are copied only if PyG graphs have more types than `edge_index` shows.

    Examples
    --------
    >>> sizes_of(([3, 2], [4, 2])).array.tolist()
    [[3, 4], [2, 2]]
    """
    return resolve(source).with_levels(levels).sizes()


def histogram_of(source: Any) -> SizeHistogram:
    """Return the histogram of the sizes of any source; a `SizeHistogram` is returned unchanged."""
    return resolve(source).histogram()
