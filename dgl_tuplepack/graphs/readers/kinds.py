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

from dgl_tuplepack._core import registry
from dgl_tuplepack._core.checks import as_path
from dgl_tuplepack._core.files import cannot
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.graphs.items import Identified, WithIds
from dgl_tuplepack.graphs.readers.chunked import ChunkedSource
from dgl_tuplepack.graphs.readers.datasets import BinFile, Items
from dgl_tuplepack.graphs.readers.large_graph import PartSource
from dgl_tuplepack.graphs.readers.numbers import Counted, Numbers
from dgl_tuplepack.graphs.readers.ogb_folder import OgbSource
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes


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
        lambda: registry.find("stored"),
        path="a store, a dataset of shards",
        object="a GraphStore or MultiStore",
        signs=("metadata.json", "manifest.json"),
        may_be_object=lambda: registry.is_loaded("stored"),
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
        may_be_object=lambda: "torch_geometric" in sys.modules,
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
    """Return the source of a path or an object.

    `also` has display names of other paths that the caller accepts. If no kind recognises `given`, raise FormatError
    for a path, else SizesError.
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

        Graphs may be given as a list or dataset whose items are DGLGraph, (DGLGraph, label), (DGLGraph, label, id), or
        PyG's Data or HeteroData. A dict of named graphs ``{"atoms": g, "bonds": h}`` may take the place of the
        DGLGraph. A dataset is anything with a length and such items: a DGLDataset, a PyG InMemoryDataset, a dataset
        object of OGB, or a subset of a dataset. Graphs may also be given as a `GraphStore`, a `MultiStore`, an
        `OgbFolder` or a `ChunkedGraph` (DGL's chunked graph format).

        A path may lead to a store, a dataset of shards, an OGB folder, a folder in DGL's chunked graph format, a part
        that `partition` wrote, or a ``.bin`` file of `dgl.save_graphs`.

        Sizes may be given as a pair of arrays ``(num_nodes, num_edges)``, each ``[N]``; as an array ``[N, k]``, or a
        list of N rows of k numbers; or as `GraphSizes`, which is returned unchanged.
    levels
        For PyG graphs: a dict from attributes to their levels, as in `GraphStore.write`. An attribute that holds
        endpoints of edges, such as `edge_label_index`, is an edge type and has a component, unless `levels` assigns
        another level to the attribute.

    Returns
    -------
    GraphSizes
        Components ``("nodes", "edges")``; for heterographs one component for each node type and each
        canonical edge type, such as ``"nodes:user"`` and ``"edges:user:follows:user"``; for named graphs
        ``"nodes:atoms"`` and ``"edges:atoms"``.

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
    Takes time O(N) for N graphs. Every item is read once. Features are copied only if PyG graphs have more
    types than `edge_index` shows, so that they must be joined before their sizes can be read.

    Examples
    --------
    >>> sizes_of(([3, 2], [4, 2])).array.tolist()
    [[3, 4], [2, 2]]
    """
    return resolve(source).with_levels(levels).sizes()


def histogram_of(source: Any) -> SizeHistogram:
    """Return the histogram of the sizes of any source; a `SizeHistogram` is returned unchanged."""
    return resolve(source).histogram()
