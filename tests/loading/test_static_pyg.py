"""`packed_loader(batch_size=)` of PyG graphs gives PyG's own batches, of lists, stores and datasets with transforms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from tests.support.pyg import (
    RELATIONS,
    InMemory,
    NewAxis,
    assert_same,
    batch_of,
    data_lists,
    hetero_lists,
    molecule,
    random_heterodata,
    stored,
)
from tests.support.tensors import generator

from torch_geometric.data import Data  # isort: skip
from torch_geometric.loader import DataLoader  # isort: skip

pytestmark = pytest.mark.filterwarnings("ignore:batches of .* graphs need a shape:UserWarning")

GRAPHS = [molecule(2 + i % 5, 1 + i % 7, i) for i in range(30)]


def doubled(graph: Any) -> Any:
    """A transform of the user's."""
    graph.x = graph.x * 2
    return graph


class Transformed(InMemory):
    """A dataset in memory with a transform of its own, which is applied whenever a graph is read."""

    def __init__(self, graphs: Any) -> None:
        super().__init__(graphs)
        self.transform = doubled


SOURCES: dict[str, Callable[[Path], tuple[Any, dict[str, Any]]]] = {
    "a list": lambda folder: (GRAPHS, {}),
    "a list that is read one by one": lambda folder: (GRAPHS, {"in_memory": False}),
    "a dataset in memory": lambda folder: (InMemory(GRAPHS), {}),
    "a store": lambda folder: (tp.GraphStore.write(folder / "store", GRAPHS), {}),
    "a dataset with a transform": lambda folder: (Transformed(GRAPHS), {}),
    "a transform": lambda folder: (GRAPHS, {"transform": doubled}),
}


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("size", [{"batch_size": 7}, {"graphs_per_batch": 7, "padded": False}], ids=str)
def test_batches_are_those_of_pyg(name: str, size: dict[str, Any], tmp_path: Path) -> None:
    source, others = SOURCES[name](tmp_path)
    loader = tp.packed_loader(source, with_ids=True, **size, **others)
    right = [doubled(graph.clone()) for graph in GRAPHS] if "transform" in name else GRAPHS
    has_levels = "one by one" not in name and "transform" not in name
    for _ in range(2):
        seen = []
        for batch in loader:
            ids = batch.graph_ids.tolist()
            assert_same(batch, batch_of([right[i] for i in ids]), without={"graph_ids"})
            assert batch.__dict__["static_shape"] == loader.shape
            levels = {"x": "nodes", "edge_attr": "edges", "y": "graphs", "z": "graphs"}
            found = batch.__dict__.get("static_levels")
            assert found == ({key: levels[key] for key in found} if has_levels else None)
            assert batch.num_nodes <= loader.shape.nodes - 2
            assert batch.num_edges <= loader.shape.edges - 2
            seen += ids
        assert sorted(seen) == list(range(30))


@settings(max_examples=20)
@given(data_lists() | hetero_lists(), st.integers(1, 4), st.booleans())
def test_evaluations_are_those_of_pyg(graphs: list[Any], size: int, in_memory: bool) -> None:
    loader = tp.packed_loader(graphs, batch_size=size, shuffle=False, in_memory=in_memory)
    for found, expected in zip(loader, DataLoader(graphs, batch_size=size), strict=True):
        assert_same(found, expected)
        assert found.__dict__["static_shape"] == loader.shape


def test_levels_are_those_of_the_schema() -> None:
    gen = generator(0)
    specs: Any = {
        "user": {"x": ((2,), torch.float32)},
        "item": {"x": ((), torch.float32)},
        None: {"y": ((), torch.float32)},
    }
    ends = [torch.zeros(2, i + 4, dtype=torch.long) for i in range(6)]
    for graphs, levels in (
        (
            [NewAxis(x=torch.ones(i + 1, 2), edge_index=ends[i], foo=torch.ones(3)) for i in range(6)],
            {"x": "nodes", "foo": "graphs"},
        ),
        (
            [Data(x=torch.ones(i + 3, 2), edge_index=ends[i], goal=torch.ones(2, 3)) for i in range(6)],
            {"x": "nodes", "goal": "graphs*2"},
        ),
        (
            [random_heterodata(gen, {"user": 2 + i, "item": 3}, dict.fromkeys(RELATIONS, 2), specs) for i in range(6)],
            {("user", "x"): "nodes:user", ("item", "x"): "nodes:item", (None, "y"): "graphs"},
        ),
    ):
        batch = next(iter(tp.packed_loader(graphs, batch_size=4)))
        assert batch.__dict__["static_levels"] == levels


def test_a_marked_batch_moves_and_is_copied() -> None:
    loader = tp.packed_loader(GRAPHS, batch_size=7, pin_memory=torch.cuda.is_available(), num_workers=1)
    batch = next(iter(loader))
    assert batch.__dict__["static_shape"] == loader.shape
    assert_same(batch.clone(), batch)
    assert batch.to("cpu").num_graphs == 7
    assert len(batch.to_data_list()) == 7


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_rank_without_packs_gets_an_empty_batch(in_memory: bool) -> None:
    given: dict[str, Any] = {"padded": False, "num_replicas": 2, "in_memory": in_memory, "with_ids": True}
    batches = [next(iter(tp.packed_loader(GRAPHS[:2], 8, rank=rank, **given))) for rank in range(2)]
    empty, full = sorted(batches, key=lambda batch: batch.num_nodes)
    assert (empty.num_graphs, empty.num_nodes, empty.num_edges, full.num_graphs) == (0, 0, 0, 2)
    assert {*empty.keys()} == {*full.keys()}
    assert {key: value.shape[1:] for key, value in empty if key != "edge_index"} == {
        key: value.shape[1:] for key, value in full if key != "edge_index"
    }


def test_padded_batches_of_a_store_have_the_slots_of_the_loader() -> None:
    loader = tp.packed_loader(stored(GRAPHS), batch_size=7, padded=True, multiple_of=4)
    plain = tp.packed_loader(stored(GRAPHS), batch_size=7, multiple_of=4)
    assert loader.shape == plain.shape
    for padded, batch in zip(loader, plain, strict=True):
        graph = padded.pyg
        assert (graph.num_nodes, graph.num_edges, graph.num_graphs) == (*loader.shape.values, loader.shape.graphs)
        assert torch.equal(graph.x[graph.node_mask], batch.x)
