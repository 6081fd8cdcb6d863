"""Stopping and resuming loaders at random places, against a list of all batches."""

from __future__ import annotations

import itertools
import json
import warnings
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

import dgl_tuplepack as tp
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.support.samplers import Ids, SamplerCase, bucket_cases, sampler_cases

Batches = list[list[int]]
# A state, what is left of its epoch, its epoch, and the next unused one.
Saved = tuple[dict[str, Any], Batches, int, int]


class Resuming(RuleBasedStateMachine):
    """A loader that is stopped, saved and restored, and the batches that it must deliver next.

    `expected` holds what is left of the epoch under way, `epoch`; `iterator` is None until a batch is asked for.
    `following` is the epoch after all epochs that were used.
    """

    states = Bundle("states")

    @initialize(case=sampler_cases(most_ranks=3) | bucket_cases(most_ranks=3), rank=st.integers(0, 2))
    def start(self, case: SamplerCase, rank: int) -> None:
        self.case, self.rank = case, rank % case.num_replicas
        self.loader, self.iterator = self.fresh(), None
        self.expected, self.under_way = self.batches(0), False
        self.epoch, self.following, self.is_set = 0, 0, False

    def fresh(self) -> PackedLoader:
        settings = self.case.settings(rank=self.rank)
        return PackedLoader(Ids(), tp.PackBatchSampler(self.case.sizes, self.case.limits, **settings))

    def batches(self, epoch: int) -> Batches:
        sampler = self.fresh().sampler
        sampler.set_epoch(epoch)
        return list(sampler)

    def advances(self) -> bool:
        return self.case.shuffle and self.case.num_replicas == 1 and not self.is_set

    def use(self, epoch: int) -> None:
        """A training has received a batch of this epoch."""
        self.following = max(self.following, epoch + 1)

    @rule(number=st.integers(1, 4))
    def take(self, number: int) -> None:
        """Take some batches, perhaps to the end."""
        self.iterator = iter(self.loader) if self.iterator is None else self.iterator
        with warnings.catch_warnings():
            # Iterating an epoch twice warns, which is not the matter here.
            warnings.simplefilter("ignore", UserWarning)
            for _ in range(number):
                self.under_way = bool(self.expected)
                right = self.expected.pop(0) if self.expected else None
                assert next(self.iterator, None) == right
                if right is not None:
                    self.use(self.epoch)

    @rule()
    def begin_again(self) -> None:
        """Leave the iteration that is under way, and begin another one."""
        self.take(1)
        self.epoch = self.following if self.advances() else self.epoch
        self.iterator, self.expected = None, self.batches(self.epoch)
        self.take(1)

    @precondition(lambda self: self.under_way)
    @rule(number=st.integers(1, 9), gradients=st.booleans())
    def evaluate(self, number: int, gradients: bool) -> None:
        """Take batches of another iteration while one is under way, which changes nothing."""
        epoch = self.following if gradients and self.advances() else self.loader.sampler.epoch
        with warnings.catch_warnings(), torch.set_grad_enabled(gradients):
            warnings.simplefilter("ignore", UserWarning)
            found = list(itertools.islice(self.loader, number))
        assert found == self.batches(epoch)[:number]
        if gradients:
            self.use(epoch)

    @rule(later=st.integers(1, 3))
    def go_to(self, later: int) -> None:
        """Start another epoch; what was left of the one under way is given up."""
        self.take(1)
        # Four epochs, which are not those that other iterations have used.
        self.epoch, self.is_set = (self.epoch + later) % 4 + 1000, True
        self.loader.set_epoch(self.epoch)
        self.iterator, self.expected, self.under_way = None, self.batches(self.epoch), False

    @rule(target=states)
    def save(self) -> Saved:
        return json.loads(json.dumps(self.loader.state_dict())), list(self.expected), self.epoch, self.following

    @rule(saved=states, new=st.booleans(), unused=st.integers(0, 2))
    def restore(self, saved: Saved, new: bool, unused: int) -> None:
        state, left, self.epoch, self.following = saved
        assert (state["epoch"], state["next_epoch"]) == (self.epoch, self.following)
        self.loader, self.is_set = (self.fresh(), False) if new else (self.loader, self.is_set)
        self.loader.load_state_dict(state)
        for _ in range(unused):
            iter(self.loader)
        self.iterator, self.expected, self.under_way = None, list(left), False

    @invariant()
    def length_is_that_of_the_epoch(self) -> None:
        assert len(self.loader) == len(self.batches(self.loader.sampler.epoch))


TestResuming = Resuming.TestCase
TestResuming.settings = settings(max_examples=25, stateful_step_count=12)
