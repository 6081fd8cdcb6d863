"""A store gives back what was written, and its batches are those of `PaddedCollate`, for random datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.graphs.items import Identified
from dgl_tuplepack.storage.format import DTYPES
from tests.support import graphs
from tests.support.graphs import (
    PADDING,
    Content,
    assert_equal_tensors,
    assert_same_batch,
    assert_same_dgl_batch,
    assert_same_item,
    contents,
    split_item,
)

# What a store narrows integers to, narrowest first: written down once more, independently.
NARROWER = {
    torch.int64: (torch.uint8, torch.int16, torch.int32, torch.int64),
    torch.int32: (torch.uint8, torch.int16, torch.int32),
}


@contextmanager
def written(content: Content, block: int = 512, **settings: Any) -> Iterator[tuple[tp.GraphStore, list[Any]]]:
    """A store of the example and all items of a content, and these in a list; `block` graphs are written at a time."""
    items = [content.example, *content.items]
    # Nobody cuts the power here; a wait for the disk would be most of the time.
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        with patch("dgl_tuplepack.graphs.items._ITEMS_PER_BLOCK", block):
            tp.GraphStore.write(Path(folder) / "store", items, **settings)
        yield tp.GraphStore(Path(folder) / "store"), items


def features_of(graph: Any) -> dict[tuple[str, Any, str], torch.Tensor]:
    """All features of a graph by kind, type and name."""
    of_nodes = {("node", t, n): v for t in graph.ntypes for n, v in graph.nodes[t].data.items()}
    return of_nodes | {("edge", t, n): v for t in graph.canonical_etypes for n, v in graph.edges[t].data.items()}


@st.composite
def fills(draw: st.DrawFn, names: set[str]) -> Any:
    """One number, or one for some of the names; every dtype can hold 0 and 1."""
    number = st.sampled_from([0, 1])
    return draw(st.one_of(number, st.dictionaries(st.sampled_from(sorted(names)), number)) if names else number)


@st.composite
def settings_of_batches(draw: st.DrawFn, content: Content) -> dict[str, Any]:
    """Settings that `PaddedCollate` and `GraphStore.padded` share."""
    graph, label = split_item(content.example)
    names = set(label) if isinstance(label, dict) else set()
    return {
        "packs_per_batch": content.packs_per_batch,
        **draw(PADDING),
        "feature_fill": draw(fills({name for _, _, name in features_of(graph)})),
        "label_fill": draw(fills(names)),
    }


def collated(content: Content, items: Sequence[Any], ids: Sequence[int], settings: dict[str, Any]) -> tp.PaddedBatch:
    """The slow way to the batch of some items, with ids."""
    pad = tp.PaddedCollate(content.limits, Identified(0, items[0]), **settings)
    return pad([Identified(i, items[i]) for i in ids])


def narrowest(values: torch.Tensor) -> torch.dtype:
    """The first type that holds all values."""
    for dtype in NARROWER.get(values.dtype, ()):
        if values.to(dtype).to(values.dtype).equal(values):
            return dtype
    return values.dtype


def test_the_strategy_draws_every_dtype() -> None:
    """Else the properties below would not hold for all that a store can keep."""
    assert {str(dtype).removeprefix("torch.") for dtype in graphs.DTYPES} == set(DTYPES)


@given(st.data(), contents(), st.booleans(), st.sampled_from([1, 2, 512]))
def test_batches_are_those_of_collate(data: st.DataObject, content: Content, compact: bool, block: int) -> None:
    """In every array, dtype and shape, and in the DGLGraph; for no graphs too."""
    settings = data.draw(settings_of_batches(content))
    order = data.draw(st.permutations(range(1, len(content.items) + 1)))
    chosen = [order, order[: len(order) // 2], []]
    with written(content, block, compact=compact) as (store, items):
        padded = store.padded(content.limits, **settings)
        on_device = store.to("cpu").padded(content.limits, **settings)
        for ids in chosen:
            batch, right = padded[ids], collated(content, items, ids, settings)
            assert_same_batch(batch, right)
            assert_same_dgl_batch(batch.graph, right.graph)
            assert_same_batch(on_device[ids], right)
            for again in (np.array(ids, np.int32), torch.tensor(ids, dtype=torch.int64)):
                assert_same_batch(padded[again], right)
        assert_same_batch(store.padded(content.limits, **settings)[order], collated(content, items, order, settings))


@given(contents(), st.booleans(), st.sampled_from([1, 2, 512]))
def test_items_come_back(content: Content, compact: bool, block: int) -> None:
    """Structure, order of edges, features, label and index type; sizes and histogram without a look at graphs."""
    with written(content, block, compact=compact) as (store, items):
        assert len(store) == len(items)
        for found in ([store[i] for i in range(len(items))], list(store)):
            for item, right in zip(found, items, strict=True):
                assert_same_item(item, right)
        assert_same_item(store[-1], items[-1])
        sizes = tp.sizes_of(items)
        assert store.sizes.array.tolist() == sizes.array.tolist()
        assert store.sizes.components == sizes.components
        assert tp.sizes_of(store).array.tolist() == sizes.array.tolist()
        assert store.histogram == tp.SizeHistogram.from_sizes(sizes)
        assert store.original_ids.tolist() == list(range(len(items)))
        assert store.splits == {}
        # Changing an item in place, as transforms do, changes nothing in the store.
        graph, label = split_item(store[0])
        for value in [*features_of(graph).values(), *([label] if isinstance(label, torch.Tensor) else [])]:
            value.fill_(1)
        assert_same_item(store[0], items[0])
        store.verify()


@given(st.data(), contents(min_graphs=1))
def test_subsets_count_from_zero(data: st.DataObject, content: Content) -> None:
    ids = data.draw(st.lists(st.integers(1, len(content.items)), min_size=1, max_size=6, unique=True))
    again = data.draw(st.lists(st.integers(0, len(ids) - 1), min_size=1, max_size=6, unique=True))
    settings = {"packs_per_batch": content.packs_per_batch}
    with written(content, splits={"train": ids}) as (store, items):
        store.sizes  # noqa: B018 - cached; a subset must not take it for its own
        assert store.splits["train"].tolist() == ids
        for part, chosen in (
            (store.subset(store.splits["train"]), ids),
            (store.subset(ids).subset(torch.tensor(again)), [ids[i] for i in again]),
        ):
            assert part.original_ids.tolist() == chosen
            assert len(part) == len(chosen)
            assert part.splits == {}
            for found, i in zip(part, chosen, strict=True):
                assert_same_item(found, items[i])
            rows = [items[i] for i in chosen]
            assert part.sizes.array.tolist() == tp.sizes_of(rows).array.tolist()
            assert part.histogram == tp.SizeHistogram.from_sizes(tp.sizes_of(rows))
            batch = part.padded(content.limits, **settings)[list(range(len(chosen)))]
            right = collated(content, [items[0], *rows], list(range(1, len(rows) + 1)), settings)
            assert batch.graph_ids[: len(chosen)].tolist() == list(range(len(chosen)))
            batch.graph_ids = right.graph_ids
            assert_same_batch(batch, right)
        assert store.sizes.array.tolist() == tp.sizes_of(items).array.tolist()
        assert len(store) == len(items)


@given(st.data(), contents(), st.sampled_from([1, 2, 512]))
def test_narrowing_loses_nothing(data: st.DataObject, content: Content, block: int) -> None:
    """Integers are stored as narrow as all their values allow; handed out as they were, or on request as stored."""
    settings = {"packs_per_batch": content.packs_per_batch}
    ids = data.draw(st.permutations(range(1, len(content.items) + 1)))
    with written(content, block, compact=True) as (store, items):
        of_all: dict[Any, list[torch.Tensor]] = {}
        for graph, label in map(split_item, items):
            found: dict[Any, Any] = features_of(graph)
            if label is not None:
                found |= {("label", None, n): v for n, v in (label if isinstance(label, dict) else {"": label}).items()}
            for key, value in found.items():
                of_all.setdefault(key, []).append(torch.as_tensor(value).reshape(-1))
        expected = {key: narrowest(torch.cat(values)) for key, values in of_all.items()}
        kinds = {"node_feature": "node", "edge_feature": "edge", "label": "label"}
        for entry in store.segments[0].metadata.arrays:
            if entry.content in kinds:
                right = expected[kinds[entry.content], entry.type, entry.name]
                assert entry.stored == ("uint16" if right == torch.bfloat16 else str(right).removeprefix("torch."))
        plain = store.padded(content.limits, **settings)[ids]
        narrow = store.padded(content.limits, as_stored=True, **settings)[ids]
        tensors = [(("label", None, ""), plain.labels, narrow.labels)] if isinstance(plain.labels, torch.Tensor) else []
        if isinstance(plain.labels, dict):
            tensors = [(("label", None, n), plain.labels[n], narrow.labels[n]) for n in plain.labels]
        for t, own in plain.features_by_type.items():
            kind = "node" if isinstance(t, str) else "edge"
            tensors += [((kind, t, n), own[n], narrow.features_by_type[t][n]) for n in own]
        assert len(tensors) == len(expected)
        for key, value, stored in tensors:
            assert stored.dtype == expected[key]
            assert_equal_tensors(stored.to(value.dtype), value)
