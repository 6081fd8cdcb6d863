"""A store whose graphs are transformed when they are read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._checks import as_ids, shown
from dgl_tuplepack.errors import InputError, SchemaError
from dgl_tuplepack.graphs.blocks import GraphType
from dgl_tuplepack.graphs.items import BatchItems, Identified, Parts, epoch_of, parts_of, shape_of
from dgl_tuplepack.graphs.merge import batches_of
from dgl_tuplepack.graphs.named import counts_of
from dgl_tuplepack.graphs.relations import check_ties
from dgl_tuplepack.graphs.schema import Schema, as_label, as_tensors, stack_labels
from dgl_tuplepack.graphs.split import split_graphs
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.ladder import Shapes
from dgl_tuplepack.padding import PaddedBatch, PaddedCollate
from dgl_tuplepack.padding.batch_transform import Transformable
from dgl_tuplepack.sizes import GraphSizes, IntArray
from dgl_tuplepack.store.batched import BatchedStore, BatchView, is_one_id, no_graphs, tensors_of
from dgl_tuplepack.store.format import ENDS, Key
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
        Graphs are made and transformed one by one, so batches take much longer than those of the store. Transforms
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


_GIVES_DGL = (
    "the transform of a store takes and gives DGLGraphs; give one of PyG to store.as_pyg_dataset(transform=...), or as "
    "pre_transform to what writes the store."
)


class TransformedStore:
    """View of a store whose graphs are transformed when they are read; made by `GraphStore.with_transform`.

    Attributes
    ----------
    store
        The store, which has the sizes and splits.
    """

    def __init__(self, store: Selection, transform: GraphTransform) -> None:
        self.store, self._transform = store, transform
        self._transform.numbered = store.schema.numbered_by_labels
        self._batches = BatchedStore(store)

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

    @functools.cached_property
    def schema(self) -> Schema:
        """Types, features and labels of the first graph, transformed as at epoch 0."""
        stored = self.store.schema
        return Schema.of(Identified(0, _item(*self.parts([0], 0))), stored.ties, stored.indices)

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

    def batched(self, *, framework: str = "dgl") -> TransformedBatched:
        """Return a view whose item for a list of ids is ``(DGLGraph, labels)``, as `GraphStore.batched` does."""
        if framework != "dgl":
            raise InputError(f"framework is {shown(framework)}, but {_GIVES_DGL}")
        return TransformedBatched(self)

    def as_pyg_dataset(self) -> NoReturn:
        """Refuse a dataset of PyG, which has a transform of its own.

        Raises
        ------
        InputError
            Always; says what to do instead.
        """
        raise InputError(_GIVES_DGL)

    @property
    def transform_name(self) -> str:
        """What messages call the transform."""
        return self._transform.name

    @property
    def path(self) -> Any:
        """The folder of the store."""
        return self.store.path

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        """Return graph `index` as a transformed DGLGraph, or (DGLGraph, label)."""
        item, number = self.store[index], int(index)
        position = number + len(self) if number < 0 else number
        return _item(*self._transformed([parts_of(item, f"graph {number}")], np.array([position]), None))

    def __getitems__(self, ids: Sequence[int]) -> list[Any]:
        """Return the graphs of a batch, as loaders ask for them, in the epoch that the sampler gave."""
        return [_item(part) for part in self.parts(ids, epoch_of(ids))]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def parts(self, ids: Sequence[int] | IntArray | Tensor, epoch: int | None) -> list[Parts]:
        """Return transformed graphs with their labels, and with their ids in the store."""
        positions = as_ids(ids, len(self))
        return self._transformed(self._stored(positions), positions, epoch) if len(positions) else []

    def _stored(self, positions: IntArray) -> list[Parts]:
        """Return graphs as they are stored; their tensors are parts of those of one batch."""
        schema = self.store.schema
        found, _, listed = self._batches.tensors(positions)
        tensors = {key: tensor for (key, _, _), tensor in zip(tensors_of(schema), listed, strict=True)}
        types = (*schema.node_types, *schema.edge_types, None)
        counts, firsts = (dict(zip(types, found.rows[:, row], strict=True)) for row in (1, 2))

        def local(key: Key, target: GraphType) -> Tensor:
            """Indices that count from 0 in each graph."""
            shifted, first = tensors[key], np.repeat(firsts[target], counts[key[1]])
            return shifted - torch.from_numpy(first).to(shifted.dtype).reshape(-1, *[1] * (shifted.dim() - 1))

        tensors |= {key: local(key, target) for key, target in schema.index_columns.items()}
        graphs = split_graphs(
            schema.graph_names,
            {t: counts[t].tolist() for t in schema.node_types},
            {e: counts[e].tolist() for e in schema.edge_types},
            {e: (local((ENDS[0], e), e[0]), local((ENDS[1], e), e[2])) for e in schema.edge_types},
            {t: {n: tensors["node_feature", t, n] for n in names} for t, names in schema.node_features.items()},
            {e: {n: tensors["edge_feature", e, n] for n in names} for e, names in schema.edge_features.items()},
        )
        labels = {name: tensors["label", None, name].unbind() for name in schema.labels}
        return [
            Parts(graph, as_label({name: values[i] for name, values in labels.items()}), None)
            for i, graph in enumerate(graphs)
        ]

    def _transformed(self, parts: Sequence[Parts], positions: IntArray, epoch: int | None) -> list[Parts]:
        in_store = self.store.ids_in_store(positions).tolist()
        identified = [part._replace(id=i) for part, i in zip(parts, in_store, strict=True)]
        # Items of a store are copies already.
        where = [f"graph {i}" for i in in_store]
        found = self._transform(identified, where, epoch, copies=False)
        if self.store.schema.ties:
            counts = [counts_of(part.graph) for part in found]
            check_ties(
                self.store.schema,
                lambda t: np.array([each[t] for each in counts]),
                lambda i: f"{where[i]} after the transform {self.transform_name}",
            )
        return found

    def __repr__(self) -> str:
        return f"TransformedStore({self.store!r}, {self._transform.name})"


class TransformedBatched(BatchView):
    """View of a `TransformedStore` whose item for a list of ids is one batch without padding."""

    def __init__(self, graphs: TransformedStore) -> None:
        self.graphs, self.store = graphs, graphs.store
        if graphs.store.schema.indices:
            raise SchemaError(
                f"{list(graphs.store.schema.indices)} hold indices, which are not shifted in batches of transformed "
                "graphs without padding; give the transform as pre_transform when the store is written."
            )

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, ids: int | Sequence[int] | IntArray | Tensor) -> Any:
        if is_one_id(ids):
            return self.graphs[ids]  # type: ignore[index]
        parts = self.graphs.parts(ids, epoch_of(ids))  # type: ignore[arg-type]
        schema = self.graphs.schema
        if not parts:
            return no_graphs(schema)
        where = [f"graph {part.id} after the transform {self.graphs.transform_name}" for part in parts]
        graph = batches_of(schema, [part.graph for part in parts], where)
        labels = stack_labels([as_tensors(part.label) for part in parts], schema, where)
        return (graph, as_label(labels)) if labels else graph

    def __iter__(self) -> Iterator[Any]:
        return iter(self.graphs)


class TransformedPadded(Transformable):
    """View of a `TransformedStore` whose item for a list of ids is one whole `PaddedBatch`."""

    def __init__(
        self, graphs: TransformedStore, limits: Shapes, packs_per_batch: int, settings: Mapping[str, Any]
    ) -> None:
        self.graphs, self.store = graphs, graphs.store
        example, stored = Identified(0, _item(*graphs.parts([0], 0))), graphs.store.schema
        declared = {"ties": stored.ties, "indices": stored.indices}
        self._collate = PaddedCollate(limits, example, packs_per_batch, **{**declared, **settings})
        self.shape = self._collate.shape

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, ids: Sequence[int] | IntArray | Tensor) -> PaddedBatch:
        positions, epoch = as_ids(ids, len(self)).tolist(), epoch_of(ids)
        parts = self.graphs.parts(positions, epoch)
        items = [Identified(i, _item(part), epoch) for i, part in zip(positions, parts, strict=True)]
        return self._collate(BatchItems(items, shape_of(ids)))


def _item(part: Parts) -> Any:
    """Return a graph as items of stores are: with its label, or alone."""
    return part.graph if part.label is None else (part.graph, part.label)
