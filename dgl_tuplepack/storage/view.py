"""A view of a store that returns a whole batch for a list of ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import as_ids, as_integers
from dgl_tuplepack._core.kernels.find_graphs import OFFSETS, find_graphs
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.batches.batch_transform import BatchTransform
from dgl_tuplepack.batches.shape import PaddedShape, number_of_shape
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import Array, GraphType
from dgl_tuplepack.graphs.items import epoch_of, shape_index_of
from dgl_tuplepack.graphs.named import is_pyg
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.storage.selection import Selection


class Arrays(Protocol):
    """The arrays of a store, in a memory map or on a device."""

    @property
    def selection(self) -> Selection:
        """The selection that ids refer to."""

    def maker(
        self, shape: PaddedShape | None, *, separate: bool = False, as_stored: bool = False, framework: str = "dgl"
    ) -> Callable[[GraphRows], Any]:
        """Return a function that makes a batch from the rows of its graphs in the arrays.

        If `shape` is None, the batches have no padding. The other arguments are as in `BatchView`.
        """

    def item(self, i: int) -> Any:
        """Return graph `i` as a DGLGraph, with its label."""


class BatchView:
    """View of a store: ``view[ids]`` is one whole batch, for a list of ids.

    `GraphStore.padded` makes views of padded batches, `GraphStore.batched` views of batches without padding. A view
    without padding also accepts a single id, and then returns that graph. For an empty list, a view of padded batches
    returns a batch of padding only, and a view without padding returns a batch of no graphs.

    Parameters
    ----------
    store
        Store, or store on a device, whose arrays are read.
    shapes
        Shapes of padded batches, the smallest first; empty for batches without padding. The attribute `shape` is the
        last shape, or None.
    transform, transform_seed, separate
        For padded batches, as in `GraphStore.padded`.
    as_stored, framework, with_ids
        For batches without padding, as in `GraphStore.batched`.

    Raises
    ------
    GraphTooLargeError, SizesError
        When a batch is read: the graphs do not fit into the shape, an id is not in 0..N-1, or there are more nodes or
        edges than the index type of the graphs can count.
    FormatError
        When a batch is read: offsets or endpoints are wrong, because the files were damaged after opening.
    """

    def __init__(
        self,
        store: Arrays,
        shapes: Sequence[PaddedShape] = (),
        *,
        transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
        separate: bool = False,
        as_stored: bool = False,
        framework: str = "dgl",
        with_ids: bool = False,
    ) -> None:
        self.store, self.shapes, self.framework, self.with_ids = store, tuple(shapes), framework, with_ids
        self._choices: dict[str, Any] = {"separate": separate, "as_stored": as_stored, "framework": framework}
        self.shape = self.shapes[-1] if self.shapes else None
        self._transform: BatchTransform | None = None
        self._prepare()
        if transform is not None:
            # `BatchTransform` transforms a batch without graphs to find the features and labels of the results.
            self._transform = BatchTransform(transform, transform_seed, self[[]])

    def _prepare(self) -> None:
        self._finder = Finder(self.store.selection)
        self._makers = [self.store.maker(shape, **self._choices) for shape in self.shapes or (None,)]

    def __getstate__(self) -> dict[str, Any]:
        # Leave out the finder and the makers, which hold memory addresses of this process.
        return {name: value for name, value in self.__dict__.items() if name not in ("_finder", "_makers")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __len__(self) -> int:
        return len(self.store.selection)

    def __getitem__(self, ids: int | Sequence[int] | IntArray | Tensor) -> Any:
        if not self.shapes and is_one_id(ids):
            return self._item(ids)  # type: ignore[arg-type]
        graphs, shape_index = self._finder.find(ids), 0  # type: ignore[arg-type]
        if len(self._makers) > 1:
            shape_index = number_of_shape(self.shapes, shape_index_of(ids), graphs.totals.tolist())
        batch = self._makers[shape_index](graphs)
        if self.with_ids:
            return with_graph_ids(batch, torch.from_numpy(graphs.ids))
        if self._transform is None:
            return batch
        # Random numbers depend on the ids in the store, even if the batch reports other ids.
        return self._transform(batch, self.store.selection.ids_in_store(graphs.positions).tolist(), epoch_of(ids))

    def _item(self, i: int) -> Any:
        """Return one graph: for DGL, an item of the store; for PyG, the graph of a batch that holds only this graph."""
        if self.framework == "dgl":
            return self.store.item(i)
        position = int(i)
        return self[[position + len(self) if -len(self) <= position < 0 else position]].get_example(0)

    def __getitems__(self, ids: Sequence[Any]) -> Any:
        """Return one batch for each list in `ids`, for torch's loaders; raise InputError for a view without padding."""
        if self.shapes:
            return [self[i] for i in ids]
        loader = "tp.GraphDataLoader" if self.framework == "dgl" else "tp.pyg.DataLoader"
        raise InputError(
            "store.batched() makes whole batches, but this loader collates single graphs; give the store itself to a "
            f"loader that fetches whole batches, {loader}(store, batch_size=64, shuffle=True), or to any loader with "
            "your own collate_fn."
        )

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the transform's random numbers, also in worker processes.

        This is needed only if the ids carry no epoch; the ids of a `PackBatchSampler` carry one.
        """
        if self._transform is not None:
            self._transform.draws.set_epoch(epoch)


def with_graph_ids(batch: Any, ids: Tensor) -> Any:
    """Return a batch with the ids of its graphs: as the last element of a tuple; for PyG, as attribute `graph_ids`."""
    if is_pyg(batch):
        batch.graph_ids = ids
        return batch
    return (*batch, ids) if isinstance(batch, tuple) else (batch, ids)


def is_one_id(ids: Any) -> bool:
    """Return whether `ids` is a single id."""
    return hasattr(ids, "__index__") and getattr(ids, "ndim", 0) == 0


@dataclass
class GraphRows:
    """n graphs: their positions in the selection, their ids, their segments, and their rows for each type.

    `ids` are the ids that the batch reports. `segments`, int64 ``[n]``, has the index of the segment of each graph.
    ``rows[t]``, int64 ``[3, n]``, has three numbers for each graph: its first row in the segment, its number of rows,
    and its first row in the batch. ``totals[t]`` is the number of rows of all graphs. Types are numbered: node types,
    edge types, then labels, which have one row for each graph.
    """

    positions: IntArray
    ids: IntArray
    segments: IntArray
    rows: IntArray
    totals: IntArray

    @property
    def local_ids(self) -> IntArray:
        """Index of each graph in its segment."""
        # The last type is labels: the row of a graph in its segment is the index of the graph.
        return self.rows[-1, 0]  # type: ignore[no-any-return]


class Finder:
    """Find the graphs of a batch in the segments of a selection."""

    def __init__(self, selection: Selection) -> None:
        self._selection, self._segments = selection, selection.segments
        # The kernel needs an array, even if the selection has all graphs.
        self._chosen = np.empty(0, np.int64) if selection.chosen is None else selection.chosen
        self._types: list[GraphType] = [*selection.schema.node_types, *selection.schema.edge_types]
        # For each type and segment: the address of its offsets (the first row of each graph), and its number of rows.
        self._offsets = np.empty((len(self._types), len(self._segments)), OFFSETS)
        for of_type, t in zip(self._offsets, self._types, strict=True):
            of_type["address"] = [address_of(segment.offsets(t)) for segment in self._segments]
            of_type["rows"] = [segment.rows[t] for segment in self._segments]

    def find(self, ids: Sequence[int] | IntArray | Tensor) -> GraphRows:
        """Return the rows of the graphs `ids`; an id is the position of a graph in the selection.

        Raise SizesError for an id outside 0..N-1, and FormatError for damaged offsets.
        """
        positions = np.ascontiguousarray(as_integers(ids), np.int64)
        # Labels are one more type.
        num_graphs, num_types = len(positions), len(self._types) + 1
        segments, totals = np.empty(num_graphs, np.int64), np.empty(num_types, np.int64)
        rows = np.empty((num_types, 3, num_graphs), np.int64)
        is_subset, first_ids = self._selection.chosen is not None, self._selection.first_ids
        wrong = find_graphs(positions, self._chosen, first_ids, is_subset, self._offsets, segments, rows, totals)
        if wrong < 0:
            # Raises SizesError for the wrong id.
            as_ids(ids, len(self._selection))
        if wrong > 0:
            t, i = divmod(wrong - 1, num_graphs)
            self._segments[segments[i]].refuse_offsets(int(rows[-1, 0, i]), self._types[t])
        kept = self._selection.kept_ids
        return GraphRows(positions, positions if kept is None else kept[positions], segments, rows, totals)


def address_of(array: Array) -> int:
    """Return the address of the first byte of an array; the caller keeps the array alive."""
    address: int = array.__array_interface__["data"][0]
    return address
