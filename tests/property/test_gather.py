"""The kernels that assemble batches, compiled and as plain functions, against a few lines of numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgl_tuplepack.kernels import gather
from dgl_tuplepack.kernels.gather import find_rows, gather_endpoints, gather_widened, gather_words

INT64_MAX = 2**63 - 1
WORDS = [np.uint64, np.uint32, np.uint16, np.uint8]
WIDENED = [
    (np.uint8, np.int64), (np.int16, np.int64), (np.int32, np.int64), (np.uint8, np.int32), (np.int16, np.int32),
]  # fmt: skip
STORED = [np.uint8, np.uint16, np.int32, np.int64]


def forms(kernel: Any) -> list[Callable[..., Any]]:
    """The compiled kernel, and its plain function, for which there is nothing to prefetch."""

    def plain(*arguments: Any) -> Any:
        with patch.object(gather, "prefetch", lambda *_: None), np.errstate(over="ignore"):
            return kernel.py_func(*arguments)

    return [kernel, plain]


def locked(array: NDArray[Any]) -> NDArray[Any]:
    """Read-only, as what is mapped from a file."""
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array


@st.composite
def places(draw: st.DrawFn, most_graphs: int = 30) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Offsets of some graphs, rows in all, and a choice of graphs, repetitions included."""
    counts = draw(st.lists(st.integers(0, 12), min_size=1, max_size=most_graphs))
    offsets = np.concatenate([[0], np.cumsum(counts)])
    ids = draw(st.lists(st.integers(0, len(counts) - 1), max_size=most_graphs))
    return locked(offsets), locked(np.diff(offsets)), ids


def values(rng: np.random.Generator, number: int, dtype: Any) -> NDArray[Any]:
    """Any values of an integer dtype, the extreme ones often."""
    info = np.iinfo(dtype)
    extreme = rng.choice(np.array([info.min, 0, info.max], dtype), number)
    return np.where(rng.random(number) < 0.2, extreme, rng.integers(info.min, info.max, number, dtype, endpoint=True))


def test_find_rows_by_hand() -> None:
    for kernel in forms(find_rows):
        starts, counts = np.zeros((2, 3), np.int64)
        assert kernel(np.array([2, 0, 2]), np.array([0, 3, 3, 7]), 7, starts, counts) == 11
        assert (starts.tolist(), counts.tolist()) == ([3, 0, 3], [4, 3, 4])


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
    for kernel in forms(find_rows):
        starts, counts = np.full((2, len(ids)), -7, np.int64)
        found = kernel(np.array(ids, np.int64), locked(np.array(offsets, np.int64)), rows, starts, counts)
        assert found == (total if expected is None else expected)
        if expected is None:
            assert starts.tolist() == [offsets[i] for i in ids]
            assert (starts + counts).tolist() == [offsets[i + 1] for i in ids]


@given(places(), st.sampled_from([0, 1, 3, 40]), st.sampled_from(WORDS), st.integers(0, 3), st.integers(0, 2**31))
def test_rows_are_copied(
    drawn: tuple[Any, Any, list[int]], width: int, word: Any, spare: int, seed: int
) -> None:  # fmt: skip
    """Rows of the chosen graphs, one after the other; the rest of the memory stays as it was."""
    offsets, counts, ids = drawn
    source = locked(values(np.random.default_rng(seed), int(offsets[-1]) * width, word))
    rows = [source[offsets[i] * width : offsets[i + 1] * width] for i in ids]
    right = np.concatenate([*rows, np.full(spare, 77, word)]).astype(word)
    for kernel in forms(gather_words):
        out = np.full(len(right), 77, word)
        kernel(source, width, offsets[:-1][ids], counts[ids], out)
        assert out.tolist() == right.tolist()


@given(places(), st.sampled_from([0, 1, 3]), st.sampled_from(WIDENED), st.integers(0, 2**31))
def test_narrowed_rows_are_widened(drawn: tuple[Any, Any, list[int]], width: int, dtypes: Any, seed: int) -> None:
    """Sign and value are kept."""
    offsets, counts, ids = drawn
    source = locked(values(np.random.default_rng(seed), int(offsets[-1]) * width, dtypes[0]))
    rows = [source[offsets[i] * width : offsets[i + 1] * width] for i in ids]
    right = [int(value) for row in rows for value in row]
    for kernel in forms(gather_widened):
        out = np.zeros(len(right), dtypes[1])
        kernel(source, width, offsets[:-1][ids], counts[ids], out)
        assert out.tolist() == right


@given(
    places(), st.sampled_from(STORED), st.sampled_from([np.int32, np.int64]),
    st.integers(0, 30), st.integers(1, 9), st.integers(0, 2**31), st.booleans(),
)  # fmt: skip
def test_endpoints_are_moved_padded_and_checked(
    drawn: tuple[Any, Any, list[int]], stored: Any, given_: Any, padding: int, spare: int, seed: int, damaged: bool
) -> None:
    """Each edge moves to where its graph's nodes stand; one that leads outside its graph is told."""
    offsets, counts, ids = drawn
    rng = np.random.default_rng(seed)
    nodes = rng.integers(1, 6, len(counts))
    local = rng.integers(0, np.repeat(nodes, counts)).astype(stored)
    bad_graph = None
    if damaged and len(local):
        edge = int(rng.integers(len(local)))
        bad_graph = int(np.searchsorted(offsets, edge, side="right")) - 1
        choices = [nodes[bad_graph], np.iinfo(stored).max] + [-1, np.iinfo(stored).min] * (stored in STORED[2:])
        local[edge] = rng.choice(np.array(choices, np.int64))
    first = np.cumsum([0, *nodes[ids]]).tolist()
    real_nodes, real_edges = first[-1], int(counts[ids].sum())
    moved = [int(local[e]) + first[i] for i, g in enumerate(ids) for e in range(offsets[g], offsets[g + 1])]
    right = moved + [real_nodes + j * spare // padding for j in range(padding)]
    # Numbers of numpy do not wrap around as those of compiled code do; that matters in refused graphs only.
    wraps = bool(moved) and not np.iinfo(given_).min <= min(moved) <= max(moved) <= np.iinfo(given_).max
    for kernel in forms(gather_endpoints)[: 1 if wraps else 2]:
        out = np.full(real_edges + padding, -7, given_)
        found = kernel(
            locked(local), offsets[:-1][ids], counts[ids], nodes[ids], out, real_nodes, real_nodes + spare
        )  # fmt: skip
        if bad_graph in ids:
            assert found == -1 - ids.index(bad_graph)
        else:
            assert found == 0
            assert out.tolist() == right


@given(st.sampled_from(STORED))
def test_a_graph_without_nodes_has_no_endpoints(stored: Any) -> None:
    """No nodes and no edges is no damage; an edge without a node is."""
    for kernel in forms(gather_endpoints):
        for edges, right in ((0, 0), (1, -1)):
            out, starts, counts = np.zeros(2, np.int64), np.array([0]), np.array([edges])
            assert kernel(locked(np.zeros(1, stored)), starts, counts, np.array([0]), out, 0, 1) == right
