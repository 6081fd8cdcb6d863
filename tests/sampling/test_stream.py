"""Packing streams: exact cases, the plain Python twin, graphs, loaders with workers, and what is refused."""

from __future__ import annotations

import itertools
import random
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, SamplerError, SchemaError
from tests.support.graphs import generator, random_graph
from tests.support.messages import refused
from tests.support.reference import Size, online_packs
from tests.support.strategies import caps

LIMITS = tp.Limits(nodes=10, edges=10)


@pytest.fixture(autouse=True)
def _no_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher's environment must not decide these tests."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def itself(item: Any) -> Any:
    return item


def first(item: Any) -> Any:
    return item[0]


def packs_of(nodes: list[int], lookahead: int = 100, **settings: Any) -> list[list[int]]:
    """Packs of graphs that have as many edges as nodes."""
    sizes = [(n, n) for n in nodes]
    packer: Any = tp.StreamPacker(sizes, LIMITS, lookahead=lookahead, size_of=itself, **settings)
    return [[n for n, _ in pack] for pack in packer]


# Packs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "lookahead", "packs"),
    [
        # 3 joins 7, which is fuller than 6; then 1 joins 6.
        ([7, 6, 3, 1], 100, [[7, 3], [6, 1]]),
        ([6, 5, 4], 2**63 - 1, [[6, 4], [5]]),
        # More open packs than rows are made at first.
        ([6] * 1500 + [4] * 1500, 10_000, [[6, 4]] * 1500),
        ([], 100, []),
    ],
    ids=lambda value: str(value)[:30],
)
def test_graphs_go_into_the_fullest_pack_that_has_room(nodes: list[int], lookahead: int, packs: Any) -> None:
    assert packs_of(nodes, lookahead) == packs


def test_an_iterator_serves_once() -> None:
    """The second epoch would be empty, or lack what waited when the first was left."""
    for source in (iter([(3, 3), (8, 8)]), itertools.cycle([(3, 3), (8, 8)])):
        packer: Any = tp.StreamPacker(source, LIMITS, size_of=itself)
        # A loader may call iter() and not use it.
        iter(packer), next(iter(packer))
        with refused(SamplerError, "the source is an iterator", type(source).__name__, "__iter__ begins again"):
            next(iter(packer))


class ByNumber:
    """Items as of DGL's datasets: numbers and no `__iter__`."""

    def __getitem__(self, number: int) -> Any:
        return [(3, 3), (8, 8), (7, 7)][number]


def test_a_source_of_numbered_items() -> None:
    packer: Any = tp.StreamPacker(ByNumber(), LIMITS, size_of=itself)  # type: ignore[arg-type]
    assert list(packer) == list(packer) == [[(3, 3), (7, 7)], [(8, 8)]]


def test_molhiv_in_random_order() -> None:
    histogram = tp.load_example("ogbg-molhiv")
    rows = np.repeat(histogram.sizes, histogram.counts, axis=0)
    rows = np.random.default_rng(0).permutation(rows)
    packer: Any = tp.StreamPacker(rows, tp.Limits(222, 502, 256), lookahead=1000, size_of=itself)
    packs = list(packer)
    assert sum(map(len, packs)) == len(rows)
    # Next fit, which others use, reaches 93 %.
    assert rows[:, 0].sum() / (222 * len(packs)) >= 0.989


# Graphs -------------------------------------------------------------------------------------------------------


def test_graphs_of_dgl() -> None:
    gen = generator(0)
    items = [(random_graph(gen, n, n + 1), torch.tensor(float(n))) for n in [3, 2, 5, 4, 1, 2]]
    limits = tp.Limits(nodes=6, edges=9, graphs=4)
    packs = list(tp.StreamPacker(iter(items), limits))
    assert sorted(item[0].num_nodes() for pack in packs for item in pack) == [1, 2, 2, 3, 4, 5]
    collate = tp.PaddedCollate(limits, example=items[0])
    loader: Any = DataLoader(tp.StreamPacker(items, limits), batch_size=None, collate_fn=collate)
    batches = list(loader)
    assert [batch.num_real_graphs for batch in batches] == [len(pack) for pack in packs]
    assert {(len(b.node_mask), len(b.edge_mask), len(b.graph_mask)) for b in batches} == {(7, 9, 5)}
    for batch, pack in zip(batches, packs, strict=True):
        assert batch.labels[batch.graph_mask].tolist() == [label.item() for _, label in pack]


def test_limits_of_heterographs_in_another_order() -> None:
    import dgl

    def graph(users: int, items: int) -> Any:
        ends = torch.zeros(1, dtype=torch.int64)
        return dgl.heterograph({("user", "buys", "item"): (ends, ends)}, {"user": users, "item": items})

    limits = tp.Limits(nodes={"user": 4, "item": 9}, edges={"buys": 9})
    packs = list(tp.StreamPacker([graph(3, 1), graph(2, 8), graph(1, 3)], limits))
    assert [[g.num_nodes("user") for g in pack] for pack in packs] == [[3, 1], [2]]


# Workers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "ranks"), [(0, 1), (1, 1), (0, 2), (3, 2)])
def test_workers_of_all_ranks_share_the_stream(workers: int, ranks: int) -> None:
    items = [((1 + i % 5, 1 + i % 7), i) for i in range(101)]
    seen = []
    for rank in range(ranks):
        packer: Any = tp.StreamPacker(items, LIMITS, lookahead=10, size_of=first, num_replicas=ranks, rank=rank)
        loader = DataLoader(packer, batch_size=None, num_workers=workers, collate_fn=itself)
        found = list(loader)
        seen += [i for pack in found for _, i in pack]
        # One worker after another, as they would alone.
        parts = max(workers, 1) * ranks
        alone = [
            list(tp.StreamPacker(items[w * ranks + rank :: parts], LIMITS, lookahead=10, size_of=first))
            for w in range(max(workers, 1))
        ]
        assert sorted(found) == sorted(pack for packs in alone for pack in packs)
    assert sorted(seen) == list(range(101))


class OwnParts(IterableDataset[Any]):
    """A source that gives each worker its own items, as webdataset does."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        assert worker is not None
        for i in range(worker.id, 50, worker.num_workers):
            yield (1 + i % 5, 1), i


def test_a_source_that_shards_itself() -> None:
    packer: Any = tp.StreamPacker(OwnParts(), LIMITS, size_of=first, shard=False)
    loader = DataLoader(packer, batch_size=None, num_workers=2, collate_fn=itself)
    assert sorted(i for pack in loader for _, i in pack) == list(range(50))


def test_world_size_without_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with refused(SamplerError, "WORLD_SIZE is 2", "init_process_group"):
        tp.StreamPacker([], LIMITS)
    # A source that shards itself needs no rank.
    assert list(tp.StreamPacker([], LIMITS, shard=False)) == []


# What is refused ----------------------------------------------------------------------------------------------


def test_a_graph_that_is_too_large() -> None:
    sizes = [(3, 3), (11, 2), (1, 1)]
    packer: Any = tp.StreamPacker(sizes, LIMITS, size_of=itself)
    with refused(GraphTooLargeError, "item 1 of the stream", "11 nodes, 2 edges", repr(LIMITS), "oversize='drop'"):
        list(packer)


def test_the_number_of_an_item_is_that_in_the_whole_stream() -> None:
    packer: Any = tp.StreamPacker([(1, 1)] * 7 + [(99, 1)], LIMITS, size_of=itself, num_replicas=3, rank=1)
    with refused(GraphTooLargeError, "item 7 of the stream"):
        list(packer)


def test_dropping_warns_once_and_loses_no_other() -> None:
    sizes = [(3, 3), (11, 2), (1, 1), (2, 50), (6, 6)]
    packer: Any = tp.StreamPacker(sizes, LIMITS, size_of=itself, oversize="drop")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert list(packer) == [[(3, 3), (1, 1), (6, 6)]]
    assert [str(w.message)[:20] for w in caught] == ["item 1 of the stream"]
    with pytest.warns(UserWarning, match="item 0 of the stream"):
        assert list(tp.StreamPacker([(11, 11)], LIMITS, size_of=itself, oversize="drop")) == []


@pytest.mark.parametrize(
    ("source", "settings", "error", "parts"),
    [
        ([], {"oversize": "skip"}, SamplerError, ("unknown oversize 'skip'", "'error'", "'drop'")),
        *[([], {"lookahead": v}, SamplerError, ("lookahead must be an integer in 1..", repr(v))) for v in (0, None)],
        (3, {}, SamplerError, ("source must be an iterable", "3")),
        ([], {"size_of": 5}, SamplerError, ("size_of must be a function", "5")),
        *[([], {"shard": v}, SamplerError, ("shard must be True or False", repr(v))) for v in ("x", 1, None)],
        ([], {"limits": (3, 4)}, LimitsError, ("limits must be Limits", "(3, 4)")),
        ([random_graph(generator(0), 2, 1)], {"limits": tp.Limits(nodes=6)}, LimitsError, ("['nodes', 'edges']",)),
        ([3], {}, SchemaError, ("item 0 of the stream", "DGLGraph")),
    ],
)
def test_settings_and_sources_that_cannot_be(source: Any, settings: Any, error: Any, parts: tuple[str, ...]) -> None:
    with refused(error, *parts):
        list(tp.StreamPacker(source, **{"limits": LIMITS, **settings}))


def test_a_failing_source_ends_the_stream_with_its_own_error() -> None:
    def broken() -> Iterator[tuple[int, int]]:
        yield 3, 3
        raise OSError("the disk is gone")

    packer: Any = tp.StreamPacker(broken(), LIMITS, size_of=itself)
    with pytest.raises(OSError, match="the disk is gone"):
        list(packer)


# --- properties, and the plain Python twin

Sized = tuple[int, Size]


@dataclass(frozen=True)
class Stream:
    """Numbered sizes in order, and limits."""

    items: list[Sized]
    maxima: Size
    cap: int | None
    lookahead: int

    @property
    def limits(self) -> tp.Limits:
        names = ("nodes", "edges", "triplets", "angles")
        return tp.Limits.from_components(dict(zip(names, self.maxima, strict=False)), self.cap)

    def packer(self, items: Iterable[Sized]) -> tp.StreamPacker[Sized]:
        return tp.StreamPacker(items, self.limits, lookahead=self.lookahead, size_of=size_of)


def size_of(item: Sized) -> Size:
    return item[1]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Up to 80 random sizes of 1 to 4 components, some of which may be rare; tight and loose limits and caps.

    In some, two graphs fill a pack but for few that fit with no other: those wait for as long as they may.
    """
    if draw(st.booleans()):
        half, lookahead = draw(st.integers(2, 9)), draw(st.integers(4, 9))
        large = draw(st.sets(st.integers(0, 30), min_size=1, max_size=6))
        halves = [(half + 1,) if i in large else (half,) for i in range(80)]
        return Stream(list(enumerate(halves)), (2 * half,), None, lookahead)
    k, number, most = draw(st.integers(1, 4)), draw(st.integers(1, 80)), draw(st.integers(1, 12))
    chances = [draw(st.sampled_from([1.0, 1.0, 0.2])) for _ in range(k)]
    rng = random.Random(draw(st.integers(0, 2**31)))
    rows = [tuple(rng.randint(0, most) if rng.random() < chance else 0 for chance in chances) for _ in range(number)]
    maxima = tuple(max(1, max(column)) + draw(st.integers(0, 20)) for column in zip(*rows, strict=True))
    return Stream(list(enumerate(rows)), maxima, draw(caps()), draw(st.integers(1, 40)))


@given(streams())
def test_packs_are_those_of_the_twin(stream: Stream) -> None:
    sizes = [size for _, size in stream.items]
    expected = online_packs(sizes, stream.maxima, stream.cap, stream.lookahead)
    assert [[number for number, _ in pack] for pack in stream.packer(stream.items)] == expected


@given(streams())
def test_every_graph_once_within_limits_memory_and_time(stream: Stream) -> None:
    taken = 0

    def counted() -> Iterator[Sized]:
        nonlocal taken
        for item in stream.items:
            taken += 1
            yield item

    seen: list[int] = []
    for pack in stream.packer(counted()):
        # The pack that comes out is held too.
        assert taken - len(seen) <= stream.lookahead
        # The last one that was taken may have made it go.
        assert taken - 1 - pack[0][0] <= 4 * stream.lookahead
        assert 1 <= len(pack) <= (stream.cap or len(pack))
        for column, most in zip(zip(*map(size_of, pack), strict=True), stream.maxima, strict=True):
            assert sum(column) <= most
        seen += [number for number, _ in pack]
    assert sorted(seen) == list(range(len(stream.items)))


@given(streams(), st.integers(1, 6))
def test_parts_of_a_stream_are_the_whole(stream: Stream, ranks: int) -> None:
    parts = [
        tp.StreamPacker(
            stream.items, stream.limits, lookahead=stream.lookahead, size_of=size_of, num_replicas=ranks, rank=rank
        )
        for rank in range(ranks)
    ]  # fmt: skip
    found = [sorted(item for pack in part for item in pack) for part in parts]
    assert found == [stream.items[rank::ranks] for rank in range(ranks)]
