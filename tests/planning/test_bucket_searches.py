"""Shape buckets in searches, preprocessed stores and shards."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, SearchError
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.search import Candidate
from dgl_tuplepack.storage.preprocessing import verify
from dgl_tuplepack.storage.shards import preprocess_shards, verify_shards
from tests.support.messages import refused
from tests.support.stores import molecules

MOLHIV = tp.load_example("ogbg-molhiv")
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
