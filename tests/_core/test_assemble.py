"""The kernels that assemble batches, against a few lines of numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgl_tuplepack._core.kernels.assemble import (
    ARRAY,
    CODES,
    ENDPOINTS,
    FIELD,
    GRAPH_IDS,
    OTHER,
    PER_GRAPH,
    ROWS,
    assemble,
)
from dgl_tuplepack._core.kernels.find_graphs import OFFSETS, find_graphs
from dgl_tuplepack.storage.view import address_of

INT64_MAX = 2**63 - 1
# What a store holds narrower, by what is handed out: written down once more, independently.
NARROWED = {
    "int64": ["uint8", "int16", "int32", "int64"],
    "int32": ["uint8", "int16", "int32"],
    "int16": ["uint8", "int16"],
}
COPIED = ["bool", "uint8", "int8", "uint16", "float16", "int32", "float32", "float64", "complex64", "complex128"]
STORED_ENDPOINTS = ["uint8", "uint16", "int32", "int64"]
# Written around the memory of a batch; must stay.
GUARD = 77


def locked(array: NDArray[Any]) -> NDArray[Any]:
    """Read-only, as what is mapped from a file."""
    array = np.ascontiguousarray(array)
    array.setflags(write=False)
    return array


@dataclass(frozen=True)
class Chosen:
    """Graphs with `nodes` and `edges` in several parts, and a choice of them, repetitions included."""

    nodes: NDArray[np.int64]
    edges: NDArray[np.int64]
    cuts: list[int]
    ids: list[int]

    def offsets(self, t: int) -> NDArray[np.int64]:
        """Of nodes (0), edges (1) or labels (2) of all graphs, as if there were one part."""
        counts = (self.nodes, self.edges, np.ones(len(self.nodes), np.int64))[t]
        return np.concatenate([[0], np.cumsum(counts)])

    @property
    def bounds(self) -> list[int]:
        """First graph of each part, and the end of the last one."""
        return [*self.cuts, len(self.nodes)]

    def spread(self, source: NDArray[Any], t: int, dtypes: Sequence[str]) -> list[NDArray[Any]]:
        """Rows of type t of all graphs as the arrays of the parts, each in its own of the `dtypes`."""
        rows = pairwise(int(self.offsets(t)[bound]) for bound in self.bounds)
        return [locked(source[first:last].astype(dtypes[i % len(dtypes)])) for i, (first, last) in enumerate(rows)]

    def rows_of(self, source: NDArray[Any], t: int) -> list[NDArray[Any]]:
        """Rows of type t of each chosen graph."""
        return [source[self.offsets(t)[i] : self.offsets(t)[i + 1]] for i in self.ids]

    def found(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Parts, rows and totals, as `find_graphs` is said to find them."""
        parts = np.searchsorted(self.cuts, self.ids, side="right") - 1
        rows = np.zeros((3, 3, len(self.ids)), np.int64)
        for t in range(3):
            offsets = self.offsets(t)
            rows[t, 0] = offsets[self.ids] - offsets[np.array(self.cuts)[parts]]
            rows[t, 1] = np.diff(offsets)[self.ids]
            rows[t, 2] = np.cumsum(rows[t, 1]) - rows[t, 1]
        return parts, rows, rows[:, 1].sum(axis=1)


@st.composite
def choices(draw: st.DrawFn, most_graphs: int = 30, least_nodes: int = 0) -> Chosen:
    nodes = draw(st.lists(st.integers(least_nodes, 12), min_size=1, max_size=most_graphs))
    edges = draw(st.lists(st.integers(0, 12), min_size=len(nodes), max_size=len(nodes)))
    cuts = draw(st.sets(st.integers(0, len(nodes) - 1), max_size=4))
    ids = draw(st.lists(st.integers(0, len(nodes) - 1), max_size=most_graphs))
    return Chosen(np.array(nodes, np.int64), np.array(edges, np.int64), sorted(cuts | {0}), ids)


@dataclass
class Filled:
    """What the kernel returned, and what it wrote to a memory of a single tensor, ``[slots, width]``."""

    returned: int
    values: NDArray[Any]


def fill(
    drawn: Chosen, kind: int, t: int, dtype: str, spare: int, arrays: Sequence[NDArray[Any]] = (), **known: Any
) -> Filled:
    """Run the kernel on one field; `spare` is how much padding each type has."""
    parts, rows, totals = drawn.found()
    slots, width, size = totals + spare, known.get("width", 1), np.dtype(dtype).itemsize
    # One row for all slots, or one for each.
    padding = np.ascontiguousarray(known.get("padding", np.zeros((1, width), dtype)))
    number = int(slots[2 if kind in (PER_GRAPH, GRAPH_IDS) else t])
    code = CODES.get(dtype, OTHER)
    field = (kind, t, 0, 1, 64, width, width * size, code, address_of(padding), len(padding), 0)
    sources = np.zeros((1, len(drawn.cuts)), ARRAY)
    for i, array in enumerate(arrays):
        sources[0, i] = (address_of(array), width * array.itemsize, CODES.get(str(array.dtype), OTHER))
    memory = np.full(128 + number * width * size, GUARD, np.uint8)
    ids = np.array(drawn.ids, np.int64)
    # The first of two stretches is another one, which must stay as it is too.
    other = np.full(8, GUARD, np.uint8)
    addresses = np.array([address_of(other), address_of(memory)])
    returned = assemble(addresses, np.array([field], FIELD), sources, slots, ids, parts, rows, totals)
    assert set(memory[:64].tolist()) == set(memory[-64:].tolist()) == set(other.tolist()) == {GUARD}
    return Filled(returned, memory[64:-64].view(dtype).reshape(number, width))


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Any bits of a dtype; of integers, the extreme values often."""
    if np.dtype(dtype).kind not in "iu":
        number = np.dtype(dtype).itemsize * int(np.prod(shape))
        return rng.integers(0, 2 if dtype == "bool" else 256, number, np.uint8).view(dtype).reshape(shape)
    info = np.iinfo(dtype)
    extreme = rng.choice(np.array([info.min, 0, info.max], dtype), shape)
    return np.where(rng.random(shape) < 0.2, extreme, rng.integers(info.min, info.max, shape, dtype, endpoint=True))


@st.composite
def damages(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Offsets, ids, and how many rows there are: right for the most part, one of them anything at times."""
    steps = draw(st.lists(st.sampled_from([0, 1, 2, 3, 2**62]), min_size=1, max_size=5))
    offsets = [0, *np.cumsum(steps, dtype=object).tolist()]
    ids = draw(st.lists(st.integers(0, len(steps) - 1), max_size=6))
    rows = [offsets[-1], offsets[-1], draw(st.integers(0, offsets[-1])), INT64_MAX]
    anything = st.integers(-2, 6) | st.sampled_from([-(2**63), INT64_MAX, 2**62])
    which = draw(st.sampled_from(["none", "offset", "id"]))
    if which == "offset":
        offsets[draw(st.integers(0, len(steps)))] = draw(anything)
    if which == "id" and ids:
        ids[draw(st.integers(0, len(ids) - 1))] = draw(anything)
    return [min(offset, INT64_MAX) for offset in offsets], ids, min(draw(st.sampled_from(rows)), INT64_MAX)


@given(damages())
@example(([0, 3], [-1], 3))
@example(([0, 3], [1], 3))
@example(([0, 3], [0], 2))
@example(([-1, 3], [0], 3))
@example(([3, 1, 3], [0], 3))
@example(([3, 1, 3], [1, 0], 3))
# More rows than can be counted.
@example(([0, INT64_MAX], [0, 0], INT64_MAX))
def test_nothing_is_trusted(damaged: tuple[list[int], list[int], int]) -> None:
    """Whatever is in the file, and whatever the ids: right, or told where it goes wrong."""
    offsets, ids, most = damaged
    graphs, number = len(offsets) - 1, len(ids)
    outside = [i for i, graph in enumerate(ids) if not 0 <= graph < graphs]
    expected, total = -1 - outside[0] if outside else 0, 0
    for i, graph in enumerate(ids if not outside else []):
        total += offsets[graph + 1] - offsets[graph]
        if not 0 <= offsets[graph] <= offsets[graph + 1] <= most or total > INT64_MAX:
            # Of the second type; there is nothing wrong with the first.
            expected = 1 + number + i
            break
    sound, drawn = np.arange(graphs + 1), np.array(offsets, np.int64)
    table = np.array([[(address_of(sound), graphs)], [(address_of(drawn), most)]], OFFSETS)
    parts, rows, totals = np.full(number, -7), np.full((3, 3, number), -7), np.full(3, -7)
    found = find_graphs(
        np.array(ids, np.int64), np.empty(0, np.int64), np.array([0, graphs]), False, table, parts, rows, totals
    )
    assert found == expected
    if not expected:
        assert rows[1, 0].tolist() == [offsets[i] for i in ids]
        assert rows[1, :2].sum(axis=0).tolist() == [offsets[i + 1] for i in ids]
        assert totals.tolist() == [number, total, number]


@given(
    choices(), st.sampled_from([0, 1, 2]), st.sampled_from(COPIED), st.sampled_from([0, 1, 3, 40]),
    st.integers(0, 9), st.integers(0, 2**31),
)  # fmt: skip
def test_rows_are_copied(drawn: Chosen, t: int, dtype: str, width: int, spare: int, seed: int) -> None:
    """Rows of the chosen graphs, one after the other, then the value of padding."""
    rng = np.random.default_rng(seed)
    source = values(rng, (int(drawn.offsets(t)[-1]), width), dtype)
    arrays, rows = drawn.spread(source, t, [dtype]), drawn.rows_of(source, t)
    real = sum(map(len, rows))
    # With two slots at least, since one row is for all slots.
    for padding in (values(rng, (1, width), dtype), values(rng, (real + spare, width), dtype)):
        behind = padding[real:] if len(padding) > 1 else np.repeat(padding, spare, axis=0)
        right = np.concatenate([*rows, behind])
        filled = fill(drawn, ROWS, t, dtype, spare, arrays, width=width, padding=padding)
        assert filled.returned == 0
        # By their bytes: not every value equals itself.
        assert filled.values.shape == right.shape
        assert filled.values.tobytes() == right.tobytes()


@pytest.mark.parametrize(("given_", "stored"), [(g, s) for g, narrower in NARROWED.items() for s in narrower])
def test_every_pair_keeps_the_extremes(given_: str, stored: str) -> None:
    drawn, info = Chosen(np.array([3]), np.array([0]), [0], [0]), np.iinfo(stored)
    source = np.array([[info.min], [-1 if info.min else 1], [info.max]])
    filled = fill(drawn, ROWS, 0, given_, 0, drawn.spread(source, 0, [stored]))
    assert filled.values.tolist() == source.tolist()


@given(
    choices(least_nodes=1), st.lists(st.sampled_from(STORED_ENDPOINTS), min_size=1, max_size=3),
    st.sampled_from(["int32", "int64"]), st.integers(1, 9), st.integers(0, 2**31), st.booleans(),
)  # fmt: skip
def test_endpoints_are_moved_and_checked(
    drawn: Chosen, stored: list[str], given_: str, spare: int, seed: int, damaged: bool
) -> None:
    """Each edge moves to where its graph's nodes stand; one that leads outside its graph is told."""
    rng, offsets = np.random.default_rng(seed), drawn.offsets(1)
    local = rng.integers(0, np.repeat(drawn.nodes, drawn.edges))
    arrays, bad_graph = drawn.spread(local, 1, stored), None
    if damaged and len(local):
        edge = int(rng.integers(len(local)))
        bad_graph = int(np.searchsorted(offsets, edge, side="right")) - 1
        part = int(np.searchsorted(drawn.cuts, bad_graph, side="right")) - 1
        # Of what this part can hold: -1 is the largest there is where it has no sign.
        wrong = np.array(
            [drawn.nodes[bad_graph], np.iinfo(arrays[part].dtype).max, -1, np.iinfo(arrays[part].dtype).min]
        )
        array = arrays[part].copy()
        array[edge - int(offsets[drawn.cuts[part]])] = rng.choice(wrong[: 4 if wrong[3] else 3].astype(array.dtype))
        arrays[part] = locked(array)
    _, rows, totals = drawn.found()
    moved = np.concatenate(
        [np.empty(0, np.int64), *(r + f for r, f in zip(drawn.rows_of(local, 1), rows[0, 2], strict=True))]
    )
    loops = [int(totals[0]) + j * spare // spare for j in range(spare)]
    filled = fill(drawn, ENDPOINTS, 1, given_, spare, arrays)
    if bad_graph in drawn.ids:
        assert filled.returned == -1 - drawn.ids.index(bad_graph)
    else:
        assert filled.returned == 0
        assert filled.values[:, 0].tolist() == moved.tolist() + loops


@pytest.mark.parametrize("given_", ["int32", "int64"])
@pytest.mark.parametrize("stored", STORED_ENDPOINTS)
def test_every_pair_keeps_the_largest_endpoint(stored: str, given_: str) -> None:
    largest = min(np.iinfo(stored).max, np.iinfo(given_).max - 1, 2**62)
    drawn = Chosen(np.array([largest + 1]), np.array([2]), [0], [0])
    filled = fill(drawn, ENDPOINTS, 1, given_, 0, drawn.spread(np.array([largest, 0]), 1, [stored]))
    assert filled.returned == 0
    assert filled.values[:, 0].tolist() == [largest, 0]


@pytest.mark.parametrize("stored", STORED_ENDPOINTS)
def test_a_graph_without_nodes_has_no_endpoints(stored: str) -> None:
    """No nodes and no edges is no damage; an edge without a node is."""
    for edges, right in ((0, 0), (1, -1)):
        drawn = Chosen(np.array([0]), np.array([edges]), [0], [0])
        filled = fill(drawn, ENDPOINTS, 1, "int64", 1, [locked(np.zeros(1, stored))])
        assert filled.returned == right


@pytest.mark.parametrize("ids", [[2], [-1], [0, 2], [3], [INT64_MAX]])
def test_ids_outside_a_subset_are_told(ids: list[int]) -> None:
    """There are three graphs, but two in the subset."""
    offsets, chosen = np.arange(4), np.array([2, 0])
    table = np.array([[(address_of(offsets), 3)]], OFFSETS)
    parts, rows, totals = np.zeros(len(ids), np.int64), np.zeros((2, 3, len(ids)), np.int64), np.zeros(2, np.int64)
    found = find_graphs(np.array(ids), chosen, np.array([0, 3]), True, table, parts, rows, totals)
    assert found == -len(ids)


def test_the_field_with_a_wrong_endpoint_is_told() -> None:
    """Among several fields and graphs, both are named by one number."""
    drawn = Chosen(np.array([1, 1, 1]), np.array([0, 1, 1]), [0], [0, 1, 2])
    parts, rows, totals = drawn.found()
    sound, damaged, slots = np.zeros(2, np.int64), np.array([0, 1]), totals + 1
    out = np.zeros(6, np.int64)
    fields = [(ENDPOINTS, 1, 0, 0, first, 1, 8, CODES["int64"], 0, 1, 0) for first in (0, 24)]
    sources = np.array([[(address_of(array), 8, CODES["int64"])] for array in (sound, damaged)], ARRAY)
    addresses = np.array([address_of(out)])
    arguments = addresses, np.array(fields, FIELD), sources, slots, np.arange(3), parts, rows, totals
    assert assemble(*arguments) == -1 - (1 * 3 + 2)
