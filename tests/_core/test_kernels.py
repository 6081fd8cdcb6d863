"""Kernels agree with independent twins in plain Python; their cache; and interrupts while numba compiles."""

from __future__ import annotations

import operator
import signal
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack._core.interrupts import interrupts_held
from dgl_tuplepack._core.kernels import next_fit, random
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
from dgl_tuplepack.planning.sizes import INT64_MAX
from tests.support import reference
from tests.support.processes import run
from tests.support.strategies import Problem, problems

KEYS = st.integers(0, 2**64 - 1)


@given(KEYS, KEYS)
def test_random_bits_equal_the_reference(key: int, number: int) -> None:
    expected = reference.splitmix64(key, number)
    assert int(random.random_bits(np.uint64(key), np.uint64(number))) == expected


def test_the_reference_is_splitmix64() -> None:
    # Published outputs for the seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [reference.splitmix64(1234567, number) for number in range(4)] == expected


def test_every_seed_epoch_and_purpose_has_its_own_stream() -> None:
    keys = [int(random.derive_key(*map(np.uint64, numbers))) for numbers in product(range(9), repeat=3)]
    assert len(set(keys)) == 9**3
    # Compared between ranks of different machines: it must never change.
    inner = reference.splitmix64(reference.splitmix64(1, 2), 3)
    assert int(random.derive_key(np.uint64(1), np.uint64(2), np.uint64(3))) == reference.splitmix64(inner, 0)


@given(st.integers(0, 40), KEYS)
def test_a_shuffle_equals_the_reference(number: int, key: int) -> None:
    values = np.arange(number)
    random.shuffle_segments(values, np.array([0, number]), np.uint64(key))
    assert values.tolist() == reference.shuffled(range(number), key)


def test_a_draw_that_would_favour_small_numbers_is_drawn_again() -> None:
    # The first output of this stream is 0, the one that must be refused for a number below 3; random keys miss it.
    key = -0x9E3779B97F4A7C15 % 2**64
    assert reference.splitmix64(key, 0) == 0
    values = np.arange(3)
    random.shuffle_segments(values, np.array([0, 3]), np.uint64(key))
    assert values.tolist() == reference.shuffled(range(3), key) == [1, 0, 2]


def test_a_shuffle_stays_inside_its_segments() -> None:
    values, offsets = np.arange(60), np.array([0, 0, 1, 20, 20, 60])
    random.shuffle_segments(values, offsets, np.uint64(7))
    for first, last in pairwise(offsets.tolist()):
        assert sorted(values[first:last].tolist()) == list(range(first, last))
    assert values.tolist() != list(range(60))


@given(problems(), st.data())
def test_next_fit_equals_the_reference(problem: Problem, data: st.DataObject) -> None:
    sizes, cap = list(problem.counts), INT64_MAX if problem.cap is None else problem.cap
    items = data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=30))
    offsets = next_fit.next_fit_offsets(np.array(sizes), np.array(items), np.array(problem.maxima), cap).tolist()
    packs = [[sizes[i] for i in items[first:last]] for first, last in pairwise(offsets)]
    assert packs == reference.next_fit([sizes[i] for i in items], problem.maxima, problem.cap)


# The cache of numba -----------------------------------------------------------------------------------------------

PROGRAM = """
import numpy as np
from dgl_tuplepack._core.kernels import random
kernels = (random.random_bits, random.derive_key, random.shuffle_segments)
print(int(random.random_bits(np.uint64(1), np.uint64(2))), sum(sum(k.stats.cache_hits.values()) for k in kernels))
"""
FULL_DISK = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"


def hits_and_warnings(folder: Path, program: str = PROGRAM) -> tuple[int, str]:
    """Run a program with this folder for compiled kernels; return how many of three it found there."""
    done = run("-c", program, NUMBA_CACHE_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    number, hits = map(int, done.stdout.split())
    assert number == reference.splitmix64(1, 2)
    return hits, done.stderr


def test_kernels_are_kept_and_a_damaged_file_stops_nobody(tmp_path: Path) -> None:
    assert hits_and_warnings(tmp_path) == (0, "")
    assert hits_and_warnings(tmp_path) == (3, "")
    # One signature each: numba numbers the files of one kernel, and processes may give one number to two signatures.
    files = sorted(tmp_path.rglob("*.nbc"))
    assert [path.suffixes[-2:] for path in files] == [[".1", ".nbc"]] * 3
    files[0].write_bytes(b"")
    hits, said = hits_and_warnings(tmp_path)
    assert hits == 2
    assert said.count("Warning") == said.count("compiled code cannot be cached (EOFError)") == 1


def test_on_a_full_disk_kernels_work_and_one_warning_says_what_to_do(tmp_path: Path) -> None:
    hits, said = hits_and_warnings(tmp_path, FULL_DISK + PROGRAM)
    assert hits == 0
    assert said.count("Warning") == said.count("compiled code cannot be cached (File too large)") == 1
    assert "set NUMBA_CACHE_DIR to an empty, writable folder" in said


# --- interrupts


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupt_comes_after_the_block(fails: bool) -> None:
    reached = []

    def interrupted() -> None:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            reached.append("end of the block")
            if fails:
                raise ValueError("ours")

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert reached == ["end of the block"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_another_thread_may_enter_the_block() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: interrupts_held().__enter__()).result() is None


# --- the index of open packs


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
