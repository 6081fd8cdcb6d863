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
    """A source of one kind. CONTRIBUTING.md lists the steps to add a kind.

    The constructor reads only enough to recognise the source; the methods read the rest. Kinds with graphs in flat
    arrays implement `blocks`: arrays of many graphs are copied at once. Other kinds implement `items`, which returns
    the graphs one by one.

    `BinFile` is an example of a file with `items`, `OgbSource` of a folder with `blocks`, and `Stored` of a folder that
    is recognised by its files and needs a package. A package that only one method needs is loaded in that method, by
    `_core.optional.load`.
    """

    # Whether sizes can be read without the graphs. Then limits are checked before anything is written.
    knows_sizes = False
    # Whether transforms get graphs from `items`, although the kind also has `blocks`: from blocks they get DGLGraphs.
    prefers_items = False
    # Levels of attributes of PyG graphs that the user sets, see `graphs.pyg_layout`.
    levels: Mapping[str, str | None] | None = None
    # `schema`: the `Schema` of the graphs, which `blocks` may set; if it is None, the first block determines it.
    # `pre_transform`: the `PreTransform` that was applied to the graphs.
    schema: Any = None
    pre_transform: Any = None
    # `ties` and `indices`: declared by the user, see `graphs.relations`. `own_indices`: indices that `blocks` finds in
    # the graphs.
    ties: Mapping[str, str] = {}
    indices: Mapping[str, str] = {}
    own_indices: Mapping[str, str] = {}
    # `files`: the file or folder that holds all graphs, if it is known. `settings`: the settings that affect how the
    # graphs are read, as text.
    files: Path | None = None
    settings: Mapping[str, str] = {}

    def __init__(self, title: str) -> None:
        # The display name of the source in messages.
        self.title = title

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Return the source at a path; None for a path of another kind.

        `settings` are keywords of `OgbFolder`, passed on by the command line and `preprocess_shards`; other kinds
        ignore them.
        """
        return None

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Return the source of an object; None for an object of another kind.

        This method is called for every object. So a kind whose objects are of another package must not import that
        package, but look in `sys.modules` (as `graphs.named.is_graph` does).
        """
        return None

    @abstractmethod
    def sizes(self) -> GraphSizes:
        """Return the sizes of all graphs."""

    def histogram(self) -> SizeHistogram:
        """Return the histogram of the sizes."""
        return SizeHistogram.from_sizes(self.sizes())

    def with_levels(self, levels: Mapping[str, str | None] | None) -> Source:
        """Return a copy of the source with these `levels`, which are checked; for None, the source itself."""
        if levels is None:
            return self
        from dgl_tuplepack.graphs.pyg_layout import checked_levels

        other = copy.copy(self)
        other.levels = checked_levels(levels)
        return other

    def num_graphs(self) -> int | None:
        """Return the number of graphs; None if it is unknown before they are read."""
        return None

    def splits(self) -> Mapping[str, Any]:
        """Return the ids of each split by its name; empty without splits."""
        return {}

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Return all graphs in order as blocks of flat arrays; None if there are only `items`."""
        return None

    def by_position(self) -> Any:
        """Return a dataset with a length and items, or a store; None if graphs can only be read in blocks.

        An iterator is read into a list.
        """
        return None

    def items(self) -> Iterable[Any]:
        """Return all graphs in order, for kinds without `blocks` or with `prefers_items`.

        An item is a DGLGraph, (DGLGraph, label) or (DGLGraph, label, id); one of these with a dict of named graphs in
        place of the DGLGraph; or a PyG graph. See `graphs.items.parts_of`.
        """
        raise SchemaError(
            f"{self.title} has only sizes, but graphs are needed; give a list or dataset of DGLGraph, (DGLGraph, "
            "label) or (DGLGraph, label, id), an OgbFolder, a GraphStore, or the path of an OGB folder or a store."
        )


class SizedSource(Source):
    """A source made from an object that has a length, and attributes `sizes` and `splits`."""

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
