"""The sampler's contract, for random sizes, limits, contents, packs per batch and ranks."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict, deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from tests.support.samplers import SamplerCase, flat, sampler_cases, samplers_of

Size = tuple[int, ...]
Batches = list[list[int]]


def packs_of(case: SamplerCase, epoch: int, **changes: Any) -> Batches:
    """Every pack of an epoch, in order: what one rank with one pack a batch gets."""
    alone = {"packs_per_batch": 1, "num_replicas": 1, "drop_last": False, **changes}
    (sampler,) = samplers_of(case, **alone)
    sampler.set_epoch(epoch)
    return list(sampler)


def sizes_in(case: SamplerCase, graphs: list[int]) -> list[Size]:
    """Sizes of some graphs, in order."""
    return [tuple(row) for row in case.sizes.array[graphs].tolist()]


def assert_within(case: SamplerCase, batch: list[int], packs: int) -> None:
    """No component of a batch exceeds `packs` times its limit."""
    total = case.sizes.array[batch].sum(axis=0)
    assert (total <= packs * case.limits.array).all()
    assert case.limits.graphs is None or len(batch) <= packs * case.limits.graphs


@given(sampler_cases(), st.integers(0, 3))
def test_every_graph_once_within_limits(case: SamplerCase, epoch: int) -> None:
    samplers = samplers_of(case)
    for sampler in samplers:
        sampler.set_epoch(epoch)
    by_rank = [list(sampler) for sampler in samplers]

    # The length is exact, and the same on all ranks.
    assert {len(batches) for batches in by_rank} == {len(samplers[0])}
    assert {len(sampler) for sampler in samplers} == {len(samplers[0])}
    for batch in (batch for batches in by_rank for batch in batches):
        assert_within(case, batch, case.packs_per_batch)
        # What a collate function with sampler.limits has room for.
        assert len(batch) <= case.packs_per_batch * samplers[0].limits.graphs

    seen = flat([flat(batches) for batches in by_rank])
    assert len(seen) == len(set(seen))
    packs = packs_of(case, epoch)
    if case.drop_last:
        # Only packs that do not divide evenly are missing.
        missing = set(range(len(case.sizes))) - set(seen)
        left_over = len(packs) % (case.packs_per_batch * case.num_replicas)
        assert missing == set(flat(packs[len(packs) - left_over :]))
    else:
        assert sorted(seen) == list(range(len(case.sizes)))


@given(sampler_cases(), st.integers(0, 3))
def test_batches_are_whole_packs_shared_fairly(case: SamplerCase, epoch: int) -> None:
    """Ranks and packs per batch only deal out the packs; leftovers go one to each rank before any gets two."""
    packs = packs_of(case, epoch)
    pack_of = {graph: index for index, pack in enumerate(packs) for graph in pack}
    samplers = samplers_of(case, drop_last=False)
    by_rank = []
    for sampler in samplers:
        sampler.set_epoch(epoch)
        by_rank.append(list(sampler))
    dealt: Counter[int] = Counter()
    for step in range(len(samplers[0])):
        numbers = []
        for batches in by_rank:
            indices = sorted({pack_of[graph] for graph in batches[step]})
            assert batches[step] == flat([packs[index] for index in indices])
            dealt.update(indices)
            numbers.append(len(indices))
        last = step == len(samplers[0]) - 1
        assert max(numbers) <= case.packs_per_batch
        assert max(numbers) - min(numbers) <= (1 if last else 0)
        assert last or numbers[0] == case.packs_per_batch
        assert max(numbers) > 0
    assert dealt == Counter(range(len(packs)))


@given(sampler_cases(content=["exchange"]), st.integers(0, 2**64 - 1))
def test_exchanged_packs_are_as_many_as_planned_within_the_limits(case: SamplerCase, epoch: int) -> None:
    sampler = samplers_of(case, num_replicas=1, packs_per_batch=1, drop_last=False)[0]
    sampler.set_epoch(epoch)
    packs, work = list(sampler), sampler.balance().work
    assert len(packs) == len(sampler) == sampler.plan.num_packs
    assert sorted(flat(packs)) == list(range(len(case.sizes)))
    assert work[:, 0].tolist() == [case.sizes.array[pack].sum() for pack in packs]
    for pack in packs:
        assert (case.sizes.array[pack].sum(axis=0) <= sampler.limits.array).all()
        assert 1 <= len(pack) <= sampler.limits.graphs


@given(sampler_cases(content=["fixed", "resample"]), st.integers(1, 5))
def test_pack_shapes_stay(case: SamplerCase, epoch: int) -> None:
    """The sizes that share a pack are those of the plan in every epoch; with "fixed" the graphs are too."""
    (sampler,) = samplers_of(case, packs_per_batch=1, num_replicas=1, drop_last=False)
    plan = sampler.plan
    planned: Counter[tuple[Size, ...]] = Counter()
    for q in range(plan.num_patterns):
        entries = slice(plan.offsets[q], plan.offsets[q + 1])
        rows = np.repeat(plan.histogram.sizes[plan.classes[entries]], plan.multiplicities[entries], axis=0)
        planned[tuple(sorted(tuple(row) for row in rows.tolist()))] += int(plan.repeats[q])
    for each in (0, epoch):
        packs = packs_of(case, each)
        assert Counter(tuple(sorted(sizes_in(case, pack))) for pack in packs) == planned
        if case.content == "fixed":
            assert {frozenset(pack) for pack in packs} == {frozenset(pack) for pack in packs_of(case, 0)}


@given(sampler_cases(content=["fixed"]), st.integers(0, 2))
def test_without_shuffle_plan_order_and_ascending_ids(case: SamplerCase, epoch: int) -> None:
    (sampler,) = samplers_of(case, shuffle=False, num_replicas=1, packs_per_batch=1, drop_last=False)
    waiting: dict[Size, deque[int]] = defaultdict(deque)
    for graph, size in enumerate(sizes_in(case, list(range(len(case.sizes))))):
        waiting[size].append(graph)
    plan, expected = sampler.plan, []
    for q in range(plan.num_patterns):
        for _ in range(int(plan.repeats[q])):
            pack = []
            for entry in range(int(plan.offsets[q]), int(plan.offsets[q + 1])):
                size = tuple(plan.histogram.sizes[plan.classes[entry]].tolist())
                pack += [waiting[size].popleft() for _ in range(int(plan.multiplicities[entry]))]
            expected.append(pack)
    sampler.set_epoch(epoch)
    assert list(sampler) == expected


@given(sampler_cases(), st.integers(0, 4), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=3))
def test_batches_depend_on_seed_and_epoch_alone(case: SamplerCase, epoch: int, before: list[tuple[int, int]]) -> None:
    """What was iterated before, to the end or not, changes nothing."""
    fresh, used = samplers_of(case)[-1], samplers_of(case)[-1]
    with warnings.catch_warnings():
        # Iterating an epoch twice warns, which is not the matter here.
        warnings.simplefilter("ignore", UserWarning)
        for earlier, batches in before:
            used.set_epoch(earlier)
            for _, _batch in zip(range(batches), used, strict=False):
                pass
        for sampler in (fresh, used):
            sampler.set_epoch(epoch)
        assert list(fresh) == list(used)


@given(sampler_cases())
def test_given_plan_is_the_plan_made(case: SamplerCase) -> None:
    """A plan from `pack` with the same seed gives the batches of a sampler that plans itself."""
    plan = tp.pack(tp.SizeHistogram.from_sizes(case.sizes), case.limits, seed=case.seed)
    settings = case.settings(num_replicas=1)
    given_plan = tp.PackBatchSampler(case.sizes, case.limits, plan=plan, rank=0, **settings)
    own = tp.PackBatchSampler(case.sizes, case.limits, rank=0, **settings)
    assert list(given_plan) == list(own)
    assert given_plan.plan.fingerprint == own.plan.fingerprint == plan.fingerprint


@given(sampler_cases(), st.sampled_from(["first_fit", "none", "next_fit"]))
def test_plans_of_other_methods_are_followed(case: SamplerCase, method: str) -> None:
    plan = tp.pack(case.sizes, case.limits, method=method, seed=case.seed % 1000)
    sampler = tp.PackBatchSampler(
        case.sizes, case.limits, plan=plan, content=case.content, shuffle=case.shuffle, num_replicas=1, rank=0
    )
    packs = list(sampler)
    assert len(packs) == plan.num_packs
    assert sorted(flat(packs)) == list(range(len(case.sizes)))
    assert sampler.limits.graphs == (case.limits.graphs or plan.max_graphs)
    for pack in packs:
        assert_within(case, pack, 1)


@given(sampler_cases(content=["fixed", "resample"]))
def test_the_cap_is_the_one_that_was_given_or_the_most_graphs_of_any_pack(case: SamplerCase) -> None:
    (sampler,) = samplers_of(case, num_replicas=1)
    assert sampler.limits.graphs == (case.limits.graphs or max(map(len, packs_of(case, 0))))
    assert sampler.limits.maxima == case.limits.maxima


@given(sampler_cases(too_large=True))
def test_dropped_graphs_are_the_only_ones_missing(case: SamplerCase) -> None:
    fits = (case.sizes.array <= case.limits.array).all(axis=1)
    if fits.all():
        samplers = samplers_of(case, oversize="drop", drop_last=False)
    else:
        with pytest.warns(UserWarning, match=f"{(~fits).sum()} of {len(fits)} graphs exceed"):
            samplers = samplers_of(case, oversize="drop", drop_last=False)
    for sampler in samplers:
        assert sampler.dropped_ids.tolist() == np.flatnonzero(~fits).tolist()
        assert sampler.dropped_ids.dtype == np.int64
        sampler.set_epoch(1)
    batches = [batch for sampler in samplers for batch in sampler]
    assert sorted(flat(batches)) == np.flatnonzero(fits).tolist()
    for batch in batches:
        assert_within(case, batch, case.packs_per_batch)


@given(sampler_cases(most_ranks=1), st.integers(1, 2**64 - 1))
@settings(max_examples=25)
def test_other_seeds_are_other_streams(case: SamplerCase, difference: int) -> None:
    """Not equal for long datasets: a seed that is ignored, or cut to 32 bits, would show here."""
    sizes = tp.GraphSizes(np.tile([[1, 1], [2, 1]], (40, 1)))
    limits = tp.Limits(5, 5)
    content = case.content
    first, second = (
        tp.PackBatchSampler(sizes, limits, content=content, seed=seed)
        for seed in (case.seed, (case.seed + difference) % 2**64)
    )
    assert list(first) != list(second)


@given(seed=st.integers(0, 9), content=st.sampled_from(["fixed", "resample", "exchange"]))
def test_without_a_limit_on_edges_batches_have_one_shape(seed: int, content: str) -> None:
    """The sampler takes the most edges of any pack of its plan; later epochs keep to them."""
    gen = np.random.default_rng(seed)
    sizes = tp.GraphSizes(np.stack([gen.integers(1, 9, 40), gen.integers(0, 60, 40)], axis=1))
    sampler = tp.PackBatchSampler(sizes, tp.Limits(nodes=12), content=content, seed=seed)
    plan, found = sampler.plan, []
    assert sampler.limits.nodes == 12
    for epoch in range(3):
        sampler.set_epoch(epoch)
        batches = list(sampler)
        found.append([sizes.num_edges[ids].sum() for ids in batches])
        assert all(sizes.num_nodes[ids].sum() <= 12 for ids in batches)
        assert max(found[-1]) <= sampler.limits.edges
    assert sampler.limits.edges == plan.effective_limits.edges
    assert content == "exchange" or max(found[0]) == sampler.limits.edges
