"""The real ogbg-molhiv, by hand: other tests compare small datasets of its form. Without it, they are skipped."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from dgl.dataloading import GraphDataLoader

import dgl_tuplepack as tp
from tests.support.graphs import assert_equal_tensors, assert_same_graph, assert_same_item

pytestmark = [pytest.mark.slow, pytest.mark.by_hand]


@pytest.fixture(scope="module")
def molhiv(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """ogbg-molhiv through OGB; parsing takes half a minute, so it happens once."""
    if not (source := shared_data / "ogb").is_dir():
        pytest.skip(f"development data is absent: {source}")
    ogb = pytest.importorskip("ogb.graphproppred", reason="the optional package ogb is not installed")
    # OGB writes beside the raw files, which are not ours to change.
    root = shutil.copytree(source, tmp_path_factory.mktemp("molhiv") / "ogb")
    return ogb.DglGraphPropPredDataset("ogbg-molhiv", root=str(root))


def test_molhiv_epoch(molhiv: Any) -> None:
    """One epoch over the validation molecules: each once, features and labels intact, one shape."""
    valid = molhiv[molhiv.get_idx_split()["valid"]]
    named = tp.with_ids(valid)
    sampler = tp.PackBatchSampler(valid, tp.Limits(nodes=222, edges=502), seed=1, packs_per_batch=2)
    collate = tp.PaddedCollate(sampler.limits, example=named[0], packs_per_batch=2)
    loader = GraphDataLoader(named, batch_sampler=sampler, collate_fn=collate)
    seen, shapes = [], set()
    for number, batch in enumerate(loader):
        ids = batch.graph_ids[batch.graph_mask].tolist()
        seen += ids
        shapes.add((len(batch.node_mask), len(batch.edge_mask), len(batch.graph_mask)))
        nodes, edges = batch.num_real_nodes, batch.num_real_edges
        assert nodes == sum(valid[i][0].num_nodes() for i in ids)
        plain = dgl.batch([valid[i][0] for i in ids])
        assert_equal_tensors(batch.node_features["feat"][:nodes], plain.ndata["feat"])
        assert_equal_tensors(batch.edge_features["feat"][:edges], plain.edata["feat"])
        assert_equal_tensors(batch.labels[batch.graph_mask], torch.stack([valid[i][1] for i in ids]))
        if number < 5:
            for graph, i in zip(tp.unpad(batch), ids, strict=True):
                assert_same_graph(graph, valid[i][0])
    assert sorted(seen) == list(range(len(valid)))
    assert shapes == {(2 * 222 + 1, 2 * 502, 2 * sampler.limits.graphs + 1)}


def test_molhiv_is_what_ogb_makes_of_it(molhiv: Any, shared_data: Path, tmp_path: Path) -> None:
    """All 41,127 molecules: sizes, splits and the embedded histogram; graphs and labels of a random few."""
    store = tp.GraphStore.write(tmp_path / "store", shared_data / "ogb", compact=True)
    assert len(store) == len(molhiv) == 41_127
    split = molhiv.get_idx_split()
    assert {part: ids.tolist() for part, ids in store.splits.items()} == {p: i.tolist() for p, i in split.items()}
    train = store.subset(store.splits["train"])
    assert train.histogram == tp.load_example("ogbg-molhiv")
    assert store.histogram == tp.SizeHistogram.from_sizes(store.sizes)
    for i in np.random.default_rng(0).integers(0, len(store), 50).tolist():
        assert_same_item(store[i], molhiv[i])
