"""The memory of a padded batch: all its tensors in one stretch, which travels, and is freed, as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.shape import PaddedShape
from dgl_tuplepack.sources.blocks import Array
from dgl_tuplepack.store.format import DTYPES, ENDS, Key, columns_of

# Of a cache line; also enough for every dtype.
_ALIGNMENT = 64

_Place = tuple[Key, slice, tuple[int, ...] | None]


@dataclass(frozen=True)
class Field:
    """One tensor: what it holds, its dtype and shape, and its first byte in the memory."""

    key: Key
    dtype: torch.dtype
    shape: tuple[int, ...]
    first: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes that its values take."""
        return prod(self.shape) * self.dtype.itemsize


def fields_of(shape: PaddedShape) -> list[Field]:
    """All tensors of a batch, one after the other in memory; those of one dtype stand together, without gaps."""
    schema = shape.schema
    slots: dict[Any, int] = {**shape.num_nodes, **shape.num_edges, None: shape.num_graphs}
    fields = [Field(("graph_ids",), torch.int64, (shape.num_graphs,))]
    fields += [Field(("mask", t), torch.bool, (number,)) for t, number in slots.items()]
    fields += [Field(("per_graph", t), torch.int64, (shape.num_graphs,)) for t in slots if t is not None]
    fields += [Field((end, e), shape.idtype, (number,)) for e, number in shape.num_edges.items() for end in ENDS]
    fields += [Field(key, spec.dtype, (slots[key[1]], *spec.shape)) for key, spec in columns_of(schema)]
    fields.sort(key=lambda field: str(field.dtype))
    first, placed = 0, []
    for _, run in itertools.groupby(fields, lambda field: field.dtype):
        first = -(-first // _ALIGNMENT) * _ALIGNMENT
        for field in run:
            placed.append(replace(field, first=first))
            first += field.nbytes
    return placed


class BatchMemory:
    """Hands out memory for batches of one shape: fresh each time, or in turn from a ring of buffers.

    A ring's buffers are pinned where there is CUDA.
    """

    def __init__(self, shape: PaddedShape, ring: int = 0) -> None:
        fields = fields_of(shape)
        self._nbytes = -(-(fields[-1].first + fields[-1].nbytes) // _ALIGNMENT) * _ALIGNMENT
        # The fields of each dtype, which numpy and torch see in one view: its bytes, the lengths of its fields, and for
        # each field its key, its values in the view, and its shape, if it is not flat.
        self._runs: list[tuple[torch.dtype, np.dtype[Any], slice, list[int], list[_Place]]] = []
        for dtype, group in itertools.groupby(fields, lambda field: field.dtype):
            run = list(group)
            lengths = [field.nbytes // dtype.itemsize for field in run]
            ends = list(itertools.accumulate(lengths))
            places = [
                (field.key, slice(end - length, end), field.shape if len(field.shape) > 1 else None)
                for field, length, end in zip(run, lengths, ends, strict=True)
            ]
            part = slice(run[0].first, run[-1].first + run[-1].nbytes)
            # Of the whole memory, what lies before and after as well: cutting it first would take another call.
            around = part.start, self._nbytes - part.stop
            lengths = [around[0] // dtype.itemsize, *lengths, around[1] // dtype.itemsize]
            self._runs.append((dtype, np.dtype(DTYPES[str(dtype)[6:]]), part, lengths, places))
        self._ring = [self._views(self._new(torch.cuda.is_available())) for _ in range(ring)]
        self._turn = -1

    def _new(self, pinned: bool = False) -> Tensor:
        return torch.empty(self._nbytes, dtype=torch.uint8, pin_memory=pinned)

    def _views(self, memory: Tensor) -> tuple[Mapping[Key, Array], Mapping[Key, Tensor]]:
        data, arrays, tensors = memory.numpy(), {}, {}
        for dtype, storage, part, lengths, places in self._runs:
            flat = data[part].view(storage)
            pieces = memory.view(dtype).split_with_sizes(lengths)
            for (key, values, shape), piece in zip(places, pieces[1:-1], strict=True):
                arrays[key] = flat[values]
                tensors[key] = piece if shape is None else piece.view(*shape)
        return arrays, tensors

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
