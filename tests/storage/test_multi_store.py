"""Shards read as one store are that store of all their graphs: every item, array and batch, for random datasets."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dgl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from tests.support.graphs import PADDING, Content, assert_same_batch, assert_same_item, contents
from tests.support.stores import write_shards


@contextmanager
def both(content: Content, cuts: Sequence[int], compact: bool) -> Iterator[tuple[tp.MultiStore, tp.GraphStore]]:
    """The example and all items of a content as shards that begin at `cuts`, and as one store."""
    items: list[Any] = [content.example, *content.items]
    bounds = sorted({0, *(cut for cut in cuts if cut < len(items)), len(items)})
    with tempfile.TemporaryDirectory() as name, patch("os.fsync"):
        folder = Path(name)
        whole = tp.GraphStore.write(folder / "whole", items, compact=compact)
        # As a store hands them out all graphs have their features, so that any of them may be the first of a shard.
        parts = [[whole[i] for i in range(first, last)] for first, last in pairwise(bounds)]
        yield write_shards(folder / "shards", parts, compact=compact), whole


CUTS = st.lists(st.integers(1, 5), max_size=4)


@settings(max_examples=25)
@given(st.data(), contents(min_graphs=1), CUTS, st.booleans(), PADDING)
def test_shards_are_one_store(
    data: st.DataObject, content: Content, cuts: list[int], compact: bool, padding: dict[str, Any]
) -> None:
    order = data.draw(st.permutations(range(1, len(content.items) + 1)))
    given_settings: Any = {"packs_per_batch": content.packs_per_batch, **padding}
    with both(content, cuts, compact) as (shards, whole):
        found, right = (store.padded(content.limits, **given_settings) for store in (shards, whole))
        on_device = shards.to("cpu").padded(content.limits, **given_settings)
        views = [(each, right) for each in (found, on_device, pickle.loads(pickle.dumps(found)))]
        if compact:
            stored = {**given_settings, "as_stored": True}
            views.append((shards.padded(content.limits, **stored), whole.padded(content.limits, **stored)))
        for found, right in views:
            for ids in (order, order[:1], []):
                assert_same_batch(found[ids], right[ids])
        for item, expected in zip(shards, whole, strict=True):
            assert_same_item(item, expected)
        assert shards.sizes.array.tolist() == whole.sizes.array.tolist()
        assert shards.sizes.components == whole.sizes.components
        assert (shards.histogram, shards.schema) == (whole.histogram, whole.schema)
        assert shards.stored_schema == whole.stored_schema
        assert shards.original_ids.tolist() == list(range(len(whole)))
        shards.verify()


@pytest.mark.parametrize("as_stored", [False, True])
def test_shards_that_are_stored_in_different_widths(tmp_path: Path, as_stored: bool) -> None:
    """Endpoints and features of every width, in one batch; also where a width is narrower than what is handed out."""

    def item(nodes: int, value: int) -> Any:
        graph = dgl.graph((torch.tensor([0, nodes - 1]), torch.tensor([nodes - 1, nodes // 2])), num_nodes=nodes)
        graph.edata["feat"] = torch.tensor([value, 1])
        return graph, torch.tensor([value, 0]).to(torch.int32)

    parts = [[item(n, v)] * 2 for n, v in ((70_000, 70_000), (5, 3), (300, -300), (20, 255))]
    whole = tp.GraphStore.write(tmp_path / "whole", [i for part in parts for i in part], compact=True)
    shards = write_shards(tmp_path / "shards", parts, compact=True)
    stored = {part.metadata.arrays[2].stored for part in shards.segments}
    assert stored == {"uint8", "uint16", "int32"}
    limits, ids = tp.Limits(150_000, 20, 8), [5, 0, 3, 6, 2, 4, 7]
    right = whole.padded(limits, as_stored=as_stored)[ids]
    assert_same_batch(shards.padded(limits, as_stored=as_stored)[ids], right)
    assert_same_batch(shards.to("cpu").padded(limits, as_stored=as_stored)[ids], right)
    # Of shards that were all narrowed, but not equally.
    narrow = write_shards(tmp_path / "narrow", [parts[1], parts[2]], compact=True)
    found = narrow.padded(limits, as_stored=True)[[0, 2]].edge_features["feat"]
    assert (found.dtype, found[:4].tolist()) == (torch.int16, [3, 1, -300, 1])
