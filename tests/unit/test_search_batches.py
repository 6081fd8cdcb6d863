"""Limits for a number of graphs in a batch: the number of packs, and other graphs that limits must hold."""

from __future__ import annotations

from typing import Any

import pytest

from dgl_tuplepack import LimitsSearch, SizeHistogram, load_example, search_limits
from dgl_tuplepack.errors import GraphTooLargeError, SearchError
from tests.messages import refused

MOLHIV = load_example("ogbg-molhiv")
SMALL = SizeHistogram.from_counts({(3, 4): 40, (5, 8): 30, (10, 20): 5})


@pytest.mark.parametrize(
    ("graphs", "cap", "packs"),
    [(9, None, 1), (16, None, 1), (33, None, 2), (64, None, 2), (64, 20, 4), (32_901, None, 1)],
)
def test_two_packs_make_a_batch_where_half_of_it_holds_every_graph(graphs: int, cap: int | None, packs: int) -> None:
    search = search_limits(MOLHIV, graphs_per_batch=graphs, packs_per_batch="auto", graphs=cap, plans=60)
    assert search.packs_per_batch == search.aim["packs_per_batch"] == packs
    assert abs(search.graphs_per_batch / graphs - 1) <= 0.06
    assert search.best.limits.graphs == cap
    assert search.to_dict()["packs_per_batch"] == packs


def test_a_batch_has_one_pack_if_nothing_is_said() -> None:
    search = search_limits(MOLHIV, graphs_per_batch=32, plans=30)
    assert search.packs_per_batch == 1
    assert abs(search.best.graphs_per_pack / 32 - 1) <= 0.05
    assert search_limits(SMALL, plans=20).packs_per_batch == 1


def test_a_batch_of_p_packs_holds_the_graphs_asked_for_and_a_file_keeps_p(tmp_path: Any) -> None:
    search = search_limits(MOLHIV, graphs_per_batch=50, packs_per_batch=5, plans=60)
    assert abs(5 * search.best.graphs_per_pack / 50 - 1) <= 0.06
    search.save(tmp_path / "search.json")
    assert LimitsSearch.load(tmp_path / "search.json").packs_per_batch == 5
    assert "5 packs a batch" in repr(search)


@pytest.mark.parametrize("asked", [{}, {"graphs_per_batch": 20}, {"target": 0.5}, {"budget": 300}, {"multiple_of": 8}])
def test_every_candidate_holds_the_other_graphs_too(asked: dict[str, Any]) -> None:
    others = SizeHistogram.from_counts({(50, 60): 1, (1, 90): 2})
    search = search_limits(SMALL, holding=others, plans=40, **asked)
    assert all(limits[0] >= 50 and limits[1] >= 90 for limits in search.limits.tolist())
    assert search.num_graphs == SMALL.num_graphs
    assert search_limits(SMALL, holding=SMALL, plans=40, **asked).best == search_limits(SMALL, plans=40, **asked).best


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"packs_per_batch": 2}, ("packs_per_batch", "'auto'")),
        ({"graphs_per_batch": 8, "packs_per_batch": 0}, ("packs_per_batch", "0")),
        ({"graphs_per_batch": 8, "packs_per_batch": "many"}, ("packs_per_batch", "'auto'", "'many'")),
        ({"graphs_per_batch": 8, "packs_per_batch": 8}, ("graphs_per_batch=8 in 8 packs is out of reach", "hold ")),
        ({"graphs_per_batch": 9, "packs_per_batch": 2, "graphs": 3}, ("at most 3 graphs", "graphs= to 5")),
        ({"holding": SizeHistogram.from_counts({3: 1}, ("nodes",))}, ("['nodes']", "['nodes', 'edges']")),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], parts: tuple[str, ...]) -> None:
    with refused(SearchError, *parts):
        search_limits(SMALL, **arguments)


def test_ranges_that_do_not_hold_the_other_graphs_are_refused() -> None:
    with refused(GraphTooLargeError, "99 nodes"):
        search_limits(SMALL, ranges={"nodes": [20], "edges": [40]}, holding=SizeHistogram.from_counts({(99, 3): 1}))


@pytest.mark.parametrize(
    "asked",
    [{"ranges": {"nodes": [20], "edges": [40]}}, {"graphs_per_batch": 6, "plans": 40}, {"budget": 120, "plans": 40}],
    ids=str,
)
def test_oversize_graphs_among_the_others_are_dropped_too(asked: dict[str, Any]) -> None:
    """They neither stop the search nor raise its limits; those that fit still do."""
    fits = {(4, 5): 2, (11, 6): 1}
    others = SizeHistogram.from_counts({**fits, (99, 300): 1})
    with pytest.warns(UserWarning, match="^1 of 4 graphs exceed .* left out"):
        search = search_limits(SMALL, holding=others, oversize="drop", **asked)
    assert search.limits[:, 0].min() >= 11
    assert search.limits[:, 1].max() < 300
    assert (search.num_graphs, search.dropped) == (SMALL.num_graphs, 0)
    holding = SizeHistogram.from_counts(fits)
    same = search_limits(SMALL, holding=holding, oversize="drop", **asked)
    assert search.best == same.best
    with refused(GraphTooLargeError if "ranges" in asked else SearchError, "3"):
        search_limits(SMALL, holding=others, **asked)
