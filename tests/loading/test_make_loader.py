"""`packed_loader`: from any source to batches of one shape, with each graph once; and splits."""

from __future__ import annotations

import functools
import gc
import inspect
import logging
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch
from torch.utils.data import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError, PlanError, SchemaError, SearchError, SizesError
from dgl_tuplepack.loading.make_loader import BatchSettings, DataLoaderSettings, SamplerSettings
from dgl_tuplepack.loading.packed_loader import log_workers
from tests.support.graphs import flat, shapes_of
from tests.support.loading import ITEMS, LARGE, NUMBER, SOURCES
from tests.support.messages import refused
from tests.support.stores import purchases


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_gives_each_graph_once_in_batches_of_one_shape(folder: Path, kind: str) -> None:
    loader = tp.packed_loader(SOURCES[kind](folder), graphs_per_batch=12, num_workers=2)
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


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_gives_each_graph_once_without_padding(folder: Path, kind: str) -> None:
    loader = tp.packed_loader(SOURCES[kind](folder), graphs_per_batch=12, padded=False)
    batches = list(loader)
    graphs = [batch if isinstance(batch, dgl.DGLGraph) else batch[0] for batch in batches]
    assert sum(graph.batch_size for graph in graphs) == NUMBER
    assert len(batches) == len(loader)
    most = [loader.packs_per_batch * limit for limit in loader.limits.values]
    for graph in graphs:
        counts = [*map(graph.num_nodes, graph.ntypes), *map(graph.num_edges, graph.canonical_etypes)]
        assert all(count <= limit for count, limit in zip(counts, most, strict=True))


@pytest.mark.parametrize(("kind", "workers"), [("a store", 2), ("an OGB folder", 0), ("a list", 2)])
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


def test_stored_plans_are_used_if_they_meet_what_is_asked(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="dgl_tuplepack")
    made = tp.preprocess(folder / "store", tmp_path / "made", graphs_per_batch=8)
    plans = {name: plan.fingerprint for name, plan in made.plans.items()}
    path = made.store.path

    def fingerprints(*arguments: Any, **settings: Any) -> dict[str, str]:
        caplog.clear()
        loaders = tp.packed_loader(path, *arguments, splits=settings.pop("splits", True), **settings)
        assert ("used the plans of the store" in caplog.text) == all(
            loader.plan.fingerprint == plans.get(name) for name, loader in loaders.items()
        )
        assert "limits of a pack" in caplog.text
        return {name: loader.plan.fingerprint for name, loader in loaders.items()}

    assert fingerprints(8) == fingerprints() == fingerprints(8, padded=False) == plans
    assert len({tp.packed_loader(path, 8, splits=True)[name].limits for name in plans}) == 1
    for settings in ({"multiple_of": 16}, {"limits": tp.Limits(60, 80)}, {"splits": {"train": [0, 5, 6]}}):
        assert not set(fingerprints(None if "limits" in settings else 8, **settings).values()) & set(plans.values())
    assert tp.packed_loader(path, 8).plan.fingerprint not in plans.values()
    with refused(InputError, "batch size is not set"):
        tp.packed_loader(folder / "store", splits=True)


@pytest.mark.parametrize(
    ("arguments", "error", "parts"),
    [
        ({}, InputError, ("graphs_per_batch", "batch_size", "limits")),
        ({"batch_size": 0}, InputError, ("batch_size must be an integer in 1..", "0")),
        ({"budget": 64}, InputError, ("budget cannot be given", "search_limits(source, budget=...)")),
        ({"graphs_per_batch": 8, "colour": 8}, InputError, ("no setting 'colour'", "sort_edges", "content")),
        ({"graphs_per_batch": 8, "padded": False, "sort_edges": True}, InputError, ("sort_edges", "padded=False")),
        ({"graphs_per_batch": 8, "padded": False, "collate_fn": 3}, InputError, ("collate_fn", "3")),
        (
            {"graphs_per_batch": 8, "packs_per_batch": 2, "limits": tp.Limits(20, 30)},
            InputError,
            ("graphs_per_batch=8", "packs_per_batch=2", "leave one of them out"),
        ),
        ({"limits": tp.Limits(20, 30), "multiple_of": 8}, InputError, ("multiple_of=8", "limits")),
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
        ({"train": ITEMS}, {"splits": {"train": [0]}}, InputError, ("mapping of sources", "splits=True")),
        ({}, {}, SizesError, ("at least one",)),
        ({"train": ITEMS, "valid": purchases(3)}, {}, SchemaError, ("'valid'", "node types", "'train'", "same")),
        ({"train": ITEMS, "valid": [(LARGE[0], 1)]}, {}, SchemaError, ("'valid'", "labels", "'train'", "same")),
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


# A mean that misses the requested number ---------------------------------------------------------------------

MEAN = "graphs_per_batch is .* on average"


def rings(number: int, most: int = 12) -> list[Any]:
    """Graphs of 2 to `most` nodes; each has as many edges."""
    return [
        dgl.graph((torch.arange(n), (torch.arange(n) + 1) % n)) for n in (2 + i % (most - 1) for i in range(number))
    ]


def means(number: int, graphs_per_batch: int, **settings: Any) -> tuple[Any, list[str]]:
    """The loader or loaders of some graphs, and the warnings of means."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = tp.packed_loader(rings(number), graphs_per_batch, **settings)
    return made, [str(each.message) for each in caught if re.match(MEAN, str(each.message))]


@pytest.mark.parametrize(
    ("number", "wanted", "mean", "offered"),
    [(169, 128, 169.0, (169, 84)), (90, 50, 45.0, (90, 45)), (35, 8, 8.8, (9, 7)), (20, 9, 10.0, (10, 7))],
)
def test_a_mean_that_misses_the_number_warns_and_offers_numbers_that_do_not(
    number: int, wanted: int, mean: float, offered: tuple[int, ...]
) -> None:
    loader, (text,) = means(number, wanted)
    assert loader.graphs_per_batch == pytest.approx(mean, abs=0.06)
    for part in (
        f"is {wanted}, ",
        f"hold {mean} graphs",
        f"rate for {mean:.0f} graphs",
        f"{number} graphs do not fill",
    ):
        assert part in text
    assert text.endswith(f"graphs_per_batch={' or '.join(map(str, sorted(offered)))}.")
    for better in offered:
        assert means(number, better)[1] == []
    with pytest.warns(UserWarning, match=MEAN) as caught:
        tp.packed_loader(rings(number), wanted)
    assert caught[0].filename == __file__


def test_on_several_ranks_no_number_is_offered_that_may_not_be_met() -> None:
    _, (text,) = means(35, 8, num_replicas=4, rank=0)
    assert text.endswith("choose the learning rate for 9 graphs, or give another number.")


def test_numbers_that_are_met_or_cannot_be_met_better_give_no_warning() -> None:
    """Numbers beyond all graphs make one batch; others are off by less than a graph, or by no more than 5 %."""
    for number, wanted, length in ((60, 12, 5), (60, 100, 1), (30, 8, 4), (103, 10, 10)):
        loader, told = means(number, wanted)
        assert (len(loader), told) == (length, [])
    assert means(60, 100, shuffle=False)[1] == []


def test_each_shuffled_split_has_a_mean_and_the_others_have_one_together() -> None:
    splits = {"train": range(100), "tuning": range(100, 114), "valid": range(114, 128)}
    loaders, told = means(128, 10, splits=splits)
    assert (told, loaders["valid"].graphs_per_batch) == ([], 7)
    _, (text,) = means(128, 10, splits=splits, shuffle=("train", "tuning"))
    assert "batches of 'tuning' hold 7.0 graphs" in text
    _, (text,) = means(128, 10, splits=splits, shuffle=False)
    assert "batches of 'train', 'tuning', 'valid' hold 8.5 graphs" in text
    assert means(420, 10, splits={"train": range(400), "valid": range(400, 420)}, shuffle=False)[1] == []
    _, (text,) = means(128, 64, splits={"train": range(100), "valid": range(100, 128)}, shuffle=False)
    assert "batches of 'train', 'valid' hold 42.7 graphs" in text


def test_the_mean_of_a_rank_counts_and_what_the_end_of_an_epoch_drops_does_not() -> None:
    _, (text,) = means(90, 30, num_replicas=2, rank=0)
    assert "hold 22.5 graphs on average, since 45 graphs do not fill" in text
    loader, told = means(90, 30, num_replicas=2, rank=0, drop_last=True)
    assert (told, len(loader)) == ([], 1)
    assert means(40, 30, num_replicas=2, rank=0)[1] == []
    assert means(90, 40, limits=tp.Limits(100, 100))[1] != []


@pytest.mark.parametrize("kind", ["packed_loader", "GraphDataLoader"])
def test_the_log_says_once_that_workers_slow_a_store_down(
    folder: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    store, caplog_text = tp.GraphStore(folder / "store"), "many times slower than with num_workers=0"
    make: Any = functools.partial(tp.packed_loader, ITEMS, 12)
    if kind == "GraphDataLoader":
        make = functools.partial(tp.GraphDataLoader, store, batch_size=12)
    log_workers.cache_clear()
    with caplog.at_level(logging.INFO, logger="dgl_tuplepack"):
        make()
        tp.packed_loader(store, 12, num_workers=2, transform=dgl.transforms.DropEdge())
        assert caplog_text not in caplog.text
        for _ in range(2):
            make(num_workers=2)
    assert caplog.text.count(caplog_text) == 1
