"""The batches of an epoch; and what is left of one for another number of ranks, so that each graph still comes once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.graphs.items import EpochIds
from dgl_tuplepack.planning.sizes import IntArray

# Marks a missing pack in an array of indices of packs.
NONE = -1


@dataclass(frozen=True)
class EpochBatches:
    """The batches of an epoch, in S steps: of one rank, or of all R ranks.

    Pack i holds the graphs with the ids ``graphs[offsets[i]:offsets[i + 1]]``. `dealt` has the packs of each batch,
    int64 ``[S, p]``, or ``[S, R, p]`` for all ranks; NONE marks a missing pack. `shapes` has the index of the shape
    bucket of each step, int64 ``[S]``; None if there is only one.
    """

    epoch: int
    offsets: IntArray
    graphs: IntArray
    dealt: IntArray
    shapes: IntArray | None = None

    def of_rank(self, rank: int) -> EpochBatches:
        """Return the batches of one rank, if these are the batches of all ranks."""
        return replace(self, dealt=self.dealt[:, rank].copy())

    def __len__(self) -> int:
        return len(self.dealt)

    def __getitem__(self, step: int) -> EpochIds:
        packs = [pack for pack in self.dealt[step].tolist() if pack != NONE]
        ids = [i for pack in packs for i in self.graphs[self.offsets[pack] : self.offsets[pack + 1]].tolist()]
        return EpochIds(ids, self.epoch, None if self.shapes is None else int(self.shapes[step]))


def dealt_anew(
    batches: EpochBatches, delivered: int, num_replicas: int, drop_last: bool, may_be_empty: bool
) -> EpochBatches:
    """Deal the batches of all ranks, after the first `delivered` steps, to another number of ranks.

    Batches keep their graphs, so they stay within their limits. Those that fill no step of their shape move to the next
    larger shape. What remains is dropped with `drop_last`; else, the step is filled up by empty batches if they
    `may_be_empty`, and otherwise by parts of batches, with at least one graph each.
    """
    units = batches.dealt[delivered:].reshape(-1, batches.dealt.shape[-1])
    of_steps = np.zeros(len(batches), np.int64) if batches.shapes is None else batches.shapes
    shapes = np.repeat(of_steps[delivered:], batches.dealt.shape[1])
    used = (units != NONE).any(axis=1)
    units, shapes = units[used], shapes[used]
    offsets, graphs = batches.offsets, batches.graphs
    if not (may_be_empty or drop_last):
        offsets, graphs = _divided(batches, units[:, 0], num_replicas)
        units, shapes = np.arange(len(offsets) - 1)[:, None], np.zeros(len(offsets) - 1, np.int64)
    units = np.vstack([units, np.full((1, units.shape[1]), NONE)])
    steps, steps_of_shapes, carried = list[IntArray](), list[int](), np.empty(0, np.int64)
    largest = int(shapes.max(initial=0))
    for shape in range(largest + 1):
        own = np.concatenate([carried, np.flatnonzero(shapes == shape)])
        if shape == largest and not drop_last:
            own = np.concatenate([own, np.full(-len(own) % num_replicas, len(units) - 1)])
        full = len(own) // num_replicas * num_replicas
        steps += [*own[:full].reshape(-1, num_replicas)]
        steps_of_shapes += [shape] * (full // num_replicas)
        carried = own[full:]
    # Steps come in the order of their first batch, so shapes stay mixed.
    order = np.argsort([step[0] for step in steps], kind="stable").astype(np.int64)
    dealt = np.array(steps, np.int64).reshape(-1, num_replicas)[order]
    of_shapes = None if batches.shapes is None else np.array(steps_of_shapes, np.int64)[order]
    return EpochBatches(batches.epoch, offsets, graphs, units[dealt], of_shapes)


def _divided(batches: EpochBatches, packs: IntArray, num_replicas: int) -> tuple[IntArray, IntArray]:
    """Return offsets and graphs of the packs, the last ones divided into parts, so that they fill whole steps."""
    sizes = np.diff(batches.offsets)[packs]
    rest = len(packs) % num_replicas
    parts = np.ones(len(packs), np.int64)
    if rest:
        # If the rest has too few graphs for a step, it makes two steps together with the step before it.
        last, needed = rest, num_replicas
        if sizes[-rest:].sum() < num_replicas and len(packs) > rest:
            last, needed = rest + num_replicas, 2 * num_replicas
        if sizes[-last:].sum() < needed:
            raise SamplerError(
                f"the {sizes[-last:].sum()} graphs that are left of this epoch do not suffice for a step of "
                f"{num_replicas} ranks; resume with fewer ranks, or begin the next epoch."
            )
        for _ in range(needed - last):
            parts[int(np.argmax(sizes[-last:] / parts[-last:])) - last] += 1
    graphs = [batches.graphs[batches.offsets[pack] : batches.offsets[pack + 1]] for pack in packs]
    pieces = [piece for own, number in zip(graphs, parts, strict=True) for piece in np.array_split(own, number)]
    counts = np.array([len(piece) for piece in pieces], np.int64)
    return np.concatenate([[0], np.cumsum(counts)]), np.concatenate([*pieces, np.empty(0, np.int64)])
