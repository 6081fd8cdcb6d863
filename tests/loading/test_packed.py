"""A packed dataset gives each graph once an epoch, in padded packs that DGL's own loader batches to one shape."""

from __future__ import annotations

import copy
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dgl
import numpy as np
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, GraphTooLargeError, InputError, SamplerError, SchemaError, SizesError
from dgl_tuplepack.graphs.items import EpochIds
from dgl_tuplepack.loading.packed_dataset import PackLabels
from tests.support.graphs import (
    Content,
    assert_same_graph,
    assert_same_label,
    contents,
    drop_features_of_nothing,
    generator,
    ring_with_chords,
    split_item,
)
from tests.support.loading import ITEMS, NUMBER, SOURCES
from tests.support.messages import refused
from tests.support.stores import molecules, purchases
from tests.support.transforms import shaken

LIMITS = tp.Limits(nodes=12, edges=14)


def real_items(graph: Any, labels: PackLabels) -> dict[int, Any]:
    """The real graphs of a batch of packs by id, with their labels."""
    flat = tp.flatten_packs(graph, labels)
    parts = dgl.unbatch(graph)
    found = {}
    for slot in flat.graph_mask.nonzero().flatten().tolist():
        label = {n: v[slot] for n, v in flat.labels.items()} if isinstance(flat.labels, dict) else flat.labels[slot]
        key = int(flat.graph_ids[slot])
        assert key not in found
        found[key] = parts[slot], label
    return found


def shape_of(graph: Any, labels: PackLabels) -> Any:
    values = labels.values if isinstance(labels.values, dict) else {"": labels.values}
    return (
        graph.batch_size,
        [graph.num_nodes(t) for t in graph.ntypes],
        [graph.num_edges(t) for t in graph.canonical_etypes],
        {name: (tuple(value.shape), value.dtype) for name, value in values.items()},
        tuple(labels.graph_mask.shape),
        tuple(labels.graph_ids.shape),
    )


def ids_of(loader: Any) -> list[list[int]]:
    """Graphs of each batch."""
    return [labels.graph_ids[labels.graph_mask].tolist() for _, labels in loader]


@settings(max_examples=25)
@given(st.data(), contents(max_graphs=9))
def test_each_graph_comes_once_over_all_ranks_and_as_it_was(data: st.DataObject, content: Content) -> None:
    """In batches of one shape, for all content modes, ranks and numbers of packs, and in several epochs."""
    # The first item has all features, and defines the schema.
    items, ranks, p = [content.example, *content.items], data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    # Enough for each graph alone, so that there are several packs.
    sizes = tp.sizes_of([split_item(item)[0] for item in items])
    limits = tp.Limits.from_components(
        {name: max(1, int(most)) for name, most in zip(sizes.components, sizes.array.max(axis=0), strict=True)},
        data.draw(st.sampled_from([None, 1, 2])),
    )
    mode = data.draw(st.sampled_from(["fixed", "resample", "exchange"]))
    shuffle = mode != "fixed" or data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        store = tp.GraphStore.write(folder, items)
        packed = [
            tp.PackedDataset(store, limits, content=mode, shuffle=shuffle, num_replicas=ranks, rank=rank, multiple_of=p)
            for rank in range(ranks)
        ]
        for epoch in (0, 3):
            found: dict[int, Any] = {}
            shapes = []
            for dataset in packed:
                dataset.set_epoch(epoch)
                assert len(dataset) % p == 0
                assert len(dataset) == len(packed[0])
                for graph, labels in GraphDataLoader(dataset, batch_size=p):
                    batch = real_items(graph, labels)
                    assert not found.keys() & batch.keys()
                    found.update(batch)
                    shapes.append(shape_of(graph, labels))
            assert all(shape == shapes[0] for shape in shapes)
            assert sorted(found) == list(range(len(items)))
            for i, (graph, label) in found.items():
                expected_graph, expected_label = split_item(items[i])
                drop_features_of_nothing(expected_graph)
                assert_same_graph(graph, expected_graph.long())
                assert_same_label(label, {} if expected_label is None else expected_label)


@pytest.mark.parametrize("graphs", [molecules(20), purchases(12)], ids=["homogeneous", "hetero"])
@pytest.mark.parametrize("p", [1, 2])
def test_masks_and_labels_are_those_of_the_padded_packs(graphs: list[Any], p: int) -> None:
    sizes = tp.sizes_of(graphs)
    limits = tp.Limits.from_components({name: 16 for name in sizes.components})
    packed = tp.PackedDataset(graphs, limits, multiple_of=p, label_fill=-1)
    view = packed.store.padded(packed.limits, label_fill=-1)
    packs = [*packed.sampler, *[[]] * p]
    for start, (graph, labels) in enumerate(GraphDataLoader(packed, batch_size=p)):
        expected = [view[ids] for ids in packs[start * p :][:p]]
        flat = tp.flatten_packs(graph, labels)
        rows = flat.row_masks()
        assert rows.keys() == expected[0].row_masks().keys()
        for name, row_mask in rows.items():
            assert torch.equal(row_mask.mask, torch.cat([batch.row_masks()[name].mask for batch in expected]))
        assert torch.equal(flat.graph_ids, torch.cat([batch.graph_ids for batch in expected]))
        if expected[0].labels is None:
            assert flat.labels == {}
        else:
            assert torch.equal(flat.labels, torch.cat([batch.labels for batch in expected]))


def rings(number: int = 14) -> list[Any]:
    gen = generator(5)
    return [
        (ring_with_chords(gen, 3 + i % 6, i % 4), torch.randn((), generator=gen, dtype=torch.float64))
        for i in range(number)
    ]


@pytest.mark.parametrize(("p", "multiple_of"), [(1, 1), (2, 3), (3, 3), (5, 1)])
def test_every_graph_weighs_the_same_with_the_count_of_the_dataset(p: int, multiple_of: int) -> None:
    items = rings(11)
    has_label = torch.arange(11) % 3 > 0
    losses, of_labels = [], []
    for rank in range(2):
        packed = tp.PackedDataset(items, tp.Limits(20, 30), multiple_of=multiple_of, num_replicas=2, rank=rank)
        for _, labels in GraphDataLoader(packed, batch_size=p):
            mask = labels.graph_mask
            losses.append(tp.nn.masked_mean(labels.values, mask, count=packed.graphs_per_batch(p)))
            there = mask & has_label[labels.graph_ids.clamp(min=0)]
            of_labels.append(tp.nn.masked_mean(labels.values, there, count=packed.labels_per_batch(has_label, p)))
    values = torch.stack([label for _, label in items])
    torch.testing.assert_close(torch.stack(losses).mean(), values.mean())
    torch.testing.assert_close(torch.stack(of_labels).mean(), values[has_label].mean())


@pytest.mark.parametrize("content", ["fixed", "resample", "exchange"])
def test_workers_persistent_or_not_follow_the_epoch(content: str) -> None:
    items = molecules(60)
    packed, reference = (tp.PackedDataset(items, LIMITS, content=content, multiple_of=2) for _ in range(2))
    loaders = [
        GraphDataLoader(packed, batch_size=2, num_workers=2, persistent_workers=persistent)
        for persistent in ([True, False] if content == "resample" else [True])
    ]
    seen = []
    for epoch in (0, 1, 5, 1):
        packed.set_epoch(epoch)
        reference.set_epoch(epoch)
        expected = ids_of(GraphDataLoader(reference, batch_size=2))
        assert all(ids_of(loader) == expected for loader in loaders)
        seen.append({frozenset(pack) for pack in reference.sampler})
    assert seen[1] == seen[3]
    assert (seen[0] == seen[1]) == (content == "fixed")


def test_a_copy_has_the_same_packs() -> None:
    packed = tp.PackedDataset(molecules(20), LIMITS)
    packed.set_epoch(2)
    for copied in (pickle.loads(pickle.dumps(packed)), copy.deepcopy(packed)):
        assert copied.epoch == 2
        assert ids_of(copied) == ids_of(packed)
        copied.set_epoch(3)
        assert packed.epoch == 2


def test_settings_of_padding_reach_the_packs() -> None:
    packed = tp.PackedDataset(
        molecules(20), LIMITS, label_fill=-7, feature_fill={"x": 9}, cover_padding=True, idtype=torch.int32
    )
    graph, labels = packed[0]
    flat = tp.flatten_packs(graph, labels)
    assert graph.idtype == torch.int32
    assert (graph.in_degrees()[~flat.node_mask] > 0).all()
    assert (graph.ndata["x"][~flat.node_mask] == 9).all()
    assert (flat.labels[~flat.graph_mask] == -7).all()


def test_graphs_that_are_too_large_can_be_dropped() -> None:
    graphs = [dgl.graph(([0], [0]), num_nodes=number) for number in (3, 50, 2, 1)]
    with pytest.warns(UserWarning, match="1 of 4 graphs exceed"):
        packed = tp.PackedDataset(graphs, LIMITS, oversize="drop")
    assert sorted(i for pack in ids_of(packed) for i in pack) == [0, 2, 3]
    with refused(GraphTooLargeError, "1", "50"):
        tp.PackedDataset(graphs, LIMITS)


def test_packs_are_counted_from_both_ends_by_integers() -> None:
    packed = tp.PackedDataset(molecules(20), LIMITS)
    assert torch.equal(packed[-1][1].graph_ids, packed[np.int64(len(packed) - 1)][1].graph_ids)
    for index in (len(packed), -len(packed) - 1, 2**70):
        with refused(SizesError, f"pack {index} does not exist", f"0..{len(packed) - 1}"):
            packed[index]
    for wrong in (1.0, [0, 1], slice(2)):
        with refused(SizesError, "indexed by one integer"):
            packed[wrong]  # type: ignore[index]


def test_flattening_takes_the_two_parts_of_one_batch() -> None:
    packed = tp.PackedDataset(molecules(20), LIMITS)
    graph, labels = packed[0]
    for parts in ((labels, graph), (graph, labels.values), (graph, tuple(labels)), (None, labels)):
        with refused(SchemaError, "a DGLGraph and PackLabels"):
            tp.flatten_packs(*parts)
    pair = next(iter(GraphDataLoader(packed, batch_size=2)))
    with refused(SchemaError, f"the graph holds {graph.batch_size} graphs", f"for {2 * graph.batch_size}"):
        tp.flatten_packs(graph, pair[1])
    with refused(SchemaError, "the graph holds 1 graphs", "before the graph is changed"):
        tp.flatten_packs(dgl.add_self_loop(graph), labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_packs_are_the_padded_batches_of_transformed_graphs(workers: int) -> None:
    """In each epoch, for persistent workers too; the transform of batches comes last."""
    items = molecules(30)
    noise = tp.transforms.AddNoise("x", 0.1)
    given: dict[str, Any] = {"transform": shaken, "batch_transform": noise, "transform_seed": 4}
    packed = tp.PackedDataset(items, tp.Limits(nodes=20, edges=26), **given, multiple_of=2)
    collate = tp.PaddedCollate(packed.limits, tp.with_ids(items)[0], **given)
    loader = GraphDataLoader(packed, batch_size=1, num_workers=workers, persistent_workers=workers > 0)
    sums = []
    for epoch in (0, 3):
        packed.set_epoch(epoch)
        packs = [*packed._batches_of(epoch), *[[]] * (len(packed) - len(packed.sampler))]
        for (graph, labels), ids in zip(loader, packs, strict=True):
            expected = collate(tp.with_ids(items).__getitems__(EpochIds(ids, epoch)))
            assert_same_graph(graph, dgl.batch([expected.graph]))
            assert torch.equal(labels.values[0], expected.labels)
            assert torch.equal(labels.graph_ids[0], expected.graph_ids)
            sums.append(graph.ndata["y"].sum().item())
    sums = [value for value in sums if value]
    assert len(set(sums)) == len(sums)


# --- sources


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all temporary folders."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_can_be_packed_and_stores_are_not_copied(kind: str, folder: Path, temporary: Path) -> None:
    source = SOURCES[kind](folder)
    sizes = tp.sizes_of(ITEMS if kind == "an iterator" else source)
    packed = tp.PackedDataset(source, tp.Limits.from_components(dict.fromkeys(sizes.components, 20)))
    assert sorted(i for pack in ids_of(packed) for i in pack) == list(range(NUMBER))
    assert len(list(temporary.iterdir())) == ("store" not in kind and "shards" not in kind)
    del packed
    assert not list(temporary.iterdir())


def test_a_temporary_folder_does_not_go_with_a_worker(temporary: Path) -> None:
    packed = tp.PackedDataset(molecules(20), LIMITS)
    child = os.fork()
    if not child:
        try:
            del packed
            os._exit(0 if list(temporary.iterdir()) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(ids_of(packed)) == len(packed)


def test_no_folder_is_left_behind_by_a_dataset_that_fails(temporary: Path) -> None:
    with pytest.raises(SchemaError):
        tp.PackedDataset([*molecules(5), (molecules(1)[0][0], "name")], LIMITS)
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"content": "exchange", "shuffle": False}, SamplerError, "shuffle=False"),
        ({"rank": 0}, SamplerError, "num_replicas and rank"),
        ({"multiple_of": 0}, SamplerError, "multiple_of"),
        ({"limits": tp.Limits({"a": 3}, {"b": 3})}, InputError, "limit"),
        ({"source": ([3, 2], [4, 2])}, SchemaError, "only sizes"),
        ({"source": []}, InputError, "no graphs"),
        ({"source": "nowhere"}, FormatError, "there is no nowhere"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    temporary: Path, settings: dict[str, Any], error: type[Exception], says: str
) -> None:
    given: dict[str, Any] = {"source": molecules(5), "limits": LIMITS, **settings}
    with pytest.raises(error, match=says):
        tp.PackedDataset(**given)
    assert not list(temporary.iterdir())
