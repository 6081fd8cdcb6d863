"""A search on processes of their own: the same candidates, whatever the heuristic is."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from dgl_tuplepack import LimitsSearch, load_example, search_limits

MOLHIV = load_example("ogbg-molhiv")


@pytest.fixture(scope="module")
def two_processes() -> Iterator[ProcessPoolExecutor]:
    # Started afresh, as on every platform: nothing is inherited.
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def same(one: LimitsSearch, other: LimitsSearch) -> bool:
    return list(one) == list(other) and one.best == other.best


@pytest.mark.parametrize(
    "settings", [{}, {"heuristic": "node", "plans": 50}, {"method": "auto", "effort": 0.01, "plans": 5}]
)
def test_processes_find_what_threads_find(two_processes: ProcessPoolExecutor, settings: dict[str, object]) -> None:
    assert same(search_limits(MOLHIV, executor=two_processes, **settings), search_limits(MOLHIV, **settings))


def test_a_callable_that_cannot_be_sent_to_processes_works_there(two_processes: ProcessPoolExecutor) -> None:
    settings = {"ranges": {"nodes": [222, 256], "edges": [502, 520]}, "heuristic": lambda n, e: 2 * n + e}
    assert same(search_limits(MOLHIV, executor=two_processes, **settings), search_limits(MOLHIV, **settings))
    # The same order by weights.
    by_weights = search_limits(MOLHIV, ranges=settings["ranges"], heuristic=(2, 1))
    assert [c.packs for c in search_limits(MOLHIV, **settings)] == [c.packs for c in by_weights]
