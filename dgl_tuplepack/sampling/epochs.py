"""The content of a sampler's epochs: the graphs in each pack, the packs in each step, and the shape of each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.kernels.random import shuffle_segments
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.planning.buckets import steps_of
from dgl_tuplepack.planning.sizes import IntArray
from dgl_tuplepack.sampling.dealing import NONE, EpochBatches, deal, promoted
from dgl_tuplepack.sampling.exchange import ExchangedPacks
from dgl_tuplepack.sampling.packs import Packs

# Identifiers of the random streams, one for each purpose; `exchange.py` has others. An earlier version used 3.
_CONTENT, _ORDER, _STEPS, _MIXED = 1, 2, 4, 5


@dataclass(frozen=True, eq=False)
class Epochs:
    """The content of each epoch, which depends only on the attributes below and on the epoch.

    Graphs of size class c have the ids ``members[class_offsets[c]:class_offsets[c + 1]]``. `packs` are the packs of the
    plan; `exchanged` has those of each epoch, or is None if all epochs have the packs of the plan.
    """

    packs: Packs
    exchanged: ExchangedPacks | None
    members: IntArray
    class_offsets: IntArray
    seed: int
    content: str
    shuffle: bool
    packs_per_batch: int
    num_replicas: int
    drop_last: bool

    @property
    def length(self) -> int:
        """The number of steps of an epoch; it is equal in all epochs and on all ranks."""
        packs = self.packs.plan.packs_of_shapes
        return sum(steps_of(packs, self.num_replicas * self.packs_per_batch, self.drop_last))

    def packs_of(self, epoch: int) -> Packs:
        """Return the packs of an epoch."""
        return self.packs if self.exchanged is None else self.exchanged.of(epoch)

    def graphs(self, epoch: int) -> IntArray:
        """Return the graph ids of all packs, one pack after the other, ``[N]``."""
        members = self.members
        if self.shuffle:
            members = members.copy()
            content_epoch = 0 if self.content == "fixed" else epoch
            shuffle_segments(members, self.class_offsets, key_of(self.seed, content_epoch, _CONTENT))
        # `members` was shuffled only within each size class, so each pack gets graphs of its size classes.
        return members[self.packs_of(epoch).graphs]

    def dealt(self, epoch: int) -> tuple[IntArray, IntArray]:
        """Return the indices of the packs of each batch, and the index of the shape of each step.

        The packs are int64 ``[S, R, p]`` for S steps, R ranks and up to p packs in a batch; NONE marks a missing pack.
        The shapes are int64 ``[S]``.
        """
        packs = self.packs_of(epoch)
        # No batch has more packs than `most`. An array for a huge `packs_per_batch` would not fit into memory.
        most = min(self.packs_per_batch, packs.plan.num_packs // self.num_replicas + 2)
        batches_of_shapes: dict[int, IntArray] = {}
        for shape, group in enumerate(self._groups(epoch)):
            if len(group):
                key = self._key_of_steps(epoch, shape)
                dealt = deal(packs.work[group], self.num_replicas, most, self.drop_last, key)
                batches_of_shapes[shape] = np.where(dealt == NONE, NONE, group[dealt])
        batches = np.concatenate([*batches_of_shapes.values()])
        shapes = np.concatenate([np.full(len(steps), shape, np.int64) for shape, steps in batches_of_shapes.items()])
        if self.shuffle and len(batches_of_shapes) > 1:
            mixed = shuffled(np.arange(len(shapes)), key_of(self.seed, epoch, _MIXED))
            batches, shapes = batches[mixed], shapes[mixed]
        return batches, shapes

    def _groups(self, epoch: int) -> list[IntArray]:
        """Return the indices of the packs that are batched in each shape, in the order of the epoch."""
        packs = self.packs
        order = np.arange(packs.plan.num_packs)
        if self.shuffle:
            order = shuffled(order, key_of(self.seed, epoch, _ORDER))
        groups = [order[packs.shapes[order] == shape] for shape in range(len(packs.plan.shapes))]
        # Packs that do not fill a step of their shape move to the next larger shape.
        return promoted(groups, self.num_replicas * self.packs_per_batch, self.drop_last)

    def _key_of_steps(self, epoch: int, shape: int) -> np.uint64 | None:
        """Return the random key for the steps of a shape; None if the steps keep the order of the packs."""
        if not self.shuffle or self.num_replicas == 1:
            return None
        key = key_of(self.seed, epoch, _STEPS)
        return key_of(int(key), shape, _STEPS) if shape else key

    def of_rank(self, epoch: int, rank: int) -> EpochBatches:
        """Return the batches of one rank."""
        packs, (dealt, shapes) = self.packs_of(epoch), self.dealt(epoch)
        of_steps = shapes if packs.plan.buckets is not None else None
        return EpochBatches(epoch, packs.offsets, self.graphs(epoch), dealt[:, rank].copy(), of_steps)

    def mean_of_batches(self, epoch: int, values: IntArray) -> float:
        """Sum ``values[id]`` over the graphs of each batch; return the mean of the sums over all steps and ranks."""
        dealt, _ = self.dealt(epoch)
        of_packs = np.add.reduceat(values[self.graphs(epoch)], self.packs_of(epoch).offsets[:-1])
        return float(np.where(dealt == NONE, 0, of_packs[dealt]).sum(axis=2).mean())
