"""One iteration of a sampler over an epoch, and where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.sampler.callers import is_taken_early, place_in_lightning
from dgl_tuplepack.sampler.epoch import EpochBatches
from dgl_tuplepack.sampler.state import Place, as_state

if TYPE_CHECKING:
    from dgl_tuplepack.sampler.batches import PackBatchSampler


class BatchIterator(Iterator[list[int]]):
    """Batches of one epoch of a `PackBatchSampler`; the epoch is settled when the first one is asked for.

    It has the `state_dict` and `load_state_dict` that torchdata's StatefulDataLoader asks for.
    """

    def __init__(self, sampler: PackBatchSampler) -> None:
        self._sampler = sampler
        self._batches: EpochBatches | None = None
        self._place: Place | None = None
        self._loaded = False
        self._epoch_set = 0

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> list[int]:
        if self._batches is None:
            self._begin()
        assert self._batches is not None
        assert self._place is not None
        if self._place.position >= len(self._batches):
            raise StopIteration
        sampler = self._sampler
        if sampler.epoch != self._epoch_set and sampler._place is self._place:
            raise SamplerError(
                f"the epoch was set to {sampler.epoch} when this iteration of epoch {self._place.epoch} had begun and "
                f"{self._place.position} of its batches were taken, so a loop would go on with those of another epoch; "
                "call set_epoch before iter(loader): a loader with workers takes its first batches there."
            )
        batch = self._batches[self._place.position]
        self._place.position += 1
        return batch

    def _begin(self) -> None:
        sampler, resumed, place = self._sampler, self._resumes, self._next_place()
        told, current = place_in_lightning(sampler), sampler.epoch
        # Where the Trainer begins an epoch, a state of that epoch which the user has loaded counts.
        if told is not None and (told[1] or not resumed or place.epoch != told[0]):
            sampler.epoch, done = told
            resumed, place = bool(done), Place(sampler.epoch, done, done)
        if resumed and place.position:
            sampler._iterated_epoch = place.epoch
        elif not resumed and sampler.epoch == current:
            # Before the Trainer sets the epoch, it may ask for batches and drop them.
            sampler._warn_if_repeated()
        self._batches = sampler._batches_of(place.epoch)
        sampler._plans.prepare(place.epoch)
        self._place = sampler._place = Place(place.epoch, place.position, place.position, is_taken_early())
        self._epoch_set = sampler.epoch
        sampler._resumes = False

    @property
    def _resumes(self) -> bool:
        """Whether this goes on with an epoch that a state tells of."""
        sampler = self._sampler
        return self._loaded or (sampler._resumes and sampler._place.epoch == sampler.epoch)

    def _next_place(self) -> Place:
        """Where the next batch is taken from, as things are now."""
        if self._place is not None:
            return self._place
        sampler = self._sampler
        return sampler._place if self._resumes and not self._loaded else Place(sampler.epoch, 0, 0)

    def state_dict(self) -> dict[str, Any]:
        """State behind the batches taken from this iterator; see `PackBatchSampler.state_dict`."""
        place = self._next_place()
        packs = self._sampler._plans.of(place.epoch) if self._batches is None else self._batches.packs
        return as_state(self._sampler._settings(), packs.plan.fingerprint, place.epoch, place.position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind the batches delivered when the state was saved; the sampler then has nothing to resume.

        A state from the end of an epoch that the sampler has left for a later one leads to the start of the latter.

        Raises
        ------
        SamplerError
            As in `PackBatchSampler.load_state_dict`.
        """
        epoch, position = self._sampler._read(state)
        ended = position == self._sampler._length(epoch)
        left = ended and self._sampler.epoch > epoch
        if ended and not left:
            # Some loaders drop this iterator without asking it, and iterate the epoch anew.
            self._sampler._iterated_epoch = epoch
        self._batches, self._place = None, None if left else Place(epoch, position, position)
        self._loaded = True
        self._sampler._resumes = False
