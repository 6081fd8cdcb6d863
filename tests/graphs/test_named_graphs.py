"""Items of several named graphs: names, limits, loaders, and random batches; `tests/zoo` trains a model of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dgl
import pytest
import torch
from dgl.dataloading import GraphDataLoader
from hypothesis import given, settings
from hypothesis import strategies as st

import dgl_tuplepack as tp
from dgl_tuplepack.errors import LimitsError, SchemaError, TransformError
from dgl_tuplepack.graphs.items import Identified
from tests.support.graphs import PADDING, assert_same_batch, assert_same_graph, generator
from tests.support.messages import refused
from tests.support.named import (
    LIMITS,
    TIES,
    Named,
    as_dict,
    assert_begins_with,
    assert_same_named,
    graphs_of,
    named_contents,
    path_graph,
    path_item,
    shifted_batch,
    types_of,
)


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


# --- in loaders and transforms

WIDTH = 4


def crystal(gen: torch.Generator, nodes: int) -> dict[str, Any]:
    """A ring with chords in both directions, and its line graph; edges of the one are nodes of the other."""
    around = torch.arange(nodes)
    chords = torch.randint(0, nodes, (2, nodes // 2), generator=gen)
    src = torch.cat([around, chords[0], (around + 1) % nodes])
    dst = torch.cat([(around + 1) % nodes, chords[1], around])
    # Neither in the order of sources nor of destinations.
    order = torch.randperm(len(src), generator=gen)
    atoms = dgl.graph((src[order], dst[order]), num_nodes=nodes)
    atoms.ndata["x"] = torch.randn(nodes, WIDTH, generator=gen, dtype=torch.float64)
    atoms.edata["r"] = torch.randn(len(src), WIDTH, generator=gen, dtype=torch.float64)
    bonds = dgl.line_graph(atoms, backtracking=False, shared=True)
    bonds.edata["angle"] = torch.randn(bonds.num_edges(), WIDTH, generator=gen, dtype=torch.float64)
    return {"atoms": atoms, "bonds": bonds}


def crystals(number: int = 12) -> list[Any]:
    """Labelled items of 3 to 8 atoms."""
    gen = generator(3)
    return [(crystal(gen, 3 + i % 6), torch.randn(2, generator=gen, dtype=torch.float64)) for i in range(number)]


@pytest.mark.parametrize("kind", ["list", "store"])
def test_one_call_makes_a_loader(kind: str, tmp_path: Path) -> None:
    items = crystals(30)
    source = items if kind == "list" else tp.GraphStore.write(tmp_path / "store", items, ties=TIES)
    loader = tp.packed_loader(source, graphs_per_batch=8, ties=TIES, sort_edges=True)
    shapes, seen = set(), []
    for batch in loader:
        shapes.add(tuple(number for g in batch.graphs.values() for number in (g.num_nodes(), g.num_edges())))
        seen += batch.graph_ids[batch.graph_mask].tolist()
        assert torch.equal(batch.graphs["bonds"].ndata["r"], batch.graphs["atoms"].edata["r"])
    assert len(shapes) == 1
    assert sorted(seen) == list(range(30))
    plain = tp.packed_loader(source, graphs_per_batch=8, padded=False)
    totals = [(graphs["atoms"].num_edges(), graphs["bonds"].num_nodes()) for graphs, _ in plain]
    assert all(one == other for one, other in totals)
    assert sum(one for one, _ in totals) == sum(graphs["atoms"].num_edges() for graphs, _ in items)


def test_packs_as_a_dataset_go_through_the_collate_of_dgl(tmp_path: Path) -> None:
    items = crystals()
    store = tp.GraphStore.write(tmp_path / "store", items, ties=TIES)
    limits = tp.Limits({"atoms": 20, "bonds": 60}, {"atoms": 60, "bonds": 300})
    packed = tp.PackedDataset(store, limits, multiple_of=2, feature_fill=9)
    seen, shapes = [], set()
    for graphs, labels in GraphDataLoader(packed, batch_size=2):
        packs = tp.flatten_packs(graphs, labels)
        shapes.add((graphs["atoms"].num_nodes(), graphs["bonds"].num_edges()))
        assert torch.equal(packs.node_mask["bonds"], packs.edge_mask["atoms"])
        assert torch.equal(graphs["bonds"].ndata["r"], graphs["atoms"].edata["r"])
        assert list(packs.row_masks()) == [*store.schema.components, "graphs"]
        seen += packs.graph_ids[packs.graph_mask].tolist()
    assert sorted(seen) == list(range(len(items)))
    assert shapes == {(2 * 21, 2 * 300)}


def test_a_pre_transform_makes_line_graphs(tmp_path: Path) -> None:
    """One graph becomes two before sizes are taken; a tie that it declares is checked."""

    def with_bonds(graph: Any) -> dict[str, Any]:
        return {"atoms": graph, "bonds": dgl.line_graph(graph, shared=True)}

    plain = [(graphs["atoms"], label) for graphs, label in crystals(4)]
    store = tp.GraphStore.write(tmp_path / "store", plain, pre_transform=with_bonds, ties=TIES)
    for (graphs, label), (graph, right) in zip(store, plain, strict=True):
        assert_same_named((graphs, label), (with_bonds(graph), right))
    made = tp.preprocess(plain, tmp_path / "made", pre_transform=with_bonds, ties=TIES)
    assert made.store.schema.ties == TIES
    assert made.store.schema.graph_names == ("atoms", "bonds")


def test_a_transform_of_batches_leaves_padding_and_indices_alone(tmp_path: Path) -> None:
    items = crystals(4)
    for graphs, _ in items:
        graphs["atoms"].ndata["next"] = torch.arange(graphs["atoms"].num_nodes()).flip(0)
    store = tp.GraphStore.write(tmp_path / "store", items, ties=TIES, indices={"next": "nodes"})
    limits = tp.Limits({"atoms": 40, "bonds": 150}, {"atoms": 150, "bonds": 700}, graphs=7)
    noise = tp.transforms.AddNoise("x", 0.1)
    before, batch = (
        store.padded(limits, sort_edges=True, batch_transform=transform)[[0, 1, 2, 3]] for transform in (None, noise)
    )
    real = batch.node_mask["atoms"]
    assert torch.equal(batch.node_features["atoms"]["x"][~real], before.node_features["atoms"]["x"][~real])
    assert not torch.equal(batch.node_features["atoms"]["x"][real], before.node_features["atoms"]["x"][real])
    assert torch.equal(batch.node_features["atoms"]["next"], before.node_features["atoms"]["next"])
    # Features that are written into a graph are those of the batch.
    batch.graphs["bonds"].ndata["h"] = torch.ones(len(batch.node_mask["bonds"]))
    assert batch.tensors.node_features["bonds"]["h"].sum() == len(batch.node_mask["bonds"])
    assert all("h" in graphs["bonds"].ndata for graphs in tp.unpad(batch))


# --- properties


@st.composite
def settings_of(draw: st.DrawFn, content: Named) -> dict[str, Any]:
    """Settings of padded batches."""
    names = [name for name in graphs_of(content.example) if name != "deals"]
    return {
        "packs_per_batch": content.packs,
        **draw(PADDING),
        "coordinates": ("x",) if names and draw(st.booleans()) else (),
    }


def collated(content: Named, items: Sequence[Any], ids: Sequence[int], settings: dict[str, Any]) -> tp.PaddedBatch:
    """The batch of some items, with ids."""
    pad = tp.PaddedCollate(content.limits, Identified(0, items[0]), **content.declared, **settings)
    return pad([Identified(i, items[i]) for i in ids])


@contextmanager
def written(content: Named, **settings: Any) -> Iterator[tuple[tp.GraphStore, list[Any]]]:
    """A store of the example and all items."""
    items = [content.example, *content.items]
    with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
        yield tp.GraphStore.write(f"{folder}/store", items, **content.declared, **settings), items


def shape_of(batch: tp.PaddedBatch) -> dict[str, Any]:
    """Shapes and dtypes of all tensors, and types of all graphs."""

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shape(each) for key, each in value.items()}
        return (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else value

    graphs = {
        name: (g.ntypes, g.canonical_etypes, g.batch_size, *map(g.num_nodes, g.ntypes))
        for name, g in batch.graphs.items()
    }
    return {"graphs": graphs, **{name: shape(value) for name, value in batch.tensors._asdict().items()}}


@given(st.data(), named_contents())
def test_unpadding_gives_the_items_back_and_shapes_are_static(data: st.DataObject, content: Named) -> None:
    settings = data.draw(settings_of(content))
    pad = tp.PaddedCollate(content.limits, content.example, **content.declared, **settings)
    batch = pad(content.items)
    found = tp.unpad(batch, with_labels=isinstance(content.example, tuple))
    assert len(found) == len(content.items)
    for item, right in zip(found, content.items, strict=True):
        assert_same_named(item, right, pad.schema.idtype)
    assert shape_of(pad([])) == shape_of(batch) == shape_of(pad(content.items[:1]))
    assert tp.unpad(pad([])) == []


@given(st.data(), named_contents())
def test_the_real_part_is_the_batch_of_dgl_with_indices_shifted(data: st.DataObject, content: Named) -> None:
    settings = {**data.draw(settings_of(content)), "sort_edges": False}
    batch = tp.PaddedCollate(content.limits, content.example, **content.declared, **settings)(content.items)
    assert_begins_with(batch, content, content.items)
    reserved = 2 if settings["coordinates"] else 1
    nodes, _ = types_of(graphs_of(content.example))
    for key, mask in batch.node_mask.items():
        assert key in nodes
        tied = content.tied and key == "bonds"
        if not (tied and settings["cover_padding"]):
            limit = content.limits.maxima[f"nodes:{key}"]
            if tied:
                limit = min(limit, content.limits.maxima["edges:atoms"])
            assert len(mask) == content.packs * limit + reserved
    if content.tied:
        assert torch.equal(batch.node_mask["bonds"], batch.edge_mask["atoms"])


@given(st.data(), named_contents())
def test_indices_point_to_the_same_values_in_any_order(data: st.DataObject, content: Named) -> None:
    """Of real slots to those of the item, of padding to padding, with sorted edges too."""
    settings = data.draw(settings_of(content))
    if not content.declared["indices"]:
        return
    batch = tp.PaddedCollate(content.limits, content.example, **content.declared, **settings)(content.items)
    atoms = batch.graphs["atoms"]
    items = [graphs_of(item)["atoms"] for item in content.items]
    near = torch.cat([g.ndata["x"][g.ndata["near"]] for g in items])
    assert torch.equal(atoms.ndata["x"][atoms.ndata["near"]][: len(near)], near)
    targets = ((atoms.ndata["near"], "node", "node"), (atoms.edata["twin"].long(), "edge", "edge"))
    for values, of, to in targets:
        real, target = getattr(batch, f"{of}_mask")["atoms"], getattr(batch, f"{to}_mask")["atoms"]
        assert target[values[real]].all()
        assert not target[values[~real]].any()
    assert batch.node_mask["atoms"][batch.labels["root"][batch.graph_mask]].all()
    assert not batch.node_mask["atoms"][batch.labels["root"][~batch.graph_mask]].any()
    slots = batch.edge_graph_slots["atoms"]
    assert torch.equal(slots[atoms.edata["twin"].long()], slots), "twins are edges of one graph"


@given(st.data(), named_contents(), st.booleans())
def test_batches_of_a_store_are_those_of_collate(data: st.DataObject, content: Named, compact: bool) -> None:
    settings = data.draw(settings_of(content))
    order = data.draw(st.permutations(range(1, len(content.items) + 1)))
    with written(content, compact=compact) as (store, items):
        padded, on_device = store.padded(content.limits, **settings), store.to("cpu")
        device_padded = on_device.padded(content.limits, **settings)
        for ids in (order, order[:1], []):
            right = collated(content, items, ids, settings)
            assert_same_batch(padded[ids], right)
            assert_same_batch(device_padded[ids], right)
        stored = store.padded(content.limits, as_stored=True, **settings)[order]
        for (content_, t, name), _ in store.schema.index_columns.items():
            value = as_dict(stored.labels)[name] if content_ == "label" else stored.features_by_type[t][name]
            assert value.dtype in (torch.int32, torch.int64), "narrow integers have no room for indices of a batch"


@settings(max_examples=25)
@given(named_contents(), st.booleans())
def test_items_come_back_from_a_store(content: Named, compact: bool) -> None:
    with written(content, compact=compact) as (store, items):
        for found in (list(store), list(store.subset(range(len(items))))):
            for item, right in zip(found, items, strict=True):
                assert_same_named(item, right)
        sizes = tp.sizes_of(items)
        assert store.sizes.components == sizes.components
        assert store.sizes.array.tolist() == sizes.array.tolist()
        store.verify()
        with tempfile.TemporaryDirectory() as folder, patch("os.fsync"):
            again = tp.GraphStore.write(f"{folder}/again", store)
            part = tp.GraphStore.write(f"{folder}/part", store.subset([len(items) - 1]))
            assert again.schema == store.schema == part.schema
            assert_same_named(again[0], items[0])
            assert_same_named(part[0], items[-1])


@settings(max_examples=25)
@given(st.data(), named_contents())
def test_batches_without_padding_are_those_of_dgl_with_indices_shifted(data: st.DataObject, content: Named) -> None:
    with written(content, compact=True) as (store, items):
        order = data.draw(st.permutations(range(len(items))))
        right, labels = shifted_batch(content, [items[i] for i in order])
        for view in (store.batched(), store.to("cpu").batched()):
            found = view[order]
            graphs, of_graphs = found if isinstance(found, tuple) else (found, None)
            for name, graph in right.items():
                assert_same_graph(graphs[name], graph)
                assert graphs[name].batch_size == len(items)
            assert as_dict(of_graphs).keys() == as_dict(labels).keys()
            for name, value in as_dict(labels).items():
                assert torch.equal(of_graphs[name] if name else of_graphs, value)
            assert_same_named(view[order[0]], items[order[0]])
