"""Each way to search limits checks its own settings when it is made, without a histogram, and keeps them as data."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dgl_tuplepack import Limits, SizeHistogram, lower_bound, pack, search_limits
from dgl_tuplepack.errors import InputError, MethodError, SearchError
from dgl_tuplepack.plots import save_picture
from dgl_tuplepack.search import WAYS, way_of
from dgl_tuplepack.search.auto import Auto
from dgl_tuplepack.search.budget import Budget
from dgl_tuplepack.search.graphs_per_batch import GraphsPerBatch
from dgl_tuplepack.search.grid import Grid
from dgl_tuplepack.search.target import Target
from tests.messages import refused

SMALL = SizeHistogram.from_counts({(3, 4): 5, (2, 2): 4, (6, 10): 1})
LIMITS = Limits(6, 10)
RANGES = {"nodes": [6], "edges": [10]}
TYPED = SizeHistogram(np.array([[1, 2], [3, 4]]), np.array([4, 5]), ("nodes:u", "edges:u:likes:u"))

NOT_FINITE: dict[str, Any] = {
    "nan": math.nan, "inf": math.inf, "-inf": -math.inf, "bool": True, "numpy bool": np.True_, "text": "1",
    "complex": 1j, "list": [1], "beyond float": 10**400, "thousands of digits": 10**5000,
}  # fmt: skip
# A number that callers hand in -> the class of its error, and its name in the message.
NUMBERS: list[tuple[Callable[[Any], object], type[InputError], str]] = [
    (lambda number: search_limits(SMALL, budget=number), SearchError, "the budget"),
    (lambda number: search_limits(SMALL, budget=90, cost={"nodes": number, "edges": 1}), SearchError, "cost of nodes"),
    (lambda number: search_limits(SMALL, target=number), SearchError, "the target"),
    (lambda number: search_limits(SMALL, target={"edges": number}), SearchError, "the target of edges"),
    (lambda number: search_limits(SMALL, tolerance=number), SearchError, "tolerance"),
    (lambda number: search_limits(SMALL, reach=number), SearchError, "reach"),
    (lambda number: search_limits(SMALL, objective=lambda c: number), SearchError, "the objective"),
    (lambda number: search_limits(SMALL, effort=number), MethodError, "the effort"),
    (lambda number: pack(SMALL, LIMITS, effort=number), MethodError, "the effort"),
    (lambda number: pack(SMALL, LIMITS, time_limit=number), MethodError, "the time limit"),
    (lambda number: lower_bound(SMALL, LIMITS, effort=number), MethodError, "the effort"),
    (lambda number: pack(SMALL, LIMITS, "best_fit", heuristic=(number, 1)), MethodError, "weights must be 2"),
    (lambda number: save_picture(None, "picture.png", dpi=number), InputError, "dpi"),
]


@pytest.mark.parametrize("number", NOT_FINITE.values(), ids=NOT_FINITE)
@pytest.mark.parametrize(("use", "error", "what"), NUMBERS)
def test_what_is_not_a_finite_number_is_refused(
    number: Any, use: Callable[[Any], object], error: type[InputError], what: str
) -> None:
    with refused(error, what, "finite", "but "):
        use(number)


@pytest.mark.parametrize(
    ("settings", "way"),
    [
        ({}, Auto()),
        ({"ranges": RANGES, "tolerance": 0}, Grid(ranges=RANGES, tolerance=0)),
        ({"ranges": RANGES, "target": 0.5}, Target(target=0.5, ranges=RANGES)),
        ({"graphs_per_batch": 3}, GraphsPerBatch(graphs_per_batch=3)),
        ({"budget": 40, "plans": 9}, Budget(budget=40, plans=9)),
    ],
)
def test_arguments_choose_a_way_that_cannot_change(settings: dict[str, Any], way: Any) -> None:
    assert way_of(**settings, cost=None, reach=None) == way
    assert way.name in WAYS
    assert search_limits(SMALL, **settings).aim == way.aim
    assert json.loads(json.dumps(way.aim)) == way.aim
    with pytest.raises(dataclasses.FrozenInstanceError):
        way.name = "other"


def test_numbers_of_numpy_are_kept_as_plain_data() -> None:
    way = Budget(budget=np.float32(90.5), cost={"nodes": np.int32(1), "edges": np.float64(2)}, plans=np.int64(7))
    assert repr(way.aim) == "{'budget': 90.5, 'cost': {'nodes': 1, 'edges': 2.0}, 'plans': 7}"


@pytest.mark.parametrize(
    ("way", "settings"),
    [
        (Grid, {"ranges": {"nodes": [0]}}),
        (Target, {"target": 95}),
        (Target, {"target": 0.9, "ranges": {"nodes": []}}),
        (GraphsPerBatch, {"graphs_per_batch": 0}),
        (Budget, {"budget": 9, "cost": {"nodes": 0, "edges": 0}}),
        (Auto, {"objective": 3}),
        (Auto, {"plans": 0}),
    ],
)
def test_a_way_refuses_wrong_settings_before_it_sees_a_histogram(way: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(SearchError):
        way(**settings)


def test_settings_by_component_are_kept_in_the_order_and_under_the_names_of_the_components() -> None:
    ways = [
        Grid(ranges={"edges:likes": [8], "nodes:u": [5]}),
        Target(target={"edges:likes": 0.5, "nodes:u": 0.4}),
        Budget(budget=90, cost={"edges:likes": 2, "nodes:u": 1}),
    ]
    for way, name in zip(ways, ("ranges", "target", "cost"), strict=True):
        assert list(getattr(way.for_histogram(TYPED), name)) == list(TYPED.components)


def test_costs_near_the_largest_float_do_not_overflow() -> None:
    for cost in ({"nodes": 0, "edges": 1e307}, {"nodes": 1e306, "edges": 1e307}):
        found = search_limits(SMALL, budget=1.7e308, cost=cost)
        assert all(sum(c.limits.maxima[name] * cost[name] for name in cost) <= 1.7e308 for c in found)
    assert search_limits(SMALL, budget=1e308, cost={"nodes": 1e-300, "edges": 1e-300}).best.packs == 1
