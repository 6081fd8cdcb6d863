"""Transforms in a packed dataset: those of a padded batch, the same for any workers; what is kept is described."""

from __future__ import annotations

from typing import Any

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError, TransformError
from dgl_tuplepack.graphs.items import EpochIds
from tests.batches.test_graph_transforms_properties import shaken
from tests.support.graphs import assert_same_graph
from tests.support.messages import refused
from tests.support.stores import molecules

ITEMS = molecules(30)
LIMITS = tp.Limits(nodes=20, edges=26)


@pytest.mark.parametrize("workers", [0, 2])
def test_packs_are_the_padded_batches_of_transformed_graphs(workers: int) -> None:
    """In each epoch, for persistent workers too; the transform of batches comes last."""
    noise = tp.transforms.AddNoise("x", 0.1)
    given: dict[str, Any] = {"transform": shaken, "batch_transform": noise, "transform_seed": 4}
    packed = tp.PackedDataset(ITEMS, LIMITS, **given, multiple_of=2)
    collate = tp.PaddedCollate(packed.limits, tp.with_ids(ITEMS)[0], **given)
    loader = GraphDataLoader(packed, batch_size=1, num_workers=workers, persistent_workers=workers > 0)
    sums = []
    for epoch in (0, 3):
        packed.set_epoch(epoch)
        packs = [*packed.sampler._batches_of(epoch), *[[]] * (len(packed) - len(packed.sampler))]
        for (graph, labels), ids in zip(loader, packs, strict=True):
            expected = collate(tp.with_ids(ITEMS).__getitems__(EpochIds(ids, epoch)))
            assert_same_graph(graph, dgl.batch([expected.graph]))
            assert torch.equal(labels.values[0], expected.labels)
            assert torch.equal(labels.graph_ids[0], expected.graph_ids)
            sums.append(graph.ndata["y"].sum().item())
    sums = [value for value in sums if value]
    assert len(set(sums)) == len(sums)


def test_a_transform_that_fails_names_the_graph() -> None:
    def failing(graph: Any) -> Any:
        raise KeyError("charge")

    def growing(graph: Any) -> Any:
        return dgl.add_self_loop(graph) if graph.num_nodes() > 4 else graph

    def changing(graph: Any) -> Any:
        if graph.num_nodes() > 4:
            graph.ndata["extra"] = torch.zeros(graph.num_nodes())
        return graph

    small_first = sorted(ITEMS, key=lambda item: item[0].num_nodes())
    with refused(TransformError, "failing failed for the example", "KeyError"):
        tp.PackedDataset(small_first, LIMITS, transform=failing)
    with refused(TransformError, "growing gave graph", "pre_transform"):
        list(tp.PackedDataset(small_first, LIMITS, transform=growing))
    with refused(SchemaError, "features", "extra"):
        list(tp.PackedDataset(small_first, LIMITS, transform=changing))
