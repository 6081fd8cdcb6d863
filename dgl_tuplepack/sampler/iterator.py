"""The iterator of a sampler, which takes the batches of one epoch and can be saved in its middle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from dgl_tuplepack.sampler.callers import is_taken_early, position_in_lightning
from dgl_tuplepack.sampler.dealing import EpochBatches
from dgl_tuplepack.sampler.epochs import Epochs
from dgl_tuplepack.sampler.position import Iteration, Progress
from dgl_tuplepack.sampler.state import as_state


class Iterated(Protocol):
    """What an iterator needs of its `PackBatchSampler`."""

    _progress: Progress
    _epochs: Epochs

    def _batches_of(self, epoch: int) -> EpochBatches: ...

    def _settings(self) -> dict[str, Any]: ...

    def _read(self, state: Any) -> tuple[int, int, int]: ...


class BatchIterator(Iterator[list[int]]):
    """Batches of one epoch of a `PackBatchSampler`; taking the first one settles the epoch.

    torchdata's StatefulDataLoader calls its `state_dict` and `load_state_dict`.
    """

    def __init__(self, sampler: Iterated) -> None:
        self._sampler = sampler
        self._iteration = Iteration(sampler._progress)
        self._batches: EpochBatches | None = None

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> list[int]:
        if self._batches is None:
            self._batches = self._begin()
        return self._batches[self._iteration.take(len(self._batches))]

    def _begin(self) -> EpochBatches:
        sampler = self._sampler
        position = self._iteration.settle(position_in_lightning(sampler))
        batches = sampler._batches_of(position.epoch)
        sampler._epochs.plans.prepare(position.epoch)
        self._iteration.begin(position, is_taken_early())
        return batches

    def state_dict(self) -> dict[str, Any]:
        """State after the batches taken from this iterator; see `PackBatchSampler.state_dict`."""
        sampler, position = self._sampler, self._iteration.position
        # A plan of an earlier epoch would have to be made again.
        plan = sampler._epochs.plans.of(position.epoch).plan if self._batches is None else self._batches.plan
        return as_state(sampler._settings(), plan.fingerprint, position.epoch, position.batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue after the batches delivered before the state was saved; the sampler then has nothing to resume.

        Where the sampler is at a later epoch already, a state from the end of its epoch leads to the start of that one.

        Raises
        ------
        SamplerError
            As in `PackBatchSampler.load_state_dict`.
        """
        self._iteration.load(*self._sampler._read(state))
        self._batches = None
