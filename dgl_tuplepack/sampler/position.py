"""Where a sampler and its iterations stand: epochs begun, batches taken, states loaded, epochs repeated or changed."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack.errors import SamplerError


@dataclass
class Position:
    """Where an iteration stands in an epoch.

    `batches` counts those taken from the sampler, with the `begun` ones of an earlier iteration that this one resumes;
    `taken_early` tells that a loader takes batches before it delivers them, so the loop may have got fewer.
    """

    epoch: int
    begun: int = 0
    batches: int = 0
    taken_early: bool = False


class Progress:
    """Where a sampler stands: its epoch, the latest position, and whether the next iteration resumes there.

    Repeating an epoch is usual only with the `content` "fixed".
    """

    def __init__(self, content: str) -> None:
        self.epoch = 0
        self._content = content
        # Position of the latest iteration, or of a state loaded after it.
        self.latest = Position(0)
        self.resumes = False
        self.iterated_epoch: int | None = None
        self._warned = False

    def load(self, epoch: int, batches: int, length: int) -> None:
        """Let the next iteration begin after `batches` of an epoch of `length`; the end of one keeps a later epoch."""
        if batches < length or epoch > self.epoch:
            self.epoch = epoch
        self.latest, self.resumes = Position(epoch, batches, batches), True

    def delivered(self, number: int | None, length: int) -> int:
        """Batches of the current epoch, of `length`, that a state counts; see `PackBatchSampler.state_dict`."""
        latest = self.latest if self.latest.epoch == self.epoch else Position(self.epoch)
        if number is not None:
            return latest.begun + whole_number("delivered", number, 0, length - latest.begun, SamplerError)
        if latest.taken_early:
            raise SamplerError(
                f"workers of a loader have taken {latest.batches - latest.begun} batches of epoch {self.epoch}, and "
                "the sampler does not know how many of them the loop got, so resuming would lose graphs; give "
                "state_dict(delivered=number of batches that the loop got), or use torchdata's StatefulDataLoader and "
                "its state. At the end of an epoch, call set_epoch with the next one first."
            )
        return latest.batches

    def notice_repetition(self) -> None:
        """Warn, once, that an epoch begins again whose batches ought to be others."""
        if self._content != "fixed" and self.iterated_epoch == self.epoch and not self._warned:
            self._warned = True
            warnings.warn(
                f"epoch {self.epoch} is iterated again, so its batches are the same as before although the content "
                f"is {self._content!r}; call sampler.set_epoch(epoch) with the next epoch before iterating it.",
                UserWarning,
                stacklevel=5,
            )
        self.iterated_epoch = self.epoch


class Iteration:
    """One iteration of a sampler, whose `progress` it shares with other iterations."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._position: Position | None = None
        self._loaded = False
        self._epoch_at_start = 0

    @property
    def position(self) -> Position:
        """Where the next batch is taken."""
        if self._position is not None:
            return self._position
        progress = self._progress
        return progress.latest if self._resumes and not self._loaded else Position(progress.epoch)

    @property
    def _resumes(self) -> bool:
        """Whether this resumes the epoch of a state."""
        progress = self._progress
        return self._loaded or (progress.resumes and progress.latest.epoch == progress.epoch)

    def settle(self, in_lightning: tuple[int, int] | None) -> Position:
        """Choose where to `begin`, and warn where the epoch is repeated; `in_lightning` is the Trainer's position."""
        progress, resumes, position, current = self._progress, self._resumes, self.position, self._progress.epoch
        # Where the Trainer begins an epoch, a state of that epoch that the user has loaded has precedence.
        if in_lightning is not None and (in_lightning[1] or not resumes or position.epoch != in_lightning[0]):
            progress.epoch, done = in_lightning
            resumes, position = bool(done), Position(progress.epoch, done, done)
        if resumes and position.batches:
            progress.iterated_epoch = position.epoch
        elif not resumes and progress.epoch == current:
            # Before the Trainer sets the epoch, it may ask for batches and drop them.
            progress.notice_repetition()
        return position

    def begin(self, position: Position, taken_early: bool) -> None:
        """Begin at a position; a later iteration does not resume there."""
        progress = self._progress
        self._position = progress.latest = Position(position.epoch, position.batches, position.batches, taken_early)
        self._epoch_at_start = progress.epoch
        progress.resumes = False

    def take(self, length: int) -> int:
        """Take the next batch of an epoch of `length`, and return its number; raise StopIteration if none is left."""
        progress, position = self._progress, self.position
        if position.batches >= length:
            raise StopIteration
        if progress.epoch != self._epoch_at_start and progress.latest is position:
            raise SamplerError(
                f"the epoch was set to {progress.epoch} when this iteration of epoch {position.epoch} had begun and "
                f"{position.batches} of its batches were taken, so a loop would continue with those of another epoch; "
                "call set_epoch before iter(loader): a loader with workers takes its first batches there."
            )
        position.batches += 1
        return position.batches - 1

    def load(self, epoch: int, batches: int, length: int) -> None:
        """Continue after `batches` of an epoch of `length`; the sampler then has nothing to resume.

        Where the sampler is at a later epoch already, the end of an epoch leads to the start of that one.
        """
        progress, ended = self._progress, batches == length
        self._position, self._loaded = Position(epoch, batches, batches), True
        if ended and progress.epoch > epoch:
            self._position = None
        elif ended:
            # Some loaders drop this iterator without asking it, and iterate the epoch again.
            progress.iterated_epoch = epoch
        progress.resumes = False
