"""Subsets of torch, DGL and PyG are read like lists of their items, and as fast as what they choose from."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, ClassVar

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Subset

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError, SizesError
from dgl_tuplepack.graphs.subsets import chosen_from
from dgl_tuplepack.loading.opened import opened
from dgl_tuplepack.storage.graph_store import StoredGraphs
from tests.support.graphs import assert_same_item
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "indices",
    [
        np.arange(12) > 4, [1.5, 2.0], ["1", "2"], [[0], [1]], torch.tensor([[0, 1], [2, 3]]), np.array([2.0]),
        [2**70], Labelled([5, 3, 1]), torch.tensor(3),
    ],
    ids=str,
)  # fmt: skip
def test_indices_that_are_no_positions_mean_what_the_subset_makes_of_them(
    store: tp.GraphStore, kind: Any, indices: Any
) -> None:
    for dataset in (ITEMS, store):
        subset = kind(dataset, indices)
        if not isinstance(indices, Labelled):
            with pytest.raises((TypeError, IndexError, SizesError)):
                [subset[i] for i in range(len(subset))]
            with pytest.raises((TypeError, IndexError, SizesError, SchemaError)):
                next(iter(tp.GraphDataLoader(subset, batch_size=8)))
            with pytest.raises((TypeError, IndexError, SizesError, SchemaError)):
                tp.sizes_of(subset)
        else:
            expected = [[g.num_nodes(), g.num_edges()] for g, _ in (subset[i] for i in range(3))]
            assert tp.sizes_of(subset).array.tolist() == expected


def test_a_dataset_needs_no_length_for_a_subset() -> None:
    class Endless:
        def __len__(self) -> int:
            raise NotImplementedError

        def __getitem__(self, i: int) -> Any:
            return ITEMS[i % 12]

    assert tp.sizes_of(Subset(Endless(), [1, 14])).array.tolist() == tp.sizes_of([ITEMS[1], ITEMS[2]]).array.tolist()


def test_methods_of_a_dataset_that_is_not_of_pyg_are_not_called(tmp_path: Path) -> None:
    class Own(list[Any]):
        splits: ClassVar[dict[str, Any]] = {"train": [0, 1], "valid": [2]}

        def indices(self, split: str) -> Any:
            return self.splits[split]

        def len(self) -> None:
            raise AssertionError

    assert sorted(tp.GraphStore.write(tmp_path / "store", Own(ITEMS[:3])).splits) == ["train", "valid"]


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
    ids = torch.tensor([19, 2, 7])
    for part in (whole[ids], whole[ids][torch.tensor([0, 2])]):
        store = tp.GraphStore.write(tmp_path / f"part{len(part)}", part)
        assert not store.splits
        sizes = [graph.num_nodes for graph in part]
        assert store.sizes.array[:, 0].tolist() == sizes
        assert next(iter(tp.pyg.DataLoader(part, batch_size=3))).num_nodes == sum(sizes)
        batches = [*tp.packed_loader(part, graphs_per_batch=1, padded=False)]
        assert sum(batch.num_nodes for batch in batches) == sum(sizes)
