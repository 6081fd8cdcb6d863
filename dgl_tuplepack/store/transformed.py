"""A store whose graphs are transformed when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from torch import Tensor

from dgl_tuplepack._checks import as_ids
from dgl_tuplepack._optional import load
from dgl_tuplepack.graphs.items import BatchItems, Identified, epoch_of, parts_of, shape_of
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.ladder import Shapes
from dgl_tuplepack.padding import PaddedBatch, PaddedCollate
from dgl_tuplepack.padding.batch_transform import Transformable
from dgl_tuplepack.sizes import GraphSizes, IntArray
from dgl_tuplepack.store.selection import Selection


class WithTransform:
    """Base of stores: the way to a `TransformedStore`."""

    def with_transform(self, transform: Callable[[Any], Any], seed: int = 0) -> TransformedStore:
        """Return a view whose graphs are transformed when they are read.

        Parameters
        ----------
        transform
            A transform of `dgl.transforms`, or any callable that takes and returns a DGLGraph (a dict of named graphs
            where items are such). Nodes and edges may become fewer, not more, since sizes are those of the stored
            graphs; features may change.
        seed
            0..2**64-1. Random numbers are a function of it, the epoch, and the id of the graph in the store, for any
            number of workers.

        Raises
        ------
        TransformError
            `transform` cannot be called. For an item: it fails, returns no graph, or makes the graph larger.

        Notes
        -----
        Graphs are read and transformed one by one, so batches take much longer than those of the store. Transforms
        of whole batches (``store.padded(...).with_transform(...)``) are fast, and what does not change from epoch to
        epoch belongs into the `pre_transform` of `GraphStore.write`.

        Examples
        --------
        >>> import dgl, tempfile
        >>> from dgl_tuplepack import GraphStore
        >>> store = GraphStore.write(tempfile.mkdtemp(), [dgl.graph(([0, 1, 0], [1, 2, 1]))])
        >>> view = store.with_transform(dgl.transforms.ToSimple())
        >>> view[0].num_edges(), view.sizes.array.tolist()
        (2, [[3, 3]])
        """
        return TransformedStore(cast(Selection, self), GraphTransform(transform, seed))


class TransformedStore:
    """View of a store whose graphs are transformed when they are read; made by `GraphStore.with_transform`.

    Attributes
    ----------
    store
        The store, which has the sizes and splits.
    """

    def __init__(self, store: Selection, transform: GraphTransform) -> None:
        self.store, self._transform = store, transform

    @property
    def sizes(self) -> GraphSizes:
        """Sizes of the stored graphs; those of transformed ones may be smaller."""
        return self.store.sizes

    @property
    def histogram(self) -> SizeHistogram:
        """Histogram of `sizes`."""
        return self.store.histogram

    @property
    def splits(self) -> dict[str, IntArray]:
        """Ids by name of the split."""
        return self.store.splits

    @property
    def schema(self) -> Schema:
        """Types, features and labels of the first graph, transformed as at epoch 0."""
        stored = self.store.schema
        return Schema.of(Identified(0, self._items([0], 0)[0]), stored.ties, stored.indices)

    def subset(self, ids: Sequence[int] | IntArray | Tensor) -> TransformedStore:
        """Select some of the graphs, as `GraphStore.subset` does; random numbers of a graph stay the same."""
        return TransformedStore(self.store.subset(ids), self._transform)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that the transform draws from where ids do not tell it, also in worker processes.

        The ids of a `PackBatchSampler` tell it.
        """
        self._transform.draws.set_epoch(epoch)

    def padded(self, limits: Shapes, packs_per_batch: int = 1, **settings: Any) -> TransformedPadded:
        """Return a view whose item for a list of ids is one `PaddedBatch` of transformed graphs.

        Settings are those of `PaddedCollate`.
        """
        return TransformedPadded(self, limits, packs_per_batch, settings)

    def batch(
        self, ids: Sequence[int] | IntArray | Tensor, limits: Shapes, packs_per_batch: int = 1, **settings: Any
    ) -> PaddedBatch:
        """Return one padded batch of the graphs `ids`; settings as in `padded`."""
        return self.padded(limits, packs_per_batch, **settings)[ids]

    def as_dgl_dataset(self) -> Any:
        """Return the view as a `dgl.data.DGLDataset`, for code that needs one."""
        load("dgl")
        from dgl_tuplepack.store.dgl_dataset import StoreDataset

        return StoreDataset(self)

    @property
    def path(self) -> Any:
        """The folder of the store."""
        return self.store.path

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        """Return graph `index` as a transformed DGLGraph, or (DGLGraph, label)."""
        item, number = self.store[index], int(index)
        return self._transformed([number + len(self) if number < 0 else number], [item], None)[0]

    def __getitems__(self, ids: Sequence[int]) -> list[Any]:
        """Return the graphs of a batch, as loaders ask for them, in the epoch that the sampler gave."""
        return self._items(ids, epoch_of(ids))

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def _items(self, ids: Any, epoch: int | None) -> list[Any]:
        positions = as_ids(ids, len(self)).tolist()
        return self._transformed(positions, [self.store[i] for i in positions], epoch)

    def _transformed(self, positions: list[int], items: list[Any], epoch: int | None) -> list[Any]:
        in_store = self.store.ids_in_store(as_ids(positions, len(self))).tolist()
        where = [f"graph {i}" for i in in_store]
        parts = [parts_of(item, place)._replace(id=i) for item, place, i in zip(items, where, in_store, strict=True)]
        # Items of a store are copies already.
        found = self._transform(parts, where, epoch, copies=False)
        return [part.graph if part.label is None else (part.graph, part.label) for part in found]

    def __repr__(self) -> str:
        return f"TransformedStore({self.store!r}, {self._transform.name})"


class TransformedPadded(Transformable):
    """View of a `TransformedStore` whose item for a list of ids is one whole `PaddedBatch`."""

    def __init__(
        self, graphs: TransformedStore, limits: Shapes, packs_per_batch: int, settings: Mapping[str, Any]
    ) -> None:
        self.graphs, self.store = graphs, graphs.store
        example, stored = Identified(0, graphs._items([0], 0)[0]), graphs.store.schema
        declared = {"ties": stored.ties, "indices": stored.indices}
        self._collate = PaddedCollate(limits, example, packs_per_batch, **{**declared, **settings})
        self.shape = self._collate.shape

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, ids: Sequence[int] | IntArray | Tensor) -> PaddedBatch:
        positions = as_ids(ids, len(self)).tolist()
        items = self.graphs._items(positions, epoch_of(ids))
        identified = [Identified(i, item, epoch_of(ids)) for i, item in zip(positions, items, strict=True)]
        return self._collate(BatchItems(identified, shape_of(ids)))
