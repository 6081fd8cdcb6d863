"""Files that version 0.1.0 wrote stay readable, as `docs/trust.md` promises. `written_by_0_1_0.zip` holds them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from tests.support.graphs import assert_same_item


def molecule(i: int) -> Any:
    """Graph i of the stores: a path of 2 to 6 atoms."""
    number = 2 + i % 5
    ends = torch.arange(number - 1)
    graph = dgl.graph((torch.cat([ends, ends + 1]), torch.cat([ends + 1, ends])), num_nodes=number)
    graph.ndata["feat"] = torch.arange(number).reshape(-1, 1) + 10 * i
    graph.ndata["x"] = torch.arange(number, dtype=torch.float32).reshape(-1, 1) / 8 + i
    graph.edata["feat"] = (torch.arange(graph.num_edges()) % 3).reshape(-1, 1)
    return graph, torch.tensor([i / 4])


@pytest.fixture
def written(tmp_path: Path) -> Path:
    shutil.unpack_archive(Path(__file__).with_name("written_by_0_1_0.zip"), tmp_path)
    return tmp_path


def test_stores_of_the_first_version_are_read(written: Path) -> None:
    store = tp.GraphStore(written / "molecules")
    store.verify()
    assert len(store) == 8
    for i in range(8):
        assert_same_item(store[i], molecule(i))
    assert {name: ids.tolist() for name, ids in store.splits.items()} == {"train": [0, 1, 2, 3, 4, 5], "test": [6, 7]}

    purchases = tp.GraphStore(written / "purchases")
    for i in range(3):
        graph, label = purchases[i]
        assert label == i
        assert [each.tolist() for each in graph.edges(etype="buys")] == [[0, 0, i % 2], [0, 1, i % 3]]
        assert graph.nodes["user"].data["x"].tolist() == [[i], [i]]


def test_shards_of_the_first_version_are_read(written: Path) -> None:
    store = tp.MultiStore(written / "shards")
    for i in range(8):
        assert_same_item(store[i], molecule(i))


def test_plans_and_histograms_of_the_first_version_are_read(written: Path) -> None:
    for name in ("histogram.json", "histogram.csv"):
        histogram = tp.SizeHistogram.load(written / name)
        sizes = zip(histogram.sizes.tolist(), histogram.counts.tolist(), strict=True)
        assert {tuple(size): count for size, count in sizes} == {(2, 2): 1, (3, 4): 2, (6, 10): 1}
    plan = tp.PackPlan.load(written / "plan.json")
    plan.validate()
    assert plan.num_packs == 2
    buckets = tp.PackPlan.load(written / "buckets.json")
    buckets.validate()
    assert buckets.num_packs == 2


def test_a_state_of_the_first_version_resumes(written: Path) -> None:
    # Version 0.1.0 had delivered the graphs 0, 1 and 5 of this epoch.
    loader = tp.packed_loader(written / "packed", seed=3)
    loader.load_state_dict(json.loads((written / "state.json").read_text()))
    rest = [batch.graph_ids[batch.graph_mask].tolist() for batch in loader]
    assert sorted(map(sorted, rest)) == [[2, 6, 7], [3, 4]]
