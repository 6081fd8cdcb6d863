"""How a graph is padded to a static shape: rows, positions and edges of graphs of padding after the real graphs."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.kernels.pad_graph import pad_edges, pad_nodes
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.planning.sizes import IntArray


def padded_rows(values: Tensor, slots: int, dim: int = 0) -> Tensor:
    """Append copies of the first rows, or zeros if there are none, so that padding holds values as real rows do."""
    rows = values.shape[dim]
    missing = slots - rows
    if missing == 0:
        return values
    if rows == 0:
        shape = list(values.shape)
        shape[dim] = missing
        return torch.cat([values, values.new_zeros(shape)], dim)
    copied = values.detach()
    if missing <= rows:
        return torch.cat([values, copied.narrow(dim, 0, missing)], dim)
    return torch.cat([values, copied.index_select(dim, torch.arange(missing, device=values.device) % rows)], dim)


# Features of nodes with up to three columns, with one of these as a part of the name, are positions. Padding gets its
# own: nodes that edges of padding join are near each other, as models with a cutoff need, and never at the same place,
# as copies of crystals with one atom would be.
_POSITIONS = frozenset({
    "pos", "position", "positions", "coord", "coords", "coordinate", "coordinates", "R", "xyz",
})  # fmt: skip
# The longest edges of padding are this many times as long as the shortest.
_LONGEST = 1.8
# Edges of padding stay in one cell: if a part of a name is one of these, as of `cell_offsets`, the feature is 0 there.
_SHIFTS = frozenset({"shift", "shifts", "offset", "offsets", "offshift", "image", "images"})


@functools.cache
def _has_position_name(name: str) -> bool:
    return not _POSITIONS.isdisjoint(name.split("_"))


def is_position(name: str, x: Tensor, coordinates: Collection[str]) -> bool:
    """Return whether a feature of nodes is a position: it is one of `coordinates`, or has such a name and shape."""
    if x.ndim < 2 or not x.is_floating_point():
        return False
    return name in coordinates or (0 < x.shape[-1] <= 3 and _has_position_name(name))


def spacing_of(ends: Sequence[Tensor], source: Tensor, destination: Tensor) -> float:
    """Return about the length of the shortest edge, a power of 2, so that edges of padding are as long as real ones.

    `ends` are indices of positions ``[N, d]``. If all positions are equal, as of crystals with one atom, return 1.
    """
    lengths = (source.detach()[ends[0]] - destination.detach()[ends[1]]).double().flatten(1).norm(dim=1)
    lengths = lengths[(lengths > 0) & lengths.isfinite()]
    if not len(lengths):
        return 1.0
    shortest, longest = lengths.min().item(), lengths.max().item()
    spacing = 2.0 ** round(math.log2(shortest))
    return spacing if _LONGEST * spacing <= longest else 2.0 ** math.floor(math.log2(longest / _LONGEST))


@functools.lru_cache(64)
def _positions(
    spread: tuple[int, ...], type_number: int, spacing: float, shape: tuple[int, ...], dtype: torch.dtype,
    device: torch.device,
) -> Tensor:  # fmt: skip
    """Return positions of graphs of padding with so many nodes each, ``[sum(spread), *shape]``.

    The nodes of a graph go along one side of a ladder, and come back along the other, so each is 1 to 1.8 times
    `spacing` away from the next one, and the last from the first. In three dimensions, no three consecutive nodes are
    collinear.
    """
    numbers = np.array(spread, np.int64)
    own = np.arange(numbers.sum()) - np.repeat(numbers.cumsum() - numbers, numbers)
    from_end = np.repeat(numbers, numbers) - 1 - own
    if shape[-1] == 1:
        values = own[:, None] + type_number
    else:
        values = np.zeros((len(own), shape[-1]), np.int64)
        values[:, 0] = np.minimum(own, from_end)
        values[:, 1] = (own > from_end) + 2 * type_number
        values[:, 2:3] = own[:, None] % 2
    # Larger numbers are not exact in a small dtype.
    made = torch.from_numpy(values % int(1 / torch.finfo(dtype).eps)).to(device, dtype) * spacing
    return made.reshape(len(own), *(1,) * (len(shape) - 1), shape[-1]).expand(len(own), *shape)


def padded_feature(name: str, values: Tensor, padding: Padding, t: GraphType) -> Tensor:
    """Append rows of padding to a feature of nodes or edges, after `Padding.nodes`; note the result in `made`."""
    made = padding.made[id(values)] = _padded_feature(name, values, padding, t)
    return made


def _padded_feature(name: str, values: Tensor, padding: Padding, t: GraphType) -> Tensor:
    missing = padding.slots[t] - values.shape[0]
    if missing and values.ndim > 1 and values.shape[-1] > 0:
        if isinstance(t, str) and is_position(name, values, padding.coordinates):
            type_number = [each for each in padding.slots if isinstance(each, str)].index(t)
            spread, shape = tuple(padding.spread[t].tolist()), tuple(values.shape[1:])
            made = _positions(spread, type_number, padding.spacing, shape, values.dtype, values.device)
            return torch.cat([values, made])
        if isinstance(t, tuple) and not _SHIFTS.isdisjoint(name.split("_")) and values.shape[-1] in (2, 3):
            return torch.cat([values, values.new_zeros(missing, *values.shape[1:])])
    return padded_rows(values, padding.slots[t])


_NONE = np.empty(0, np.int64)


@dataclass(frozen=True)
class Padding:
    """How one graph is padded: `missing` nodes and edges of each type are divided over the unused graph slots."""

    # Number of real graphs, and of graph slots.
    real: int
    graphs: int
    # Type -> number of slots, and number of real nodes (edges).
    slots: Mapping[GraphType, int]
    counts: Mapping[GraphType, int]
    # Node type -> number of nodes in each graph of padding, once `nodes` was called.
    spread: dict[str, IntArray]
    # About the length of the shortest edge, see `spacing_of`.
    spacing: float
    # Names of positions, besides those whose names tell.
    coordinates: Collection[str]
    # ``id`` of a feature -> the feature with padding, once `padded_feature` was called.
    made: dict[int, Tensor]

    @classmethod
    def of(
        cls, counts: Mapping[GraphType, int], real: int, slots: Mapping[GraphType, int], graphs: int, spacing: float,
        coordinates: Collection[str],
    ) -> Padding | None:  # fmt: skip
        """Return the padding of a batch; None if the batch does not fit.

        A graph of padding has at least two nodes, so that its edges join different nodes, whose positions differ. With
        several node types, some graphs of padding may have no nodes of a type, as real graphs may.
        """
        if graphs <= real:
            return None
        is_flat = len(counts) == 2
        for t, number in counts.items():
            missing = slots[t] - number
            needed = 2 * (graphs - real) if is_flat and isinstance(t, str) else 0
            if missing < needed:
                return None
            if missing and isinstance(t, tuple) and not all(slots[end] > counts[end] for end in (t[0], t[2])):
                return None
        return cls(real, graphs, slots, counts, {}, spacing, coordinates, {})

    def nodes(self, t: str, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes of type `t` in each graph slot, and the graph slot of each node; `counts` are the real ones.

        If `counts` is empty, return only the parts that are padding.
        """
        on_host = counts.is_cpu and counts.dtype == torch.int64
        real = counts.numpy() if on_host else _NONE
        missing = self.slots[t] - self.counts[t]
        all_counts = np.empty(len(real) + self.graphs - self.real, np.int64)
        slots = np.empty(self.slots[t] if len(real) else missing, np.int64)
        pad_nodes(real, self.real - len(real), missing, all_counts, slots)
        self.spread[t] = all_counts[len(real) :]
        padded, of_nodes = torch.from_numpy(all_counts), torch.from_numpy(slots)
        if on_host or not len(counts):
            return padded, of_nodes
        before = torch.repeat_interleave(
            torch.arange(self.real, device=counts.device), counts, output_size=self.counts[t]
        )
        return torch.cat([counts, padded.to(counts)]), torch.cat([before, of_nodes.to(before)])

    def edges(self, e: EdgeType, src: Tensor, dst: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return source and destination of all edges of type `e`, and the edges in each graph slot, after `nodes`."""
        on_host = all(x.is_cpu and x.dtype == torch.int64 and x.is_contiguous() for x in (src, dst, counts))
        ends = (src.numpy(), dst.numpy()) if on_host else (_NONE, _NONE)
        real = counts.numpy() if on_host else _NONE
        number = self.slots[e] if on_host else self.slots[e] - self.counts[e]
        all_src, all_dst = np.empty(number, np.int64), np.empty(number, np.int64)
        all_counts = np.empty(len(real) + self.graphs - self.real, np.int64)
        first = self.counts[e[0]], self.counts[e[2]]
        spread = self.spread[e[0]], self.spread[e[2]]
        pad_edges(ends, real, e[0] == e[2], first, spread, (all_src, all_dst), all_counts)
        made = tuple(map(torch.from_numpy, (all_src, all_dst, all_counts)))
        if not on_host:
            made = tuple(torch.cat([x, each.to(x)]) for x, each in zip((src, dst, counts), made, strict=True))
        return made  # type: ignore[return-value]
