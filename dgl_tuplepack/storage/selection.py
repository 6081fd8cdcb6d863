"""A selection: all or some of the graphs of one store, or of several stores, one after another."""

from __future__ import annotations

import functools
import hashlib
import operator
from collections.abc import Iterator, Sequence
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from dgl_tuplepack._core.checks import as_ids, true_or_false
from dgl_tuplepack.errors import FormatError, SchemaError, SizesError
from dgl_tuplepack.graphs.relations import Column
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray
from dgl_tuplepack.storage.format import PreTransform
from dgl_tuplepack.storage.segment import Segment

Chosen = TypeVar("Chosen", bound="Selection")

COMPARED = (
    "graph_names", "node_types", "edge_types", "idtype", "node_features", "edge_features", "labels", "ties", "indices",
    "pyg",
)  # fmt: skip
_AGREE = "shards of one dataset must agree"


class Selection:
    """All or some graphs of one or several opened stores, with the ids 0..N-1.

    A subclass opens the stores at `path`. A selection is pickled as its path, its checksum and its ids. Unpickling
    opens the files again, and raises FormatError if the files have changed.
    """

    def __init__(self, path: Path, segments: Sequence[Segment]) -> None:
        schema = functools.reduce(lambda found, each: found.settled(each.schema.shown), segments, segments[0].schema)
        self.path, self.segments = path, tuple(segment.settled(schema) for segment in segments)
        # int64 [N], read-only: the position of each graph among the graphs of all segments; None for all graphs.
        self.chosen: IntArray | None = None
        # int64 [N]: the ids that batches report for the graphs; None for 0..N-1.
        self.kept_ids: IntArray | None = None
        for segment in self.segments[1:]:
            check_same_schema(self.schema, segment.schema, str(segments[0].path), str(segment.path))
        # int64 [segments + 1]: the number of graphs before each segment, then the number of all graphs.
        self.first_ids: IntArray = np.cumsum([0, *(segment.num_graphs for segment in segments)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.first_ids[-1]) if self.chosen is None else len(self.chosen)

    @property
    def schema(self) -> Schema:
        """Types, features and labels of the graphs."""
        return self.segments[0].schema

    @property
    def checksum(self) -> str:
        """SHA-256 that identifies the content of all segments, in order."""
        first, *others = (segment.checksum for segment in self.segments)
        return hashlib.sha256(" ".join([first, *others]).encode()).hexdigest() if others else first

    @property
    def pre_transform(self) -> PreTransform | None:
        """The transform that was applied to the graphs before they were written, or None."""
        return self.segments[0].metadata.pre_transform

    @functools.cached_property
    def stored_schema(self) -> Schema:
        """The schema with the dtypes of the files: for each feature and label, the widest dtype in any segment."""
        schema = self.schema
        # In a batch, indices are counted over all graphs of the batch, and may exceed the stored dtype.
        return schema.with_columns(
            {
                column: spec if column in schema.index_columns else self.stored_spec(column)
                for column, spec in schema.columns()
            }
        )

    def batch_schema(self, as_stored: bool) -> Schema:
        """Return the schema of batches; with `as_stored`, narrowed integers keep the dtypes of the files."""
        return self.stored_schema if true_or_false("as_stored", as_stored) else self.schema

    def stored_spec(self, column: Column) -> ArraySpec:
        """Return the shape of a row of a feature or label, and the widest dtype that its file has in any segment."""
        return max((segment.stored_spec(column) for segment in self.segments), key=lambda spec: spec.dtype.itemsize)

    @property
    def original_ids(self) -> IntArray:
        """int64 ``[N]``, the id of each graph in the whole store."""
        return np.arange(len(self)) if self.chosen is None else self.chosen

    @property
    def graph_ids(self) -> IntArray:
        """int64 ``[N]``, the ids that batches report: 0..N-1; after `split`, ids in the selection that was split."""
        return np.arange(len(self)) if self.kept_ids is None else self.kept_ids

    def ids_in_store(self, ids: IntArray) -> IntArray:
        """Convert ids of the selection to ids in the whole store."""
        return ids if self.chosen is None else self.chosen[ids]

    @functools.cached_property
    def sizes(self) -> GraphSizes:
        """Sizes of the graphs, computed from the offsets only."""
        first, *others = (segment.sizes for segment in self.segments)
        if others:
            first = GraphSizes(np.concatenate([first.array, *(sizes.array for sizes in others)]), first.components)
        return first if self.chosen is None else first.take(self.chosen)

    @functools.cached_property
    def histogram(self) -> SizeHistogram:
        """Histogram of the sizes: counted for a subset, otherwise read from the files."""
        if self.chosen is not None:
            return SizeHistogram.from_sizes(self.sizes).without_ids()
        return functools.reduce(SizeHistogram.__add__, (segment.histogram for segment in self.segments))

    @property
    def splits(self) -> dict[str, IntArray]:
        """The ids of each split, by the name of the split, from all segments together; empty for a subset."""
        if self.chosen is not None:
            return {}
        splits: dict[str, list[IntArray]] = {}
        for first, segment in zip(self.first_ids, self.segments, strict=False):
            for name, ids in segment.splits.items():
                splits.setdefault(name, []).append(ids + first if first else ids)
        return {name: np.concatenate(ids) if len(ids) > 1 else ids[0] for name, ids in splits.items()}

    def subset(self: Chosen, ids: Sequence[int] | IntArray | Tensor) -> Chosen:
        """Return a selection of some graphs, in the given order; these graphs get the ids 0, 1, ...

        Raises
        ------
        SizesError
            There are no ids, or an id is not in 0..N-1.
        """
        positions = as_ids(ids, len(self))
        if not len(positions):
            raise SizesError("a subset needs at least one id, but got none.")
        # Share the opened files: copy.copy would open `path` again, where another store may be by now.
        subset = type(self).__new__(type(self))
        subset.__dict__.update(self.__dict__)
        # Drop what is cached for the graphs of `self`.
        for name in ("sizes", "histogram"):
            subset.__dict__.pop(name, None)
        subset._choose(self.ids_in_store(positions), None)
        return subset

    def split(self: Chosen, ids: Sequence[int] | IntArray | Tensor) -> Chosen:
        """Return a subset, as `subset` does; but its batches report the ids before the split (`graph_ids`)."""
        split = self.subset(ids)
        split.kept_ids = as_ids(ids, len(self)).copy()
        return split

    def _choose(self, positions: IntArray, kept_ids: IntArray | None) -> None:
        """Set the positions of the graphs and the ids that batches report."""
        # Keep a read-only copy, because the compiled kernels do not check the positions.
        self.chosen, self.kept_ids = positions.copy(), kept_ids
        self.chosen.setflags(write=False)

    def __getitem__(self, index: int) -> Any:
        """Return graph `index` as a DGLGraph, or (DGLGraph, label); features are copies.

        In a store with several graphs for each item, a dict of DGLGraphs takes the place of the DGLGraph.
        """
        try:
            index = operator.index(index)
        except TypeError as error:
            raise SizesError(
                f"a store is indexed by one integer, but got {index!r:.200}; use subset(ids) or padded(limits)[ids]."
            ) from error
        (position,) = as_ids([index + len(self) if -len(self) <= index < 0 else index], len(self))
        graph_id = int(position if self.chosen is None else self.chosen[position])
        segment_index = int(np.searchsorted(self.first_ids, graph_id, side="right")) - 1
        return self.segments[segment_index].item(graph_id - int(self.first_ids[segment_index]))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def verify(self) -> None:
        """Compare every byte of the files with their checksums, and the arrays with each other.

        Raises
        ------
        FormatError
            A file has changed since it was written; the message names the first such file.
        """
        for segment in self.segments:
            segment.verify()

    def __reduce__(self) -> tuple[Any, ...]:
        # The folder of a temporary store. Workers of a loader end before the store, so they open the same folder.
        folder = self.__dict__.get("_folder") if get_spawning_popen() is None else None
        return _reopened, (type(self), self.path, self.checksum, self.chosen, self.kept_ids, folder)

    def __repr__(self) -> str:
        totals = self.sizes.totals()
        return f"{type(self).__name__}({len(self)} graphs, {', '.join(f'{totals[name]} {name}' for name in totals)})"


def _reopened(
    store_class: Any, path: Path, checksum: str, chosen: IntArray | None, kept_ids: IntArray | None, folder: Any
) -> Any:
    """Return an unpickled selection; raise FormatError if the files at `path` (or in `folder`) have changed."""
    selection = store_class(path if folder is None else Path(folder.path) / path.name)
    if folder is not None:
        selection.__dict__["_folder"] = folder
    if selection.checksum != checksum:
        raise FormatError(f"{path} was written again after it was opened; open it again in every process.")
    if chosen is not None:
        selection._choose(chosen, kept_ids)
    return selection


def check_same_schema(
    expected: Schema, found: Schema, where: str, other: str, compared: Sequence[str] = COMPARED, reason: str = _AGREE
) -> None:
    """Raise SchemaError if the schemas differ in one of the attributes `compared`.

    In the message, `where` names the graphs of `expected`, `other` those of `found`; the message ends with `reason`.
    """
    for what in compared:
        theirs, ours = getattr(found, what), getattr(expected, what)
        if theirs != ours:
            raise SchemaError(
                f"the graphs of {other} have the {what.replace('_', ' ').replace('pyg', 'PyG layout')} "
                f"{_shown(theirs)}, but the graphs of {where} have {_shown(ours)}; {reason}."
            )


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(inside)}" for key, inside in value.items()) + "}"
    return str(value)
