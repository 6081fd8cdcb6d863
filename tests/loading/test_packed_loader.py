"""`packed_loader` on a list: its batches, limits for a number of graphs, and the loader that it returns."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler

import dgl_tuplepack as tp
from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.errors import GraphTooLargeError, InputError, SamplerError, SearchError
from dgl_tuplepack.graphs.readers import kinds
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.support.graphs import assert_same_batch, assert_same_dgl_batch, flat
from tests.support.loading import ITEMS, LARGE, NUMBER, SIZES
from tests.support.messages import refused
from tests.support.stores import purchases


def test_batches_are_those_of_the_parts_put_together_by_hand() -> None:
    settings: dict[str, Any] = {"seed": 5, "coordinates": (), "sort_edges": True, "content": "fixed"}
    loader = tp.packed_loader(tp.with_ids(ITEMS), 12, in_memory=False, **settings)
    sampler = tp.PackBatchSampler(SIZES, loader.limits, packs_per_batch=loader.packs_per_batch, seed=5, content="fixed")
    named = tp.with_ids(ITEMS)
    collate = tp.PaddedCollate(loader.limits, named[0], loader.packs_per_batch, sort_edges=True)
    by_hand = GraphDataLoader(named, batch_sampler=sampler, collate_fn=collate)
    for found, expected in zip(loader, by_hand, strict=True):
        assert_same_batch(found, expected)
    assert loader.plan.fingerprint == tp.pack(SIZES, loader.plan.limits, seed=5).fingerprint
    assert isinstance(loader.collate, tp.PaddedCollate)
    assert loader.sampler.graphs_per_batch == loader.graphs_per_batch


def test_a_list_is_recognised_once_and_its_sizes_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, counted = list[Any](), list[int]()
    first, count = kinds.KINDS[0], tp.SizeHistogram.from_sizes

    class Spy(kinds.Kind):
        """The first kind of source, which notes what it is asked to recognise."""

        def recognised(self, given: Any, *arguments: Any) -> Any:
            asked.append(given)
            return super().recognised(given, *arguments)

    def noting(sizes: tp.GraphSizes) -> tp.SizeHistogram:
        counted.append(len(sizes))
        return count(sizes)

    monkeypatch.setattr(kinds, "KINDS", [Spy(first.load), *kinds.KINDS[1:]])
    monkeypatch.setattr(tp.SizeHistogram, "from_sizes", noting)
    items = [(dgl.rand_graph(n % 17 + 3, n % 9), n) for n in range(200)]
    tp.packed_loader(items, 8)
    assert len(asked) == 1
    assert asked[0] is items
    # Writing the list to a temporary store counts each block of graphs, here one; the loader counts all graphs.
    assert counted == [200, 200]
    counted.clear()
    tp.packed_loader(items, 8, in_memory=False)
    assert counted == [200]


def test_batches_without_padding_are_those_of_dgl() -> None:
    loader = tp.packed_loader(ITEMS, 12, padded=False, seed=2, num_workers=2, content="fixed")
    expected = GraphDataLoader(ITEMS, batch_sampler=list(loader.sampler))
    for (graph, labels), (rightly, right_labels) in zip(loader, expected, strict=True):
        assert_same_dgl_batch(graph, rightly)
        assert torch.equal(labels, right_labels)


@pytest.mark.parametrize("items", [ITEMS[:1], purchases(1), tp.with_ids(ITEMS[:1])], ids=["pairs", "hetero", "ids"])
@pytest.mark.parametrize("padded", [True, False])
def test_ranks_without_graphs_get_batches_of_no_graphs(items: Any, padded: bool) -> None:
    batches = [
        list(tp.packed_loader(items, 4, padded=padded, num_replicas=2, rank=rank)) for rank in range(2)
    ]  # fmt: skip
    assert [len(of_rank) for of_rank in batches] == [1, 1]
    if padded:
        assert sorted(of_rank[0].num_real_graphs for of_rank in batches) == [0, 1]
        return
    graphs = [batch if isinstance(batch, dgl.DGLGraph) else batch[0] for (batch,) in batches]
    empty, full = sorted(graphs, key=lambda graph: graph.num_nodes())
    assert (empty.num_nodes(), empty.num_edges(), empty.batch_size, full.batch_size) == (0, 0, 0, 1)
    assert (empty.ntypes, empty.canonical_etypes) == (full.ntypes, full.canonical_etypes)
    for t in full.ntypes:
        assert {n: (v.dtype, v.shape[1:]) for n, v in empty.nodes[t].data.items()} == {
            n: (v.dtype, v.shape[1:]) for n, v in full.nodes[t].data.items()
        }


def test_ids_are_positions_unless_items_have_their_own() -> None:
    named = [(graph, label, 1000 + i) for i, (graph, label) in enumerate(ITEMS)]
    for source, ids in ((ITEMS, range(NUMBER)), (named, range(1000, 1000 + NUMBER)), (tp.with_ids(named), range(60))):
        found = [batch.graph_ids[batch.graph_mask].tolist() for batch in tp.packed_loader(source, 12)]
        assert sorted(flat(found)) == list(ids)


def out_of_reach(rows: list[tuple[int, int]], graphs: int, held: list[tuple[int, int]] | None = None) -> bool:
    """Whether packs that hold every graph need fewer batches than plain ones would, one at least."""
    nodes, edges = (max(1, *column) for column in zip(*(held or rows), strict=True))
    return tp.pack(tp.GraphSizes(rows), tp.Limits(nodes, edges)).num_packs <= len(rows) // (1.05 * graphs)


SIZE = st.tuples(st.integers(1, 30), st.integers(0, 60))


@settings(max_examples=15)
@given(st.lists(SIZE, min_size=1, max_size=300), st.integers(1, 80), st.booleans())
def test_batches_are_as_many_as_plain_ones_or_the_number_is_refused(
    sizes: list[tuple[int, int]], graphs: int, shuffle: bool
) -> None:
    """Mean graphs of a batch: to within 5 % and one batch more or less."""
    from dgl_tuplepack.loading.chosen_packs import Request, choose

    request = Request(graphs, None, None, {}, 1, 0, "error")
    try:
        choice = choose({"": tp.SizeHistogram.from_sizes(sizes)}, [""], request)
    except SearchError:
        # The largest graph is too large: as many mean graphs as its size would be more than a batch.
        assert out_of_reach(sizes, graphs)
        return
    sampler = tp.PackBatchSampler(
        tp.GraphSizes(sizes), choice.limits, plan=choice.plans[""], packs_per_batch=choice.packs_per_batch,
        shuffle=shuffle,
    )  # fmt: skip
    wanted = len(sizes) / min(graphs, len(sizes))
    assert wanted / 1.06 - 1 <= len(sampler) <= wanted / 0.94 + 1
    assert sorted(flat(list(sampler))) == list(range(len(sizes)))
    assert choice.search is not None
    assert choice.search.packs_per_batch == choice.packs_per_batch


def test_given_limits_are_met_by_a_number_of_packs() -> None:
    limits = tp.Limits(nodes=20, edges=30)
    plan = tp.pack(SIZES, limits)
    mean = NUMBER / plan.num_packs
    loader = tp.packed_loader(ITEMS, round(3 * mean), limits=limits)
    assert (loader.packs_per_batch, loader.search) == (3, None)
    assert loader.limits == limits.replace_graphs(plan.max_graphs)
    assert tp.packed_loader(ITEMS, limits=limits).packs_per_batch == 1
    assert tp.packed_loader(ITEMS, limits=limits, packs_per_batch=2).packs_per_batch == 2
    assert tp.packed_loader(ITEMS, plan=plan, packs_per_batch=2).plan.fingerprint == plan.fingerprint
    capped = tp.packed_loader(ITEMS, limits=limits.replace_graphs(40))
    assert capped.limits.graphs == 40
    assert {len(batch.graph_mask) for batch in capped} == {41}
    no_edges = tp.packed_loader({"train": ITEMS, "valid": ITEMS[:4]}, splits=True, limits=tp.Limits(nodes=20))
    assert no_edges["train"].limits == no_edges["valid"].limits
    with refused(
        SamplerError, "graphs_per_batch=1 ", "cannot be met", "ask for 5 (1 pack per batch)", "leave out limits"
    ):
        tp.packed_loader(ITEMS, 1, limits=limits)


def test_exchanged_packs_keep_the_shape() -> None:
    loaders = tp.packed_loader({"train": ITEMS, "valid": ITEMS[:20]}, 12, splits=True, content="exchange")
    assert [loaders[name].sampler.content for name in ("train", "valid")] == ["exchange", "fixed"]
    for epoch in range(3):
        loaders["train"].set_epoch(epoch)
        assert sum(batch.num_real_graphs for batch in loaders["train"]) == NUMBER
    assert loaders["train"].limits == loaders["valid"].limits


def test_graphs_that_are_too_large_are_named_or_dropped_with_a_warning() -> None:
    limits = tp.Limits(nodes=5, edges=7)
    few = int((~limits.fits(SIZES)).sum())
    assert few
    with refused(GraphTooLargeError, f"{few} of {NUMBER} graphs"):
        tp.packed_loader(ITEMS, limits=limits)
    with pytest.warns(UserWarning, match=f"{few} of {NUMBER} graphs exceed"):
        loader = tp.packed_loader(ITEMS, limits=limits, oversize="drop")
    assert sum(batch.num_real_graphs for batch in loader) == NUMBER - few
    assert len(loader.dataset) == NUMBER - few
    assert len(PackedLoader(loader.dataset, loader.sampler).dataset) == NUMBER - few
    assert len(pickle.loads(pickle.dumps(loader.dataset))) == NUMBER - few
    assert loader.sampler.dropped_ids.tolist() == (~limits.fits(SIZES)).nonzero()[0].tolist()
    with pytest.warns(UserWarning, match="graphs exceed") as told:
        loader = tp.packed_loader([*ITEMS * 3, LARGE], 8, oversize="drop")
    assert len(told) == 1
    assert repr(loader.limits) in str(told[0].message)
    assert (loader.sampler.dropped_ids.tolist(), loader.limits.nodes < 300) == ([3 * NUMBER], True)


@pytest.mark.parametrize("padded", [True, False])
def test_another_collate_is_refused_where_batches_are_padded(padded: bool) -> None:
    def collate(items: Any) -> int:
        return len(items)

    if padded:
        with refused(InputError, "padded=True", "collate_fn", "padded=False"):
            tp.packed_loader(ITEMS, 12, collate_fn=collate)
    else:
        assert sum(tp.packed_loader(ITEMS, 12, padded=False, collate_fn=collate)) == NUMBER
    loader = tp.packed_loader(ITEMS, 12, padded=padded)
    with refused(InputError, "padded=True" if padded else "collate_fn=..."):
        loader.collate_fn = collate
    with refused(InputError, "padded=True"):
        PackedLoader(loader.dataset, loader.sampler, collate_fn=collate)
    assert sum(1 for _ in loader) == len(loader)


def test_the_loader_tells_what_it_is_made_of() -> None:
    loader = tp.packed_loader(ITEMS, 12)
    assert loader.search is not None
    assert loader.limits.maxima == loader.search.best.limits.maxima
    assert (loader.batch_size, loader.batch_sampler, loader.padded) == (None, None, True)
    assert repr(loader).startswith(f"PackedLoader({len(loader)} batches of {loader.graphs_per_batch:.1f} graphs")


def test_a_resumed_loader_goes_on_where_the_state_was_saved() -> None:
    """In another object or the same, and twice; batches that workers have taken count only once the loop gets them."""
    arguments: dict[str, Any] = {"graphs_per_batch": 6, "seed": 4, "num_workers": 2}

    def loader_of() -> Any:
        return tp.packed_loader(tp.with_ids(ITEMS), **arguments)

    def some(loader: Any, number: int | None) -> list[Any]:
        return [batch.graph_ids.tolist() for batch in itertools.islice(loader, number)]

    first = loader_of()
    whole = some(first, None)
    assert first.state_dict()["position"] == len(whole)
    first.set_epoch(1)
    next_epoch = some(first, None)
    assert next_epoch != whole
    first.set_epoch(0)
    begun = some(first, 3)
    state = json.loads(json.dumps(first.state_dict()))
    for resumed in (first, loader_of()):
        resumed.load_state_dict(state)
        assert (resumed.sampler.epoch, len(resumed), resumed.state_dict()) == (0, len(whole), state)
        iter(resumed)
        rest = some(resumed, 2)
        again = loader_of()
        again.load_state_dict(resumed.state_dict())
        assert begun + rest + some(again, None) == whole
        again.set_epoch(1)
        assert some(again, None) == next_epoch


@pytest.mark.parametrize("padded", [True, False])
def test_a_packed_loader_that_lost_its_sampler_is_refused(padded: bool) -> None:
    loader = tp.packed_loader(ITEMS, 12, padded=padded)
    with refused(InputError, "single graph 0", "accelerator.prepare(loader)", "loader.view"):
        next(iter(DataLoader(loader.dataset, batch_size=None)))
    assert sum(1 for _ in loader) == len(loader)


@pytest.mark.parametrize(
    "sampler",
    [RandomSampler(range(60)), SequentialSampler(range(60)), DistributedSampler(range(60), 2, 0), [[0], [1]], None],
    ids=lambda sampler: type(sampler).__name__,
)
def test_another_sampler_is_refused_with_the_remedy(sampler: Any) -> None:
    """Frameworks that rebuild a loader pass one, with the other arguments of the loader."""
    loader = tp.packed_loader(ITEMS, 12)
    with refused(
        InputError, "needs its PackBatchSampler or", shown(sampler), "use_distributed_sampler=False", "prepare"
    ):
        PackedLoader(dataset=loader.dataset, sampler=sampler, num_workers=0, collate_fn=loader.collate_fn)
    with refused(InputError, "needs its PackBatchSampler or StaticBatchSampler, but the sampler is None"):
        PackedLoader(loader.dataset, batch_sampler=[[0], [1]])
    assert sum(1 for _ in PackedLoader(dataset=loader.dataset, sampler=loader.sampler)) == len(loader)


def test_a_sequential_sampler_of_the_dataset_turns_shuffling_off() -> None:
    """Also with dropped graphs, several processes, and packs that the end of an epoch drops."""
    settings: Any = {"limits": tp.Limits(5, 7), "num_replicas": 2, "rank": 1, "drop_last": True}
    with pytest.warns(UserWarning, match="graphs exceed"):
        loader = tp.packed_loader(ITEMS, oversize="drop", **settings)
    rebuilt = PackedLoader(loader.dataset, SequentialSampler(loader.dataset))
    with pytest.warns(UserWarning, match="graphs exceed"):
        expected = tp.packed_loader(ITEMS, oversize="drop", shuffle=False, **settings)
    for epoch in range(2):
        rebuilt.set_epoch(epoch)
        assert [batch.graph_ids.tolist() for batch in rebuilt] == [batch.graph_ids.tolist() for batch in expected]
    assert (rebuilt.limits, rebuilt.graphs_per_batch) == (expected.limits, expected.graphs_per_batch)
    assert (loader.sampler.shuffle, rebuilt.sampler.shuffle) == (True, False)


def test_a_packed_loader_that_accelerate_prepares_is_refused_by_name() -> None:
    accelerate = pytest.importorskip("accelerate")
    with refused(InputError, "accelerate", "prepare only the model and the optimiser"):
        next(iter(accelerate.Accelerator(cpu=True).prepare(tp.packed_loader(ITEMS, 12))))
