"""Limits: forms of input, the match with components, and what is said about graphs that do not fit."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import dgl_tuplepack as tp
from dgl_tuplepack import GraphSizes, Limits
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError
from dgl_tuplepack.planning.sizes import INT64_MAX
from tests.support.messages import refused
from tests.support.strategies import Problem, problems

HETERO = Limits(nodes={"u": 5, "v": 6}, edges={("u", "likes", "v"): 7})


def test_values_are_plain_integers() -> None:
    limits = Limits(np.int32(7), np.uint8(3), np.int64(2))
    assert (limits.nodes, limits.edges, limits.graphs) == (7, 3, 2)
    assert [type(v) for v in (*limits.values, limits.graphs)] == [int] * 3
    assert limits.array.tolist() == [7, 3]
    assert Limits(5).edges is None
    assert Limits(INT64_MAX).values == (INT64_MAX,)


def test_heterographs_are_keyed_by_type() -> None:
    assert HETERO.components == ("nodes:u", "nodes:v", "edges:u:likes:v")
    assert HETERO.nodes == {"u": 5, "v": 6}
    assert HETERO.edges == {("u", "likes", "v"): 7}


@pytest.mark.parametrize(
    "limits", [Limits(7), Limits(7, 3), Limits(7, 3, 2), Limits.from_components({"a": 1, "nodes": 2}, 3), HETERO]
)
def test_repr_copies_and_plain_data_give_the_same_limits(limits: Limits) -> None:
    assert eval(repr(limits)) == limits
    assert Limits.from_dict(json.loads(json.dumps(limits.to_dict()))) == limits
    assert pickle.loads(pickle.dumps(limits)) == limits
    assert copy.deepcopy(limits) == limits
    assert hash(copy.copy(limits)) == hash(limits)


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((1, 5, 5), ("at least 2 nodes", "but got 1", "nodes=2")), ((5, 5, 1), ("at least 2 graphs", "graphs=2")),
        ((5, 0, 5), ("edges", "0")), ((5, 5, True), ("graphs", "True")),
    ],
)  # fmt: skip
def test_a_padded_shape_without_room_is_refused(shape: tuple[Any, ...], parts: tuple[str, ...]) -> None:
    with refused(LimitsError, *parts):
        Limits.from_padded_shape(*shape)


def test_limits_take_the_order_and_the_full_names_of_the_sizes() -> None:
    limits = Limits(nodes={"v": 6, "u": 5}, edges={"likes": 7}, graphs=2)
    aligned = limits.aligned(("nodes:u", "edges:u:likes:v", "nodes:v"))
    assert list(aligned.maxima.items()) == [("nodes:u", 5), ("edges:u:likes:v", 7), ("nodes:v", 6)]
    assert aligned.graphs == 2


@given(problems())
def test_fits_agrees_with_check(problem: Problem) -> None:
    assert problem.limits.fits(problem.histogram.sizes).all()
    problem.limits.check(GraphSizes(problem.histogram.sizes, problem.components))
    larger = [tuple(m + (column == 0) for column, m in enumerate(problem.maxima))]
    assert not problem.limits.fits(larger).any()
    with refused(GraphTooLargeError, f"{problem.maxima[0] + 1} {problem.components[0]}"):
        problem.limits.check(larger)


def test_ten_graphs_are_named_and_the_rest_is_counted() -> None:
    sizes = [[1, 1]] + [[10 + i, 2] for i in range(12)]
    with pytest.raises(GraphTooLargeError) as caught:
        Limits(9, 30).check(sizes)
    message = str(caught.value)
    assert "12 of 13 graphs exceed Limits(nodes=9, edges=30, graphs=None)" in message
    assert "graph 1 (10 nodes, 2 edges)" in message
    assert "graph 10 (19 nodes, 2 edges); and 2 more" in message
    assert "graph 11 " not in message
    # A limit that is large enough already is not lowered by the advice.
    assert "smallest that hold every graph: 21 nodes, 30 edges" in message


def test_what_has_no_limit_or_no_component_is_named() -> None:
    limits = Limits.from_components({"nodes:user": 5, "edges:buys": 5, "edges:sells": 5})
    with refused(LimitsError, "without a limit: nodes:item", "limits without a component: edges:sells"):
        limits.aligned(["nodes:user", "nodes:item", "edges:user:buys:item"])
    limits = Limits.from_components({"nodes:user": 5, "edges:buys": 5})
    with refused(LimitsError, "two components have the same relation", "full names"):
        limits.aligned(["nodes:user", "edges:user:buys:item", "edges:user:buys:user"])


# No limit on edges ---------------------------------------------------------------------------------------------


@given(problems(cap=None))
def test_no_limit_on_edges_is_one_that_no_pack_can_exceed(problem: Problem) -> None:
    """For any components: without limits on edges, plans, bounds and fits are those of the totals as limits."""
    maxima = problem.limits.maxima
    others = {name: value for name, value in maxima.items() if name.split(":")[0] != "edges"}
    if not others:
        return
    totals = problem.histogram.totals()
    without = Limits.from_components(others, problem.cap)
    loose = Limits.from_components(
        {name: others.get(name, max(1, totals[name])) for name in maxima}, problem.cap
    )  # fmt: skip
    sizes = GraphSizes(np.array(problem.graphs), problem.components)
    assert without.edges is None
    assert without.fits(sizes).tolist() == loose.fits(sizes).tolist()
    assert tp.lower_bound(problem.histogram, without, effort=0) == tp.lower_bound(problem.histogram, loose, effort=0)
    plan = tp.pack(problem.histogram, without, "best_fit", heuristic="sum")
    assert plan.fingerprint == tp.pack(problem.histogram, loose, "best_fit", heuristic="sum").fingerprint
    plan.check_limits(without)


@pytest.mark.parametrize(
    "document", [None, 3, [], {}, {"maxima": {"nodes": 3}}, {"graphs": 3}, {"maxima": [3], "graphs": None},
    {"maxima": {"nodes": 0}, "graphs": None}, {"maxima": {"nodes": 3}, "graphs": "2"}]
)  # fmt: skip
def test_plain_data_of_no_limits_is_refused(document: Any) -> None:
    with pytest.raises(LimitsError):
        Limits.from_dict(document)


def test_a_component_whose_name_begins_like_nodes_does_not_count_nodes() -> None:
    limits = Limits.from_components({"nodesets": 4, "nodes:u": 5, "edges_of_rings": 6})
    assert limits.nodes == {"u": 5}
    assert limits.edges is None
