from __future__ import annotations

import operator

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack._core.kernels.histogram_fit import (
    BLOCK,
    ENTRIES,
    GROUP,
    LARGEST,
    PRIORITY,
    find_emptiest,
    find_fullest,
    put_in,
    take_out,
)


class Both:
    """The index, and a plain sorted list of (priority, group) that must agree with it."""

    def __init__(self, rooms):
        self.rooms, number = rooms, len(rooms) + 2
        self.groups = np.array([(0, 0, 0, 0, *room) for room in [*rooms, (0, 0)]])
        self.pool = np.empty((number, LARGEST + 2), dtype=np.int64)
        self.order, self.blocks, self.plain = np.arange(number), 0, []

    def put(self, value, group, in_front):
        self.blocks = put_in(self.pool, self.order, self.blocks, self.groups, value, group, in_front)
        at = sum(e[0] < value if in_front else e[0] <= value for e in self.plain)
        self.plain.insert(at, (value, group))

    def take(self, at):
        del self.plain[at]
        place = 0
        while at >= self.pool[self.order[place], ENTRIES]:
            at -= self.pool[self.order[place], ENTRIES]
            place += 1
        self.blocks = take_out(self.pool, self.order, self.blocks, self.groups, BLOCK * place + at)

    def compare(self, size, start):
        fitting = [e for e in self.plain if e[0] >= start and all(map(operator.ge, self.rooms[e[1]], size))]
        # The last priority, and the first group that has it.
        expected = fitting[:1] + [e for e in fitting if e[0] == fitting[-1][0]][:1]
        found = []
        for find in (find_fullest, find_emptiest):
            position, _ = find(self.pool, self.order, self.blocks, self.groups, np.array(size), start)
            row, at = self.pool[self.order[position // BLOCK]], position % BLOCK
            found += [(row[PRIORITY + at], row[GROUP + at])] if position >= 0 else []
        assert found == expected


@st.composite
def programs(draw):
    """Many steps with the same range of rooms: priority, room, whether in front, whether to remove one, size, start."""
    number, most = draw(st.integers(0, 100)), draw(st.integers(0, 6))
    room = st.tuples(st.integers(0, most), st.integers(0, most))
    step = st.tuples(st.integers(0, 5), room, st.booleans(), st.booleans(), room, st.integers(0, 6))
    return draw(st.lists(step, min_size=number, max_size=number))


@given(programs())
def test_the_index_agrees_with_a_plain_sorted_list(steps):
    both = Both([step[1] for step in steps])
    for group, (value, _, in_front, remove, size, start) in enumerate(steps):
        both.put(value, group, in_front)
        if remove:
            both.take(group % len(both.plain))
        both.compare(size, start)
    for *_, size, start in steps[: len(both.plain)]:
        both.take(7 * len(both.plain) // 10)
        both.compare(size, start)
    assert (both.blocks, both.plain) == (0, [])
