"""A source of graphs, or of their sizes only: the base class of all readers."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import GraphBlock
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes


class Source(ABC):
    """A source of one kind. To read another kind, add a subclass in a file of its own and a line in `KINDS` (kinds.py).

    The line goes before `Items`, which takes anything that can be iterated, and for folders that may hold ``raw/``
    before `OgbSource`. An optional package that a kind needs is also listed in `EXTRAS` and in setup.cfg.

    Making a source reads only what recognises it; the methods read the rest. A kind whose graphs lie in arrays gives
    `blocks`, which are copied whole; `items`, one graph at a time, are for kinds that have graphs only as objects.

    `BinFile` is an example of a file with `items`, `OgbSource` of a folder with `blocks`, and `Stored` of a folder with
    signs that needs a package; a package that only a method needs is loaded there, by `_core.optional.load`. The
    docstrings of `sizes_of` and `GraphStore.write` and docs/concepts.md list all kinds.

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
            "label) or (DGLGraph, label, id); give graphs, a dataset, an OgbFolder, a GraphStore, or the path of an "
            "OGB folder or a store."
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
