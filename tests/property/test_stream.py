"""Packing streams: what must hold for every stream, and the plain Python twin."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from tests.reference import Size, online_packs
from tests.strategies import Problem, caps, limits_of

Sized = tuple[int, Size]


@st.composite
def streams(draw: st.DrawFn) -> Problem:
    """Problems of up to 60 graphs, zeros and repeated sizes among them."""
    k = draw(st.integers(1, 4))
    value = st.integers(0, 12)
    rows = draw(st.lists(st.tuples(*[value] * k), min_size=1, max_size=60))
    of = {size: rows.count(size) for size in rows}
    return Problem(of, draw(limits_of(of=of)), draw(caps()))


def stream_of(problem: Problem, seed: int) -> list[Sized]:
    """The graphs of a problem in a random order, with numbers that tell equal ones apart."""
    graphs = problem.graphs
    random.Random(seed).shuffle(graphs)
    return list(enumerate(graphs))


def size_of(item: Sized) -> Size:
    return item[1]


def packer(problem: Problem, items: object, lookahead: int) -> tp.StreamPacker[Sized]:
    return tp.StreamPacker(items, problem.limits, lookahead=lookahead, size_of=size_of)  # type: ignore[arg-type]


@given(streams(), st.integers(0, 5), st.integers(1, 40))
def test_packs_are_those_of_the_twin(problem: Problem, seed: int, lookahead: int) -> None:
    items = stream_of(problem, seed)
    expected = online_packs([size for _, size in items], problem.maxima, problem.cap, lookahead)
    found = [[number for number, _ in pack] for pack in packer(problem, items, lookahead)]
    assert found == expected


@given(streams(), st.integers(0, 5), st.integers(1, 40))
def test_every_graph_once_within_limits_and_memory(problem: Problem, seed: int, lookahead: int) -> None:
    items = stream_of(problem, seed)
    taken = 0

    def counted() -> Iterator[Sized]:
        nonlocal taken
        for item in items:
            taken += 1
            yield item

    seen: list[int] = []
    for pack in packer(problem, counted(), lookahead):
        # The pack that comes out is held too.
        assert taken - len(seen) <= lookahead
        assert 1 <= len(pack) <= (problem.cap or len(pack))
        for column, most in zip(zip(*map(size_of, pack), strict=True), problem.maxima, strict=True):
            assert sum(column) <= most
        seen += [number for number, _ in pack]
    assert sorted(seen) == list(range(len(items)))


@given(streams(), st.integers(0, 5), st.integers(1, 6))
def test_parts_of_a_stream_are_the_whole(problem: Problem, seed: int, ranks: int) -> None:
    items = stream_of(problem, seed)
    settings = {"lookahead": 10, "size_of": size_of, "num_replicas": ranks}
    parts = [
        [item for pack in tp.StreamPacker(items, problem.limits, rank=rank, **settings) for item in pack]  # type: ignore[arg-type]
        for rank in range(ranks)
    ]
    assert [sorted(part) for part in parts] == [items[rank::ranks] for rank in range(ranks)]
