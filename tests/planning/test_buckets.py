"""Shape buckets: plans and samplers of several shapes, searches, preprocessed stores and shards."""

from __future__ import annotations

import csv
import io
import itertools
import json
import pickle
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, LimitsError, MethodError, SearchError
from dgl_tuplepack.planning.buckets import Buckets, as_shapes, shapes_from_dict, steps_of
from dgl_tuplepack.planning.packing import METHODS
from dgl_tuplepack.planning.search import Candidate
from dgl_tuplepack.sampling.pack_sampler import promoted
from dgl_tuplepack.storage.preprocessing import verify
from dgl_tuplepack.storage.shards import preprocess_shards, verify_shards
from tests.support.messages import refused
from tests.support.samplers import SamplerCase, bucket_cases, buckets_within, flat
from tests.support.stores import molecules
from tests.support.strategies import Problem, problems

SMALL, LARGE = tp.Limits(100, 220), tp.Limits(222, 502)
MOLHIV = tp.load_example("ogbg-molhiv")


@pytest.mark.parametrize(
    ("limits", "parts"),
    [
        ([SMALL], ("2 to 4 limits", "1 were given", "for one shape")),
        ([tp.Limits(n, n) for n in range(1, 6)], ("2 to 4 limits", "5 were given")),
        ([SMALL, SMALL], ("ascend", "Limits(nodes=100, edges=220, graphs=None) are followed by")),
        ([SMALL, tp.Limits(200, 219)], ("ascend", "at least one must be larger")),
        ([SMALL, tp.Limits(222, 502, 9)], ("ascend", "cap on graphs")),
        ([SMALL, tp.Limits(222)], ("['nodes', 'edges']", "['nodes']", "the same components")),
        ([SMALL, (222, 502)], ("must be Limits", "(222, 502)")),
        ([], ("must be Limits", "[]")),
    ],
)
def test_what_is_not_ascending_is_refused_by_all_that_take_one(limits: Any, parts: tuple[str, ...]) -> None:
    example = [[3, 4], [5, 6]]
    for call in (partial(tp.pack, example), partial(tp.PackBatchSampler, example), as_shapes):
        with refused(LimitsError, *parts):
            call(limits)


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
    tp.pack([[3, 3], [12, 2]], [tp.Limits(10, 10), tp.Limits(20, 20)]).save(path)
    document = json.loads(path.read_text())
    for change, reason in (
        ({"buckets": document["buckets"][::-1]}, "ascend"),
        ({"limits": document["buckets"][0]}, "its largest shape has"),
        ({"buckets": [tp.Limits(9, 10).to_dict(), document["limits"]]}, "fingerprint"),
    ):
        path.write_text(json.dumps(document | change))
        with refused(FormatError, str(path), reason):
            tp.PackPlan.load(path)


# Each example makes several plans.
FEWER = settings(max_examples=25)
# The others may exceed limits.
_METHODS = [name for name in METHODS if name not in ("node_only", "edge_only")]


def holds(limits: tp.Limits, content: Any, graphs: int, packs: int = 1) -> bool:
    """Whether some packs hold a content."""
    within = all(value <= packs * most for value, most in zip(content, limits.values, strict=True))
    return within and (limits.graphs is None or graphs <= packs * limits.graphs)


@given(problems(), st.data(), st.sampled_from(_METHODS), st.integers(0, 2))
def test_every_pack_has_the_smallest_shape_that_holds_it_and_its_largest_graph(
    problem: Problem, data: st.DataObject, method: str, seed: int
) -> None:
    buckets = data.draw(buckets_within(problem.limits))
    plan = tp.pack(problem.histogram, buckets, method, seed=seed, effort=0.01)
    plan.validate()
    assert plan.shapes == tuple(buckets)
    needed = [next(i for i, each in enumerate(buckets) if holds(each, size, 1)) for size in plan.histogram.sizes]
    packs = [0] * len(buckets)
    for q, (content, graphs, repeats) in enumerate(
        zip(plan.pattern_contents.tolist(), plan.pattern_graphs.tolist(), plan.repeats.tolist(), strict=True)
    ):
        shape = next(i for i, limits in enumerate(buckets) if holds(limits, content, graphs))
        assert shape == plan.pattern_shapes[q]
        assert shape == max(needed[c] for c in plan.classes[plan.offsets[q] : plan.offsets[q + 1]])
        packs[shape] += repeats
    assert plan.packs_of_shapes == tuple(packs)
    assert sum(packs) == plan.num_packs >= plan.lower_bound
    # Slots are those of the packs' own shapes.
    components, totals = problem.components, problem.histogram.totals()
    slots = {c: sum(n * limits.maxima[c] for n, limits in zip(packs, buckets, strict=True)) for c in components}
    assert plan.slots == slots
    reserved = sum(name.startswith("nodes") for name in components)
    assert plan.padded_slots == sum(slots.values()) + plan.num_packs * reserved
    assert plan.efficiency == {name: totals[name] / slots[name] for name in slots}


@FEWER
@given(problems(most_classes=5), st.data())
def test_equal_arguments_give_equal_plans_and_files(
    tmp_path_factory: pytest.TempPathFactory, problem: Problem, data: st.DataObject
) -> None:
    buckets = data.draw(buckets_within(problem.limits))
    plan = tp.pack(problem.histogram, buckets, effort=0.01)
    path = Path(tmp_path_factory.mktemp("plans")) / "plan.json"
    tp.pack(problem.histogram, tuple(buckets), effort=0.01).save(path)
    loaded = tp.PackPlan.load(path)
    assert loaded.fingerprint == plan.fingerprint
    assert loaded.buckets == plan.buckets


def samplers_of(case: SamplerCase, **changes: Any) -> list[tp.PackBatchSampler]:
    """One sampler for each rank."""
    changed = case.settings(**changes)
    return [tp.PackBatchSampler(case.sizes, case.limits, rank=r, **changed) for r in range(changed["num_replicas"])]


@FEWER
@given(bucket_cases(), st.integers(0, 3))
def test_every_graph_once_within_the_shape_of_its_step(case: SamplerCase, epoch: int) -> None:
    samplers = samplers_of(case)
    for sampler in samplers:
        sampler.set_epoch(epoch)
    limits = samplers[0].limits
    assert isinstance(limits, tuple)
    assert len(limits) == len(case.limits)
    assert all(sampler.limits == limits for sampler in samplers)
    assert all(each.graphs is not None for each in limits)
    by_rank = [list(sampler) for sampler in samplers]
    assert {len(batches) for batches in by_rank} == {len(sampler) for sampler in samplers}
    for step in zip(*by_rank, strict=True):
        # One shape on all ranks, empty batches included.
        (shape,) = {ids.shape for ids in step}
        assert any(step)
        assert shape in range(len(limits))
        for ids in step:
            content = case.sizes.array[ids].sum(axis=0).tolist()
            assert holds(limits[shape], content, len(ids), case.packs_per_batch)
    seen = flat([flat(batches) for batches in by_rank])
    assert len(seen) == len(set(seen))
    packs, per_step = samplers[0].plan.num_packs, case.packs_per_batch * case.num_replicas
    if case.drop_last:
        assert len(samplers[0]) == packs // per_step
    else:
        assert sorted(seen) == list(range(len(case.sizes)))
        assert -(-packs // per_step) <= len(samplers[0]) < packs / per_step + len(limits)
    assert samplers[0].graphs_per_batch == pytest.approx(len(seen) / (len(samplers[0]) * case.num_replicas))


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(1, 12), st.booleans())
def test_packs_move_to_larger_shapes_where_that_saves_a_step(packs: list[int], per_step: int, drop_last: bool) -> None:
    groups = [100 * shape + np.arange(number) for shape, number in enumerate(packs)]
    moved = promoted(groups, per_step, drop_last)
    assert sorted(np.concatenate(moved).tolist()) == np.concatenate(groups).tolist()
    for shape, group in enumerate(moved):
        assert (group // 100 <= shape).all()
    steps = steps_of(packs, per_step, drop_last)
    assert steps == [len(group) // per_step if drop_last else -(-len(group) // per_step) for group in moved]
    if drop_last:
        assert sum(steps) == sum(packs) // per_step
        delivered = np.concatenate([group[: n * per_step] for group, n in zip(moved, steps, strict=True)])
        # The rarest, largest packs are not dropped in every epoch.
        largest = max((shape for shape, number in enumerate(packs) if number), default=0)
        assert not sum(steps) or (delivered // 100 == largest).any()
        return
    apart = [-(-number // per_step) for number in packs]
    # Never more steps of this shape and the larger ones.
    for shape in range(len(packs)):
        assert sum(steps[shape:]) <= sum(apart[shape:])
    rests = [len(group) % per_step for group in moved if len(group) % per_step]
    # What is left of two shapes does not fit one step.
    assert all(a + b > per_step for a, b in itertools.combinations(rests, 2))


@FEWER
@given(bucket_cases(content=["resample"]), st.integers(1, 3))
def test_resampled_packs_keep_their_sizes_and_shapes(case: SamplerCase, epoch: int) -> None:
    (sampler,) = samplers_of(case, num_replicas=1, packs_per_batch=1, drop_last=False)
    plan, planned = sampler.plan, Counter[Any]()
    for q, (shape, repeats) in enumerate(zip(plan.pattern_shapes.tolist(), plan.repeats.tolist(), strict=True)):
        entries = slice(plan.offsets[q], plan.offsets[q + 1])
        rows = np.repeat(plan.histogram.sizes[plan.classes[entries]], plan.multiplicities[entries], axis=0)
        planned[tuple(sorted(map(tuple, rows.tolist()))), shape] += repeats
    for each in (0, epoch):
        sampler.set_epoch(each)
        found = Counter((tuple(sorted(map(tuple, case.sizes.array[ids].tolist()))), ids.shape) for ids in sampler)
        assert found == planned


@FEWER
@given(bucket_cases(content=["fixed"]))
def test_without_shuffle_shapes_come_one_after_the_other(case: SamplerCase) -> None:
    (sampler,) = samplers_of(case, shuffle=False, num_replicas=1, packs_per_batch=1, drop_last=False)
    plan = sampler.plan
    # Within a shape, the order is that of the plan.
    order = np.argsort(plan.pattern_shapes, kind="stable")
    packs = np.repeat(order, plan.repeats[order])
    found = list(sampler)
    assert [ids.shape for ids in found] == plan.pattern_shapes[packs].tolist()
    contents = [case.sizes.array[ids].sum(axis=0).tolist() for ids in found]
    assert contents == plan.pattern_contents[packs].tolist()


@FEWER
@given(bucket_cases(), st.integers(0, 2))
def test_counts_and_work_are_those_of_the_batches(case: SamplerCase, epoch: int) -> None:
    samplers = samplers_of(case)
    for sampler in samplers:
        sampler.set_epoch(epoch)
    batches = [ids for sampler in samplers for ids in sampler]
    mask = np.arange(2 * len(case.sizes)).reshape(-1, 2) % 3 > 0
    delivered = int(mask[flat(batches)].sum())
    if delivered:
        assert samplers[0].labels_per_batch(mask) == pytest.approx(delivered / len(batches))
    work = sum(case.sizes.array[ids].sum() for ids in batches)
    assert samplers[0].balance().work.sum() == pytest.approx(work)


# --- in searches, preprocessed stores and shards

BUCKETS = [tp.Limits(12, 14), tp.Limits(40, 50)]


@pytest.mark.parametrize(("graphs", "shapes", "before"), [(2, 2, 2_677_825), (4, 2, 2_631_219), (4, 4, 2_631_219)])
def test_a_search_proposes_shapes_for_a_number_of_graphs(graphs: int, shapes: int, before: int) -> None:
    """About as few slots as the best limits that are known."""
    search = tp.search_limits(MOLHIV, graphs_per_batch=graphs, shapes=shapes)
    best = search.best
    assert len(best.limits) == len(best.packs_of_shapes) == shapes
    assert best.limits[-1] == tp.Limits(222, 502)
    assert abs(search.graphs_per_batch / graphs - 1) <= 0.05
    plan = tp.pack(MOLHIV, best.limits)
    assert plan.padded_slots <= min(1.01 * before, best.padded_slots)
    within = [each for each in search if abs(each.graphs_per_batch / graphs - 1) <= 0.05]
    assert min(each.padded_slots for each in within) == best.padded_slots
    assert json.loads(json.dumps(search.to_dict()))["best"] == best.to_dict()


def test_a_search_is_the_same_again_and_a_table() -> None:
    settings: dict[str, Any] = {"graphs_per_batch": 3, "shapes": 2, "multiple_of": 8, "graphs": 5}
    search, again = tp.search_limits(MOLHIV, **settings), tp.search_limits(MOLHIV, **settings)
    assert search.to_dict() == again.to_dict()
    for limits in search.best.limits:
        assert (limits.nodes + 1) % 8 == limits.edges % 8 == 0
        assert limits.graphs == 5
    rows = list(csv.DictReader(io.StringIO(search.to_csv())))
    assert len(rows) == len(search)
    assert [row["best"] for row in rows].count("1") == 1


def test_two_packs_a_batch_hold_as_many_graphs_in_smaller_shapes() -> None:
    search = tp.search_limits(MOLHIV, graphs_per_batch=8, packs_per_batch=2, shapes=2)
    assert search.packs_per_batch == 2
    assert abs(search.graphs_per_batch / 8 - 1) <= 0.05
    assert search.best.limits[0].nodes < 120


def test_graphs_of_other_parts_fit_the_largest_shape() -> None:
    search = tp.search_limits([[3, 3]] * 50 + [[20, 20]], graphs_per_batch=2, shapes=2, holding=[[30, 9]])
    assert search.best.limits[-1] == tp.Limits(30, 20)


def test_a_search_counts_batches_as_a_sampler_makes_them() -> None:
    candidate = Candidate(Buckets(BUCKETS), (5, 1), 30, {"nodes": 90, "edges": 90}, packs_per_batch=2)
    # The small pack that is left over comes in the batch of the large one.
    assert candidate.graphs_per_batch == 10


def test_searches_that_no_buckets_answer_are_refused() -> None:
    with refused(SearchError, "graphs_per_batch=4 is out of reach with 2 shapes", "hold 1.9 graphs on average"):
        tp.search_limits([[3, 3]] * 60 + [[40, 40]] * 2, graphs_per_batch=4, graphs=2, shapes=2)
    with refused(SearchError, "batches of 64 graphs", "'nodes': 222", "leave shapes="):
        tp.search_limits(MOLHIV, graphs_per_batch=64, shapes=2)
    for shapes in (1, 5, 2.5, True):
        with refused(SearchError, "shapes must be an integer in 2..4"):
            tp.search_limits(MOLHIV, graphs_per_batch=4, shapes=shapes)
    with refused(SearchError, "shapes=2 works only with graphs_per_batch", "'smallest'", "graphs_per_batch"):
        tp.search_limits(MOLHIV, shapes=2)


def test_a_preprocessed_store_keeps_plans_of_buckets(tmp_path: Path) -> None:
    items = molecules(60, most=9)
    done = tp.preprocess(items, tmp_path / "store", limits=BUCKETS)
    assert done.limits == tuple(BUCKETS)
    verify(tmp_path / "store")
    (plan,) = done.store.plans.values()
    assert plan.fingerprint == done.plans[""].fingerprint
    assert plan.buckets == done.limits
    sampler = tp.PackBatchSampler(done.store, done.limits, plan=plan)
    assert sorted(i for ids in sampler for i in ids) == list(range(60))
    # A second run replaces the plans of the first, of whatever kind.
    tp.preprocess(items, tmp_path / "store", limits=BUCKETS[1], overwrite=True)
    assert tp.GraphStore(tmp_path / "store").plans[""].buckets is None
    with refused(LimitsError, "ascend"):
        tp.preprocess(items, tmp_path / "other", limits=BUCKETS[::-1])
    assert not (tmp_path / "other").exists()
    with refused(GraphTooLargeError, "exceed Limits(nodes=2, edges=2"):
        tp.preprocess(done.store, tmp_path / "other", limits=[tp.Limits(1, 1), tp.Limits(2, 2)])


def test_shards_share_buckets(tmp_path: Path) -> None:
    parts = []
    for number in range(2):
        parts.append(tmp_path / f"part-{number}")
        tp.GraphStore.write(parts[-1], molecules(30, number, most=9))
    done = preprocess_shards(parts, tmp_path / "all", limits=BUCKETS, workers=1)
    assert done.store.limits == tuple(BUCKETS)
    assert tp.MultiStore(tmp_path / "all").limits == tuple(BUCKETS)
    verify_shards(tmp_path / "all")
    again = preprocess_shards(parts, tmp_path / "all", limits=BUCKETS, workers=1)
    assert not again.planned
    other = preprocess_shards(parts, tmp_path / "all", limits=BUCKETS[1], workers=1)
    assert len(other.planned) == 2
