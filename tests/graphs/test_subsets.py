"""Subsets of torch, DGL and PyG are read like lists of their items, and as fast as what they choose from."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Subset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError, SchemaError, SizesError
from dgl_tuplepack.graphs.build import chosen_from
from dgl_tuplepack.loading.opened import opened
from dgl_tuplepack.storage.graph_store import StoredGraphs
from tests.support.graphs import assert_same_item
from tests.support.messages import refused
from tests.support.stores import molecules

ITEMS = molecules(12)
KINDS = [Subset, dgl.data.utils.Subset]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path_factory.mktemp("subsets") / "store", ITEMS)


@given(st.data())
def test_a_subset_has_the_items_of_its_positions(store: tp.GraphStore, data: st.DataObject) -> None:
    """Of a list or a store, with positions in any form, also negative ones, and of another subset."""
    dataset: Any = data.draw(st.sampled_from([ITEMS, store]))
    for _ in range(data.draw(st.integers(1, 2))):
        number = len(dataset)
        positions = data.draw(st.lists(st.integers(-number, number - 1), min_size=1, max_size=8))
        form: Any = data.draw(st.sampled_from([list, tuple, torch.tensor]))
        dataset = data.draw(st.sampled_from(KINDS))(dataset, form(positions))
    expected = [dataset[i] for i in range(len(dataset))]
    assert tp.sizes_of(dataset).array.tolist() == [[g.num_nodes(), g.num_edges()] for g, _ in expected]
    graphs = opened(dataset, None)
    assert isinstance(graphs.items, StoredGraphs)
    assert graphs.ids.tolist() == [*range(len(expected))]
    with tempfile.TemporaryDirectory() as folder:
        for found in (graphs.items, tp.GraphStore.write(Path(folder, "written"), dataset)):
            for item, right in zip(found, expected, strict=True):
                assert_same_item(item, right)


@pytest.mark.parametrize("kind", KINDS)
def test_the_loaders_of_a_subset_make_whole_batches(store: tp.GraphStore, kind: Any) -> None:
    for dataset in (ITEMS, store, store.batched()):
        subset = kind(dataset, torch.tensor([3, 1, 4, 1, 5, 9]))
        plain = dgl.dataloading.GraphDataLoader([ITEMS[i] for i in subset.indices], batch_size=4)
        loader = tp.GraphDataLoader(subset, batch_size=4)
        assert loader.dataset is not subset
        for (found, labels), (graphs, expected) in zip(loader, plain, strict=True):
            assert torch.equal(labels, expected)
            assert [a.tolist() for a in found.edges()] == [a.tolist() for a in graphs.edges()]


class Labelled(list[Any]):
    """Indices that are looked up by a label, as those of a pandas Series."""

    def __getitem__(self, i: Any) -> Any:
        return super().__getitem__(len(self) - 1 - i)


@pytest.mark.parametrize("indices", [np.arange(12) > 4, [1.5, 2.0], ["1", "2"], [[0], [1]], [2**70]], ids=str)
def test_indices_that_are_no_positions_are_refused(store: tp.GraphStore, indices: Any) -> None:
    for dataset, kind in zip((ITEMS, store), KINDS, strict=True):
        subset = kind(dataset, indices)
        items_of = lambda each: [each[i] for i in range(len(each))]  # noqa: E731
        for use in (items_of, tp.sizes_of, lambda each: next(iter(tp.GraphDataLoader(each, batch_size=8)))):
            with pytest.raises((TypeError, IndexError, SizesError, SchemaError)):
                use(subset)


def test_indices_of_other_classes_mean_what_the_subset_makes_of_them() -> None:
    subset = Subset(ITEMS, Labelled([5, 3, 1]))
    expected = [[g.num_nodes(), g.num_edges()] for g, _ in (subset[i] for i in range(3))]
    assert tp.sizes_of(subset).array.tolist() == expected


def test_what_may_change_items_is_not_taken_for_a_subset() -> None:
    class Doubled(dgl.data.utils.Subset):  # type: ignore[misc]
        def __getitem__(self, i: Any) -> Any:
            return (dgl.batch([self.dataset[self.indices[i]][0]] * 2), 0)

    assert chosen_from(Doubled(ITEMS, [0])) is None
    assert chosen_from(ITEMS) is None
    # An index that the dataset lacks is the dataset's to refuse.
    assert chosen_from(Subset(ITEMS, [12])) is None
    assert chosen_from(Subset(ITEMS, [])).positions.tolist() == []  # type: ignore[union-attr]


def test_a_chosen_part_of_a_pyg_dataset_has_no_splits(tmp_path: Path) -> None:
    """As OGB's datasets do, ``dataset[ids]`` keeps the splits of the whole, whose positions are not its own."""
    data = pytest.importorskip("torch_geometric.data")

    class Ogb(data.InMemoryDataset):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            ends = torch.tensor([[0, 1], [1, 2]])
            graphs = [data.Data(x=torch.full((n, 1), float(n)), edge_index=ends, y=torch.ones(1)) for n in range(3, 23)]
            self.data, self.slices = self.collate(graphs)

        def get_idx_split(self) -> dict[str, Any]:
            return {"train": torch.arange(8), "valid": torch.arange(8, 20)}

    whole = Ogb()
    assert sorted(tp.GraphStore.write(tmp_path / "whole", whole).splits) == ["train", "valid"]
    chosen = whole[torch.tensor([19, 2, 7])]
    for part in (chosen, chosen[torch.tensor([0, 2])]):
        store = tp.GraphStore.write(tmp_path / f"part{len(part)}", part)
        assert not store.splits
        sizes = [graph.num_nodes for graph in part]
        assert store.sizes.array[:, 0].tolist() == sizes
        assert next(iter(tp.pyg.DataLoader(part, batch_size=3))).num_nodes == sum(sizes)
        batches = [*tp.packed_loader(part, graphs_per_batch=1, padded=False)]
        assert sum(batch.num_nodes for batch in batches) == sum(sizes)


def ids_of(loaders: dict[str, Any]) -> dict[str, list[int]]:
    """The ids of each split, sorted."""
    return {
        name: sorted(i for batch in each for i in batch.graph_ids.tolist() if i >= 0) for name, each in loaders.items()
    }


@settings(max_examples=20)
@given(data=st.data())
def test_splits_may_be_subsets_and_masks(data: st.DataObject) -> None:
    """Each form means the same ids; subsets of subsets too, and in stores that are written with splits."""
    source: Any = data.draw(st.sampled_from([ITEMS, tp.with_ids(ITEMS), Subset(ITEMS, [*range(11, -1, -1)])]))
    is_train = np.array(data.draw(st.lists(st.booleans(), min_size=12, max_size=12).filter(lambda m: 0 < sum(m) < 12)))
    expected = {"train": np.flatnonzero(is_train).tolist(), "valid": np.flatnonzero(~is_train).tolist()}

    def as_split(ids: list[int]) -> Any:
        mask = np.isin(np.arange(12), ids)
        inner = source.dataset if type(source) is tp.with_ids(ITEMS).__class__ and data.draw(st.booleans()) else source
        kind = data.draw(st.sampled_from(KINDS))
        order = [*reversed(range(12))]
        forms = [
            ids, torch.tensor(ids), mask, torch.from_numpy(mask), mask.tolist(), tuple(mask.tolist()), kind(inner, ids),
            kind(inner, torch.tensor(ids)), Subset(kind(inner, order), [11 - i for i in ids]),
        ]  # fmt: skip
        return data.draw(st.sampled_from(forms))

    splits = {name: as_split(ids) for name, ids in expected.items()}
    limits = tp.Limits(99, 99, 5)
    assert ids_of(tp.packed_loader(source, limits=limits, splits=splits, in_memory=False)) == expected
    with tempfile.TemporaryDirectory() as folder:
        written = tp.GraphStore.write(Path(folder, "written"), source, splits=splits)
        assert {name: ids.tolist() for name, ids in written.splits.items()} == expected


@pytest.mark.parametrize("mask", [np.array([0, 1] * 6, np.uint8), [0, 1] * 6], ids=["array", "list"])
def test_a_mask_of_numbers_is_refused(mask: Any, tmp_path: Path) -> None:
    """As ids, it would repeat the first two graphs."""
    for use in (lambda **more: tp.packed_loader(ITEMS, 4, **more), partial(tp.GraphStore.write, tmp_path / "s", ITEMS)):
        with refused(SizesError, "a split has a 0 or a 1 for each of the 12 graphs", "np.asarray(mask, dtype=bool)"):
            use(splits={"train": mask})
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("wrong", [np.ones(11, bool), torch.ones(13, dtype=torch.bool), [True], np.ones((12, 1), bool)])
def test_a_mask_needs_a_value_for_each_graph(store: tp.GraphStore, wrong: Any, tmp_path: Path) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: tp.packed_loader(ITEMS, 4, splits={"train": wrong}), lambda: store.subset(wrong),
        lambda: tp.GraphStore.write(tmp_path / "store", ITEMS, splits={"train": wrong}),
        lambda: tp.GraphStore.write(tmp_path / "store", iter(ITEMS), splits={"train": wrong}),
    ]  # fmt: skip
    for call in calls:
        with refused(SizesError, f"a mask of graphs has shape {list(np.shape(wrong))}", "there are 12 graphs"):
            call()
    with refused(SizesError, "the split 'train' has no graphs"):
        tp.packed_loader(ITEMS, 4, splits={"train": np.zeros(12, bool)})


def test_a_subset_of_another_dataset_is_no_split(store: tp.GraphStore, tmp_path: Path) -> None:
    for other in ([*ITEMS], store, Subset(ITEMS, [0, 1, 2])):
        source = other if isinstance(other, Subset) else ITEMS
        wrong = Subset(ITEMS if isinstance(other, Subset) else other, [0, 1])
        for use in (lambda *a, **more: tp.packed_loader(*a, 4, **more), partial(tp.GraphStore.write, tmp_path)):
            with refused(InputError, "not of the source", "give ids"):
                use(source, splits={"train": wrong})
