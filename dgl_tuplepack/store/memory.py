"""The memory of a padded batch: all its tensors in one stretch, which travels, and is freed, as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.shape import PaddedShape
from dgl_tuplepack.sources.blocks import Array
from dgl_tuplepack.store.format import DTYPES, Key, columns_of

# Of a cache line; also enough for every dtype.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Field:
    """One tensor: its dtype and shape, and its first byte in the memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    first: int

    @property
    def bytes(self) -> slice:
        """Where its bytes are."""
        return slice(self.first, self.first + prod(self.shape) * self.dtype.itemsize)

    @property
    def storage(self) -> np.dtype[Any]:
        """How numpy sees its values."""
        return np.dtype(DTYPES[str(self.dtype).removeprefix("torch.")])

    @property
    def strided(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Shape, strides and offset of the tensor in the memory seen as its dtype."""
        strides = tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
        return self.shape, strides, self.first // self.dtype.itemsize


def fields_of(shape: PaddedShape) -> tuple[dict[Key, Field], int]:
    """All tensors of a batch by what they hold, and the bytes that they take."""
    schema, boolean, integer = shape.schema, torch.bool, torch.int64
    wanted: list[tuple[Key, torch.dtype, tuple[int, ...]]] = [
        (("mask", None), boolean, (shape.num_graphs,)),
        (("graph_ids",), integer, (shape.num_graphs,)),
    ]
    for t, number in (*shape.num_nodes.items(), *shape.num_edges.items()):
        wanted += [(("per_graph", t), integer, (shape.num_graphs,)), (("mask", t), boolean, (number,))]
    for e, number in shape.num_edges.items():
        wanted += [((end, e), shape.idtype, (number,)) for end in ("sources", "destinations")]
    slots: dict[Any, int] = {**shape.num_nodes, **shape.num_edges, None: shape.num_graphs}
    wanted += [(key, spec.dtype, (slots[key[1]], *spec.shape)) for key, spec in columns_of(schema)]
    fields, first = {}, 0
    for key, dtype, dimensions in wanted:
        fields[key] = field = Field(dtype, dimensions, first)
        first = -(-field.bytes.stop // _ALIGNMENT) * _ALIGNMENT
    return fields, first


class BatchMemory:
    """Hands out memory for batches of one shape: fresh each time, or in turn from a ring of buffers.

    A ring's buffers are pinned where there is CUDA.
    """

    def __init__(self, shape: PaddedShape, ring: int = 0) -> None:
        fields, self._nbytes = fields_of(shape)
        # What numpy needs to see the flat values of a field, and torch to see the tensor.
        self._parts = [(key, field.bytes, field.storage) for key, field in fields.items()]
        self._tensors = [(key, field.dtype, field.strided) for key, field in fields.items()]
        self._dtypes = {field.dtype for field in fields.values()}
        self._ring = [self._views(self._new(torch.cuda.is_available())) for _ in range(ring)]
        self._turn = -1

    def _new(self, pinned: bool = False) -> Tensor:
        return torch.empty(self._nbytes, dtype=torch.uint8, pin_memory=pinned)

    def _views(self, memory: Tensor) -> tuple[Mapping[Key, Array], Mapping[Key, Tensor]]:
        data = memory.numpy()
        seen = {dtype: memory.view(dtype) for dtype in self._dtypes}
        arrays = {key: data[part].view(storage) for key, part, storage in self._parts}
        return arrays, {key: seen[dtype].as_strided(*strided) for key, dtype, strided in self._tensors}

    def take(self) -> tuple[Mapping[Key, Array], Mapping[Key, Tensor]]:
        """Flat arrays to write values to, and the tensors that hold them."""
        if not self._ring:
            return self._views(self._new())
        self._turn = (self._turn + 1) % len(self._ring)
        return self._ring[self._turn]


def batch_of_tensors(shape: PaddedShape, tensors: Mapping[Key, Tensor], totals: Mapping[Any, int]) -> PaddedBatch:
    """A batch of the tensors that `fields_of` names; `totals` are the real nodes, edges, and (key None) graphs."""
    schema = shape.schema
    node_types, edge_types = schema.node_types, schema.edge_types
    labels = {name: tensors["label", None, name] for name in schema.labels}
    return PaddedBatch(
        node_types=node_types,
        edge_types=edge_types,
        labels=(labels[""] if set(labels) == {""} else labels) if labels else None,
        graph_mask=tensors["mask", None],
        graph_ids=tensors["graph_ids",],
        num_real_graphs=totals[None],
        _num_real_nodes={t: totals[t] for t in node_types},
        _num_real_edges={t: totals[t] for t in edge_types},
        _src={t: tensors["sources", t] for t in edge_types},
        _dst={t: tensors["destinations", t] for t in edge_types},
        _node_features={t: {n: tensors["node_feature", t, n] for n in schema.node_features[t]} for t in node_types},
        _edge_features={t: {n: tensors["edge_feature", t, n] for n in schema.edge_features[t]} for t in edge_types},
        _nodes_per_graph={t: tensors["per_graph", t] for t in node_types},
        _edges_per_graph={t: tensors["per_graph", t] for t in edge_types},
        _node_masks={t: tensors["mask", t] for t in node_types},
        _edge_masks={t: tensors["mask", t] for t in edge_types},
    )
