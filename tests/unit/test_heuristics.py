"""Heuristics: what each of them computes, and which ones are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_tuplepack import Limits, pack
from dgl_tuplepack.errors import MethodError
from dgl_tuplepack.kernels.priority import priorities
from dgl_tuplepack.packing.heuristics import NAMES, as_priority
from dgl_tuplepack.sizes import INT64_MAX
from tests.messages import refused
from tests.strategies import Problem, heuristics, problems

LIMITS = Limits(10, 20)
SIZES = np.array([[0, 0], [3, 4], [4, 3], [10, 20]])


def values(heuristic: Any, limits: Limits = LIMITS) -> list[int]:
    priority = as_priority(heuristic, limits)
    return priorities(priority.rule, SIZES).tolist()


@pytest.mark.parametrize(
    ("heuristic", "expected"),
    [
        ("product", [0, 12, 12, 200]),
        ("sum", [0, 7, 7, 30]),
        ("maximum", [0, 4, 4, 20]),
        ("minimum", [0, 3, 3, 10]),  # a true minimum, unlike the paper's companion code
        ("node", [0, 3, 4, 10]),
        ("edge", [0, 4, 3, 20]),
        ((2, 1), [0, 10, 11, 40]),
        ((0, 3), [0, 4, 3, 20]),  # a common factor changes nothing
        ((0.5, 0.25), [0, 10, 11, 40]),
        (np.array([0.1, 0.3]), [0, 15, 13, 70]),
        (lambda nodes, edges: nodes * nodes + edges, [0, 13, 19, 120]),
        (lambda nodes, edges: np.int64(max(nodes, edges)), [0, 4, 4, 20]),
    ],
)
def test_values(heuristic: Any, expected: list[int]) -> None:
    assert values(heuristic) == expected


def test_types_of_a_heterograph_add_up() -> None:
    limits = Limits({"u": 10, "v": 20})
    assert values("node", limits) == [0, 7, 7, 30]


def test_arrays_of_a_priority_may_be_read_only_as_some_executors_hand_them_on() -> None:
    priority = as_priority(lambda nodes, edges: nodes + 2 * edges, LIMITS)
    priority.weights.setflags(write=False)
    priority.table.setflags(write=False)
    assert priorities(priority.rule, SIZES).tolist() == [0, 11, 10, 50]


@given(problems(), st.data())
def test_every_heuristic_is_monotone_and_orders_sizes_as_the_reference(problem: Problem, data: st.DataObject) -> None:
    rule = data.draw(heuristics(of=problem))
    priority = as_priority(rule.given, problem.limits)
    sizes = [*problem.counts, problem.maxima, (0,) * len(problem.maxima)]
    ours = priorities(priority.rule, np.array(sizes)).tolist()
    theirs = [rule.obvious(size) for size in sizes]
    assert ours[-1] == 0
    assert max(ours) == ours[-2]
    assert [(a > b, a == b) for a in ours for b in ours] == [(a > b, a == b) for a in theirs for b in theirs]


@pytest.mark.parametrize("name", ["produkt", "", "Product", "nodes"])
def test_an_unknown_name_lists_the_choices(name: str) -> None:
    with refused(MethodError, repr(name), ", ".join(NAMES), "weights", "callable"):
        as_priority(name, LIMITS)


@pytest.mark.parametrize(
    "weights",
    [(), (1,), (1, 2, 3), (0, 0), (-1, 2), (1, float("nan")), (1, float("inf")), (1, "2"), (1, None), (1, 2j)],
)
def test_bad_weights_are_named(weights: tuple[Any, ...]) -> None:
    with refused(MethodError, "2 finite numbers >= 0", "nodes, edges", repr(weights)):
        as_priority(weights, LIMITS)


@pytest.mark.parametrize(("name", "limits"), [("edge", Limits(5)), ("node", Limits.from_components({"edges": 5}))])
def test_a_projection_needs_its_component(name: str, limits: Limits) -> None:
    with refused(MethodError, repr(name), f"counts {name}s", str(list(limits.components)), "another heuristic"):
        as_priority(name, limits)


def test_a_product_that_overflows_is_refused_and_one_that_just_fits_is_not() -> None:
    with refused(MethodError, "'product' overflows int64", f"nodes={2**32}", "'sum'"):
        as_priority("product", Limits(2**32, 2**31))
    assert as_priority("product", Limits(INT64_MAX - 1, 1)).name == "product"


@pytest.mark.parametrize("heuristic", ["sum", "maximum", "minimum", "node", (3, 1), (1, 1e300)])
def test_a_sum_that_overflows_is_refused(heuristic: Any) -> None:
    with refused(MethodError, "overflows int64", "smaller weights"):
        as_priority(heuristic, Limits(2**63 - 1, 2**63 - 1))


@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (lambda n, e: n * e / 2, ("returned 0.0", "size (0, 0)", "integer", "round")),
        (lambda n, e: n - e, ("returned -1", "size (0, 1)", "0..2**63-1")),
        (lambda n, e: n << 63, (f"returned {2**63}", "size (1, 0)", "0..2**63-1")),
        (lambda n, e: "high" if n else 0, ("returned 'high'", "size (1, 0)")),
        (lambda n, e: None, ("returned None", "size (0, 0)")),
        (lambda n, e: n + 1, ("must be 0 for an empty remainder", "but is 1")),
        (lambda n, e: n * (10 - n), ("must not fall when nodes grow", "size (5, 0)", "monotone")),
        (lambda n, e: max(0, min(e, 12 - e)), ("must not fall when edges grow", "size (0, 6)")),
    ],
)
def test_a_callable_that_breaks_the_rules_is_named(function: Callable[..., Any], parts: tuple[str, ...]) -> None:
    with refused(MethodError, "callable <lambda>", *parts):
        as_priority(function, LIMITS)


def test_a_callable_is_refused_where_it_would_be_called_too_often() -> None:
    def never_called(*size: int) -> int:
        raise AssertionError(size)

    with refused(MethodError, str(10001**2), "tabulated", "weights"):
        as_priority(never_called, Limits(10_000, 10_000))


def test_a_plan_records_its_heuristic() -> None:
    def nodes_first(nodes: int, edges: int) -> int:
        return 100 * nodes + edges

    made = [pack([[1, 2]], LIMITS, "best_fit", heuristic=h).heuristic for h in ("sum", (2, 1), nodes_first)]
    assert made == ["sum", "weights (2, 1)", "callable nodes_first"]
