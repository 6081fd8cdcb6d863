"""`packed_loader`: from any source and a number of graphs to batches."""

from __future__ import annotations

import gc
import inspect
import itertools
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import (
    GraphTooLargeError,
    InputError,
    PlanError,
    SamplerError,
    SchemaError,
    SearchError,
    SizesError,
)
from dgl_tuplepack.loading.packed_loader import PackedLoader
from dgl_tuplepack.loading.settings import BatchSettings, DataLoaderSettings, SamplerSettings
from tests.support.graphs import assert_same_batch, assert_same_dgl_batch, flat, generator, random_graph, shapes_of
from tests.support.messages import refused
from tests.support.ogb_folder import write_ogb_folder
from tests.support.shards import write_bin, write_bins
from tests.support.stores import molecules, purchases

NUMBER = 60
ITEMS = molecules(NUMBER)
SIZES = tp.sizes_of(ITEMS)
LARGE = (
    random_graph(
        generator(9), 300, 500, {"feat": ((3,), torch.int64), "x": ((), torch.float32)}, {"feat": ((2,), torch.int64)}
    ),
    torch.zeros(2),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, shards, a file of saved graphs, and an OGB folder; all of `NUMBER` graphs."""
    path = tmp_path_factory.mktemp("sources")
    tp.GraphStore.write(
        path / "store", ITEMS, splits={"train": range(40), "valid": range(40, 50), "test": range(50, 60)}
    )
    tp.preprocess_shards(write_bins(path, 3), path / "shards", workers=1)
    write_bin(path / "graphs.bin", ITEMS)
    write_ogb_folder(path, SIZES)
    return path


class Dataset(dgl.data.DGLDataset):
    """A dataset as DGL's users write them."""

    def __init__(self) -> None:
        super().__init__("molecules")

    def process(self) -> None:
        self.items = ITEMS

    def __getitem__(self, i: int) -> Any:
        return self.items[i]

    def __len__(self) -> int:
        return len(self.items)


SOURCES = {
    "a list": lambda folder: ITEMS,
    "a dataset of DGL": lambda folder: Dataset(),
    "graphs alone": lambda folder: [graph for graph, _ in ITEMS],
    "a list with ids": lambda folder: tp.with_ids(ITEMS),
    "a subset of torch": lambda folder: torch.utils.data.Subset(ITEMS * 2, range(30, 30 + NUMBER)),
    "a subset of DGL": lambda folder: dgl.data.utils.Subset(ITEMS, range(NUMBER)),
    "an iterator": lambda folder: iter(ITEMS),
    "a store": lambda folder: tp.GraphStore(folder / "store"),
    "a store with ids": lambda folder: tp.with_ids(tp.GraphStore(folder / "store")),
    "a subset of a store": lambda folder: tp.GraphStore.write(tempfile.mkdtemp(), ITEMS * 2).subset(range(NUMBER)),
    "shards": lambda folder: tp.MultiStore(folder / "shards"),
    "the path of a store": lambda folder: folder / "store",
    "the path of shards": lambda folder: str(folder / "shards"),
    "the path of saved graphs": lambda folder: folder / "graphs.bin",
    "an OGB folder": lambda folder: tp.OgbFolder(folder / "ogbg_molhiv"),
    "the path of an OGB folder": lambda folder: folder / "ogbg_molhiv",
    "heterographs": lambda folder: purchases(NUMBER),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_gives_each_graph_once_in_batches_of_one_shape(
    folder: Path, kind: str, workers: int
) -> None:
    loader = tp.packed_loader(SOURCES[kind](folder), graphs_per_batch=12, num_workers=workers)
    shapes = []
    for epoch in range(2):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert sum(batch.num_real_graphs for batch in batches) == NUMBER
        shapes += [shapes_of(batch) for batch in batches]
    assert len(batches) == len(loader) == NUMBER / loader.graphs_per_batch
    assert all(shape == shapes[0] for shape in shapes)
    assert abs(loader.graphs_per_batch / 12 - 1) <= 0.1
    slots = loader.packs_per_batch * loader.limits.graphs + 1
    assert {len(batch.graph_mask) for batch in batches} == {slots}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_gives_each_graph_once_without_padding(folder: Path, kind: str, workers: int) -> None:
    loader = tp.packed_loader(SOURCES[kind](folder), graphs_per_batch=12, num_workers=workers, padded=False)
    batches = list(loader)
    graphs = [batch if isinstance(batch, dgl.DGLGraph) else batch[0] for batch in batches]
    assert sum(graph.batch_size for graph in graphs) == NUMBER
    assert len(batches) == len(loader)
    most = [loader.packs_per_batch * limit for limit in loader.limits.values]
    for graph in graphs:
        counts = [*map(graph.num_nodes, graph.ntypes), *map(graph.num_edges, graph.canonical_etypes)]
        assert all(count <= limit for count, limit in zip(counts, most, strict=True))


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
    from dgl_tuplepack.loading.choice import Request, choose

    request = Request(graphs, None, None, {}, 1, 0, "error")
    try:
        choice = choose({"": tp.GraphSizes(sizes)}, [""], request)
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


@pytest.mark.parametrize("kind", ["a store", "an OGB folder", "a list"])
@pytest.mark.parametrize("workers", [0, 2])
def test_parts_of_a_split_have_one_shape_and_only_training_is_shuffled(folder: Path, kind: str, workers: int) -> None:
    splits: Any = True if kind != "a list" else {"train": range(45), "valid": range(45, 52), "test": [59, 52, 55]}
    source = SOURCES["a list with ids" if kind == "a list" else kind](folder)
    loaders = tp.packed_loader(source, 8, splits=splits, num_workers=workers, drop_last=False)
    assert [*loaders] == ["train", "valid", "test"]
    shapes, ids = [], {}
    for name, loader in loaders.items():
        epochs = []
        for epoch in range(2):
            loader.set_epoch(epoch)
            batches = list(loader)
            shapes += [shapes_of(batch) for batch in batches]
            epochs.append(flat([batch.graph_ids[batch.graph_mask].tolist() for batch in batches]))
        assert (epochs[0] == epochs[1]) == (name != "train")
        assert sorted(epochs[0]) == sorted(epochs[1])
        ids[name] = epochs[0]
    assert all(shape == shapes[0] for shape in shapes)
    assert len({loader.limits for loader in loaders.values()}) == 1
    if splits is not True:
        assert {name: sorted(found) for name, found in ids.items()} == {n: sorted(i) for n, i in splits.items()}


def test_parts_may_be_sources_of_their_own_and_the_largest_graph_of_all_decides(folder: Path) -> None:
    sources = {"train": folder / "store", "valid": [LARGE], "test": ITEMS[:3]}
    loaders = tp.packed_loader(sources, 60, splits=True, num_workers=0)
    shapes = [shapes_of(batch) for loader in loaders.values() for batch in loader]
    assert all(shape == shapes[0] for shape in shapes)
    assert len({loader.limits for loader in loaders.values()}) == 1
    assert loaders["valid"].limits.nodes >= 300
    with refused(SearchError, "out of reach", "hold every graph"):
        tp.packed_loader({"train": folder / "store", "valid": [LARGE]}, 4, splits=True)


def test_given_limits_are_met_by_a_number_of_packs(folder: Path) -> None:
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
    with refused(SamplerError, "graphs_per_batch=1 ", "cannot be met", "ask for 5 (1 pack per batch)", "leave limits"):
        tp.packed_loader(ITEMS, 1, limits=limits)


def test_plans_of_preprocessing_are_taken(tmp_path: Path, folder: Path) -> None:
    made = tp.preprocess(folder / "store", tmp_path / "made")
    loaders = tp.packed_loader(made.store, splits=True, packs_per_batch=2, plan=made.plans)
    assert {name: loader.plan.fingerprint for name, loader in loaders.items()} == {
        name: plan.fingerprint for name, plan in made.plans.items()
    }
    assert len({loader.limits for loader in loaders.values()}) == 1
    with refused(PlanError, "the plan is for"):
        tp.packed_loader(made.store, splits=True, packs_per_batch=2, plan={"train": made.plans["test"]})
    with refused(InputError, "'all'", "'train' or 'valid' or 'test'"):
        tp.packed_loader(made.store, splits=True, plan={"all": made.plans["test"]})


@pytest.mark.parametrize("content", [{"content": "repack"}, {"replan_every": 1}])
def test_new_plans_keep_the_shape(content: dict[str, Any]) -> None:
    loaders = tp.packed_loader({"train": ITEMS, "valid": ITEMS[:20]}, 12, splits=True, **content)
    assert (loaders["train"].sampler.replan_every, loaders["valid"].sampler.replan_every) == (1, None)
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


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({}, InputError, ("graphs_per_batch", "batch_size", "limits")),
        ({"graphs_per_batch": 8, "batch_size": 8}, InputError, ("batch_size", "graphs_per_batch")),
        ({"batch_size": 8}, InputError, ("batch_size cannot be given", "graphs_per_batch")),
        ({"budget": 64}, InputError, ("budget cannot be given", "search_limits(source, budget=...)")),
        ({"graphs_per_batch": 8, "batch_sampler": []}, InputError, ("batch_sampler", "makes its own")),
        ({"graphs_per_batch": 8, "colour": 8}, InputError, ("no setting 'colour'", "sort_edges", "content")),
        ({"graphs_per_batch": 8, "padded": False, "sort_edges": True}, InputError, ("sort_edges", "padded=False")),
        ({"graphs_per_batch": 8, "padded": False, "collate_fn": 3}, InputError, ("collate_fn", "3")),
        (
            {"graphs_per_batch": 8, "packs_per_batch": 2, "limits": tp.Limits(20, 30)},
            InputError,
            ("graphs_per_batch=8", "packs_per_batch=2", "leave one of them out"),
        ),
        ({"limits": tp.Limits(20, 30), "multiple_of": 8}, InputError, ("multiple_of=8", "limits")),
        ({"graphs_per_batch": 8, "shuffle": False, "content": "resample"}, SamplerError, ("shuffle=False",)),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(
    arguments: dict[str, Any], error: type[InputError], parts: tuple[str, ...]
) -> None:
    with refused(error, *parts):
        tp.packed_loader(ITEMS, **arguments)


def test_the_settings_are_those_of_the_objects_that_receive_them() -> None:
    def keywords(*functions: Any) -> set[str]:
        return {name for f in functions for name in inspect.signature(f).parameters} - {"self"}

    chosen = keywords(tp.packed_loader) | {"sizes", "example", "dataset", "batch_size", "sampler", "batch_sampler"}
    of_batches = keywords(tp.PaddedCollate.__init__, tp.GraphStore.padded)
    assert {*SamplerSettings.__annotations__} == keywords(tp.PackBatchSampler.__init__) - chosen
    assert {*BatchSettings.__annotations__} == of_batches - chosen
    # torch 2.13 has these; `drop_last` and `collate_fn` go to the sampler and to the view.
    assert {*DataLoaderSettings.__annotations__} == keywords(DataLoader) - chosen - {"drop_last", "collate_fn"}


@pytest.mark.parametrize(
    ("source", "settings", "error", "parts"),
    [
        (ITEMS, {}, SizesError, ("no splits", "or None for all graphs")),
        (ITEMS, {"splits": [0, 1]}, InputError, ("mapping of names to ids", "[0, 1]")),
        (ITEMS, {"splits": {"train": [0, 1]}, "plan": [3]}, InputError, ("with splits", "mapping", "[3]")),
        (ITEMS, {"splits": {"train": [0, 1], "test": []}}, SizesError, ("'test' has no graphs",)),
        (ITEMS, {"splits": {"train": [0, 60]}}, SizesError, ("id 60", "0..59")),
        (ITEMS, {"splits": {"a": [0], "b": [1]}}, InputError, ("'train'", "'a', 'b'", "shuffle=")),
        (ITEMS, {"splits": {"a": [0]}, "shuffle": ["b"]}, InputError, ("'b'", "'a'")),
        (ITEMS, {"splits": {"a": [0]}, "shuffle": "a"}, InputError, ("names of splits", "'a'")),
        ({"train": ITEMS}, {"splits": {"train": [0]}}, InputError, ("mapping of sources", "splits=True")),
        ({}, {}, SizesError, ("at least one",)),
        ({3: ITEMS}, {}, InputError, ("names of splits", "3")),
        ({"train": ITEMS, "valid": purchases(3)}, {}, SchemaError, ("'valid'", "node types", "'train'", "same")),
        ({"train": ITEMS, "valid": [(LARGE[0], 1)]}, {}, SchemaError, ("'valid'", "labels", "'train'", "same")),
        ({"train": ITEMS, "valid": [dgl.graph(([0], [0]))]}, {}, SchemaError, ("'valid'", "node features", "same")),
    ],
    ids=str,
)
def test_parts_that_cannot_be_are_refused(
    source: Any, settings: dict[str, Any], error: type[InputError], parts: tuple[str, ...]
) -> None:
    with refused(error, *parts):
        tp.packed_loader(source, 4, **{"splits": True, **settings})


def test_the_temporary_store_of_an_ogb_folder_goes_with_its_loaders(
    folder: Path, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    loaders = tp.packed_loader(folder / "ogbg_molhiv", 8, splits=True)
    test = loaders.pop("test")
    del loaders
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 1
    assert sum(batch.num_real_graphs for batch in test) > 0
    del test
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_the_loader_tells_what_it_is_made_of() -> None:
    loader = tp.packed_loader(ITEMS, 12)
    assert loader.search is not None
    assert loader.limits.maxima == loader.search.best.limits.maxima
    assert loader.packs_per_batch == loader.search.packs_per_batch
    assert PackedLoader(loader.dataset, loader.sampler).view is loader.view
    assert (loader.batch_size, loader.batch_sampler, loader.padded) == (None, None, True)
    assert repr(loader).startswith(f"PackedLoader({len(loader)} batches of {loader.graphs_per_batch:.1f} graphs")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = next(iter(loader))
    assert isinstance(first, tp.PaddedBatch)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_loader_goes_on_where_the_state_was_saved(workers: int) -> None:
    """In another object or the same, and twice; batches that workers have taken count only once the loop gets them."""
    arguments: dict[str, Any] = {"graphs_per_batch": 6, "seed": 4, "num_workers": workers}

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


def test_a_store_takes_transforms_of_graphs_and_of_batches(tmp_path: Path) -> None:
    graphs = []
    for n in range(5, 25):
        graph = dgl.rand_graph(n, 2 * n)
        graph.ndata["x"] = torch.zeros(n, 2)
        graphs.append(graph)
    store = tp.GraphStore.write(tmp_path / "store", graphs)
    settings: Any = {"transform": dgl.transforms.DropEdge(0.5), "batch_transform": tp.transforms.AddNoise("x", 1.0)}
    noise = []
    for source in (store, tp.with_ids(graphs)):
        loader = tp.packed_loader(source, graphs_per_batch=5, shuffle=False, **settings)
        batch = next(iter(loader))
        assert batch.num_real_edges < 2 * batch.num_real_nodes
        assert batch.node_features["x"][batch.node_mask].all()
        assert not batch.node_features["x"][~batch.node_mask].any()
        noise.append(batch.node_features["x"])
    assert torch.equal(*noise)


def test_a_store_gives_the_batches_of_the_list_that_it_was_written_from(folder: Path) -> None:
    arguments: dict[str, Any] = {"graphs_per_batch": 12, "seed": 3, "label_fill": -1}
    from_list = tp.packed_loader(ITEMS, **arguments)
    from_store = tp.packed_loader(folder / "store", **arguments)
    assert from_store.collate is None
    assert from_store.limits == from_list.limits
    for found, expected in zip(from_store, from_list, strict=True):
        assert_same_batch(found, expected)
