"""What is written into, replaced in, or deleted from the features of a batch's graph belongs to the batch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from tests.support.graphs import Content, assert_equal_tensors, contents
from tests.support.messages import refused

Features = dict[Any, dict[str, torch.Tensor]]

# Every way out of a batch, as batches with the same features.
WAYS: dict[str, Callable[[tp.PaddedBatch], tp.PaddedBatch]] = {
    "itself": lambda batch: batch,
    "to": lambda batch: batch.to("cpu"),
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
KINDS = ("set", "delete", "pop", "update", "rows", "local", "own", "own-delete")


def batch_of(content: Content) -> tp.PaddedBatch:
    """The padded batch of a content."""
    return tp.PaddedCollate(content.limits, content.example, content.packs_per_batch)(content.items)


def own_features(batch: tp.PaddedBatch, t: Any) -> dict[str, torch.Tensor]:
    """What the batch gives as features of one type."""
    features = batch.edge_features if isinstance(t, tuple) else batch.node_features
    return features[t] if len(batch.node_types) > 1 else features


def in_graph(graph: Any, t: Any) -> Any:
    """DGL's view of the features of one type."""
    return graph.edges[t].data if isinstance(t, tuple) else graph.nodes[t].data


def assert_has(batch: tp.PaddedBatch, expected: Features) -> None:
    """The batch and its graph have exactly these features."""
    for t, features in expected.items():
        for found in (own_features(batch, t), in_graph(batch.graph, t), own_features(batch, t)):
            assert set(found) == set(features)
            for name, value in features.items():
                assert_equal_tensors(found[name], value, name)


def change(batch: tp.PaddedBatch, expected: Features, t: Any, kind: str, name: str, number: int) -> None:
    """Change a feature in one of the ways there are, in the batch and in the dict that says what it then is."""
    features, view = expected[t], in_graph(batch.graph, t)
    rows = len(batch.edge_mask[t] if isinstance(t, tuple) else batch.node_mask[t]) if len(batch.node_types) > 1 else (
        len(batch.edge_mask) if isinstance(t, tuple) else len(batch.node_mask)
    )  # fmt: skip
    value = torch.arange(rows * 2).reshape(rows, 2) + number
    if kind == "set":
        view[name] = features[name] = value
    elif kind == "update":
        view.update({name: value, "other": value + 1})
        features.update({name: value, "other": value + 1})
    elif kind == "own":
        own_features(batch, t)[name] = features[name] = value
    elif kind == "local":
        with batch.graph.local_scope():
            in_graph(batch.graph, t)[name] = value
            for left in [n for n in features if n != name]:
                in_graph(batch.graph, t).pop(left)
            assert set(own_features(batch, t)) == {name}
    elif name in features:
        if kind == "delete":
            del view[name]
        elif kind == "pop":
            assert view.pop(name) is features[name]
        elif kind == "own-delete":
            del own_features(batch, t)[name]
        else:
            some = in_graph(batch.graph, t)[name].clone()
            some[:1] = 1
            (batch.graph.edges if isinstance(t, tuple) else batch.graph.nodes)[[0], t].data[name] = some[:1]
            features[name] = some
            return
        del features[name]


@given(contents(), st.sampled_from(sorted(WAYS)), st.data())
def test_features_written_into_the_graph_are_those_of_the_batch(
    content: Content, way: str, data: st.DataObject
) -> None:
    batch = batch_of(content)
    types = [*content.node_types, *content.edge_types]
    expected: Features = {t: dict(own_features(batch, t)) for t in types}
    changes = data.draw(
        st.lists(st.tuples(st.sampled_from(types), st.sampled_from(KINDS), st.sampled_from(["feat", "h", "new"])))
    )
    for number, (t, kind, name) in enumerate(changes):
        change(batch, expected, t, kind, name, number)
        if data.draw(st.booleans()):
            assert_has(batch, expected)
    found = WAYS[way](batch)
    assert_has(found, expected)
    for t, features in expected.items():
        assert_equal_real_rows([in_graph(graph, t) for graph in tp.unpad(found)], features)


def assert_equal_real_rows(parts: list[Any], features: dict[str, torch.Tensor]) -> None:
    """The graphs of a batch have its features, each its rows, in order."""
    for part in parts:
        assert set(part) == set(features)
    for name, value in features.items():
        rows = [part[name] for part in parts]
        if rows:
            found = torch.cat(rows)
            assert_equal_tensors(found, value[: len(found)], name)


@given(contents(min_graphs=1))
def test_writes_into_a_copy_do_not_reach_the_batch(content: Content) -> None:
    for way in ("to", "pickle", "copy", "deepcopy"):
        batch = batch_of(content)
        before = {t: dict(own_features(batch, t)) for t in [*content.node_types, *content.edge_types]}
        other = WAYS[way](batch)
        for t in before:
            in_graph(other.graph, t)["new"] = torch.zeros(
                other.graph.num_edges(t) if isinstance(t, tuple) else other.graph.num_nodes(t)
            )
            assert "new" in own_features(other, t)
        assert_has(batch, before)


OLD, NEW, OTHER = torch.zeros(5, 1), torch.ones(5, 1), torch.full((5, 1), 2.0)
# A feature at first, then in the graph and in the batch, and at last in both; None: it is absent.
CHANGES = {
    "set in both": (OLD, NEW, OTHER, NEW), "deleted in the graph": (OLD, None, OTHER, None),
    "deleted in the batch": (OLD, NEW, None, NEW), "deleted in both": (OLD, None, None, None),
    "set in the graph only": (OLD, NEW, OLD, NEW), "set in the batch only": (OLD, OLD, OTHER, OTHER),
    "deleted in the graph only": (OLD, None, OLD, None), "deleted in the batch only": (OLD, OLD, None, None),
    "new in both": (None, NEW, OTHER, NEW), "new in the graph": (None, NEW, None, NEW),
    "new in the batch": (None, None, OTHER, OTHER),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGES)
def test_of_two_changes_the_one_in_the_graph_is_kept(kind: str) -> None:
    """Features of a graph and of its batch may change separately until one of them is asked for again."""
    import dgl

    pair = dgl.graph(([0, 1], [1, 0]))
    batch = tp.PaddedCollate(tp.Limits(4, 8, graphs=4), example=pair)([pair])
    before, in_graph, in_batch, expected = CHANGES[kind]
    view = batch.graph.ndata
    if before is not None:
        view["h"] = before
    own = batch.node_features
    for features, value in ((view, in_graph), (own, in_batch)):
        if value is None:
            features.pop("h", None)
        elif value is not before:
            features["h"] = value
    for found in (batch.node_features, batch.graph.ndata):
        assert ("h" in found) is (expected is not None)
        assert expected is None or torch.equal(found["h"], expected)


def test_a_graph_that_was_changed_in_place_is_refused() -> None:
    import dgl

    def changed(change: Callable[[Any], object]) -> tp.PaddedBatch:
        pair = dgl.graph(([0, 1], [1, 0]))
        batch = tp.PaddedCollate(tp.Limits(6, 8, graphs=4), example=pair)([pair])
        change(batch.graph)
        # What the user holds goes on working.
        assert batch.graph is batch.graph
        return batch

    ways: list[Callable[[tp.PaddedBatch], object]] = [
        *[way for name, way in WAYS.items() if name != "itself"], tp.unpad, lambda b: b.node_features,
        lambda b: b.edge_features,
    ]  # fmt: skip
    for way in ways:
        with refused(SchemaError, "changed in place", "9 edges of type", "instead of 8", "batch.graph.clone()"):
            way(changed(lambda graph: graph.add_edges([0], [1])))
        with refused(SchemaError, "changed in place", "8 nodes of type '_N' instead of 7"):
            way(changed(lambda graph: graph.add_nodes(1)))


@pytest.mark.parametrize("hetero", [False, True])
def test_a_batch_whose_graph_nobody_asked_for_builds_none(hetero: bool) -> None:
    import dgl

    graph = (
        dgl.heterograph({("u", "f", "u"): ([0], [0]), ("u", "b", "i"): ([0], [0])}) if hetero else dgl.rand_graph(2, 3)
    )
    limits = tp.Limits.from_components({c: 9 for c in tp.sizes_of([graph]).components}, graphs=3)
    batch = tp.PaddedCollate(limits, example=graph)([graph])
    for way in WAYS.values():
        assert way(batch)._graph is None
    tp.unpad(batch)
    assert batch.node_features is not None
    assert batch._graph is None
