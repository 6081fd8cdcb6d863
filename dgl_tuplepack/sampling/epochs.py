"""The content of a sampler's epochs: the graphs in each pack, the packs in each step, and the shape of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgl_tuplepack._core.kernels.random import shuffle_segments
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack.graphs.items import EpochIds
from dgl_tuplepack.planning.buckets import num_steps, promotions, steps_of
from dgl_tuplepack.planning.sizes import FloatArray, IntArray
from dgl_tuplepack.sampling.exchange import ExchangedPacks, Packs

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


# Marks a missing pack in an array of indices of packs.
NONE = -1
# Work is rounded down to multiples of this fraction of the largest work of a pack; packs of equal rounded work stay in
# random order.
_EQUAL = 1 / 64


def promoted(groups: Sequence[IntArray], packs_per_step: int, drop_last: bool) -> list[IntArray]:
    """Return the packs of each shape, after packs that do not fill a step have moved to a larger shape.

    `groups` has the indices of the packs of each shape, smallest shape first. Moved packs come last in their new group,
    so `drop_last` drops them first.
    """
    groups = [*groups]
    for shape, target, moved in promotions([len(group) for group in groups], packs_per_step, drop_last):
        kept = len(groups[shape]) - moved
        groups[target] = np.concatenate([groups[target], groups[shape][kept:]])
        groups[shape] = groups[shape][:kept]
    return groups


def deal(
    work: FloatArray, num_replicas: int, packs_per_batch: int, drop_last: bool, key: np.uint64 | None = None
) -> IntArray:
    """Deal P packs to R ranks, in S steps of p packs for each rank; return the indices of packs, int64 ``[S, R, p]``.

    R is `num_replicas`, p is `packs_per_batch`, and ``work[i]`` is the work of pack i. In each batch, indices ascend;
    NONE marks a missing pack. If the packs do not divide evenly, the last step is incomplete: each rank gets one pack
    before any rank gets two. With `drop_last`, the last ``P % (R * p)`` packs are left out instead.

    Without a `key`, each step has consecutive packs. With a key, packs of near-equal work share a step, and an
    incomplete step gets the packs with the least work. The key shuffles the full steps. The caller must have put the
    packs into random order.

    Time O(P log P), memory O(P).
    """
    packs_per_step = num_replicas * packs_per_batch
    full_steps = len(work) // packs_per_step
    num_dealt = full_steps * packs_per_step if drop_last else len(work)
    steps = np.full((num_steps(len(work), packs_per_step, drop_last), packs_per_step), NONE, dtype=np.int64)
    if key is None:
        steps.reshape(-1)[:num_dealt] = np.arange(num_dealt)
        batches = steps.reshape(-1, num_replicas, packs_per_batch)
        # Deal the incomplete step in rounds of one pack per rank, [1, p, R].
        batches[full_steps:] = steps[full_steps:].reshape(-1, packs_per_batch, num_replicas).transpose(0, 2, 1)
    else:
        # Most work first; the stable sort keeps the random order of packs of equal rounded work.
        rounded = np.floor(work[:num_dealt] / max(_EQUAL * float(work.max()), 1e-300))
        steps.reshape(-1)[:num_dealt] = np.argsort(-rounded, kind="stable")
        steps[:full_steps] = steps[shuffled(np.arange(full_steps), key)]
        batches = _balanced(steps, work, num_replicas, packs_per_batch)
    return np.sort(batches, axis=2)


def _balanced(steps: IntArray, work: FloatArray, num_replicas: int, packs_per_batch: int) -> IntArray:
    """Deal the packs of each step, ``[S, R * p]``, so that all ranks get similar work; return ``[S, R, p]``."""
    by_work = np.argsort(np.where(steps == NONE, np.inf, -work[steps]), axis=1, kind="stable")
    # Each round has one pack for each rank, by descending work, missing packs last; every second round is reversed.
    rounds = np.take_along_axis(steps, by_work, axis=1).reshape(-1, packs_per_batch, num_replicas)
    rounds[:, 1::2] = rounds[:, 1::2, ::-1].copy()
    # Each step starts at another rank, so that no rank always gets the most work.
    rotated = (np.arange(num_replicas) + np.arange(len(steps))[:, None]) % num_replicas
    return np.take_along_axis(rounds, rotated[:, None, :], axis=2).transpose(0, 2, 1)


@dataclass(frozen=True)
class EpochBatches:
    """The batches of one rank in an epoch, one in each of S steps.

    Pack i holds the graphs with the ids ``graphs[offsets[i]:offsets[i + 1]]``. `dealt` has the packs of each batch,
    int64 ``[S, p]``, for up to p packs in a batch; NONE marks a missing pack. `shapes` has the index of the shape
    bucket of each step, int64 ``[S]``; None if there is only one shape.
    """

    epoch: int
    offsets: IntArray
    graphs: IntArray
    dealt: IntArray
    shapes: IntArray | None = None

    def __len__(self) -> int:
        return len(self.dealt)

    def __getitem__(self, step: int) -> EpochIds:
        packs = [pack for pack in self.dealt[step].tolist() if pack != NONE]
        ids = [i for pack in packs for i in self.graphs[self.offsets[pack] : self.offsets[pack + 1]].tolist()]
        return EpochIds(ids, self.epoch, None if self.shapes is None else int(self.shapes[step]))


@dataclass(frozen=True)
class Balance:
    """How evenly work is spread over the ranks in each step of an epoch.

    Parameters
    ----------
    work
        Real nodes + edges of each rank's batch, float64 ``[steps, ranks]``; for heterographs, summed over all types.
    """

    work: FloatArray

    @property
    def spread(self) -> FloatArray:
        """For each step, the largest work of a rank minus the smallest, float64 ``[steps]``."""
        return np.asarray(self.work.max(axis=1) - self.work.min(axis=1), dtype=np.float64)

    @property
    def mean_spread(self) -> float:
        """Mean of `spread` over the steps, as a fraction of the mean work of a batch."""
        return float(self.spread.mean() / max(self.work.mean(), 1e-300)) if len(self.work) else 0.0

    @property
    def largest_spread(self) -> float:
        """Largest `spread` of any step, as a fraction of the mean work of a batch."""
        return float(self.spread.max() / max(self.work.mean(), 1e-300)) if len(self.work) else 0.0

    @property
    def idle(self) -> float:
        """Fraction of time that ranks wait for the slowest rank of a step, if time is proportional to work."""
        slowest = float(self.work.max(axis=1).sum()) * self.work.shape[1]
        return 1 - float(self.work.sum()) / slowest if slowest else 0.0

    def __repr__(self) -> str:
        return (
            f"Balance({self.work.shape[0]} steps of {self.work.shape[1]} ranks: spread of nodes + edges "
            f"{self.mean_spread:.2%} on average, {self.largest_spread:.2%} at most; idle {self.idle:.2%})"
        )
