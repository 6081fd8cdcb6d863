from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack._core.kernels.open_packs import BLOCK, find_emptiest, find_fullest, put_in, take_out

ROOM = st.tuples(st.integers(0, 6), st.integers(0, 6))


@given(
    st.lists(st.tuples(st.integers(0, 5), ROOM, st.booleans(), st.booleans()), max_size=300), ROOM, st.integers(0, 6)
)
def test_the_index_agrees_with_a_plain_sorted_list(steps, size, start):
    groups = np.zeros((len(steps) + 1, 6), dtype=np.int64)
    pool = np.empty((len(steps) + 2, 3 + 2 * BLOCK), dtype=np.int64)
    order = np.arange(len(pool))
    blocks, plain = 0, []
    for group, (value, room, in_front, remove) in enumerate(steps):
        groups[group, 4:] = room
        keep = [entry for entry in plain if entry[0] < value]
        equal = [entry for entry in plain if entry[0] == value]
        equal = [(value, group), *equal] if in_front else [*equal, (value, group)]
        plain = keep + equal + [entry for entry in plain if entry[0] > value]
        blocks = put_in(pool, order, blocks, groups, value, group, in_front)
        if remove:
            at = group % len(plain)
            place = 0
            while at >= pool[order[place], 0]:
                at -= pool[order[place], 0]
                place += 1
            del plain[group % len(plain)]
            blocks = take_out(pool, order, blocks, groups, BLOCK * place + at)

    def group_at(position):
        return -1 if position < 0 else pool[order[position // BLOCK], 3 + BLOCK + position % BLOCK]

    fitting = [e for e in plain if e[0] >= start and all(groups[e[1], 4:] >= size)]
    fullest = fitting[0][1] if fitting else -1
    highest = [e for e in fitting if e[0] == fitting[-1][0]]
    assert group_at(find_fullest(pool, order, blocks, groups, np.array(size), start)[0]) == fullest
    assert group_at(find_emptiest(pool, order, blocks, groups, np.array(size), start)[0]) == (
        highest[0][1] if highest else -1
    )
