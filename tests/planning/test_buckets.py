"""Shape buckets, and plans of several shapes on known sizes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, LimitsError, MethodError, PlanError
from dgl_tuplepack.planning.buckets import Buckets, as_shapes, shapes_from_dict
from tests.support.messages import refused

SMALL, LARGE = tp.Limits(100, 220), tp.Limits(222, 502)
MOLHIV = tp.load_example("ogbg-molhiv")


@pytest.mark.parametrize(
    ("limits", "parts"),
    [
        ([SMALL], ("2 to 4 limits", "1 were given", "for one shape")),
        ([tp.Limits(n, n) for n in range(1, 6)], ("2 to 4 limits", "5 were given")),
        ([SMALL, SMALL], ("ascend", "Limits(nodes=100, edges=220, graphs=None) are followed by")),
        ([LARGE, SMALL], ("ascend", "at least one must be larger")),
        ([SMALL, tp.Limits(200, 219)], ("ascend",)),
        ([SMALL, tp.Limits(222, 502, 9)], ("ascend", "cap on graphs")),
        ([SMALL, tp.Limits(222)], ("['nodes', 'edges']", "['nodes']", "the same components")),
        ([SMALL, tp.Limits({"a": 222}, {("a", "b", "a"): 502})], ("the same components",)),
        ([SMALL, (222, 502)], ("must be Limits", "(222, 502)")),
        ([], ("must be Limits", "[]")),
        ((222, 502), ("must be Limits", "(222, 502)")),
        ({SMALL, LARGE}, ("must be Limits",)),
    ],
)
def test_what_is_not_ascending_is_refused_by_all_that_take_one(limits: Any, parts: tuple[str, ...]) -> None:
    example = [[3, 4], [5, 6]]
    calls = (lambda: tp.pack(example, limits), lambda: tp.PackBatchSampler(example, limits), lambda: as_shapes(limits))
    for call in calls:
        with refused(LimitsError, *parts):
            call()


def test_buckets_are_a_tuple_that_survives_pickling_and_json() -> None:
    buckets = Buckets([SMALL, LARGE])
    assert buckets == (SMALL, LARGE)
    assert pickle.loads(pickle.dumps(buckets)) == buckets
    assert type(pickle.loads(pickle.dumps(buckets))) is Buckets
    assert shapes_from_dict(json.loads(json.dumps(buckets.to_dict()))) == buckets
    assert repr(buckets) == f"({SMALL!r}, {LARGE!r})"


def test_caps_alone_make_buckets_and_none_is_the_largest() -> None:
    plan = tp.pack([[2, 2]] * 7, [tp.Limits(20, 20, graphs=2), tp.Limits(20, 20)])
    assert plan.packs_of_shapes == (4, 0)
    assert tp.PackBatchSampler([[2, 2]] * 7, [tp.Limits(20, 20, graphs=2), tp.Limits(20, 20)]).limits == (
        tp.Limits(20, 20, 2), tp.Limits(20, 20, 3),
    )  # fmt: skip


def test_open_edges_and_graphs_are_settled_in_ascending_order() -> None:
    sizes = [[1, 9]] * 4 + [[8, 1]]
    sampler = tp.PackBatchSampler(sizes, [tp.Limits(nodes=2), tp.Limits(nodes=8)])
    assert sampler.plan.packs_of_shapes == (2, 1)
    # The large pack holds fewer edges and graphs than the small ones.
    assert sampler.limits == (tp.Limits(2, 18, 2), tp.Limits(8, 18, 2))


def test_small_graphs_fill_the_room_beside_large_ones() -> None:
    # 9 + 4 and 3 + 3 fill their packs.
    plan = tp.pack([[9, 9], [4, 4], [3, 3], [3, 3]], [tp.Limits(6, 6), tp.Limits(13, 13)])
    assert plan.packs_of_shapes == (1, 1)
    assert plan.efficiency == {"nodes": 1.0, "edges": 1.0}


def test_molhiv_in_two_shapes_is_as_full_as_can_be() -> None:
    plan = tp.pack(MOLHIV, [SMALL, LARGE])
    totals = MOLHIV.totals()
    # No plan has fewer slots than content at the shape with the fewest slots a node, or an edge.
    least = max(totals[c] * min((sum(each.values) + 1) / each.maxima[c] for each in (SMALL, LARGE)) for c in totals)
    assert least <= plan.padded_slots < 1.01 * least
    # A sixth of the graphs of a pack of the large shape, and few packs of that.
    assert plan.packs_of_shapes[1] < 100
    assert plan.num_packs > 2 * tp.pack(MOLHIV, LARGE).num_packs


def test_graphs_beyond_the_largest_shape_are_named() -> None:
    with refused(GraphTooLargeError, "graph 1 (30 nodes, 2 edges)", "nodes=20"):
        tp.pack([[3, 3], [30, 2]], [tp.Limits(10, 10), tp.Limits(20, 20)])
    with pytest.warns(UserWarning, match="1 of 2 graphs exceed"):
        sampler = tp.PackBatchSampler([[3, 3], [30, 2]], [tp.Limits(10, 10), tp.Limits(20, 20)], oversize="drop")
    assert sampler.dropped_ids.tolist() == [1]


@pytest.mark.parametrize("method", ["node_only", "edge_only"])
def test_methods_beyond_the_limits_have_no_shape(method: str) -> None:
    with refused(MethodError, method, "exceed limits", "choose another"):
        tp.pack([[3, 3]], [tp.Limits(10, 10), tp.Limits(20, 20)], method)


def test_a_damaged_plan_of_buckets_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    plan = tp.pack([[3, 3], [12, 2]], [tp.Limits(10, 10), tp.Limits(20, 20)])
    plan.save(path)
    document = json.loads(path.read_text())
    for change, reason in (
        ({"buckets": document["buckets"][:1]}, "2 to 4 limits"),
        ({"buckets": document["buckets"][::-1]}, "ascend"),
        ({"limits": document["buckets"][0]}, "its largest shape has"),
        ({"buckets": [tp.Limits(9, 10).to_dict(), document["limits"]]}, "fingerprint"),
    ):
        path.write_text(json.dumps(document | change))
        with refused(FormatError, str(path), reason):
            tp.PackPlan.load(path)
    with refused(PlanError, "its largest shape has"):
        tp.PackPlan(
            plan.histogram, tp.Limits(20, 21), plan.offsets, plan.classes, plan.multiplicities, plan.repeats, 1, "auto",
            buckets=plan.buckets,
        )  # fmt: skip
