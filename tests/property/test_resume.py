"""Stopping and resuming at random places, against a list of all batches."""

from __future__ import annotations

import json
import warnings
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

import dgl_tuplepack as tp
from tests.samplers import SamplerCase, sampler_cases

Batches = list[list[int]]


class Resuming(RuleBasedStateMachine):
    """A sampler that is stopped, saved and restored, and the batches that it must deliver next.

    `expected` holds what is left of the epoch under way; `iterator` is None until a batch is asked for.
    """

    states = Bundle("states")

    @initialize(case=sampler_cases(most_ranks=3), rank=st.integers(0, 2))
    def start(self, case: SamplerCase, rank: int) -> None:
        self.case, self.rank = case, rank % case.num_replicas
        self.sampler, self.iterator = self.fresh(), None
        self.expected = self.batches(0)
        self.begun = 0

    def fresh(self) -> tp.PackBatchSampler:
        return tp.PackBatchSampler(self.case.sizes, self.case.limits, rank=self.rank, **self.case.settings())

    def batches(self, epoch: int) -> Batches:
        sampler = self.fresh()
        sampler.set_epoch(epoch)
        return list(sampler)

    @rule(number=st.integers(1, 4))
    def take(self, number: int) -> None:
        """Take some batches, perhaps to the end."""
        if self.iterator is None:
            self.iterator, self.begun = iter(self.sampler), len(self.expected)
        with warnings.catch_warnings():
            # Iterating an epoch twice warns, which is not the matter here.
            warnings.simplefilter("ignore", UserWarning)
            for _ in range(number):
                right = self.expected.pop(0) if self.expected else None
                assert next(self.iterator, None) == right

    @rule(epoch=st.integers(0, 3))
    def go_to(self, epoch: int) -> None:
        """Start an epoch; what was left of the one under way is given up."""
        self.take(1)
        self.sampler.set_epoch(epoch)
        self.iterator, self.expected = None, self.batches(epoch)

    @rule(target=states, by_iterator=st.booleans())
    def save(self, by_iterator: bool) -> tuple[dict[str, Any], Batches]:
        iterator = iter(self.sampler) if self.iterator is None else self.iterator
        state = iterator.state_dict() if by_iterator or self.iterator is None else self.sampler.state_dict()
        return json.loads(json.dumps(state)), list(self.expected)

    @rule(target=states, data=st.data())
    def save_delivered(self, data: st.DataObject) -> tuple[dict[str, Any], Batches]:
        """A loop behind a loader that takes batches early knows what it got."""
        self.take(1)
        got = data.draw(st.integers(0, self.begun - len(self.expected)))
        state = self.sampler.state_dict(delivered=got)
        left = self.batches(state["epoch"])
        return json.loads(json.dumps(state)), left[len(left) - self.begun + got :]

    @rule(saved=states, new=st.booleans(), by_iterator=st.booleans(), unused=st.integers(0, 2))
    def restore(self, saved: tuple[dict[str, Any], Batches], new: bool, by_iterator: bool, unused: int) -> None:
        state, left = saved
        sampler = self.fresh() if new or not left else self.sampler
        sampler.load_state_dict(state)
        for _ in range(unused):
            iter(sampler)
        iterator = iter(sampler)
        if by_iterator:
            iterator.load_state_dict(state)
        self.sampler, self.iterator, self.expected = sampler, iterator, list(left)
        self.begun = len(left)

    @invariant()
    def length_is_that_of_the_epoch(self) -> None:
        assert len(self.sampler) == len(self.batches(self.sampler.epoch))


TestResuming = Resuming.TestCase
TestResuming.settings = settings(max_examples=25, stateful_step_count=12)
