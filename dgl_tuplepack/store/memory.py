"""The memory of a padded batch: all its tensors in one stretch, which travels, and is freed, as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from dgl_tuplepack.padding.batch import PaddedBatch
from dgl_tuplepack.padding.shape import PaddedShape
from dgl_tuplepack.store.format import ENDS, Key, columns_of
from dgl_tuplepack.store.places import Places

# Of a cache line; also enough for every dtype.
_ALIGNMENT = 64


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
    schema, slots = shape.schema, shape.slots
    fields = [Field(("graph_ids", None), torch.int64, (shape.num_graphs,))]
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
    """Hands out memory for batches: fresh each time, or in turn from a ring of buffers.

    A ring's buffers are pinned where there is CUDA.
    """

    def __init__(self, fields: list[Field], ring: int = 0) -> None:
        self._nbytes = -(-(fields[-1].first + fields[-1].nbytes) // _ALIGNMENT) * _ALIGNMENT
        # The fields of each dtype, which torch sees in one view: lengths, and the shapes of those that are not flat.
        self._runs: list[tuple[torch.dtype, list[int], list[tuple[Key, tuple[int, ...] | None]]]] = []
        for dtype, group in itertools.groupby(fields, lambda field: field.dtype):
            run = list(group)
            # Of the whole memory, what lies before and after as well: cutting it first would take another call.
            before, after = run[0].first, self._nbytes - (run[-1].first + run[-1].nbytes)
            lengths = [nbytes // dtype.itemsize for nbytes in (before, *(field.nbytes for field in run), after)]
            shapes = [(field.key, field.shape if len(field.shape) > 1 else None) for field in run]
            self._runs.append((dtype, lengths, shapes))
        self._ring = [self._views(self._new(torch.cuda.is_available())) for _ in range(ring)]
        self._turn = -1

    def _new(self, pinned: bool = False) -> Tensor:
        return torch.empty(self._nbytes, dtype=torch.uint8, pin_memory=pinned)

    def _views(self, memory: Tensor) -> tuple[int, Mapping[Key, Tensor]]:
        tensors = {}
        for dtype, lengths, shapes in self._runs:
            # "Unsafe": changing one in place does not count as a change of the others, as autograd sees it.
            pieces = torch.unsafe_split_with_sizes(memory.view(dtype), lengths)
            for (key, shape), piece in zip(shapes, pieces[1:-1], strict=True):
                tensors[key] = piece if shape is None else piece.view(shape)
        return memory.data_ptr(), tensors

    def take(self) -> tuple[int, Mapping[Key, Tensor]]:
        """The address of the memory, and the tensors that lie there, which keep it."""
        if not self._ring:
            return self._views(self._new())
        self._turn = (self._turn + 1) % len(self._ring)
        return self._ring[self._turn]


def batch_of_tensors(shape: PaddedShape, tensors: Mapping[Key, Tensor], places: Places) -> PaddedBatch:
    """A batch of the tensors that `fields_of` names, of the graphs at `places`."""
    schema, totals = shape.schema, dict(zip(shape.slots, places.totals.tolist(), strict=True))
    node_types, edge_types = schema.node_types, schema.edge_types
    labels = {name: tensors["label", None, name] for name in schema.labels}
    return PaddedBatch(
        node_types=node_types,
        edge_types=edge_types,
        labels=(labels[""] if set(labels) == {""} else labels) if labels else None,
        graph_mask=tensors["mask", None],
        graph_ids=tensors["graph_ids", None],
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
