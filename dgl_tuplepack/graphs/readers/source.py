"""Recognise a path or an object as a source of graphs or sizes, for every function and command."""

from __future__ import annotations

import copy
import importlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dgl_tuplepack._core.checks import as_path
from dgl_tuplepack._core.files import cannot
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import GraphBlock
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes


class Source(ABC):
    """A source of one kind. To read another kind, add a subclass in a file of its own and a line in `KINDS`.

    The line goes before `Items`, which takes anything that can be iterated, and for folders that may hold ``raw/``
    before `OgbSource`. An optional package that a kind needs is also listed in `EXTRAS` and in setup.cfg.

    Making a source reads only what recognises it; the methods read the rest. A kind whose graphs lie in arrays gives
    `blocks`, which are copied whole; `items`, one graph at a time, are for kinds that have graphs only as objects.

    `BinFile` is an example of a file with `items`, `OgbSource` of a folder with `blocks`, and `Stored` of a folder with
    signs that needs a package; one that a method alone needs is loaded there, by `_optional.load`. The docstrings of
    `sizes_of` and `GraphStore.write` and docs/concepts.md list all kinds.

    Attributes
    ----------
    title
        Name of the source in messages.
    knows_sizes
        Whether sizes are read without the graphs, so that limits are checked before anything is written.
    prefers_items
        Whether transforms take the `items`, although there are `blocks`, whose graphs would be DGLGraphs.
    levels
        What attributes of graphs of PyG belong to, as the user says.
    schema
        `Schema` of the graphs, if `blocks` do not determine it.
    files
        File or folder that everything is read from, if that is known: a change there is a change of the source.
    settings
        Settings, as text, that also determine what is read from `files`.
    pre_transform
        `PreTransform` of the graphs, if they were transformed before.
    ties, indices
        What is declared about the graphs, see `graphs.relations`.
    own_indices
        Indices that the graphs tell themselves, once their `blocks` are read; `indices` are beside them.
    """

    knows_sizes = False
    prefers_items = False
    levels: Mapping[str, str | None] | None = None
    schema: Any = None
    pre_transform: Any = None
    ties: Mapping[str, str] = {}
    indices: Mapping[str, str] = {}
    own_indices: Mapping[str, str] = {}
    files: Path | None = None
    settings: Mapping[str, str] = {}

    def __init__(self, title: str) -> None:
        self.title = title

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Return the source at a path; None if there is nothing, or nothing of this kind.

        `settings` are keywords of `OgbFolder`, which the command line and `preprocess_shards` pass on; other kinds
        ignore them.
        """
        return None

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Return the source of an object; None for an object of another kind.

        It is asked about every object, so a kind of another package must not import it, but look in `sys.modules`
        (as `graphs.items.is_graph` does).
        """
        return None

    @abstractmethod
    def sizes(self) -> GraphSizes:
        """Return the sizes of all graphs."""

    def histogram(self) -> SizeHistogram:
        """Return the histogram of the sizes."""
        return SizeHistogram.from_sizes(self.sizes())

    def with_levels(self, levels: Mapping[str, str | None]) -> Source:
        """Return the same source with other `levels`."""
        other = copy.copy(self)
        other.levels = levels
        return other

    def num_graphs(self) -> int | None:
        """Return the number of graphs, if it is known before they are read."""
        return None

    def splits(self) -> Mapping[str, Any]:
        """Return ids by name of the split; empty if there are no splits."""
        return {}

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Return all graphs in their order as blocks of flat arrays; None if there are only `items`."""
        return None

    def by_position(self) -> Any:
        """Return a dataset with a length and items, or a store; None for graphs that are read in blocks alone.

        Graphs that come one by one are returned as a list.
        """
        return None

    def items(self) -> Iterable[Any]:
        """Return all graphs in their order, for kinds without `blocks`.

        An item is a DGLGraph, (DGLGraph, label) or (DGLGraph, label, id), or one of these with a dict of named graphs,
        as `graphs.items.parts_of` takes it.
        """
        raise SchemaError(
            f"{self.title} has sizes only, but graphs are needed, and an item must be a DGLGraph, a pair (DGLGraph, "
            f"label) or (DGLGraph, label, id); give {_objects(graphs=True)}, or the path of {paths()}."
        )


class SizedSource(Source):
    """A source of an object that has a length, and attributes `sizes` and `splits`."""

    knows_sizes = True

    def __init__(self, title: str, given: Any) -> None:
        super().__init__(title)
        self._given = given

    def sizes(self) -> GraphSizes:
        """Return the attribute `sizes`."""
        sizes: GraphSizes = self._given.sizes
        return sizes

    def num_graphs(self) -> int | None:
        """Return the length."""
        return len(self._given)

    def splits(self) -> Mapping[str, Any]:
        """Return the attribute `splits`."""
        splits: Mapping[str, Any] = self._given.splits
        return splits


@dataclass(frozen=True)
class Kind:
    """One kind of source in the registry."""

    # Module and class, "package.module:Class"; imported at first use.
    where: str
    # What messages call a path, or an object, of this kind; empty if no path (object) is of this kind.
    path: str = ""
    object: str = ""
    # Every folder of this kind has one of these files. The module in `where` is imported only for such a folder; about
    # objects it is asked only if the package of that module, and the one that it needs, are imported already.
    signs: tuple[str, ...] = ()
    # Optional package, one of `EXTRAS`, that is loaded before the kind is asked, so that such a kind must have `signs`.
    # A kind of objects alone leaves it empty: where there is such an object, `sys.modules` holds its package.
    needs: str = ""
    # False for a kind with sizes only.
    has_graphs: bool = True

    def recognised(self, given: Any, path: Path | None, settings: Mapping[str, Any]) -> Source | None:
        """Return the source, if it is of this kind."""
        if not self._may_be(path):
            return None
        if self.needs:
            load(self.needs)
        module, _, name = self.where.partition(":")
        kind: type[Source] = getattr(importlib.import_module(module), name)
        return kind.of_object(given) if path is None else kind.of_path(path, settings)

    def _may_be(self, path: Path | None) -> bool:
        if not self.signs:
            return True
        if path is None:
            return {self.where.partition(":")[0].rpartition(".")[0], self.needs} - {""} <= sys.modules.keys()
        return any(os.path.exists(path / sign) for sign in self.signs)


# In order: the first kind that recognises a source reads it.
KINDS = [
    Kind("dgl_tuplepack.graphs.readers.items:Wrapped"),
    Kind(
        "dgl_tuplepack.graphs.readers.numbers:Numbers",
        object="sizes (GraphSizes, rows of integers, a pair of arrays (num_nodes, num_edges))",
        has_graphs=False,
    ),
    Kind("dgl_tuplepack.graphs.readers.numbers:Counted", has_graphs=False),
    Kind(
        "dgl_tuplepack.storage.kind:Stored",
        path="a store, a dataset of shards",
        object="a GraphStore or MultiStore",
        signs=("metadata.json", "manifest.json"),
        needs="torch",
    ),
    Kind("dgl_tuplepack.graphs.readers.bin_file:BinFile", path="a .bin file of dgl.save_graphs"),
    Kind(
        "dgl_tuplepack.graphs.readers.ogb_folder:OgbSource",
        path="an OGB folder (such as root/ogbg_molhiv, which holds raw/)",
        object="an OgbFolder",
    ),
    Kind("dgl_tuplepack.graphs.readers.pyg:PygDataset", object="an InMemoryDataset of PyG or a subset of it"),
    # Recognises anything that can be iterated.
    Kind(
        "dgl_tuplepack.graphs.readers.items:Items",
        object="a list of graphs, a dataset or an iterator of DGLGraph, (DGLGraph, label) or (DGLGraph, label, id), or "
        "of Data or HeteroData of PyG",
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
    """Return the source of a path or an object; a `Source` is returned as it is.

    `settings` are keywords for some kinds, such as those of `OgbFolder`; `also` are other paths that the caller takes,
    for messages. FormatError for a path, SizesError for an object that no kind recognises.
    """
    source = recognised(given, settings)
    if source is None:
        _refuse(given, also)
    return source


def paths(also: Sequence[str] = ()) -> str:
    """List the kinds of paths that can be read, and `also`, for messages."""
    return _joined([*(kind.path for kind in KINDS if kind.path), *also])


def _objects(graphs: bool = False) -> str:
    """List the kinds of objects that can be read; with `graphs`, only those that have graphs."""
    return _joined([kind.object for kind in KINDS if kind.object and (kind.has_graphs or not graphs)])


def _joined(texts: Sequence[str]) -> str:
    return ", ".join(texts[:-1]) + f", or {texts[-1]}"


def _refuse(given: Any, also: Sequence[str]) -> NoReturn:
    if not isinstance(given, str | os.PathLike):
        raise SizesError(
            f"neither graphs nor sizes can be read from {type(given).__name__}; give {_objects()}, or the path of "
            f"{paths()}."
        )
    try:
        as_path(given).stat()
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"there is no {given}; give {paths(also)}.") from None
    except (OSError, ValueError) as error:
        raise FormatError(cannot("read", as_path(given), error)) from error
    raise FormatError(f"{given} cannot be read as graphs or sizes; give {paths(also)}.")
