"""Batches without padding are those that DGL's collate makes of the items."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dgl
import numpy as np
import pytest
import torch
from dgl.dataloading import GraphCollator
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import FormatError, SizesError
from tests.support.graphs import (
    Content,
    assert_same_dgl_batch,
    assert_same_item,
    assert_same_label,
    contents,
    split_item,
)
from tests.support.messages import refused
from tests.support.stores import files_of, molecules, purchases, write_shards


def collated(items: Sequence[Any]) -> Any:
    """The slow way."""
    batch = GraphCollator().collate(list(items))
    return tuple(batch) if isinstance(batch, list) else batch


def assert_same_pair(found: Any, expected: Any) -> None:
    """Batched graph and labels, or the graph alone."""
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    (graph, labels), (right, expected_labels) = split_item(found), split_item(expected)
    assert_same_dgl_batch(graph, right)
    assert graph.device == right.device
    assert_same_label(labels, expected_labels)


@settings(max_examples=25)
@given(st.data(), contents(min_graphs=1), st.booleans(), st.lists(st.integers(1, 5), max_size=3))
def test_they_equal_those_of_dgl(data: st.DataObject, content: Content, compact: bool, cuts: list[int]) -> None:
    """Of a store, its subsets, shards, and all of them on a device; in any order, and of repeated graphs."""
    items = [content.example, *content.items]
    bounds = sorted({0, *(cut for cut in cuts if cut < len(items)), len(items)})
    with tempfile.TemporaryDirectory() as name, patch("os.fsync"):
        store = tp.GraphStore.write(Path(name) / "store", items, compact=compact)
        items = list(store)
        parts = [items[first:last] for first, last in pairwise(bounds)]
        sharded = write_shards(Path(name) / "shards", parts, compact=compact)
        ids = data.draw(st.lists(st.integers(0, len(items) - 1), min_size=1, max_size=12))
        expected = collated([items[i] for i in ids])
        back = list(range(len(items)))[::-1]
        for given_store, chosen in (
            (store, ids), (sharded, ids), (store.subset(back), [len(items) - 1 - i for i in ids]),
        ):  # fmt: skip
            for view in (given_store.batched(), given_store.to("cpu").batched()):
                assert_same_pair(view[chosen], expected)
                assert_same_pair(view[np.array(chosen, np.int32)], expected)
                assert_same_item(view[chosen[0]], items[ids[0]])
                assert len(view) == len(items)
                nothing = split_item(view[[]])[0]
                assert (nothing.batch_size, nothing.num_nodes(), nothing.num_edges()) == (0, 0, 0)
                narrow = split_item(given_store.batched(as_stored=True)[chosen])[0]
                for t in narrow.ntypes:
                    for name, values in narrow.nodes[t].data.items():
                        assert values.dtype == store.stored_spec(("node_feature", t, name)).dtype


ITEMS = molecules(30)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path_factory.mktemp("batched") / "store", ITEMS, compact=True)


def test_as_a_source_it_is_its_store(store: tp.GraphStore, tmp_path: Path) -> None:
    batches = list(tp.packed_loader(store.batched(), graphs_per_batch=10))
    assert sorted(i for batch in batches for i in batch.graph_ids[batch.graph_mask].tolist()) == list(range(30))
    assert tp.sizes_of(store.batched()).array.tolist() == store.sizes.array.tolist()
    assert tp.PackedDataset(store.batched(), tp.Limits(20, 26)).store is store


def test_bad_ids_and_damaged_files_are_refused(store: tp.GraphStore, tmp_path: Path) -> None:
    for view in (store.batched(), store.to("cpu").batched()):
        for ids in ([0, len(ITEMS)], [-1, 0]):
            with refused(SizesError, str(len(ITEMS) - 1)):
                view[ids]
        with pytest.raises(SizesError):
            view[["a"]]
    small = tp.GraphStore.write(tmp_path / "store", ITEMS[:4])
    file = next(path for name, path in files_of(tmp_path / "store").items() if "destinations" in name)
    opened = small.batched()
    with file.open("r+b") as data:
        data.seek(-1, 2)
        data.write(b"\xfa")
    with refused(FormatError, "points outside graph 3", file.name):
        opened[[0, 3]]
    assert_same_pair(opened[[0, 2]], collated([ITEMS[0], ITEMS[2]]))


def test_more_nodes_than_an_index_can_number_are_refused(tmp_path: Path) -> None:
    graph = dgl.graph(([], []), num_nodes=2**30).int()
    store = tp.GraphStore.write(tmp_path / "store", [graph])
    with refused(SizesError, f"{2**31} nodes", "torch.int32", str(2**31 - 1), "g.long()"):
        store.batched()[[0, 0]]


def test_graphs_of_one_schema_share_no_state_that_changes(tmp_path: Path) -> None:
    """What depends on the types alone is made once; DGL's own graphs have the same attributes."""
    for kind, items in (("labelled", molecules(4)), ("heterographs", purchases(4))):
        view = tp.GraphStore.write(tmp_path / kind, items).batched()
        graphs = [split_item(item)[0] for item in view.store]
        first, second = (split_item(view[ids])[0] for ids in ([0, 1], [2, 3]))
        for t in second.ntypes:
            second.nodes[t].data["new"] = torch.ones(second.num_nodes(t))
        for e in second.canonical_etypes:
            second.edges[e].data["new"] = torch.ones(second.num_edges(e))
        second.set_batch_num_nodes({t: torch.tensor([second.num_nodes(t)]) for t in second.ntypes})
        second.add_nodes(1, ntype=second.ntypes[0])
        assert_same_dgl_batch(first, dgl.batch(graphs[:2]))
        assert_same_dgl_batch(split_item(view[[2, 3]])[0], dgl.batch(graphs[2:]))
