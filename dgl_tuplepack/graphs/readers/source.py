"""The base class of all readers: a source of graphs, or of sizes only.

How data flows: `resolve` (`kinds.py`) asks each kind of source whether it recognises what the user gave. Sizes come
from the source itself (`knows_sizes`), or from its graphs. Its graphs come as `items`, as the user wrote them, or as
`blocks`: a `GraphBlock` (`../blocks.py`) holds consecutive graphs in flat arrays, whose names, dtypes and shapes the
`Schema` (`../schema.py`) describes. `../build.py` joins items to blocks, and makes graphs of blocks again. For PyG,
`../pyg_join.py` joins graphs by their own methods, and `../pyg_read.py` finds out what each attribute belongs to.
"""

from __future__ import annotations

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.files import cannot
from dgl_tuplepack.errors import FormatError, MissingDependencyError, SchemaError
from dgl_tuplepack.graphs.blocks import GraphBlock
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes


@contextlib.contextmanager
def reading(what: str | Path, advice: str, *others: type[Exception]) -> Iterator[None]:
    """Turn errors of other libraries into a FormatError, which names the file as `what` and ends with `advice`.

    FormatError, MissingDependencyError and exceptions of the classes `others` pass unchanged.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, (FormatError, MissingDependencyError, *others)):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            # Errors of decompression have no error number.
            raise FormatError(cannot("read", what, error)) from error
        reason = str(error) or type(error).__name__
        raise FormatError(f"cannot read {what}: {reason:.200}; {advice}.") from error


class Source(ABC):
    """A source of one kind. CONTRIBUTING.md lists the steps to add a kind.

    The constructor reads only what is needed to recognise the source. A kind with graphs in flat arrays implements
    `blocks`; any other kind with graphs implements `items`. Compare `BinFile` (a file with `items`) and `OgbSource`
    (a folder with `blocks`).
    """

    # Whether sizes can be read without the graphs.
    knows_sizes = False
    # For a kind with `items` and `blocks`: whether transforms get the items, not DGLGraphs made from blocks.
    prefers_items = False
    # Whether graphs can only be iterated, so that there may be any number of them, even if they have a length.
    is_stream = False
    # For PyG graphs: attribute -> level, set by the user; see `graphs.pyg_layout`.
    levels: Mapping[str, str | None] | None = None
    # `schema`: the `Schema` of the graphs. `blocks` may set it; if it stays None, it is derived from the first block.
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
        """Return the source at a path; None for a path of another kind. `settings` are arguments of `OgbFolder`."""
        return None

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Return the source of an object; None for an object of another kind.

        This method is called for every object, so it must not import the package of its objects.
        """
        return None

    @abstractmethod
    def sizes(self) -> GraphSizes:
        """Return the sizes of all graphs."""

    def histogram(self) -> SizeHistogram:
        """Return the histogram of the sizes."""
        return SizeHistogram.from_sizes(self.sizes())

    def with_levels(self, levels: Mapping[str, str | None] | None) -> Source:
        """Check `levels`, and return a copy of the source with these levels; for None, return the source itself."""
        if levels is None:
            return self
        from dgl_tuplepack.graphs.pyg_layout import checked_levels

        other = copy.copy(self)
        other.levels = checked_levels(levels)
        return other

    def num_graphs(self) -> int | None:
        """Return the number of graphs; None if the number is unknown before the graphs are read."""
        return None

    def splits(self) -> Mapping[str, Any]:
        """Return a mapping from split names to ids; it is empty if the source has no splits."""
        return {}

    def static_shape(self, batch_size: int) -> Any:
        """Return the stored `Limits` of shuffled batches of `batch_size` graphs; None if there are none."""
        return None

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Return all graphs in order as blocks of flat arrays; None if the source has no blocks."""
        return None

    def by_position(self) -> Any:
        """Return a dataset with a length and items, or a store; None if graphs can only be read in blocks."""
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
    """A source made from an object that has a length, attributes `sizes` and `splits`, and a method `blocks`."""

    knows_sizes = True

    def __init__(self, title: str, given: Any) -> None:
        super().__init__(title)
        self._given = given

    def sizes(self) -> GraphSizes:
        """Return the attribute `sizes` of the object."""
        sizes: GraphSizes = self._given.sizes
        return sizes

    def num_graphs(self) -> int | None:
        """Return the length of the object."""
        return len(self._given)

    def splits(self) -> Mapping[str, Any]:
        """Return the attribute `splits` of the object."""
        splits: Mapping[str, Any] = self._given.splits
        return splits

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Return the blocks of the object: all graphs in order, a few thousand at a time."""
        blocks: Iterator[GraphBlock] = self._given.blocks()
        return blocks
