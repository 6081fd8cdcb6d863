"""Random sizes and settings of samplers for the tests; nothing here needs DGL."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dgl_tuplepack import GraphSizes, Limits, PackBatchSampler, pack


@dataclass(frozen=True)
class SamplerCase:
    """Sizes and settings of samplers, one for each rank."""

    sizes: GraphSizes
    limits: Limits
    packs_per_batch: int
    num_replicas: int
    content: str
    shuffle: bool
    drop_last: bool
    seed: int

    def settings(self, **changes: Any) -> dict[str, Any]:
        """Keyword arguments of `PackBatchSampler`, without rank."""
        settings = {
            "packs_per_batch": self.packs_per_batch, "num_replicas": self.num_replicas, "content": self.content,
            "shuffle": self.shuffle, "drop_last": self.drop_last, "seed": self.seed,
        }  # fmt: skip
        return {**settings, **changes}


@st.composite
def sampler_cases(
    draw: st.DrawFn,
    *,
    content: Sequence[str] = ("fixed", "resample", "exchange"),
    most_ranks: int = 8,
    most_graphs: int = 60,
    too_large: bool = False,
) -> SamplerCase:
    """Few size classes (so that graphs can change places), 1..3 components, tight and loose limits and caps.

    With `too_large` some graphs may exceed the limits, but never all of them.
    """
    number, most = draw(st.integers(1, most_graphs)), draw(st.integers(0, 9))
    k = draw(st.sampled_from([2, 2, 1, 3]))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    rows = rng.integers(0, most + 1, (number, k))
    components = ("nodes", "edges", "triplets")[:k]
    largest = np.maximum(rows.max(axis=0), 1)
    if too_large:
        largest = np.maximum(rows[0], 1)
    maxima = {name: int(m) + draw(st.integers(0, 20)) for name, m in zip(components, largest, strict=True)}
    limits = Limits.from_components(maxima, draw(st.none() | st.integers(1, 6)))
    chosen = draw(st.sampled_from(content))
    packs_per_batch, num_replicas = draw(st.integers(1, 3)), draw(st.integers(1, most_ranks))
    sizes = GraphSizes(rows, components)
    # Dropping the last packs must leave a step.
    packs = pack(sizes.take(np.flatnonzero(limits.fits(sizes))), limits).num_packs
    may_drop = packs >= packs_per_batch * num_replicas
    return SamplerCase(
        sizes=sizes,
        limits=limits,
        packs_per_batch=packs_per_batch,
        num_replicas=num_replicas,
        content=chosen,
        shuffle=chosen != "fixed" or draw(st.booleans()),
        drop_last=may_drop and draw(st.booleans()),
        seed=draw(st.sampled_from([0, 1, 2**64 - 1]) | st.integers(0, 2**64 - 1)),
    )


def samplers_of(case: SamplerCase, **changes: Any) -> list[PackBatchSampler]:
    """One sampler for each rank."""
    changed = case.settings(**changes)
    ranks = range(changed["num_replicas"])
    return [PackBatchSampler(case.sizes, case.limits, rank=rank, **changed) for rank in ranks]


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    """All ids of some batches."""
    return list(itertools.chain.from_iterable(batches))


@st.composite
def buckets_within(draw: st.DrawFn, largest: Limits) -> list[Limits]:
    """Two to four limits in ascending order, the last of them `largest`; as many as there is room for."""
    limits = [largest]
    for _ in range(draw(st.integers(1, 3))):
        above = limits[0]
        maxima = {name: draw(st.integers(1, most)) for name, most in above.maxima.items()}
        caps = st.integers(1, 6 if above.graphs is None else above.graphs)
        graphs = draw(caps | st.none() if above.graphs is None else caps)
        below = Limits.from_components(maxima, graphs)
        limits = [below, *limits] if below != above else limits
    if len(limits) > 1:
        return limits
    return [largest, Limits.from_components({name: most + 1 for name, most in largest.maxima.items()}, largest.graphs)]


@st.composite
def bucket_cases(draw: st.DrawFn, **settings: Any) -> SamplerCase:
    """Cases with limits of several shapes."""
    case = draw(sampler_cases(**{"content": ("fixed", "resample"), **settings}))
    limits = draw(buckets_within(case.limits))
    in_a_step = case.packs_per_batch * case.num_replicas
    drop_last = case.drop_last and pack(case.sizes, limits).num_packs >= in_a_step
    return replace(case, limits=limits, drop_last=drop_last)


def materials(number: int, seed: int) -> GraphSizes:
    """Sizes as those of materials: atoms, and edges within a cutoff; nearly all of them are distinct."""
    rng = np.random.default_rng(seed)
    atoms = np.clip(np.exp(rng.normal(3, 0.8, number)), 1, 400).astype(int)
    return GraphSizes(np.stack([atoms, (atoms * rng.lognormal(4, 0.4, number)).astype(int)], axis=1))


def meeting_again(sampler: PackBatchSampler, epochs: int) -> tuple[float, float]:
    """Which share of the pairs of a pack share a pack in the next epoch too, and which would by chance."""
    number, again, pairs = len(sampler.dropped_ids) + sampler.plan.histogram.num_graphs, 0, 0
    before = np.empty(0, dtype=np.int64)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        packs = [np.sort(pack) for pack in sampler]
        rows, columns = zip(*(np.triu_indices(len(pack), 1) for pack in packs), strict=True)
        met = [pack[row] * number + pack[column] for pack, row, column in zip(packs, rows, columns, strict=True)]
        now = np.concatenate(met)
        again += len(np.intersect1d(now, before, assume_unique=True)) if epoch else 0
        pairs += len(before)
        before = now
    return again / pairs, pairs / (epochs - 1) / (number * (number - 1) / 2)


class Ids:
    """A view of graphs whose batch is the list of its ids."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, ids: Sequence[int]) -> list[int]:
        return list(ids)
