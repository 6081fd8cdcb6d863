"""`packed_loader(batch_size=)`: exact batches of one shape, next to plain loaders; epochs, ranks, splits and states."""

from __future__ import annotations

import itertools
import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import SequentialSampler, Subset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, InputError, LimitsError, SamplerError
from dgl_tuplepack.loading.packed_loader import PackedLoader
from dgl_tuplepack.loading.static_loader import padding_limits, slots_of
from dgl_tuplepack.storage.graph_store import save_static_shape
from tests.support.graphs import assert_same_dgl_batch, random_graph
from tests.support.graphs import generator as generator_of
from tests.support.loading import ITEMS, LARGE, NUMBER, SIZES
from tests.support.messages import refused
from tests.support.stores import data_of, molecules, purchases

pytestmark = pytest.mark.filterwarnings("ignore:batches of .* graphs need a shape:UserWarning")


def ids_of(loader: Any, number: int | None = None) -> list[list[int]]:
    """The ids of the graphs in some batches; the loader has them as the last element, or in padded batches."""
    batches = itertools.islice(loader, number)
    if loader.padded:
        return [batch.graph_ids[batch.graph_mask].tolist() for batch in batches]
    return [batch[-1].tolist() for batch in batches]


def exact(source: Any = ITEMS, batch_size: int = 8, **others: Any) -> Any:
    return tp.packed_loader(source, batch_size=batch_size, **{"with_ids": True, **others})


def flat(batches: list[list[int]]) -> list[int]:
    return [i for batch in batches for i in batch]


def items_of(rows: list[tuple[int, int]]) -> list[Any]:
    """Graphs of these sizes, whose label is their position."""
    gen = generator_of(0)
    return [(random_graph(gen, *row, {"x": ((2,), torch.float32)}, {}), torch.tensor(i)) for i, row in enumerate(rows)]


ROWS = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 20)), min_size=1, max_size=40)


@settings(max_examples=25)
@given(ROWS, st.integers(1, 12), st.integers(0, 2**64 - 1), st.booleans(), st.sampled_from([1, 4, 64]), st.booleans())
def test_each_epoch_has_exact_batches_within_the_shape(
    rows: list[tuple[int, int]], size: int, seed: int, drop_last: bool, multiple_of: int, in_memory: bool
) -> None:
    drop_last = drop_last and len(rows) >= size
    items = items_of(rows)
    loader = tp.packed_loader(
        items, batch_size=size, seed=seed, drop_last=drop_last, multiple_of=multiple_of, in_memory=in_memory
    )
    full, rest = divmod(len(rows), size)
    expected = [size] * full + ([rest] if rest and not drop_last else [])
    assert (len(loader), loader.packs_per_batch) == (len(expected), 1)
    assert [slots % multiple_of for slots in loader.shape.values] == [0, 0]
    assert (loader.shape.values, loader.shape.graphs) == (tuple(v + 2 for v in loader.limits.values), size + 1)
    orders = []
    for _ in range(4):
        batches = list(loader)
        assert [graph.batch_size for graph, _ in batches] == expected
        for graph, labels in batches:
            assert graph.num_nodes() <= loader.shape.nodes - 2
            assert graph.num_edges() <= loader.shape.edges - 2
            assert graph.__dict__["static_shape"] == loader.shape
            assert_same_dgl_batch(graph, dgl.batch([items[i][0] for i in labels.tolist()]))
        orders.append(flat([labels.tolist() for _, labels in batches]))
        assert len(set(orders[-1])) == len(orders[-1]) == sum(expected)
    if len(rows) > 8:
        assert len(set(map(tuple, orders))) == 4


@settings(max_examples=15)
@given(ROWS, st.integers(1, 12), st.booleans())
def test_an_evaluation_is_that_of_the_plain_loader(rows: list[tuple[int, int]], size: int, in_memory: bool) -> None:
    items = items_of(rows)
    loader = tp.packed_loader(items, batch_size=size, shuffle=False, in_memory=in_memory)
    plain = GraphDataLoader(items, batch_size=size)
    for _ in range(2):
        for (graph, labels), (other, right) in zip(loader, plain, strict=True):
            assert_same_dgl_batch(graph, other)
            assert torch.equal(labels, right)
            assert graph.num_nodes() <= loader.limits.nodes
            assert graph.num_edges() <= loader.limits.edges


@settings(max_examples=25)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.booleans())
def test_ranks_take_as_many_steps_and_share_no_graph(
    number: int, size: int, ranks: int, shuffle: bool, drop_last: bool
) -> None:
    given: dict[str, Any] = {"shuffle": shuffle, "drop_last": drop_last, "num_replicas": ranks}
    try:
        loaders = [exact(ITEMS[:number], size, rank=rank, **given) for rank in range(ranks)]
    except SamplerError:
        assert number < size * ranks if drop_last else number < ranks or (size == 1 and number % ranks)
        return
    for epoch in range(2):
        for loader in loaders:
            loader.set_epoch(epoch)
        of_ranks = [ids_of(loader) for loader in loaders]
        assert {len(batches) for batches in of_ranks} == {len(loaders[0])}
        seen = flat([batch for batches in of_ranks for batch in batches])
        assert all(batch for batches in of_ranks for batch in batches)
        assert len(set(seen)) == len(seen)
        assert len(seen) == (number // (size * ranks) * size * ranks if drop_last else number)
    assert len({(loader.shape, len(loader)) for loader in loaders}) == 1


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("workers", [{"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str)
def test_workers_make_the_same_epochs(workers: dict[str, Any], padded: bool) -> None:
    one, other = exact(padded=padded), exact(padded=padded, **workers)
    for _ in range(3):
        assert ids_of(one) == ids_of(other)
    assert one.state_dict() == other.state_dict()
    first = next(iter(other))
    if not padded:
        assert first[0].__dict__["static_shape"] == other.shape


# Epochs ------------------------------------------------------------------------------------------------------

# Loaders of exact batches, and of packs of each content.
LOADERS: dict[str, dict[str, Any]] = {
    "exact": {"batch_size": 8, "with_ids": True},
    "exact and padded": {"batch_size": 8, "padded": True},
    "packs": {"graphs_per_batch": 8},
    "packs without padding": {"graphs_per_batch": 8, "padded": False, "with_ids": True, "content": "resample"},
    "packs of fixed content": {"graphs_per_batch": 8, "content": "fixed"},
    "exchanged packs": {"graphs_per_batch": 8, "content": "exchange"},
    "workers": {"batch_size": 8, "with_ids": True, "num_workers": 1, "persistent_workers": True},
}


@pytest.fixture(params=LOADERS)
def settings_of(request: pytest.FixtureRequest) -> dict[str, Any]:
    return LOADERS[request.param]


def by_epochs(settings: dict[str, Any], epochs: int) -> list[list[list[int]]]:
    """The epochs of a loader whose epoch is set."""
    loader, found = tp.packed_loader(ITEMS, **{**settings, "num_workers": 0, "persistent_workers": False}), []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        found.append(ids_of(loader))
    return found


def test_each_iteration_takes_the_next_epoch(settings_of: dict[str, Any]) -> None:
    expected = by_epochs(settings_of, 5)
    assert len(set(map(str, expected))) == 5
    loader = tp.packed_loader(ITEMS, **settings_of)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for epoch in range(5):
            iter(loader)
            assert len(loader) == len(expected[0])
            assert ids_of(loader) == expected[epoch]
            assert loader.sampler.epoch == epoch
            assert loader.state_dict()["next_epoch"] == epoch + 1


def test_a_loop_that_is_left_has_used_its_epoch(settings_of: dict[str, Any]) -> None:
    expected, loader = by_epochs(settings_of, 3), tp.packed_loader(ITEMS, **settings_of)
    found = []
    for _ in loader:
        break
    # An iteration that delivers nothing uses nothing.
    list(itertools.islice(loader, 0))
    for batch in loader:
        found.append(batch)
        if len(found) == 2:
            break
    assert ids_of(loader) == expected[2]


def test_an_evaluation_moves_nothing(settings_of: dict[str, Any]) -> None:
    """Before the first epoch, in the middle of one, and between epochs; and the training goes on."""
    expected = by_epochs(settings_of, 3)
    loader = tp.packed_loader(ITEMS, **{**settings_of, "persistent_workers": False})

    def evaluate(epoch: int) -> None:
        before = loader.state_dict()
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert ids_of(loader) == expected[epoch]
                next(iter(loader))
        assert loader.state_dict() == before

    with torch.no_grad():
        assert ids_of(loader) == ids_of(loader) == expected[0]
    training = iter(loader)
    batches = [next(training) for _ in range(3)]
    evaluate(0)
    batches += training
    assert len(batches) == len(expected[0])
    evaluate(0)
    assert ids_of(loader, 2) == expected[1][:2]
    evaluate(1)
    assert ids_of(loader) == expected[2]


def test_after_set_epoch_only_set_epoch_moves_the_epoch(settings_of: dict[str, Any]) -> None:
    expected, loader = by_epochs(settings_of, 4), tp.packed_loader(ITEMS, **settings_of)
    assert ids_of(loader) == expected[0]
    # Frameworks set the epoch of the sampler.
    loader.sampler.sampler.set_epoch(3)
    assert ids_of(loader) == expected[3]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert ids_of(loader) == expected[3]
    # Packs of fixed content may be repeated.
    repeated = [warning for warning in caught if "epoch 3 is iterated again" in str(warning.message)]
    assert len(repeated) == (settings_of.get("content") != "fixed")
    loader.set_epoch(1)
    assert ids_of(loader) == expected[1]


@pytest.mark.parametrize("given", [{"batch_size": 8, "with_ids": True}, {"graphs_per_batch": 8}], ids=str)
def test_ranks_never_move_an_epoch_by_themselves(given: dict[str, Any]) -> None:
    loader = tp.packed_loader(ITEMS, num_replicas=2, rank=0, content=None, **given)
    first = ids_of(loader)
    with pytest.warns(UserWarning, match="epoch 0 is iterated again"):
        assert ids_of(loader) == first


def test_without_shuffling_nothing_moves(settings_of: dict[str, Any]) -> None:
    given = {name: value for name, value in settings_of.items() if name != "content"}
    loader = tp.packed_loader(ITEMS, shuffle=False, **given)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert ids_of(loader) == ids_of(loader)
    assert loader.sampler.epoch == 0


def test_an_epoch_resumes_at_every_position_and_the_next_follows(settings_of: dict[str, Any]) -> None:
    expected, one = by_epochs(settings_of, 4), tp.packed_loader(ITEMS, **settings_of)
    settings_of = {**settings_of, "num_workers": 0, "persistent_workers": False}
    for epoch in range(2):
        for position, _ in enumerate(one, start=1):
            state = json.loads(json.dumps(one.state_dict()))
            other = tp.packed_loader(ITEMS, **settings_of)
            other.load_state_dict(state)
            assert (other.state_dict(), len(other)) == (state, len(one))
            # No batch is left of a complete epoch.
            assert ids_of(other) == expected[epoch][position:]
            assert ids_of(other, 2) == expected[epoch + 1][:2]
            assert ids_of(other) == expected[epoch + 2]


def test_a_state_of_an_earlier_release_has_no_next_epoch() -> None:
    expected, one = by_epochs(LOADERS["packs"], 3), tp.packed_loader(ITEMS, 8)
    ids_of(one)
    for number, following in ((3, 2), (None, 2)):
        del one
        one = tp.packed_loader(ITEMS, 8)
        one.load_state_dict({**tp.packed_loader(ITEMS, 8).state_dict(), "epoch": 1})
        ids_of(one, number)
        state = one.state_dict()
        del state["next_epoch"]
        other = tp.packed_loader(ITEMS, 8)
        other.load_state_dict(state)
        assert ids_of(other) == ([] if number is None else expected[1][number:])
        assert ids_of(other) == expected[following]
    for value in (-1, 2**64, None, "1"):
        with refused(SamplerError, "next_epoch of a state must be an integer", repr(value)):
            one.load_state_dict({**one.state_dict(), "next_epoch": value})


def test_states_of_exact_batches_belong_to_their_settings_and_graphs() -> None:
    state = exact().state_dict()
    for loader, parts in (
        (exact(batch_size=9), ("batch_size 8", "has 9")),
        (exact(shuffle=False), ("shuffle True", "has False")),
        (exact(seed=1), ("seed 0", "has 1")),
        (exact(ITEMS[1:]), ("num_graphs 60", "has 59")),
        (exact(ITEMS[::-1], limits=exact().limits), ("sizes", "resuming would repeat or lose graphs")),
        (tp.packed_loader(ITEMS, 8), ("lacks", "content", "plan")),
    ):
        with refused(SamplerError, *parts):
            loader.load_state_dict(state)


# Splits and sources ------------------------------------------------------------------------------------------

SPLITS = {"train": [*range(0, 40)], "more": range(10, 35), "valid": [*range(59, 39, -1)], "test": [3, 4, 58]}


@pytest.mark.parametrize("padded", [None, True])
def test_shuffled_splits_share_one_shape_and_the_others_another(padded: bool | None) -> None:
    loaders = exact(splits=SPLITS, shuffle=("train", "more"), padded=padded, drop_last=True, multiple_of=4)
    assert loaders["train"].shape == loaders["more"].shape
    assert loaders["valid"].shape == loaders["test"].shape
    assert [name for name, loader in loaders.items() if loader.sampler.shuffle] == ["train", "more"]
    # Only shuffled splits drop graphs.
    assert [len(loader) for loader in loaders.values()] == [5, 3, 3, 1]
    for name, loader in loaders.items():
        batches = ids_of(loader)
        ids = [*SPLITS[name]]
        if name in ("valid", "test"):
            assert batches == [ids[first : first + 8] for first in range(0, len(ids), 8)]
            contents = [SIZES.array[batch].sum(axis=0) for batch in batches]
            assert (np.array(contents) <= loaders["test"].limits.array).all()
        else:
            assert set(flat(batches)) <= set(ids)
            assert {len(batch) for batch in batches} == {8}
    single = {name: exact(Subset(ITEMS, list(ids)), shuffle=name in ("train", "more")) for name, ids in SPLITS.items()}
    for names in (("train", "more"), ("valid", "test")):
        most = np.max([single[name].limits.array for name in names], axis=0)
        assert (loaders[names[0]].limits.array >= most).all()
        assert (loaders[names[0]].limits.array - most < 4).all()


def test_mappings_of_sources_and_stores_with_splits(folder: Path) -> None:
    mapping = {"train": ITEMS[:40], "valid": ITEMS[40:50], "test": ITEMS[50:]}
    first, second = exact(mapping, splits=True), exact(folder / "store", splits=True)
    for name, start in (("train", 0), ("valid", 40), ("test", 50)):
        assert first[name].shape == second[name].shape
        for _ in range(2):
            found = [[i + start for i in batch] for batch in ids_of(first[name])]
            assert found == ids_of(second[name])


def test_the_stored_shape_is_used(tmp_path: Path, folder: Path) -> None:
    made = tp.preprocess(folder / "store", tmp_path / "made", graphs_per_batch=8, batch_size=6)
    train = made.store.subset(made.store.splits["train"])
    # A larger shape than would be chosen shows which one is used.
    larger = tp.Limits(70, 80, graphs=6)
    save_static_shape(data_of(tmp_path / "made"), larger, train.sizes)
    loaders = exact(tmp_path / "made", 6, splits=True)
    assert (loaders["train"].limits, exact(train, 6).limits) == (larger, larger)
    assert loaders["valid"].limits == loaders["test"].limits != larger
    assert exact(tmp_path / "made", 5, splits=True)["train"].limits != larger
    assert exact(tmp_path / "made", 6, splits=True, multiple_of=4)["train"].limits != larger


@pytest.mark.parametrize("padded", [False, True])
def test_heterographs_and_named_graphs(padded: bool) -> None:
    hetero = purchases(30)
    loader = exact(hetero, 7, padded=padded)
    assert sorted(flat(ids_of(loader))) == list(range(30))
    pairs = [({"a": graph, "b": other}, label) for (graph, label), (other, _) in zip(ITEMS, ITEMS[::-1], strict=True)]
    named = exact(pairs, 7, padded=padded)
    assert sorted(flat(ids_of(named))) == list(range(NUMBER))
    assert set(named.shape.components) == {"nodes:a", "nodes:b", "edges:a", "edges:b"}
    if not padded:
        graphs = next(iter(named))[0]
        assert [graph.__dict__["static_shape"] for graph in graphs.values()] == [named.shape] * 2


# Shapes ------------------------------------------------------------------------------------------------------


def test_slots_of_limits() -> None:
    limits = tp.Limits.from_components({"nodes:a": 5, "nodes:b": 7, "edges:a:to:b": 4, "triplets": 9}, graphs=3)
    slots = {"nodes:a": 7, "nodes:b": 9, "edges:a:to:b": 6, "triplets": 9}
    assert slots_of(limits) == tp.Limits.from_components(slots, graphs=4)
    slots = {"nodes:a": 12, "nodes:b": 16, "edges:a:to:b": 10, "triplets": 18}
    assert slots_of(limits, 2) == tp.Limits.from_components(slots, graphs=7)
    slots = {"nodes:a": 16, "nodes:b": 16, "edges:a:to:b": 16, "triplets": 18}
    assert slots_of(limits, 2, multiple_of=8) == tp.Limits.from_components(slots, graphs=7)
    # A shape that no batch ever fills may be as large as integers are.
    assert slots_of(tp.Limits(2**63 - 1, 5), 2).values == (2**63 - 1, 12)
    assert padding_limits(tp.Limits(5, 6, graphs=2), coordinates=False) == tp.Limits(6, 8, graphs=2)
    assert padding_limits(tp.Limits(5, 6, graphs=2), coordinates=True) == tp.Limits(5, 8, graphs=2)


def slots_in(batch: Any) -> tp.Limits:
    """What a padded batch really has."""
    return tp.Limits(batch.graph.num_nodes(), batch.graph.num_edges(), graphs=len(batch.graph_mask))


@pytest.mark.parametrize("multiple_of", [1, 16])
@pytest.mark.parametrize("more", [{}, {"coordinates": ("x",)}, {"cover_padding": True}, {"sort_edges": True}], ids=str)
def test_padded_batches_have_the_slots_of_the_loader(more: dict[str, Any], multiple_of: int) -> None:
    for kind in ("batch_size", "graphs_per_batch"):
        size: dict[str, Any] = {kind: 8}
        loader = tp.packed_loader(ITEMS, padded=True, multiple_of=multiple_of, **size, **more)
        assert {slots_in(batch) for batch in loader} == {loader.shape}
        if kind == "batch_size" and "cover_padding" not in more:
            assert loader.shape == tp.packed_loader(ITEMS, batch_size=8, multiple_of=multiple_of).shape
            assert [slots % multiple_of for slots in loader.shape.values] == [0, 0]


def test_packs_have_slots_too() -> None:
    loader = tp.packed_loader(ITEMS, 8, padded=False, multiple_of=8)
    packs, limits = loader.packs_per_batch, loader.limits
    assert (loader.shape, loader.shape.graphs) == (slots_of(limits, packs, 8), packs * limits.graphs + 1)
    for graph, _ in loader:
        assert graph.__dict__["static_shape"] == loader.shape
        assert graph.num_nodes() <= loader.shape.nodes - 2
    shapes = [tp.Limits(20, 25), tp.Limits(320, 520)]
    buckets = tp.packed_loader([*ITEMS, LARGE], limits=shapes, padded=False)
    assert buckets.shape == tuple(slots_of(each, buckets.packs_per_batch) for each in buckets.limits)
    assert next(iter(buckets))[0].__dict__["static_shape"] == buckets.shape
    padded = tp.packed_loader([*ITEMS, LARGE], limits=shapes)
    assert {slots_in(batch) for batch in padded} == set(padded.shape)


def test_batches_with_a_shape_are_pinned_copied_and_moved() -> None:
    loader = exact(pin_memory=torch.cuda.is_available())
    graph, labels, ids = next(iter(loader))
    assert graph.to("cpu").num_nodes() == graph.num_nodes()
    same = pickle.loads(pickle.dumps(graph))
    assert_same_dgl_batch(same, graph)
    assert graph.local_var().num_nodes() == graph.num_nodes()
    assert len(labels) == len(ids) == 8


def test_given_limits_are_the_shape_of_a_batch_and_leave_graphs_out() -> None:
    roomy = tp.Limits(60, 70)
    loader = exact(limits=roomy)
    assert loader.limits == roomy.replace_graphs(8)
    large = [*ITEMS, *molecules(2, 5, 90)]
    sizes = tp.sizes_of(large).array
    assert (sizes[-2:] > 70).any(axis=1).all() or pytest.fail("choose another seed")
    with refused(GraphTooLargeError, "2 of 62 graphs exceed"):
        exact(large, limits=roomy)
    with pytest.warns(UserWarning, match="2 of 62 graphs exceed"):
        loader = exact(large, limits=roomy, oversize="drop")
    assert sorted(flat(ids_of(loader))) == list(range(60))
    assert len(loader.dataset) == 60
    # Other splits keep all their graphs, in a shape of their own.
    splits = {"train": [*range(50), 60], "valid": [50, 61]}
    with pytest.warns(UserWarning, match="1 of 51 graphs exceed"):
        loaders = exact(large, splits=splits, limits=roomy, oversize="drop")
    assert sorted(flat(ids_of(loaders["train"]))) == list(range(50))
    assert ids_of(loaders["valid"]) == [[50, 61]]
    assert loaders["train"].limits == roomy.replace_graphs(8)
    with refused(SamplerError, "of the graphs in their order has"):
        exact(limits=tp.Limits(20, 20), shuffle=False)


def test_random_crops_that_outgrow_the_shape_are_named() -> None:
    class Growing:
        """Its graphs grow once their sizes were counted."""

        reads = 0

        def __len__(self) -> int:
            return 12

        def __getitem__(self, i: int) -> Any:
            type(self).reads += 1
            return ITEMS[i] if type(self).reads < 30 else (dgl.rand_graph(90, 90), ITEMS[i][1])

    loader = tp.packed_loader(Growing(), batch_size=4)
    with refused(GraphTooLargeError, "when it was read again"):
        for _ in range(9):
            list(loader)


# The loader --------------------------------------------------------------------------------------------------


def test_the_loader_tells_what_it_is() -> None:
    loader = exact()
    assert repr(loader) == f"PackedLoader(8 batches of 8 graphs within {loader.limits!r}, not padded)"
    assert (loader.search, loader.packs_per_batch, loader.graphs_per_batch) == (None, 1, 7.5)
    assert not hasattr(loader, "plan")
    with pytest.raises(AttributeError, match=r"has no plan.*graphs_per_batch"):
        _ = loader.plan
    assert isinstance(loader.sampler, tp.StaticBatchSampler)
    copied = pickle.loads(pickle.dumps(loader))
    assert ids_of(copied) == ids_of(loader)
    with refused(InputError, "needs its PackBatchSampler or StaticBatchSampler"):
        PackedLoader(loader.dataset, range(3))  # type: ignore[arg-type]


@pytest.mark.parametrize("padded", [False, True])
def test_a_sequential_sampler_of_the_dataset_turns_shuffling_off(padded: bool) -> None:
    """As Lightning's overfit_batches does; the batches keep to the shape."""
    loader = exact(padded=padded)
    rebuilt = PackedLoader(loader.dataset, SequentialSampler(loader.dataset), padded=padded)
    first = by_epochs(LOADERS["exact"], 1)[0]
    for epoch in range(3):
        rebuilt.set_epoch(epoch)
        assert ids_of(rebuilt) == first
    assert (loader.sampler.shuffle, rebuilt.sampler.shuffle) == (True, False)
    assert (rebuilt.shape, rebuilt.limits, rebuilt.graphs_per_batch) == (loader.shape, loader.limits, 7.5)
    assert rebuilt.sampler.unshuffled().settings() == rebuilt.sampler.settings()
    # Its states are neither those of the shuffled loader nor of one in the order of the source.
    loader, in_order = (exact(limits=tp.Limits(60, 70), shuffle=shuffle) for shuffle in (True, False))
    rebuilt = PackedLoader(loader.dataset, SequentialSampler(loader.dataset), padded=False)
    for other, name in ((loader, "shuffle"), (in_order, "graphs of other sizes")):
        with refused(SamplerError, f"the state was saved with {name}"):
            rebuilt.load_state_dict(other.state_dict())


def test_a_collate_function_gets_exact_batches() -> None:
    def collate(items: list[Any]) -> dict[str, Any]:
        graphs, labels = zip(*items, strict=True)
        return {"g": dgl.batch(graphs), "y": torch.stack(labels), "n": len(items)}

    loader = tp.packed_loader(ITEMS, batch_size=8, collate_fn=collate)
    batches = list(loader)
    assert [batch["n"] for batch in batches] == [8] * 7 + [4]
    assert all(batch["g"].__dict__["static_shape"] == loader.shape for batch in batches)


@pytest.mark.parametrize(
    ("changes", "error", "parts"),
    [
        ({"graphs_per_batch": 8}, InputError, ("batch_size=8", "graphs_per_batch=8", "leave one of them out")),
        ({"packs_per_batch": 2}, InputError, ("batch_size=8", "packs_per_batch=2")),
        ({"shapes": 2}, InputError, ("batch_size=8", "shapes=2")),
        ({"plan": tp.pack(SIZES, tp.Limits(20, 30))}, InputError, ("batch_size=8", "plan=")),
        ({"content": "fixed"}, InputError, ("batch_size=8", "content='fixed'")),
        ({"limits": tp.Limits(99, 99), "multiple_of": 8}, InputError, ("multiple_of=8", "gives limits")),
        ({"limits": [tp.Limits(9, 9), tp.Limits(99, 99)]}, LimitsError, ("one shape is needed here",)),
        ({"limits": tp.Limits(99, 99, graphs=5)}, LimitsError, ("room for 5 graphs", "batch_size is 8")),
        ({"oversize": "drop"}, InputError, ("oversize='drop'", "add limits=")),
        ({"oversize": "keep"}, InputError, ("oversize", "'keep'")),
        ({"multiple_of": 0}, InputError, ("multiple_of must be an integer in 1..", "0")),
        ({"batch_size": -1}, InputError, ("batch_size must be an integer in 1..", "-1")),
        ({"batch_size": "8"}, InputError, ("batch_size must be an integer in 1..", "'8'")),
        ({"padded": 1}, InputError, ("padded must be True or False", "1")),
        ({"sort_edges": True}, InputError, ("sort_edges", "padded batches", "padded=True")),
        ({"num_replicas": 2}, SamplerError, ("num_replicas and rank go together",)),
        ({"num_replicas": 61, "rank": 0}, SamplerError, ("60 graphs in batches of 8", "61 ranks")),
        ({"batch_size": 61, "drop_last": True}, SamplerError, ("drop_last=True would leave nothing",)),
        ({"splits": {"a": [1]}}, InputError, ("no split is called 'train'",)),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(
    changes: dict[str, Any], error: type[Exception], parts: tuple[str, ...]
) -> None:
    with refused(error, *parts):
        tp.packed_loader(ITEMS, **{"batch_size": 8, **changes})


def test_batch_size_is_given_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        tp.packed_loader(ITEMS, None, None, 8)  # type: ignore[call-overload]
    assert tp.packed_loader(ITEMS, 8).padded
