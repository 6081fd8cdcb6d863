"""Padding: exact small batches, what a batch can do, heterographs, and what collate refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, InputError, LimitsError, SchemaError
from dgl_tuplepack.graphs.items import Identified
from tests.support.graphs import (
    ITEM,
    RELATIONS,
    USER,
    assert_equal_tensors,
    assert_same_batch,
    assert_same_graph,
    generator,
    random_graph,
    random_heterograph,
)
from tests.support.messages import refused

FEATURES = {"x": ((2,), torch.float32)}
WEIGHTS = {"w": ((), torch.int64)}
LIMITS = tp.Limits(nodes=6, edges=8, graphs=4)


def graph(nodes: int = 2, edges: int = 3, seed: int = 0) -> Any:
    return random_graph(generator(seed), nodes, edges, FEATURES, WEIGHTS)


def item(nodes: int = 2, edges: int = 3, label: float = 1.0) -> tuple[Any, torch.Tensor]:
    return graph(nodes, edges), torch.tensor([label])


def collate(**settings: Any) -> tp.PaddedCollate:
    return tp.PaddedCollate(settings.pop("limits", LIMITS), **{"example": item(), **settings})


def hetero(seed: int = 0, users: int = 2, items: int = 3, edges: tuple[int, int, int] = (2, 3, 1)) -> Any:
    return random_heterograph(
        generator(seed), {USER: users, ITEM: items}, dict(zip(RELATIONS, edges, strict=True)),
        {USER: {"x": ((2,), torch.float32)}}, {RELATIONS[1]: {"w": ((), torch.int64)}},
    )  # fmt: skip


# Exact batches ------------------------------------------------------------------------------------------------


def test_a_batch_slot_by_slot() -> None:
    path = dgl.graph(([0, 1], [1, 2]))
    path.ndata["x"] = torch.tensor([1.0, 2.0, 3.0])
    loop = dgl.graph(([0], [0]))
    loop.ndata["x"] = torch.tensor([4.0])
    pad = tp.PaddedCollate(tp.Limits(6, 8, graphs=4), example=(path, 5), label_fill=-7, feature_fill=9.0)
    batch = pad([(path, 1), (loop, 2)])
    assert batch.node_features["x"].tolist() == [1.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0]
    # Five padding edges over the padding nodes 4, 5, 6.
    assert batch.src.tolist() == [0, 1, 3, 4, 4, 5, 5, 6]
    assert batch.dst.tolist() == [1, 2, 3, 4, 4, 5, 5, 6]
    assert batch.node_mask.tolist() == [True] * 4 + [False] * 3
    assert batch.edge_mask.tolist() == [True] * 3 + [False] * 5
    assert batch.graph_mask.tolist() == [True, True, False, False, False]
    assert batch.nodes_per_graph.tolist() == [3, 1, 0, 0, 3]
    assert batch.edges_per_graph.tolist() == [2, 1, 0, 0, 5]
    assert batch.node_graph_slots.tolist() == [0, 0, 0, 1, 4, 4, 4]
    assert batch.labels.tolist() == [1, 2, -7, -7, -7]
    assert batch.graph_ids is None
    assert (batch.num_real_nodes, batch.num_real_edges, batch.num_real_graphs) == (4, 3, 2)
    assert batch.graph.batch_num_nodes().tolist() == [3, 1, 0, 0, 3]
    assert batch.graph.batch_num_edges().tolist() == [2, 1, 0, 0, 5]


def test_fills_by_name() -> None:
    example = graph(), {"y": torch.tensor([1, 2]), "weight": 0.5}
    pad = tp.PaddedCollate(LIMITS, example=example, feature_fill={"w": -5}, label_fill={"y": 3})
    batch = pad([example])
    assert batch.edge_features["w"][3:].tolist() == [-5] * 5
    assert not batch.node_features["x"][2:].any()
    assert batch.labels["y"][1:].tolist() == [[3, 3]] * 4
    assert batch.labels["weight"][1:].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        (torch.bool, True), (torch.uint8, 255), (torch.int32, -(2**31)), (torch.int64, np.int64(-1)),
        # Torch takes integers beyond 64 bits as floating point only.
        *((torch.float32, fill) for fill in (float("nan"), float("inf"), 10**30, -(2**63) - 1, np.float32(-1))),
    ],
)  # fmt: skip
def test_fills_at_the_ends_of_a_dtype(dtype: torch.dtype, fill: Any) -> None:
    example = random_graph(generator(0), 1, 0, {"x": ((), dtype)}), torch.zeros(1, dtype=dtype)
    batch = tp.PaddedCollate(LIMITS, example=example, feature_fill=fill, label_fill=fill)([])
    for found in (batch.node_features["x"], batch.labels.flatten()):
        assert_equal_tensors(found.nan_to_num(77), torch.full((len(found),), float(fill)).to(dtype).nan_to_num(77))


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        (3, torch.tensor(3)),
        (True, torch.tensor(True)),
        (0.5, torch.tensor(0.5)),
        (np.float64(0.5), torch.tensor(0.5, dtype=torch.float64)),
        (np.array([1, 2], dtype=np.int32), torch.tensor([1, 2], dtype=torch.int32)),
        ([1, 2], torch.tensor([1, 2])),
        (torch.zeros(0), torch.zeros(0)),
        (torch.zeros(2, 3, dtype=torch.float16), torch.zeros(2, 3, dtype=torch.float16)),
        # Arrays of any layout.
        (np.array([1, 2], ">i8"), torch.tensor([1, 2])),
        (np.array([2, 1])[::-1], torch.tensor([1, 2])),
        (np.ma.array([1, 2]), torch.tensor([1, 2])),
    ],
)
def test_kinds_of_labels(label: Any, expected: torch.Tensor) -> None:
    batch = tp.PaddedCollate(LIMITS, example=(graph(), label))([(graph(), label)])
    assert batch.labels.shape == (5, *expected.shape)
    assert_equal_tensors(batch.labels[0], expected)
    ((_, back),) = tp.unpad(batch, with_labels=True)
    assert_equal_tensors(back, expected)


# Ids ----------------------------------------------------------------------------------------------------------


def test_ids_are_filled_by_with_ids() -> None:
    items = tp.with_ids([item(label=i) for i in range(5)])
    pad = collate(example=items[-1])
    # Ids counted from the end are those of the graphs: -1 stands for padding.
    assert_equal_tensors(pad([items[4], items[-3]]).graph_ids, torch.tensor([4, 2, -1, -1, -1]))
    # An empty batch has ids too, if those of the example have.
    assert pad([]).graph_ids.tolist() == [-1] * 5
    assert collate()([]).graph_ids is None


@pytest.mark.parametrize(
    ("example", "items", "parts"),
    [
        (item(), [item(), Identified(3, item())], ("graph 3 has an id", "the example has none")),
        (item(), [(*item(), 5)], ("item 0 has an id", "the example has none")),
        (Identified(0, item()), [Identified(3, item()), item()], ("item 1 has no id", "the example has one")),
    ],
)
def test_ids_are_known_for_all_or_none(example: Any, items: list[Any], parts: tuple[str, ...]) -> None:
    """As in the example: else batches without graphs, which have no item to tell, would be another kind."""
    with refused(SchemaError, *parts, "with_ids(dataset)"):
        collate(example=example)(items)


# Sizes of batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heterogeneous", [False, True])
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("cover", [False, True])
@pytest.mark.parametrize("sort_edges", [False, True])
def test_the_bytes_of_a_batch_are_those_of_its_tensors(
    heterogeneous: bool, idtype: torch.dtype, cover: bool, sort_edges: bool
) -> None:
    example: Any = item()
    limits = LIMITS
    if heterogeneous:
        both = {("a", "to", "b"): 2, ("b", "in", "b"): 1}
        features = {"a": FEATURES, "b": {}}, {("a", "to", "b"): WEIGHTS}
        example = (random_heterograph(generator(0), {"a": 2, "b": 1}, both, *features), torch.tensor([1.0, 2.0]))
        components = tp.sizes_of([example]).components
        limits = tp.Limits.from_components({name: 9 + i for i, name in enumerate(components)}, graphs=4)
    settings: Any = {"idtype": idtype, "cover_padding": cover, "sort_edges": sort_edges}
    pad = tp.PaddedCollate(limits, Identified(0, example), packs_per_batch=3, **settings)
    batch = pad([])
    leaves = tree_leaves([getattr(batch, field.name) for field in dataclasses.fields(batch)])
    assert pad.shape.nbytes == sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))


def test_as_many_bytes_as_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = collate().shape.nbytes
    monkeypatch.setattr("dgl_tuplepack.batches.shape._memory", lambda: needed)
    collate()
    monkeypatch.setattr("dgl_tuplepack.batches.shape._memory", lambda: needed - 1)
    with refused(LimitsError, f"{needed} bytes", "fewer packs_per_batch"):
        collate()


def test_as_many_nodes_as_int32_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the node slots is the padding's."""
    monkeypatch.setattr("dgl_tuplepack.batches.shape._memory", lambda: 2**63 - 1)
    limits = tp.Limits(2**30 - 1, 8, 4)
    assert collate(limits=limits, packs_per_batch=2, idtype=torch.int32).shape.num_nodes == {"_N": 2**31 - 1}
    for nodes, packs in ((2**31 - 1, 1), (2**30, 2)):
        limits = tp.Limits(nodes, 8, 4)
        with refused(LimitsError, f"{nodes * packs + 1} node slots", f"at most {2**31 - 1}", "torch.int64"):
            collate(limits=limits, packs_per_batch=packs, idtype=torch.int32)
        collate(limits=limits, packs_per_batch=packs, idtype=torch.int64)


# Schemas ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("formats", ["coo", "csr", "csc", ["csr", "csc"]])
def test_sparse_format_of_the_graphs_does_not_matter(formats: Any) -> None:
    """DGL answers ``edges()`` in order of ids only where it may make the COO form; convolutions prefer CSC."""
    plain = [graph(3, 4, seed=i) for i in range(2)]
    restricted = [g.formats(formats) for g in plain]
    batch = tp.PaddedCollate(LIMITS, example=restricted[0])(restricted)
    assert_same_batch(batch, tp.PaddedCollate(LIMITS, example=plain[0])(plain))
    for back, original in zip(tp.unpad(batch), plain, strict=True):
        assert_same_graph(back, original)


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("of_graphs", [torch.int32, torch.int64])
def test_unpadded_graphs_have_their_own_index_type(idtype: torch.dtype, of_graphs: torch.dtype, tmp_path: Path) -> None:
    single = dgl.graph(([0, 1], [1, 2]), idtype=of_graphs)
    stored = tp.GraphStore.write(tmp_path, [single])
    for batch in (
        tp.PaddedCollate(LIMITS, single, idtype=idtype)([single]),
        stored.padded(LIMITS, idtype=idtype)[[0]],
        stored.to("cpu").padded(LIMITS, idtype=idtype)[[0]],
    ):
        (back,) = tp.unpad(batch)
        assert back.idtype == of_graphs
        assert_same_graph(back, single)


# The batch ----------------------------------------------------------------------------------------------------


def test_graph_is_built_once_and_shares_features() -> None:
    batch = collate()([item()])
    assert batch.graph is batch.graph
    assert batch.graph.ndata["x"].data_ptr() == batch.node_features["x"].data_ptr()


def test_moves_with_all_its_tensors() -> None:
    """The "meta" device stands for any other one: whatever stays behind shows."""
    items = tp.with_ids([item(label=i) for i in range(3)])
    batch = collate(example=items[0])([items[0], items[1]])
    built = batch.graph
    moved = batch.to("meta")
    tensors = moved.tensors._replace(type_names=None, graph_names=None)
    assert {leaf.device.type for leaf in tree_leaves(tensors) if leaf is not None} == {"meta"}
    # Counts are plain numbers, so that nothing waits for a device.
    assert (moved.num_real_nodes, moved.num_real_graphs) == (4, 2)
    # A graph that was built before would stay on the old device, beside tensors on the new one.
    assert moved._graph is None
    assert (batch.device.type, batch.graph is built) == ("cpu", True)
    same = batch.to("cpu", non_blocking=True)
    assert_same_batch(same, batch)
    assert same.graph is not built


def test_pin_memory_reaches_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CUDA: which tensors are asked to pin themselves."""
    pinned: list[int] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.data_ptr()) or tensor)
    batch = collate()([item()])
    assert_same_batch(batch.pin_memory(), batch)
    for tensor in (batch.src, batch.dst, batch.labels, batch.graph_mask, batch.node_mask, batch.edge_mask):
        assert tensor.data_ptr() in pinned


def test_repr_says_what_is_real() -> None:
    text = repr(collate()([item()]))
    assert text == "PaddedBatch(7 nodes, 8 edges, 5 graphs; real: 2 nodes, 3 edges, 1 graphs; device cpu)"


def test_batches_do_not_share_memory_with_the_dataset() -> None:
    one = item()
    batch = collate()([one])
    batch.node_features["x"].fill_(77)
    batch.labels.fill_(77)
    assert not (one[0].ndata["x"] == 77).any()
    assert one[1].item() == 1.0


# What is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "error", "parts"),
    [
        ({"limits": tp.Limits(6, 8)}, LimitsError, ("limits.graphs is None", "use sampler.limits")),
        ({"limits": tp.Limits(nodes=6, graphs=4)}, LimitsError, ("needs a limit on edges", "use sampler.limits")),
        (
            {"limits": tp.Limits.from_components({"edges": 6}, graphs=4)},
            LimitsError,
            ("['nodes', 'edges']", "exactly one limit for each component"),
        ),
        ({"example": hetero()}, LimitsError, ("nodes:item", "exactly one limit for each component")),
        ({"limits": (2, 2)}, LimitsError, ("limits must be Limits", "(2, 2)")),
        *[({"packs_per_batch": value}, LimitsError, ("packs_per_batch", str(value))) for value in (0, 1.5, "2", None)],
        *[
            ({"idtype": value}, SchemaError, ("idtype must be torch.int32 or torch.int64", str(value)))
            for value in (torch.float32, "int64", torch.int16)
        ],
        ({"cover_padding": 1}, InputError, ("cover_padding must be True or False", "1")),
        ({"sort_edges": "no"}, InputError, ("sort_edges must be True or False", "'no'")),
        ({"feature_fill": {"x": 1, "y": 2}}, SchemaError, ("feature_fill names ['y']", "['w', 'x']", "correct")),
        ({"example": (graph(), {"b": 1}), "label_fill": {"a": 1}}, SchemaError, ("label_fill names ['a']",)),
        # 0.5 suits "x" but not the integers "w".
        ({"feature_fill": 0.5}, SchemaError, ("feature_fill is 0.5 for w", "torch.int64")),
        *[
            ({"example": value}, SchemaError, ("the example is", type(value).__name__, "DGLGraph"))
            for value in ("graph", 5, None, (), {"graph": 1})
        ],
        ({"example": (graph(), 1, 2, 3)}, SchemaError, ("4 parts", "(DGLGraph, label)", "dict")),
    ],
    ids=str,
)
def test_settings_that_cannot_be(settings: dict[str, Any], error: Any, parts: tuple[str, ...]) -> None:
    with refused(error, *parts):
        collate(**settings)


@pytest.mark.parametrize(
    ("items", "parts"),
    [
        ([item(6, 3), item(1, 1)], ["7 nodes", "hold 6"]),
        ([item(2, 8), item(1, 1)], ["9 edges", "hold 8"]),
        ([item(1, 0)] * 5, ["5 graphs", "hold 4"]),
    ],
)
def test_content_beyond_the_limits(items: list[Any], parts: list[str]) -> None:
    with refused(
        GraphTooLargeError,
        *parts,
        "1 x Limits(nodes=6, edges=8, graphs=4)",
        "PackBatchSampler",
        "sampler.limits",
    ):
        collate()(items)
    # Two packs hold it.
    assert collate(packs_per_batch=2)(items).num_real_graphs == len(items)


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        *[(value, (type(value).__name__, "a DGLGraph, a pair")) for value in ("graph", None, 5, {"graph": 1})],
        ((dgl.batch([graph(), graph()]), torch.tensor([1.0])), ("a batch of 2 graphs", "single graphs", "dgl.unbatch")),
        ((*item(), 5, 6), ("4 parts", "(DGLGraph, label)", "dict")),
        # The one thing about a graph that DGL cannot batch and a user hardly sees.
        ((graph().int(), torch.tensor([1.0])), ("torch.int32", "torch.int64", "graph.long()")),
        ((hetero(), torch.tensor([1.0])), ("['item', 'user']", "['_N']", "same types")),
        ((graph(), torch.tensor([1.0, 2.0])), ("labels", "found float32 [2], but the example has float32 [1]")),
        ((graph(), torch.tensor(1.0)), ("labels", "found float32 []")),
        ((graph(), torch.tensor([1])), ("labels", "found int64 [1]", "same names, shapes and dtypes")),
        ((graph(), {"y": torch.tensor([1.0])}), ("labels", "found y float32 [1]", "in the dataset")),
        ((graph(), None), ("labels", "found none")),
        (graph(), ("labels", "found none, but the example has float32 [1]")),
    ],
    ids=lambda value: str(type(value)),
)
def test_items_that_differ(wrong: Any, parts: tuple[str, ...]) -> None:
    with refused(SchemaError, "item 1", *parts):
        collate()([item(), wrong])
    with refused(SchemaError, "graph 41", *parts):
        collate(example=Identified(0, item()))([Identified(3, item()), Identified(41, wrong)])


def changed(what: str) -> Any:
    """A graph that differs from `graph()` in one thing."""
    other = graph()
    if what == "missing":
        other.ndata.pop("x")
    elif what == "dtype":
        other.ndata["x"] = other.ndata["x"].double()
    elif what == "shape":
        other.ndata["x"] = torch.zeros(2, 3)
    elif what == "name":
        other.ndata["y"] = other.ndata.pop("x")
    elif what == "more":
        other.ndata["y"] = torch.zeros(2)
    elif what == "edge":
        other.edata.pop("w")
    return other


@pytest.mark.parametrize(
    ("what", "found", "remedy"),
    [
        ("missing", "node features: found none, but the example has x float32 [2]", "add 'x' in"),
        ("dtype", "node features: found x float64 [2], but the example has x float32 [2]", "convert 'x' to float32 in"),
        ("shape", "node features: found x float32 [3], but the example has x float32 [2]", "give 'x' the shape [2] in"),
        ("name", "node features: found y float32 [2], but the example has x float32 [2]", "add 'x' and delete 'y' in"),
        ("more", "y float32 [], but the example has x float32 [2]", "delete 'y' in"),
        ("edge", "edge features: found none, but the example has w int64 []", "add 'w' in"),
    ],
)
def test_mixed_features(what: str, found: str, remedy: str, tmp_path: Path) -> None:
    items = [item(), (changed(what), torch.tensor([1.0]))]

    def corrected(g: Any) -> Any:
        g.ndata["x"] = torch.zeros(g.num_nodes(), 2)
        g.edata["w"] = torch.zeros(g.num_edges(), dtype=torch.int64)
        g.ndata.pop("y", None)
        return g

    says = found, "same names, shapes and dtypes", remedy, "pre_transform=", "transform= of PaddedCollate"
    with refused(SchemaError, "item 1", *says):
        collate()(items)
    # Graphs that agree with each other, but not with the example.
    for others in (items[1:], items[1:] * 2):
        with refused(SchemaError, "item 0", *says):
            collate()(others)
    with refused(SchemaError, "graph 1", *says):
        list(tp.packed_loader(items, limits=LIMITS))
    with refused(SchemaError, "item 1", *says):
        tp.GraphStore.write(tmp_path, items)
    # All that the message names helps.
    assert collate(transform=corrected)(items).num_real_graphs == 2
    assert next(iter(tp.packed_loader(items, limits=LIMITS, transform=corrected))).num_real_graphs == 2
    assert len(tp.GraphStore.write(tmp_path, items, pre_transform=corrected)) == 2


def test_the_culprit_is_named_behind_graphs_of_nothing() -> None:
    """Graphs without nodes may lack features, so the first graph with nodes shows what there is."""
    bare = dgl.graph([]), torch.tensor([1.0])
    with refused(SchemaError, "item 2", "found none"):
        collate()([bare, item(), (changed("missing"), torch.tensor([1.0])), bare])
    assert collate()([bare, item(), bare]).nodes_per_graph.tolist() == [0, 2, 0, 0, 5]


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        *[(value, ["not a tensor, array or number"]) for value in ("text", {"y": "text"}, [1, "a"], {"y": None})],
        ({"y": 1.0, "id": "mol-7"}, ["'mol-7'", "with_ids(dataset)"]),
        (torch.eye(2).to_sparse(), ["not a dense tensor", ".to_dense()"]),
        (torch.ones(2, device="meta"), ["a tensor without values"]),
        (np.ma.array([1, 2], mask=[True, False]), ["masked"]),
        (np.array(["a"]), ["not a tensor, array or number"]),
        (10**5000, ["not a tensor, array or number", "bits"]),
    ],
    ids=lambda value: str(type(value)),
)  # fmt: skip
def test_labels_whose_values_are_out_of_reach(label: Any, parts: list[str]) -> None:
    with refused(SchemaError, "label", *parts):
        collate(example=(graph(), label))


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        *[(torch.int64, fill) for fill in (0.5, float("nan"), float("inf"), 2**63, "a", None)],
        (torch.bool, 2), (torch.uint8, -1), (torch.uint8, 256), (torch.float32, "a"), (torch.float32, None),
        (torch.float32, 1e300), (torch.float16, 1e5), (torch.float32, 10**40), (torch.float64, 10**400),
    ],
)  # fmt: skip
def test_fill_that_a_feature_or_label_cannot_hold(dtype: torch.dtype, fill: Any) -> None:
    example = random_graph(generator(0), 1, 0, {"x": ((), dtype)})
    with refused(SchemaError, "feature_fill is", repr(fill)[:90], "for x", f"{dtype} cannot hold", "choose a value"):
        tp.PaddedCollate(LIMITS, example=example, feature_fill=fill)
    with refused(SchemaError, "label_fill is", repr(fill)[:90], f"{dtype} cannot hold"):
        collate(example=(graph(), torch.zeros(2, dtype=dtype)), label_fill=fill)
