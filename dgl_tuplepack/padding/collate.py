"""From a list of graphs to one padded batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._checks import UINT64_MAX, shown, whole_number
from dgl_tuplepack.errors import SchemaError, TransformError
from dgl_tuplepack.graphs.items import Identified, Parts, is_iterable, parts_of, shape_of
from dgl_tuplepack.graphs.merge import batch_of
from dgl_tuplepack.graphs.schema import Schema, as_label, as_tensors, stack_labels
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.ladder import Shapes, all_of, as_shapes
from dgl_tuplepack.padding.batch import Labels, PaddedBatch
from dgl_tuplepack.padding.batch_transform import BatchTransform
from dgl_tuplepack.padding.coordinates import Coordinates
from dgl_tuplepack.padding.ladder import number_of_shape
from dgl_tuplepack.padding.pad_graph import content_of, padded_batch
from dgl_tuplepack.padding.shape import Fill, PaddedShape


class PaddedCollate:
    """Collate graphs into a `PaddedBatch`; every call returns the same shape, also for an empty list.

    With a ladder of limits, it is one of a few shapes: the one of the step, which items of ``with_ids(dataset)`` tell;
    otherwise the smallest that holds the items, which then may differ between ranks.

    Parameters
    ----------
    limits
        Limits of one pack with a cap on graphs, or a ladder of them, usually ``sampler.limits``.
    example
        One item of the dataset, DGLGraph, (DGLGraph, label) or (DGLGraph, label, id). It defines types, features and
        labels, and whether items have ids. An id is an integer >= 0, kept in ``graph_ids`` (see `with_ids` too).
    packs_per_batch
        p >= 1, as in the sampler.
    label_fill
        Label of padding: a number, or a dict by name for dict labels, of numbers or arrays with the shape of a label.
    feature_fill
        Feature of padding: a number, or a dict by feature name, of numbers or arrays with the shape of a feature.
    cover_padding
        Give every padding node an incoming edge (of each type), so that layers which refuse nodes without one,
        such as GraphConv and GATConv, accept the batch. A batch then has p x edges + p x nodes + 1 edge slots
        instead of p x edges.
    idtype
        dtype of `src` and `dst`, torch.int64 or torch.int32.
    coordinates
        Names of node features that hold positions ``[V, ..., D]``, as ``("pos",)``, for models that divide by distances
        or take angles. Padding nodes then lie at least 1 apart, and padding edges lead from one to the next, so no
        padding edge has length 0; a batch has p x nodes + 2 node slots. ``{"pos": 12.0}`` puts them at least 12 apart:
        take a length beyond the cutoff of the model.
    sort_edges
        Sort the edges of a batch, of each type, by their destination; edges of one destination keep their order. The
        batch then has `row_pointers`, and its `graph` needs no conversion for sums over incoming edges. Real edges
        still come first, those of a graph stay together, and `unpad` gives each graph its own order back.
    transform
        Applied to a copy of each graph, the example included: a transform of `dgl.transforms`, or any callable that
        takes and returns a DGLGraph. Nodes and edges may become fewer, not more; features may change.
    batch_transform
        Applied to each batch: a callable that takes a `PaddedBatch`, changes its features or labels, and returns it.
        Padding stays as it is, see `tp.transforms`.
    transform_seed
        0..2**64-1. Random numbers of transforms are a function of it, the epoch, and the ids of the graphs, for any
        number of workers; they need items from ``with_ids(dataset)``.

    Raises
    ------
    LimitsError
        The limits have no cap on graphs, or are for other components than the example.
    SchemaError
        The example is not a graph with an optional label and id, or a fill value does not fit.
    TransformError
        A transform cannot be applied to the example, or to a batch of padding alone.

    Notes
    -----
    A call raises GraphTooLargeError if the graphs exceed p x limits, SchemaError if one differs from the example,
    for instance in having an id, and TransformError if a transform fails. Padding edges are spread evenly over the
    padding nodes: self-loops within one node type (without `coordinates`), else from padding nodes to padding nodes.

    Examples
    --------
    >>> import dgl
    >>> from dgl_tuplepack import Limits
    >>> pair = dgl.graph(([0, 1], [1, 0]))
    >>> PaddedCollate(Limits(nodes=6, edges=8, graphs=4), example=pair)([pair, pair])
    PaddedBatch(7 nodes, 8 edges, 5 graphs; real: 4 nodes, 4 edges, 2 graphs; device cpu)
    """

    def __init__(
        self,
        limits: Shapes,
        example: Any,
        packs_per_batch: int = 1,
        *,
        label_fill: Fill = 0,
        feature_fill: Fill = 0,
        cover_padding: bool = False,
        idtype: torch.dtype = torch.int64,
        coordinates: Coordinates = (),
        sort_edges: bool = False,
        transform: Callable[[Any], Any] | None = None,
        batch_transform: Callable[[PaddedBatch], Any] | None = None,
        transform_seed: int = 0,
    ) -> None:
        whole_number("transform_seed", transform_seed, 0, UINT64_MAX, TransformError)
        self._transform = None if transform is None else GraphTransform(transform, transform_seed)
        self.schema = Schema.of(self._example(example))
        settings = (packs_per_batch, label_fill, feature_fill, cover_padding, idtype, coordinates, sort_edges)
        self.shapes = tuple(PaddedShape(self.schema, each, *settings) for each in all_of(as_shapes(limits)))
        # The largest, which holds every pack.
        self.shape = self.shapes[-1]
        empty = None if batch_transform is None else self._padded([], [], None)
        self._batch_transform = (
            None if empty is None or batch_transform is None else BatchTransform(batch_transform, transform_seed, empty)
        )

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that random transforms draw from where items do not tell it, also in worker processes.

        Items tell it that come from ``with_ids(dataset)`` by the ids of a `PackBatchSampler`.
        """
        for transform in (self._transform, self._batch_transform):
            if transform is not None:
                transform.draws.set_epoch(epoch)

    def _example(self, example: Any) -> Any:
        """Return the example, transformed as at epoch 0."""
        if self._transform is None:
            return example
        parts = parts_of(example, "the example")
        # The example of a dataset without ids only tells the schema, so it may draw what it likes.
        (found,) = self._transform([parts._replace(id=parts.id or 0)], ["the example"], 0)
        return found if parts.id is not None else (found.graph, found.label)

    def __call__(self, items: Iterable[Any]) -> PaddedBatch:
        """Pad `items` (DGLGraph, (DGLGraph, label) or (DGLGraph, label, id)) to the static shape."""
        if not is_iterable(items):
            raise SchemaError(
                f"a batch needs a list of items, but got {shown(items)}; give a list, or [] for a batch of padding."
            )
        told = shape_of(items)
        items = list(items)
        where = [f"graph {shown(i.id)}" if isinstance(i, Identified) else f"item {n}" for n, i in enumerate(items)]
        parts = [parts_of(item, name) for item, name in zip(items, where, strict=True)]
        epoch = items[0].epoch if items and isinstance(items[0], Identified) else None
        if self._transform is not None:
            parts = self._transform(parts, where, epoch)
            where = [f"{name} after the transform {self._transform.name}" for name in where]
        padded = self._padded(parts, where, told)
        if self._batch_transform is None:
            return padded
        return self._batch_transform(padded, [part.id for part in parts], epoch)

    def _padded(self, parts: Sequence[Parts], where: list[str], told: int | None) -> PaddedBatch:
        batch = batch_of(self.schema, [part.graph for part in parts], where)
        content = content_of(self.schema, batch, len(parts))
        shape = self.shapes[number_of_shape(self.shapes, told, content)]
        padded = padded_batch(shape, batch, len(parts))
        padded.labels = self._labels(shape, parts, where, padded.device)
        padded.graph_ids = self._ids(shape, parts, where, padded.device)
        return padded

    def _labels(self, shape: PaddedShape, items: Sequence[Parts], where: list[str], device: torch.device) -> Labels:
        real = stack_labels([as_tensors(item.label) for item in items], self.schema, where) if items else {}
        labels = {}
        for name in self.schema.labels:
            fill = shape.padding_of(("label", None, name), len(items), device)
            labels[name] = torch.cat([real[name].to(device), fill] if items else [fill])
        return as_label(labels)

    def _ids(self, shape: PaddedShape, items: Sequence[Parts], where: list[str], device: torch.device) -> Tensor | None:
        # Whether there are ids depends on the example alone, so that empty batches have them too.
        for item, name in zip(items, where, strict=True):
            if (item.id is not None) != self.schema.has_ids:
                has, example = ("no", "one") if self.schema.has_ids else ("an", "none")
                raise SchemaError(
                    f"{name} has {has} id, but the example has {example}; take both from with_ids(dataset), or neither."
                )
        if not self.schema.has_ids:
            return None
        ids = torch.full((shape.num_graphs,), -1, dtype=torch.int64, device=device)
        ids[: len(items)] = torch.tensor([item.id for item in items], dtype=torch.int64, device=device)
        return ids
