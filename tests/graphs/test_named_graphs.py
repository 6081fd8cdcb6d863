"""Items of several named graphs: names, limits, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import LimitsError, SchemaError, TransformError
from tests.support.messages import refused
from tests.support.named import LIMITS, path_graph, path_item


def molecule(*counts: int) -> Any:
    """A heterograph of two types."""
    graph = dgl.heterograph({("C", "bond", "N"): ([0], [0])}, {"C": counts[0], "N": counts[1]})
    graph.nodes["C"].data["x"] = torch.ones(counts[0])
    return graph


def test_components_and_limits_are_called_as_the_graphs() -> None:
    sizes = tp.sizes_of([path_item(3), (path_item(4), 1)])
    assert sizes.components == ("nodes:atoms", "nodes:bonds", "edges:atoms", "edges:bonds")
    assert sizes.array.tolist() == [[3, 2, 2, 1], [4, 3, 3, 2]]
    assert LIMITS.nodes == {"atoms": 12, "bonds": 20}
    assert LIMITS.edges == {"atoms": 20, "bonds": 50}
    plan = tp.pack(sizes, LIMITS)
    assert plan.num_packs == 1
    of_mol = tp.sizes_of([{"mol": molecule(2, 3), "atoms": path_graph(2)}])
    assert of_mol.components == (
        "nodes:atoms", "nodes:mol/C", "nodes:mol/N", "edges:atoms", "edges:mol/C:bond:mol/N",
    )  # fmt: skip
    limits = tp.Limits({"atoms": 3, "mol/C": 3, "mol/N": 3}, {"atoms": 3, "bond": 4})
    assert limits.aligned(of_mol.components).values == (3, 3, 3, 3, 4)


def test_keys_of_a_batch_are_the_names_and_the_types_of_heterographs() -> None:
    given = {"mol": molecule(2, 3), "atoms": path_graph(2)}
    limits = tp.Limits({"atoms": 3, "mol/C": 3, "mol/N": 4}, {"atoms": 3, "bond": 4}, graphs=2)
    batch = tp.PaddedCollate(limits, given)([given])
    assert list(batch.node_features) == list(batch.tensors.node_mask) == ["atoms", "mol/C", "mol/N"]
    assert list(batch.src) == ["atoms", ("mol/C", "bond", "mol/N")]
    assert batch.graphs["mol"].ntypes == ["C", "N"]
    assert batch.graphs["mol"].canonical_etypes == [("C", "bond", "N")]
    assert batch.graphs["atoms"].ntypes == ["_N"]
    graphs = batch.tensors.graphs
    assert graphs["mol"].num_nodes("C") == batch.graphs["mol"].num_nodes("C")
    assert graphs["atoms"].ndata["x"] is batch.node_features["atoms"]["x"]
    assert batch.graphs["atoms"].ndata["x"] is batch.node_features["atoms"]["x"]
    graphs, labels = batch
    assert labels is None
    assert set(graphs) == {"atoms", "mol"}


def test_one_named_graph_is_another_thing_than_a_graph() -> None:
    one = {"atoms": path_graph(3)}
    assert tp.sizes_of([one]).components == ("nodes:atoms", "edges:atoms")
    batch = tp.PaddedCollate(tp.Limits({"atoms": 5}, {"atoms": 5}, 2), one)([one])
    assert batch.node_mask["atoms"].tolist() == [True] * 3 + [False] * 3
    with refused(SchemaError, "named graphs ['atoms']", "batch.graphs['atoms']"):
        batch.graph  # noqa: B018
    with refused(SchemaError, "named graphs ['atoms']", "tensors.graphs['atoms']"):
        batch.tensors.graph  # noqa: B018
    plain = tp.PaddedCollate(tp.Limits(5, 5, 2), path_graph(3))([path_graph(3)])
    with refused(SchemaError, "no names", "batch.graph"):
        plain.graphs  # noqa: B018
    with refused(SchemaError, "without names", "tensors.graph"):
        plain.tensors.graphs  # noqa: B018
    with refused(LimitsError, "nodes:atoms"):
        tp.PaddedCollate(tp.Limits(5, 5, 2), one)


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        ({}, ["empty dict", "at least one"]),
        ({"atoms": path_graph(2), "y": 3}, ["has 3 under 'y'", "put labels after it"]),
        ({"a/b": path_graph(2)}, ["called 'a/b'", "'/'"]),
        ({3: path_graph(2)}, ["called 3", "strings"]),
        ({"y": 3}, ["is dict", "dict of named graphs"]),
        ({"atoms": path_graph(2), "bonds": path_graph(2).int()}, ["'bonds'", "index type", "torch.int32"]),
        ({"atoms": path_graph(2), "bonds": dgl.batch([path_graph(2)] * 2)}, ["'bonds'", "batch size", "2"]),
    ],
)
def test_dicts_that_are_not_named_graphs_are_refused(wrong: Any, parts: list[str], tmp_path: Path) -> None:
    with refused(SchemaError, "the example", *parts):
        tp.PaddedCollate(LIMITS, wrong)
    # An empty dict has other graphs than the example.
    known = parts if wrong else parts[:1]
    for call in (tp.PaddedCollate(LIMITS, path_item()), lambda items: tp.GraphStore.write(tmp_path / "store", items)):
        with refused(SchemaError, "item 1", *known):
            call([path_item(), wrong])
    assert not (tmp_path / "store" / "metadata.json").exists()


@pytest.mark.parametrize(
    ("other", "parts"),
    [
        ({"atoms": path_graph(2)}, ["['atoms']", "['atoms', 'bonds']", "same named graphs"]),
        (path_graph(2), ["one graph without a name", "['atoms', 'bonds']"]),
        ({"atoms": path_graph(2), "bonds": molecule(2, 2)}, ["bonds/C", "same types"]),
        ({"atoms": path_graph(2), "bonds": dgl.graph(([0], [0]))}, ["features", "found none"]),
    ],
)
def test_items_that_differ_are_named(other: Any, parts: list[str], tmp_path: Path) -> None:
    items = [path_item(), other]
    calls: list[Any] = [tp.PaddedCollate(LIMITS, items[0]), lambda items: tp.GraphStore.write(tmp_path / "s", items)]
    for call in calls if "features" in parts else [*calls, tp.sizes_of]:
        with refused(SchemaError, "item 1", *parts):
            call(items)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda graphs: graphs["atoms"],
        lambda graphs: {"atoms": graphs["atoms"]},
        lambda graphs: {**graphs, "bonds": 3},
        lambda graphs: {**graphs, 3: graphs["atoms"]},
    ],
)
def test_transforms_that_return_other_graphs_are_refused(wrong: Any) -> None:
    with refused(TransformError, "the example", "['atoms', 'bonds']"):
        tp.PaddedCollate(LIMITS, path_item(), transform=wrong)
    with refused(TransformError, "the example", "4 nodes of type '_N' of the graph 'bonds'", "instead of 3"):
        tp.PaddedCollate(
            LIMITS, path_item(), transform=lambda graphs: {**graphs, "bonds": dgl.add_nodes(graphs["bonds"], 1)}
        )


def test_transformed_graphs_are_batched_by_name(tmp_path: Path) -> None:
    """Also where a graph without nodes has lost its features."""

    def bare(graphs: Any) -> Any:
        empty = not graphs["b"].num_nodes()
        return {**graphs, "b": dgl.graph(([], []), num_nodes=0) if empty else graphs["b"]}

    items = []
    for number in (2, 0, 3):
        graphs = {"a": dgl.rand_graph(3, 4), "b": dgl.rand_graph(number, 2 * number)}
        for graph in graphs.values():
            graph.ndata["x"] = torch.arange(graph.num_nodes()).float()
        items.append(graphs)
    store = tp.GraphStore.write(tmp_path / "store", items)
    limits = tp.Limits({"a": 9, "b": 9}, {"a": 12, "b": 12}, graphs=3)
    batch = store.padded(limits, transform=bare)[[0, 1, 2]].graphs
    assert batch["b"].batch_num_nodes()[:3].tolist() == [2, 0, 3]
    assert batch["b"].ndata["x"][:5].tolist() == [0, 1, 0, 1, 2]
    assert batch["a"].ndata["x"][:9].tolist() == [0, 1, 2] * 3
