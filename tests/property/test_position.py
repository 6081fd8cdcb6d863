"""Transitions of a sampler's position, against a model of plain numbers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from dgl_tuplepack.errors import SamplerError
from dgl_tuplepack.sampler.position import Iteration, Position, Progress
from tests.messages import refused

LENGTH = 2
EPOCHS = st.integers(0, 1)
STATES = st.tuples(EPOCHS, st.integers(0, LENGTH))


@dataclass
class Run:
    """Batches from one start in one epoch: the number of the next one, and of the first."""

    epoch: int
    next: int = 0
    first: int = 0
    early: bool = False
    epoch_then: int = 0


class Expected:
    """An iteration and its run; None while it has neither begun nor loaded a state."""

    def __init__(self, progress: Progress) -> None:
        self.real = Iteration(progress)
        self.run: Run | None = None
        self.restored = False


class Positions(RuleBasedStateMachine):
    """Iterations of one sampler that are begun, given up, saved and restored in any order."""

    # Iterations that have not begun, at all or since a state was loaded into them, and those that have.
    new, begun = Bundle("new"), Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        self.real = Progress("resample")
        self.epoch = 0
        # The run that began last, or that of a state which was loaded since, and whether nobody has resumed it.
        self.latest, self.waiting = Run(0), False
        # The epoch that is repeated if it begins again, and whether the user knows.
        self.iterated: int | None = None
        self.warned = False

    @rule(target=new)
    def iterate(self) -> Expected:
        return Expected(self.real)

    @rule(epoch=EPOCHS)
    def set_epoch(self, epoch: int) -> None:
        self.real.epoch = self.epoch = epoch

    def start_of(self, one: Expected) -> tuple[Run, bool]:
        """Where an iteration begins as things are, and whether a state says so."""
        if one.run is not None or one.restored:
            return one.run or Run(self.epoch), True
        waits = self.waiting and self.latest.epoch == self.epoch
        return (self.latest, True) if waits else (Run(self.epoch), False)

    @rule(target=begun, one=consumes(new), early=st.booleans(), lightning=st.none() | STATES)
    def begin(self, one: Expected, early: bool, lightning: tuple[int, int] | None) -> Expected:
        """Begin, perhaps where a Trainer of Lightning does; of an epoch that it begins, a state of the user counts."""
        (run, resumed), before = self.start_of(one), self.epoch
        start = run.epoch, run.next
        if lightning is not None and not (lightning[1] == 0 and resumed and run.epoch == lightning[0]):
            start, resumed, self.epoch = lightning, lightning[1] > 0, lightning[0]
        fresh = not resumed and self.epoch == before
        repeated = fresh and self.iterated == self.epoch and not self.warned
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            position = one.real.settle(lightning)
        assert (position.epoch, position.batches) == start
        assert [str(warning.message)[:25] for warning in caught] == [f"epoch {self.epoch} is iterated again"] * repeated
        one.real.begin(position, early)
        if fresh or (resumed and start[1]):
            self.iterated = start[0]
        self.warned |= repeated
        one.run = self.latest = Run(*start, start[1], early, self.epoch)
        self.waiting = False
        return one

    @rule(one=begun)
    def take(self, one: Expected) -> None:
        assert one.run is not None
        if one.run.next == LENGTH:
            with pytest.raises(StopIteration):
                one.real.take(LENGTH)
        elif one.run is self.latest and self.epoch != one.run.epoch_then:
            with refused(SamplerError, f"set to {self.epoch} when this iteration of epoch {one.run.epoch}"):
                one.real.take(LENGTH)
        else:
            assert one.real.take(LENGTH) == one.run.next
            one.run.next += 1

    @rule(state=STATES)
    def load(self, state: tuple[int, int]) -> None:
        self.real.load(*state, LENGTH)
        # Nothing is left of an epoch that has ended, so it does not lead back.
        if state[1] < LENGTH:
            self.epoch = state[0]
        self.epoch = max(self.epoch, state[0])
        self.latest, self.waiting = Run(*state, state[1]), True

    @rule(target=new, one=consumes(new) | consumes(begun), state=STATES)
    def load_into_an_iteration(self, one: Expected, state: tuple[int, int]) -> Expected:
        one.real.load(*state, LENGTH)
        one.run, one.restored, self.waiting = Run(*state, state[1]), True, False
        if state[1] == LENGTH:
            if self.epoch > state[0]:
                one.run = None
            else:
                self.iterated = state[0]
        return one

    @rule(number=st.none() | st.integers(-1, LENGTH + 1))
    def save(self, number: int | None) -> None:
        run = self.latest if self.latest.epoch == self.epoch else Run(self.epoch)
        if number is None and run.early:
            with refused(SamplerError, f"taken {run.next - run.first} batches of epoch {self.epoch}", "delivered="):
                self.real.delivered(None, LENGTH)
        elif number is None:
            assert self.real.delivered(None, LENGTH) == run.next
        elif not 0 <= number <= LENGTH - run.first:
            with refused(SamplerError, f"delivered must be an integer in 0..{LENGTH - run.first}", str(number)):
                self.real.delivered(number, LENGTH)
        else:
            assert self.real.delivered(number, LENGTH) == run.first + number

    @rule(one=new | begun)
    def save_an_iteration(self, one: Expected) -> None:
        self.check_position(one)

    @invariant()
    def a_further_iteration_begins_where_it_must(self) -> None:
        assert self.real.epoch == self.epoch
        self.check_position(Expected(self.real))

    def check_position(self, one: Expected) -> None:
        run, _ = self.start_of(one)
        assert (one.real.position.epoch, one.real.position.batches) == (run.epoch, run.next)


def test_an_epoch_that_a_trainer_chooses_is_no_repetition() -> None:
    """It may ask for batches of an epoch, drop them, and ask again once it has set the epoch."""
    progress = Progress("resample")
    progress.epoch = 1
    dropped, used = Iteration(progress), Iteration(progress)
    dropped.begin(dropped.settle(None), False)
    progress.epoch = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert used.settle((1, 0)) == Position(1)


TestPositions = Positions.TestCase
TestPositions.settings = settings(max_examples=100, stateful_step_count=40)
