"""Slots of batches without packing, against every order of a few graphs."""

from __future__ import annotations

from itertools import permutations

import pytest

from dgl_tuplepack import SizeHistogram, load_example
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.report.plain_batching import joined_batches, padded_by_batch, padded_to_largest
from tests.messages import refused

SIZES = [(3, 4), (3, 4), (5, 2), (1, 0), (2, 9)]
HISTOGRAM = SizeHistogram.from_sizes([list(size) for size in SIZES])


def batches_of(order: tuple[tuple[int, int], ...], size: int) -> list[tuple[tuple[int, int], ...]]:
    return [order[i : i + size] for i in range(0, len(order), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_padding_by_batch_is_the_mean_over_all_orders(size: int) -> None:
    orders = list(permutations(SIZES))
    for column, name in enumerate(HISTOGRAM.components):
        slots = [
            sum(len(batch) * max(graph[column] for graph in batch) for batch in batches_of(order, size))
            for order in orders
        ]
        assert padded_by_batch(HISTOGRAM, size)[name] == pytest.approx(sum(slots) / len(orders))


def test_padding_by_batch_lies_between_no_padding_and_all() -> None:
    histogram = load_example("ogbg-molhiv")
    assert padded_by_batch(histogram, 1) == pytest.approx(histogram.totals())
    assert padded_by_batch(histogram, histogram.num_graphs) == pytest.approx(padded_to_largest(histogram))
    slots = [padded_by_batch(histogram, size)["nodes"] for size in (1, 8, 32, 128, 512)]
    assert slots == sorted(slots)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
def test_joined_batches_are_those_of_one_order(size: int) -> None:
    shape, slots = joined_batches(HISTOGRAM, size, seed=3)
    number = -(-len(SIZES) // size)
    assert slots == {name: number * most for name, most in shape.items()}
    possible = {
        tuple(max(sum(graph[c] for graph in batch) for batch in batches_of(order, size)) for c in range(2))
        for order in permutations(SIZES)
    }
    assert tuple(shape.values()) in possible


def test_joined_batches_depend_on_the_seed_alone() -> None:
    histogram = load_example("ogbg-molhiv")
    assert joined_batches(histogram, 32, 1) == joined_batches(histogram, 32, 1)
    assert joined_batches(histogram, 32, 1) != joined_batches(histogram, 32, 2)


@pytest.mark.parametrize("size", [0, -1, 1.5, "many"])
def test_a_wrong_batch_size_is_refused(size: object) -> None:
    for function in (padded_by_batch, joined_batches):
        with refused(InputError, "the batch size", repr(size)):
            function(HISTOGRAM, size)  # type: ignore[arg-type, operator]
