"""What a path or an object is, as a source of graphs or of their sizes: one answer for every function and command."""

from __future__ import annotations

import importlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dgl_tuplepack._checks import as_path
from dgl_tuplepack._files import cannot
from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.blocks import GraphBlock
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.sizes import GraphSizes


class Source(ABC):
    """A source of one kind. A subclass, in a file of its own, is all that is needed to read another kind.

    Making one looks only as far as it takes to recognise it; the methods read.

    Attributes
    ----------
    title
        What messages call it.
    knows_sizes
        Whether the sizes of graphs cost little, beside the graphs.
    schema
        `Schema` of the graphs, where `blocks` alone do not tell it.
    files
        File or folder that everything is read from, where that is known: its changes are changes of the source.
    settings
        What else decides what is read from `files`, as text.
    """

    knows_sizes = False
    schema: Any = None
    files: Path | None = None
    settings: Mapping[str, str] = {}

    def __init__(self, title: str) -> None:
        self.title = title

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """The source at a path; None where there is nothing of this kind, or nothing at all.

        `settings` are keywords that the kind may heed, such as those of `OgbFolder`.
        """
        return None

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """The source that an object is; None for an object of another kind."""
        return None

    @abstractmethod
    def sizes(self, cache: Path | None = None) -> GraphSizes:
        """Sizes of all graphs, read without their features; kept in the file `cache` where each graph is fetched."""

    def histogram(self) -> SizeHistogram:
        """Histogram of the sizes."""
        return SizeHistogram.from_sizes(self.sizes())

    def num_graphs(self) -> int | None:
        """Number of graphs, where it is known before they are read."""
        return None

    def splits(self) -> Mapping[str, Any]:
        """Ids by name of the parts of the split; nothing where there is none."""
        return {}

    def blocks(self) -> Iterator[GraphBlock] | None:
        """All graphs in their order as blocks of flat arrays; None where there are only `items`."""
        return None

    def items(self) -> Iterable[Any]:
        """All graphs in their order as items of a dataset, for kinds without `blocks`."""
        raise SchemaError(
            f"{self.title} tells sizes alone, but graphs are needed, and an item must be a DGLGraph, a pair (DGLGraph, "
            f"label) or (DGLGraph, label, id); give {_objects(graphs=True)}, or the path of {paths()}."
        )


@dataclass(frozen=True)
class Kind:
    """One kind of source in the registry.

    Parameters
    ----------
    where
        Module and class, ``package.module:Class``; imported when it is first asked.
    path, object
        What messages call sources of this kind that are given by a path, and as an object; empty if there are none.
    signs
        For a module of a higher layer: the files, one of which is in every folder of this kind. The module is asked for
        a folder with such a file only, and for objects only where its package is already imported.
    needs
        Optional package that the module imports.
    has_graphs
        False for a kind that tells sizes alone.
    """

    where: str
    path: str = ""
    object: str = ""
    signs: tuple[str, ...] = ()
    needs: str = ""
    has_graphs: bool = True

    def recognised(self, given: Any, path: Path | None, settings: Mapping[str, Any]) -> Source | None:
        """The source, if it is of this kind."""
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
            return self.where.partition(":")[0].rpartition(".")[0] in sys.modules
        return any(os.path.exists(path / sign) for sign in self.signs)


# In the order in which they are asked: the first one that recognises a source reads it.
KINDS = [
    Kind("dgl_tuplepack.sources.wrapped:Wrapped"),
    Kind(
        "dgl_tuplepack.sources.numbers:Numbers",
        object="sizes (GraphSizes, rows of integers, a pair of arrays (num_nodes, num_edges))",
        has_graphs=False,
    ),
    Kind("dgl_tuplepack.sources.numbers:Counted", has_graphs=False),
    Kind(
        "dgl_tuplepack.store.kind:Stored",
        path="a store, a dataset of shards",
        object="a GraphStore or MultiStore",
        signs=("metadata.json", "manifest.json"),
        needs="torch",
    ),
    Kind("dgl_tuplepack.sources.bin_file:BinFile", path="a .bin file of dgl.save_graphs"),
    Kind(
        "dgl_tuplepack.sources.ogb_folder:OgbSource",
        path="an OGB folder (such as root/ogbg_molhiv, which holds raw/)",
        object="an OgbFolder",
    ),
    # Takes anything that can be iterated.
    Kind(
        "dgl_tuplepack.sources.items:Items",
        object="a list of graphs, a dataset or an iterator of DGLGraph, (DGLGraph, label) or (DGLGraph, label, id)",
    ),
]


def recognised(given: Any, settings: Mapping[str, Any] | None = None) -> Source | None:
    """The source that a path or an object is; None if it is of no kind.

    Raises
    ------
    FormatError
        A path is of a kind, but cannot be opened.
    """
    if isinstance(given, Source):
        return given
    path = as_path(given) if isinstance(given, str | os.PathLike) else None
    found = (kind.recognised(given, path, settings or {}) for kind in KINDS)
    return next((source for source in found if source is not None), None)


def resolve(given: Any, settings: Mapping[str, Any] | None = None, also: Sequence[str] = ()) -> Source:
    """The source that a path or an object is.

    Parameters
    ----------
    given
        A path, an object, or a `Source`, which is returned as it is.
    settings
        Keywords for the kinds that heed them, such as those of `OgbFolder`.
    also
        What else the caller takes, for messages about paths.

    Raises
    ------
    FormatError
        There is nothing at the path, nothing that can be read, or it cannot be opened.
    SizesError
        The object is of no kind.
    """
    source = recognised(given, settings)
    if source is None:
        _refuse(given, also)
    return source


def paths(also: Sequence[str] = ()) -> str:
    """List what can be given by its path, and what else the caller takes, for messages."""
    return _joined([*(kind.path for kind in KINDS if kind.path), *also])


def _objects(graphs: bool = False) -> str:
    """List what can be given as an object; with `graphs`, only what has them."""
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
    raise FormatError(f"{given} is of no kind that can be read; give {paths(also)}.")
