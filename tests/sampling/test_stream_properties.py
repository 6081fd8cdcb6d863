"""Packing streams: what must hold for every stream, and the plain Python twin."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from tests.support.reference import Size, online_packs
from tests.support.strategies import caps

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
