"""`loader.describe()`: it counts what iterating over the loader counts, and changes nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.loading.static_loader import slots_of
from dgl_tuplepack.sampling.description import described
from dgl_tuplepack.tools import plots
from tests.support.loading import ITEMS, LARGE
from tests.support.messages import refused
from tests.support.stores import molecules, purchases

pytestmark = [
    pytest.mark.filterwarnings("ignore:batches of .* graphs need a shape:UserWarning"),
    pytest.mark.filterwarnings("ignore:graphs_per_batch is:UserWarning"),
    pytest.mark.filterwarnings("ignore:1 of 61 graphs exceed:UserWarning"),
]
KINDS: dict[str, dict[str, Any]] = {
    "exact": {"batch_size": 8},
    "exact and padded": {"batch_size": 8, "padded": True},
    "exact and rounded": {"batch_size": 8, "multiple_of": 16, "drop_last": True},
    "in order": {"batch_size": 7, "shuffle": False},
    "packs": {"graphs_per_batch": 8},
    "packs without padding": {"graphs_per_batch": 8, "padded": False, "seed": 3},
    "packs within limits": {"limits": tp.Limits(20, 20), "packs_per_batch": 3},
    "packs in pairs": {"graphs_per_batch": 8, "packs_per_batch": 3, "multiple_of": 2},
    "searched buckets": {"graphs_per_batch": 16, "shapes": 2},
    "buckets": {"limits": [tp.Limits(10, 10), tp.Limits(20, 20)]},
    "weights": {"batch_size": 8, "weights": np.arange(60)},
    "another seed": {"batch_size": 8, "seed": 3},
    "dropped": {"batch_size": 8, "limits": tp.Limits(60, 60), "oversize": "drop"},
    "dropped from packs": {"packs_per_batch": 2, "limits": tp.Limits(60, 60), "oversize": "drop"},
    "shares": {"batch_size": 8, "shares": {"a": 1, "b": 2}},
    "shares by a temperature": {"batch_size": 8, "temperature": 3},
    "shares of nodes": {"graphs_per_batch": 8, "shares": {"a": 1, "b": 2}, "share_of": "nodes", "padded": False},
    "items": {"batch_size": 8, "in_memory": False},
}


def items_of(kind: str) -> Any:
    if kind.startswith("dropped"):
        return [*ITEMS, LARGE]
    if kind.startswith("shares"):
        return {"a": ITEMS[:30], "b": ITEMS[30:]}
    return [*ITEMS * 4, LARGE] if kind == "searched buckets" else ITEMS


def content_of(batch: Any) -> list[int]:
    if isinstance(batch, tp.PaddedBatch):
        return [batch.num_real_nodes, batch.num_real_edges, batch.num_real_graphs]
    graph = batch[0]
    return [graph.num_nodes(), graph.num_edges(), graph.batch_size]


@pytest.mark.parametrize("kind", KINDS)
def test_it_counts_what_the_batches_hold(kind: str) -> None:
    loader = tp.packed_loader(items_of(kind), **KINDS[kind])
    state = loader.state_dict()
    found = loader.describe()
    assert loader.state_dict() == state
    contents = np.array([content_of(batch) for batch in loader])
    assert (found.batches, found.graphs, found.ranks) == (len(contents), contents[:, 2].sum(), 1)
    assert found.graphs_per_batch == (contents[:, 2].min(), contents[:, 2].mean(), contents[:, 2].max())
    shapes = loader.shape if isinstance(loader.shape, tuple) else (loader.shape,)
    assert [tuple(shape.values()) for shape in found.shapes] == [(*each.values, each.graphs) for each in shapes]
    of_batches = [shapes[batch.shape or 0] for batch in loader.sampler.batches_of(0)]
    slots = np.array([shape.values for shape in of_batches]).sum(axis=0)
    assert [*found.padding.values()] == pytest.approx(1 - contents.sum(axis=0)[:2] / slots)
    assert sum(found.causes.values()) == pytest.approx(1 - contents[:, :2].sum() / slots.sum())
    assert [sum(graphs) for graphs, _ in found.first] == contents[:12, 0].tolist()
    assert [most for _, most in found.first] == [shape.nodes for shape in of_batches[:12]]
    assert found.balance is None
    assert (found.num_bytes is None) == (kind == "items")
    assert all(line in str(found) for line in (f"{len(contents)} of ", *found.code.splitlines()))


def test_bytes_are_those_of_the_tensors() -> None:
    for items in (ITEMS, purchases(20), [(*item, i) for i, item in enumerate(ITEMS)]):
        loader = tp.packed_loader(items, batch_size=8, padded=True, separate=True, shuffle=False)
        batch = next(iter(loader))
        values = [*batch.columns().values(), batch.graph_mask, batch.graph_ids, *batch.src_by_type.values()]
        values += [*batch.dst_by_type.values(), *batch.per_graph_by_type.values(), *batch.masks_by_type.values()]
        number = sum(value.nbytes for value in values)
        assert loader.describe().num_bytes == number
        if not isinstance(items[0], tuple) or len(items[0]) == 2:
            # Items with ids of their own are not copied to a store.
            assert tp.packed_loader(items, batch_size=8, shuffle=False).describe().num_bytes == number


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "items"])
def test_the_lines_make_such_batches(kind: str) -> None:
    loader, model = tp.packed_loader(items_of(kind), **KINDS[kind]), torch.nn.Linear(1, 1)
    found = loader.describe()
    given = {"dataset": items_of(kind), "tp": tp, "model": model, "step": lambda batch: batch}
    if kind.startswith("shares"):
        given["sources"] = given.pop("dataset")
    exec(found.code, given | {"weights": KINDS[kind].get("weights")}, given)
    again: Any = given["loader"]
    assert (again.shape, again.padded, len(again)) == (loader.shape, loader.padded, len(loader))
    assert list(again.sampler) == list(loader.sampler)
    again.load_state_dict(loader.state_dict())
    assert [name for name in ("model", "step") if given[name] is not {"model": model}.get(name)]


def test_ranks_and_the_largest_graph() -> None:
    loaders = [tp.packed_loader(ITEMS, batch_size=4, num_replicas=3, rank=rank, padded=True) for rank in range(3)]
    one, two, three = (loader.describe() for loader in loaders)
    assert one.balance == two.balance == three.balance
    work = np.array([[sum(content_of(batch)[:2]) for batch in loader] for loader in loaders])
    assert one.balance is not None
    assert one.balance["largest_spread"] == pytest.approx(np.ptp(work, axis=0).max() / work.mean())
    assert one.balance["idle"] == pytest.approx(1 - work.mean(axis=0).sum() / work.max(axis=0).sum())
    assert "on each of 3 ranks" in str(one)
    assert tp.packed_loader(ITEMS, batch_size=10).describe().largest["to_blame"] is False
    large = tp.packed_loader([*ITEMS, LARGE], batch_size=8).describe()
    assert large.largest["id"] == 60
    assert large.largest["size"] == {"nodes": 300, "edges": 500}
    assert "graph 60 (300 nodes, 500 edges) takes" in str(large)
    of_splits = tp.packed_loader([*ITEMS, LARGE], batch_size=8, splits={"train": range(30, 61)})
    assert of_splits["train"].describe().largest["id"] == 60
    assert "makes the shape so large" in str(large)


def test_a_batch_size_that_no_rank_reaches_is_to_blame() -> None:
    with pytest.warns(
        UserWarning, match="batches of 30 .* the batches of at most 15 graphs that 4 ranks have, since they share 60"
    ):
        loader = tp.packed_loader(ITEMS, batch_size=30, num_replicas=4, rank=0)
    found = loader.describe()
    assert max(found.causes, key=found.causes.__getitem__) == "batches with fewer graphs"
    assert not found.largest["to_blame"]


def test_batches_with_fewer_graphs_are_blamed_for_absent_graphs_only() -> None:
    # The last of eight batches has five graphs; most of its padding is room for the largest graph.
    found = tp.packed_loader([*ITEMS, LARGE], batch_size=8).describe()
    content = sum(graph.num_nodes() + graph.num_edges() for graph, _ in [*ITEMS, LARGE])
    slots = found.batches * (found.shapes[0]["nodes"] + found.shapes[0]["edges"])
    assert found.causes["batches with fewer graphs"] == pytest.approx(3 * content / 61 / slots)


def test_a_graph_that_is_never_drawn_is_not_the_largest() -> None:
    weights = np.append(np.ones(60), 0)
    assert tp.packed_loader([*ITEMS, LARGE], batch_size=8, weights=weights).describe().largest["id"] < 60


def test_the_picture_needs_a_description() -> None:
    with refused(InputError, "loader.describe()"):
        plots.plot_batches(tp.packed_loader(ITEMS, batch_size=8))


def test_a_mixture_and_dropped_graphs() -> None:
    source = {"a": molecules(30), "b": [*molecules(20), LARGE]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ({"batch_size": 8}, {"packs_per_batch": 2}):
            loader = tp.packed_loader(
                source, shares={"a": 1, "b": 2}, limits=tp.Limits(60, 60), oversize="drop", **kind
            )
            found = loader.describe()
            assert (found.graphs, found.largest["id"] < 50) == (50, True)
            assert 0 <= min(found.padding.values()) <= max(found.padding.values()) < 1


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=40),
    size=st.integers(1, 9), exact=st.booleans(),
)  # fmt: skip
def test_causes_add_up_to_the_padding(rows: list[tuple[int, int]], size: int, exact: bool) -> None:
    sampler: Any = tp.StaticBatchSampler(tp.GraphSizes(rows), size)
    if not exact:
        sampler = tp.PackBatchSampler(tp.GraphSizes(rows), tp.Limits(9, 20), packs_per_batch=size)
    shape = slots_of(sampler.limits, 1 if exact else size)
    found = described(sampler, (shape,), None, False)
    total = sum(found.batches * value for name, value in found.shapes[0].items() if name != "graphs")
    assert sum(found.causes.values()) == pytest.approx(1 - np.sum(rows) / total)
    assert all(0 <= part <= 1 for part in (*found.causes.values(), *found.padding.values()))
