"""Predictions of every kind of batch come in the order of ids, each graph once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError
from tests.support.messages import refused
from tests.support.stores import molecules, purchases

ITEMS = molecules(30)
# The value of a graph, a node and an edge, from which every expected result follows.
VALUES = [float(label.sum()) for _, label in ITEMS]
IDS = [29, 3, 4, 17, 0, 8, 21]


def marked(items: list[Any]) -> list[Any]:
    """Items whose nodes and edges have unique marks."""
    nodes = edges = 0
    for graph, _ in items:
        graph.ndata["mark"] = torch.arange(nodes, nodes := nodes + graph.num_nodes())
        graph.edata["mark"] = torch.arange(edges, edges := edges + graph.num_edges())
    return items


MARKED = marked([(graph.clone(), label) for graph, label in ITEMS])
PYG = [
    Data(x=g.ndata["mark"][:, None], edge_index=torch.stack(g.edges()), edge_attr=g.edata["mark"][:, None], y=y[None])
    for g, y in MARKED
]


def outputs_of(batch: Any, of: str) -> Any:
    """What a model would return: a value of each graph, the mark of each node or edge."""
    if isinstance(batch, tp.PaddedBatch):
        features = {"nodes": batch.node_features, "edges": batch.edge_features}
        return batch.labels if of == "graphs" else features[of]["mark"]
    if isinstance(batch, Data):
        return {"graphs": batch.y, "nodes": batch.x, "edges": batch.edge_attr}[of]
    graph, labels, _ = batch
    return {"graphs": labels, "nodes": graph.ndata.get("mark"), "edges": graph.edata.get("mark")}[of]


def expected_of(ids: list[int], of: str) -> Any:
    if of == "graphs":
        return torch.stack([MARKED[i][1] for i in ids])
    return [(MARKED[i][0].ndata if of == "nodes" else MARKED[i][0].edata)["mark"] for i in ids]


def batches_of(kind: str, ids: list[int], folder: Path) -> Any:
    """Batches of the graphs `ids`, and their `tensors` or PyG form."""
    splits: dict[str, Any] = {"train": range(30), "test": ids}
    settings: dict[str, Any] = {"graphs_per_batch": 6, "splits": splits, "shuffle": ("test",), "with_ids": True}
    if kind == "list":
        return tp.packed_loader(MARKED, in_memory=False, **settings)["test"]
    if kind == "unpadded list":
        return tp.packed_loader(MARKED, in_memory=False, padded=False, **settings)["test"]
    if kind == "GraphDataLoader":
        return [(g, y, torch.tensor(ids)[i]) for g, y, i in tp.GraphDataLoader(
            torch.utils.data.Subset(MARKED, ids), batch_size=3, shuffle=True, with_ids=True
        )]  # fmt: skip
    pyg = kind.startswith("PyG")
    store = tp.GraphStore.write(folder / f"{kind}-{len(ids)}", PYG if pyg else MARKED)
    if kind == "PyG unpadded":
        return tp.packed_loader(store, padded=False, **settings)["test"]
    if kind == "PyG loader":
        return tp.pyg.DataLoader(store.split(ids), batch_size=4, with_ids=True)
    if kind == "buckets":
        settings |= {"graphs_per_batch": None, "limits": [tp.Limits(12, 14), tp.Limits(20, 26)]}
    loader = tp.packed_loader(store, sort_edges="sorted" in kind, **settings)
    if kind == "tensors":
        return [batch.tensors for batch in loader["test"]]
    return [batch.pyg for batch in loader["test"]] if pyg else loader["test"]


KINDS = [
    "list", "unpadded list", "store", "sorted", "buckets", "tensors", "GraphDataLoader", "PyG", "PyG sorted",
    "PyG unpadded", "PyG loader",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_come_in_the_order_of_ids(kind: str, tmp_path: Path) -> None:
    for of in ("graphs", "nodes", "edges"):
        predictions = tp.Predictions(IDS, of)
        for batch in batches_of(kind, IDS, tmp_path / of):
            rows = outputs_of(batch, of) if kind != "tensors" else {
                "graphs": batch.labels, "nodes": batch.node_features["mark"], "edges": batch.edge_features["mark"],
            }[of]  # fmt: skip
            predictions.add(batch, rows)
        found, expected = predictions.result(), expected_of(IDS, of)
        assert len(found) == len(expected)
        for one, right in zip(found, expected, strict=True):
            assert torch.equal(one.flatten(), right.flatten())
    assert repr(predictions) == "Predictions(7 of 7 graphs, rows of edges)"


def test_batches_of_pygs_own_loader_with_ids_are_known_too() -> None:
    for of in ("graphs", "nodes", "edges"):
        predictions = tp.Predictions(len(PYG), of)
        for batch in tp.pyg.DataLoader(PYG, batch_size=4, shuffle=True, with_ids=True):
            predictions.add(batch, outputs_of(batch, of))
        for one, right in zip(predictions.result(), expected_of(list(range(30)), of), strict=True):
            assert torch.equal(one.flatten(), right.flatten())
    assert "graph_ids" not in next(iter(DataLoader(PYG, batch_size=4)))


def test_components_of_heterographs_have_rows_of_their_own() -> None:
    items = purchases(9)
    names = tp.sizes_of(items).components
    for of in names:
        predictions = tp.Predictions(9, of)
        for batch in tp.packed_loader(items, 4):
            predictions.add(batch, torch.arange(batch.row_masks()[of].mask.shape[0]))
        counts = tp.sizes_of(items).array[:, names.index(of)]
        assert [len(rows) for rows in predictions.result()] == counts.tolist()
    with refused(InputError, "'nodes'", "choose graphs or nodes:"):
        tp.Predictions(9, "nodes").add(batch, torch.zeros(3))


@given(data=st.data(), number=st.integers(1, 40))
def test_any_order_of_ids_and_batches(data: st.DataObject, number: int) -> None:
    ids = data.draw(st.permutations(range(2 * number)))[:number]
    order = data.draw(st.permutations(ids))
    predictions, first = tp.Predictions(np.array(ids)), 0
    while first < number:
        some = order[first : first + data.draw(st.integers(1, 7))]
        predictions.add(some, {"value": torch.tensor(some) * 2, "vector": torch.tensor(some)[:, None].expand(-1, 3)})
        first += len(some)
    found = predictions.result()
    assert found["value"].tolist() == [2 * i for i in ids]
    assert found["vector"].tolist() == [[i] * 3 for i in ids]


def test_outputs_are_copied_without_gradients() -> None:
    predictions, outputs = tp.Predictions(2), torch.ones(2, requires_grad=True)
    predictions.add([0, 1], outputs)
    with torch.no_grad():
        outputs.zero_()
    assert predictions.result().tolist() == [1, 1]
    assert not predictions.result().requires_grad


def test_graphs_that_are_missing_repeated_or_unexpected_are_named() -> None:
    predictions = tp.Predictions([5, 7, 9])
    predictions.add([7, 3], torch.zeros(2))
    predictions.add(torch.tensor([7]), torch.zeros(1))
    with refused(InputError, "7 were added more than once", "3 were not expected", "5, 9 are missing"):
        predictions.result()
    with refused(InputError, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more are missing"):
        tp.Predictions(12).result()


@pytest.mark.parametrize("ids", [0, [], [1, 1], [2, -1]])
def test_ids_that_cannot_be_are_refused(ids: Any) -> None:
    with pytest.raises(InputError):
        tp.Predictions(ids)


def test_rows_that_do_not_fit_are_refused_and_nothing_is_added() -> None:
    batch = next(iter(tp.packed_loader(ITEMS, 6)))
    predictions = tp.Predictions(30)
    slots, real = len(batch.graph_mask), batch.num_real_graphs
    for wrong in (torch.zeros(slots + 1), torch.zeros(()), [1.0] * slots, torch.zeros(real - 1, 2)):
        with refused(InputError, "slots", "a row for each"):
            predictions.add(batch, wrong)  # type: ignore[arg-type]
    predictions.add(batch, {"a": torch.zeros(slots, 2)})
    for other in (torch.zeros(slots, 2), {"b": torch.zeros(slots, 2)}, {"a": torch.zeros(real, 3)}):
        with pytest.raises(InputError):
            predictions.add(batch, other)
    assert len(predictions._ids) == 1
    with refused(InputError, "no ids", "with_ids=True"):
        tp.Predictions(30).add(next(iter(tp.packed_loader(ITEMS, 6, padded=False))), torch.zeros(6))
    with refused(InputError, "need the batch"):
        tp.Predictions(30, "nodes").add([1, 2], torch.zeros(2))


def test_batches_of_four_elements_and_numpy_outputs() -> None:
    items = [(graph, label, 100 + i) for i, (graph, label) in enumerate(ITEMS)]
    predictions = tp.Predictions(30, "nodes")
    for batch in tp.GraphDataLoader(items, batch_size=7, shuffle=True, with_ids=True):
        assert len(batch) == 4
        predictions.add(batch, batch[0].nodes().numpy())
    assert [len(rows) for rows in predictions.result()] == [graph.num_nodes() for graph, _ in ITEMS]
    batch = next(iter(tp.packed_loader(ITEMS, 6)))
    with refused(InputError, "-1", "marks padding", "give the batch"):
        tp.Predictions(30).add(batch.graph_ids, batch.labels)


def test_named_graphs_have_components_by_name() -> None:
    items = [({"a": g, "b": dgl.add_self_loop(g)}, y) for g, y in ITEMS]
    predictions = tp.Predictions(30, "edges:b")
    for batch in tp.packed_loader(items, 8, sort_edges=True):
        predictions.add(batch, batch.dst["b"])
    for found, ((graphs, _), _) in zip(predictions.result(), zip(items, range(30), strict=True), strict=True):
        assert len(found) == graphs["b"].num_edges()


@pytest.mark.parametrize("component", ["nodes:a", "edges:a", "nodes:b", "edges:b"])
def test_the_tensors_of_named_graphs_give_the_rows_of_the_batch(component: str) -> None:
    """In the tensors, the nodes and the edges of a named graph have the same key, but not the same numbers of rows."""
    items = [({"a": g, "b": dgl.add_self_loop(g)}, y) for g, y in ITEMS]
    content, name = component.split(":")
    of_batch, of_tensors = tp.Predictions(30, component), tp.Predictions(30, component)
    for batch in tp.packed_loader(items, 8):
        mask = (batch.node_mask if content == "nodes" else batch.edge_mask)[name]
        for predictions, passed in ((of_batch, batch), (of_tensors, batch.tensors)):
            predictions.add(passed, torch.arange(len(mask)))
    for found, expected, (graphs, _) in zip(of_tensors.result(), of_batch.result(), items, strict=True):
        assert len(found) == (graphs[name].num_nodes() if content == "nodes" else graphs[name].num_edges())
        assert torch.equal(found, expected)
