"""The kernels that assemble batches, compiled and as plain functions, against a few lines of numpy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgl_tuplepack.kernels import gather
from dgl_tuplepack.kernels.gather import add_loops, find_rows, gather_endpoints, gather_widened, gather_words
from dgl_tuplepack.store.places import addresses_of

INT64_MAX = 2**63 - 1
WORDS = [np.uint64, np.uint32, np.uint16, np.uint8]
WIDENED = [
    (np.uint8, np.int64), (np.int16, np.int64), (np.int32, np.int64), (np.uint8, np.int32), (np.int16, np.int32),
    (np.uint8, np.int16),
]  # fmt: skip
STORED = [np.uint8, np.uint16, np.int32, np.int64]


def forms(kernel: Any) -> list[Callable[..., Any]]:
    """The compiled kernel, and its plain function, for which there is nothing to prefetch."""

    def plain(*arguments: Any) -> Any:
        with (
            patch.object(gather, "prefetch", lambda *_: None),
            patch.object(gather, "pointer_at", _pointer_at),
            np.errstate(over="ignore"),
        ):
            return kernel.py_func(*arguments)

    return [kernel, plain]


def _pointer_at(address: int, like: NDArray[Any]) -> Any:
    """What `numba.carray` takes outside compiled code."""
    return ctypes.cast(int(address), ctypes.POINTER(np.ctypeslib.as_ctypes_type(like.dtype)))


def locked(array: NDArray[Any]) -> NDArray[Any]:
    """Read-only, as what is mapped from a file."""
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array


@dataclass(frozen=True)
class Chosen:
    """Graphs of `counts` rows in several parts, and a choice of them, repetitions included."""

    counts: NDArray[np.int64]
    cuts: list[int]
    ids: list[int]

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Of all graphs, as if there were one part."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @property
    def parts(self) -> NDArray[np.int64]:
        """The part of each chosen graph."""
        return np.searchsorted(self.cuts, self.ids, side="right") - 1

    @property
    def starts(self) -> NDArray[np.int64]:
        """First row of each chosen graph, in its part."""
        return self.offsets[self.ids] - self.offsets[np.array(self.cuts)[self.parts]]

    @property
    def chosen_counts(self) -> NDArray[np.int64]:
        """Rows of each chosen graph."""
        return self.counts[self.ids]

    @property
    def firsts(self) -> NDArray[np.int64]:
        """Where the rows of each chosen graph go."""
        return np.cumsum(self.chosen_counts) - self.chosen_counts

    def spread(self, source: NDArray[Any], width: int = 1) -> tuple[list[NDArray[Any]], NDArray[np.int64]]:
        """The array of each part, and their addresses."""
        bounds = [int(self.offsets[cut]) * width for cut in [*self.cuts, len(self.counts)]]
        arrays = [locked(source[first:last].copy()) for first, last in pairwise(bounds)]
        return arrays, addresses_of(arrays)


@st.composite
def places(draw: st.DrawFn, most_graphs: int = 30) -> Chosen:
    counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=most_graphs))
    cuts = draw(st.sets(st.integers(0, len(counts) - 1), max_size=4))
    ids = draw(st.lists(st.integers(0, len(counts) - 1), max_size=most_graphs))
    return Chosen(np.array(counts, np.int64), sorted(cuts | {0}), ids)


def values(rng: np.random.Generator, number: int, dtype: Any) -> NDArray[Any]:
    """Any values of an integer dtype, the extreme ones often."""
    info = np.iinfo(dtype)
    extreme = rng.choice(np.array([info.min, 0, info.max], dtype), number)
    return np.where(rng.random(number) < 0.2, extreme, rng.integers(info.min, info.max, number, dtype, endpoint=True))


def test_find_rows_by_hand() -> None:
    offsets = [np.array([0, 3, 3, 7]), np.array([0, 2])]
    for kernel in forms(find_rows):
        starts, counts, firsts = np.zeros((3, 4), np.int64)
        ids, parts = np.array([2, 0, 0, 2]), np.array([0, 1, 0, 0])
        number = np.array([3, 1]), np.array([7, 2])
        assert kernel(ids, parts, addresses_of(offsets), *number, starts, counts, firsts) == 13
        assert (starts.tolist(), counts.tolist(), firsts.tolist()) == ([3, 0, 0, 3], [4, 2, 3, 4], [0, 4, 6, 9])


@given(
    st.lists(st.integers(-2, 6) | st.sampled_from([-(2**63), INT64_MAX, 2**62]), min_size=1, max_size=6),
    st.lists(st.integers(-2, 6) | st.sampled_from([-(2**63), INT64_MAX]), max_size=6),
    st.sampled_from([0, 3, 6, INT64_MAX]),
)
def test_find_rows_trusts_nothing(offsets: list[int], ids: list[int], rows: int) -> None:
    """Whatever is in the file, and whatever the ids: right, or told where it goes wrong."""
    expected, total = None, 0
    for i, graph in enumerate(ids):
        if not 0 <= graph < len(offsets) - 1 or not 0 <= offsets[graph] <= offsets[graph + 1] <= rows:
            expected = -1 - i
            break
        total += offsets[graph + 1] - offsets[graph]
        if total > INT64_MAX:
            expected = -1 - i
            break
    # The part before has other graphs, which must not matter.
    first, second = locked(np.array([0, 1], np.int64)), locked(np.array(offsets, np.int64))
    number = np.array([1, len(offsets) - 1]), np.array([1, rows])
    for kernel in forms(find_rows):
        starts, counts, firsts = np.full((3, len(ids)), -7, np.int64)
        parts = np.ones(len(ids), np.int64)
        addresses = addresses_of([first, second])
        found = kernel(np.array(ids, np.int64), parts, addresses, *number, starts, counts, firsts)
        assert found == (total if expected is None else expected)
        if expected is None:
            assert starts.tolist() == [offsets[i] for i in ids]
            assert (starts + counts).tolist() == [offsets[i + 1] for i in ids]
            assert firsts.tolist() == (np.cumsum(counts) - counts).tolist()


@given(places(), st.sampled_from([0, 1, 3, 40]), st.sampled_from(WORDS), st.integers(0, 3), st.integers(0, 2**31))
def test_rows_are_copied(drawn: Chosen, width: int, word: Any, spare: int, seed: int) -> None:
    """Rows of the chosen graphs, one after the other; the rest of the memory stays as it was."""
    offsets = drawn.offsets
    source = values(np.random.default_rng(seed), int(offsets[-1]) * width, word)
    rows = [source[offsets[i] * width : offsets[i + 1] * width] for i in drawn.ids]
    right = np.concatenate([*rows, np.full(spare, 77, word)]).astype(word)
    arrays, addresses = drawn.spread(source, width)
    for kernel in forms(gather_words):
        out = np.full(len(right), 77, word)
        kernel(arrays[0], width, addresses, drawn.parts, drawn.starts, drawn.chosen_counts, drawn.firsts, out)
        assert out.tolist() == right.tolist()


@given(places(), st.sampled_from([0, 1, 3]), st.sampled_from(WIDENED), st.integers(0, 2**31))
def test_narrowed_rows_are_widened(drawn: Chosen, width: int, dtypes: Any, seed: int) -> None:
    """Sign and value are kept."""
    offsets = drawn.offsets
    source = values(np.random.default_rng(seed), int(offsets[-1]) * width, dtypes[0])
    rows = [source[offsets[i] * width : offsets[i + 1] * width] for i in drawn.ids]
    right = [int(value) for row in rows for value in row]
    arrays, addresses = drawn.spread(source, width)
    for kernel in forms(gather_widened):
        out = np.zeros(len(right), dtypes[1])
        kernel(arrays[0], width, addresses, drawn.parts, drawn.starts, drawn.chosen_counts, drawn.firsts, out)
        assert out.tolist() == right


@given(
    places(), st.sampled_from(STORED), st.sampled_from([np.int32, np.int64]),
    st.integers(0, 3), st.integers(0, 2**31), st.booleans(),
)  # fmt: skip
def test_endpoints_are_moved_and_checked(
    drawn: Chosen, stored: Any, given_: Any, spare: int, seed: int, damaged: bool
) -> None:
    """Each edge moves to where its graph's nodes stand; one that leads outside its graph is told."""
    offsets, counts, ids = drawn.offsets, drawn.counts, drawn.ids
    rng = np.random.default_rng(seed)
    nodes = rng.integers(1, 6, len(counts))
    local = rng.integers(0, np.repeat(nodes, counts)).astype(stored)
    bad_graph = None
    if damaged and len(local):
        edge = int(rng.integers(len(local)))
        bad_graph = int(np.searchsorted(offsets, edge, side="right")) - 1
        choices = [nodes[bad_graph], np.iinfo(stored).max] + [-1, np.iinfo(stored).min] * (stored in STORED[2:])
        local[edge] = rng.choice(np.array(choices, np.int64))
    first_nodes = np.cumsum([0, *nodes[ids]])[:-1]
    moved = [int(local[e]) + int(first_nodes[i]) for i, g in enumerate(ids) for e in range(offsets[g], offsets[g + 1])]
    # Numbers of numpy do not wrap around as those of compiled code do; that matters in refused graphs only.
    wraps = bool(moved) and not np.iinfo(given_).min <= min(moved) <= max(moved) <= np.iinfo(given_).max
    arrays, addresses = drawn.spread(local)
    for kernel in forms(gather_endpoints)[: 1 if wraps else 2]:
        out = np.full(len(moved) + spare, -7, given_)
        found = kernel(
            arrays[0], addresses, drawn.parts, drawn.starts, drawn.chosen_counts, drawn.firsts,
            nodes[ids], first_nodes, out,
        )  # fmt: skip
        if bad_graph in ids:
            assert found == -1 - ids.index(bad_graph)
        else:
            assert found == 0
            assert out.tolist() == moved + [-7] * spare


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 9), st.sampled_from([np.int32, np.int64]))
def test_loops_are_even(padding: int, real_nodes: int, spare: int, given_: Any) -> None:
    for kernel in forms(add_loops):
        out = np.full(padding, -7, given_)
        kernel(out, real_nodes, real_nodes + spare)
        assert out.tolist() == [real_nodes + j * spare // padding for j in range(padding)]


@given(st.sampled_from(STORED))
def test_a_graph_without_nodes_has_no_endpoints(stored: Any) -> None:
    """No nodes and no edges is no damage; an edge without a node is."""
    array, zero = locked(np.zeros(1, stored)), np.array([0])
    for kernel in forms(gather_endpoints):
        for edges, right in ((0, 0), (1, -1)):
            out, counts = np.zeros(2, np.int64), np.array([edges])
            assert kernel(array, addresses_of([array]), zero, zero, counts, zero, zero, zero, out) == right
