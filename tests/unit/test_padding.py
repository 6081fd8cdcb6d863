"""Padding: exact small batches, what a batch can do, heterographs, and what collate refuses."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, InputError, LimitsError, SchemaError
from dgl_tuplepack.sources import Identified
from tests.graphs import (
    DTYPES,
    ITEM,
    RELATIONS,
    USER,
    assert_equal_tensors,
    assert_same_batch,
    assert_same_graph,
    generator,
    random_graph,
    random_heterograph,
    shapes_of,
)
from tests.messages import refused

FEATURES = {"x": ((2,), torch.float32)}
WEIGHTS = {"w": ((), torch.int64)}
LIMITS = tp.Limits(nodes=6, edges=8, graphs=4)


def graph(nodes: int = 2, edges: int = 3, seed: int = 0) -> Any:
    return random_graph(generator(seed), nodes, edges, FEATURES, WEIGHTS)


def item(nodes: int = 2, edges: int = 3, label: float = 1.0) -> tuple[Any, torch.Tensor]:
    return graph(nodes, edges), torch.tensor([label])


def collate(**settings: Any) -> tp.PaddedCollate:
    return tp.PaddedCollate(settings.pop("limits", LIMITS), **{"example": item(), **settings})


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


def test_covering_edges_slot_by_slot() -> None:
    batch = tp.PaddedCollate(tp.Limits(3, 1, graphs=1), example=dgl.graph(([0], [0])), cover_padding=True)(
        [dgl.graph(([0], [0]))]
    )
    # 1 edge and 4 nodes: 1 + 3 + 1 edge slots, so 4 padding edges for 3 padding nodes.
    assert batch.src.tolist() == batch.dst.tolist() == [0, 1, 1, 2, 3]


def test_a_full_batch_has_one_padding_node_and_no_false_padding() -> None:
    """What jraph infers from zeros is stored here: the last real graph is real, without a node too."""
    full = [graph(3, 8), graph(3, 0), graph(0, 0), graph(0, 0)]
    batch = tp.PaddedCollate(LIMITS, example=graph())(full)
    assert batch.graph_mask.tolist() == [True] * 4 + [False]
    assert batch.nodes_per_graph.tolist() == [3, 3, 0, 0, 1]
    assert batch.edges_per_graph.tolist() == [8, 0, 0, 0, 0]
    assert [g.num_nodes() for g in tp.unpad(batch)] == [3, 3, 0, 0]


def test_full_nodes_leave_the_reserved_node_for_padding_edges() -> None:
    """Elsewhere such padding edges point behind the last node, or at a real one."""
    batch = tp.PaddedCollate(LIMITS, example=graph())([graph(6, 1)])
    assert batch.src[1:].tolist() == batch.dst[1:].tolist() == [6] * 7


def test_labels_equal_to_the_fill_stay_real() -> None:
    batch = collate(label_fill=-1)([item(label=-1.0), item(label=0.0)])
    assert batch.labels[batch.graph_mask].flatten().tolist() == [-1.0, 0.0]
    assert batch.labels[~batch.graph_mask].flatten().tolist() == [-1.0] * 3


def test_default_fills_are_zero() -> None:
    batch = collate()([item()])
    assert not batch.labels[1:].any()
    assert not batch.node_features["x"][2:].any()
    assert not batch.edge_features["w"][3:].any()


def test_fills_by_name() -> None:
    example = graph(), {"y": torch.tensor([1, 2]), "weight": 0.5}
    pad = tp.PaddedCollate(LIMITS, example=example, feature_fill={"w": -5}, label_fill={"y": 3})
    batch = pad([example])
    assert batch.edge_features["w"][3:].tolist() == [-5] * 5
    assert not batch.node_features["x"][2:].any()
    assert batch.labels["y"][1:].tolist() == [[3, 3]] * 4
    assert batch.labels["weight"][1:].tolist() == [0.0] * 4


def test_integers_beyond_64_bits_are_fills_of_floats() -> None:
    """Which torch takes as floating point only."""
    batch = collate(label_fill=10**30, feature_fill={"x": -(2**63) - 1})([item()])
    assert batch.labels[1:].tolist() == torch.full((4, 1), 1e30).tolist()
    assert set(batch.node_features["x"][2:].reshape(-1).tolist()) == {-(2.0**63)}


def test_nan_is_a_fill_of_floats() -> None:
    batch = collate(label_fill=float("nan"), feature_fill={"x": float("inf")})([item()])
    assert batch.labels[1:].isnan().all()
    assert batch.node_features["x"][2:].isinf().all()
    assert not batch.labels[0].isnan().any()


@pytest.mark.parametrize(("dtype", "fill"), [(torch.bool, True), (torch.uint8, 255), (torch.int32, -(2**31))])
def test_fills_at_the_ends_of_a_dtype(dtype: torch.dtype, fill: int) -> None:
    example = random_graph(generator(0), 1, 0, {"x": ((), dtype)})
    batch = tp.PaddedCollate(LIMITS, example=example, feature_fill=fill)([])
    assert_equal_tensors(batch.node_features["x"], torch.full((7,), fill, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_features_keep_their_dtype(dtype: torch.dtype) -> None:
    one = random_graph(generator(0), 3, 2, {"x": ((2, 2), dtype)}, {"x": ((), dtype)})
    pad = tp.PaddedCollate(LIMITS, example=one)
    for batch in (pad([one, one]), pad([])):
        assert batch.graph.ndata["x"].dtype == dtype
        assert batch.graph.ndata["x"].shape == (7, 2, 2)
        assert batch.graph.edata["x"].dtype == dtype


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
    ],
)
def test_kinds_of_labels(label: Any, expected: torch.Tensor) -> None:
    batch = tp.PaddedCollate(LIMITS, example=(graph(), label))([(graph(), label)])
    assert batch.labels.shape == (5, *expected.shape)
    assert_equal_tensors(batch.labels[0], expected)
    ((_, back),) = tp.unpad(batch, with_labels=True)
    assert_equal_tensors(back, expected)


def test_no_labels() -> None:
    pad = tp.PaddedCollate(LIMITS, example=graph())
    assert pad([graph()]).labels is None
    assert pad([]).labels is None
    padded_graph, labels = pad([(graph(),)])
    assert labels is None
    assert padded_graph.num_nodes() == 7
    ((back, label),) = tp.unpad(pad([graph()]), with_labels=True)
    assert label is None
    assert_same_graph(back, graph())


# Ids ----------------------------------------------------------------------------------------------------------


def test_ids_are_filled_by_with_ids() -> None:
    items = tp.with_ids([item(label=i) for i in range(5)])
    pad = collate(example=items[0])
    assert_equal_tensors(pad([items[4], items[2]]).graph_ids, torch.tensor([4, 2, -1, -1, -1]))
    # An empty batch has ids too, if those of the example have.
    assert pad([]).graph_ids.tolist() == [-1] * 5
    assert collate()([]).graph_ids is None


def test_ids_are_known_for_all_or_none() -> None:
    """As in the example: else batches without graphs, which have no item to tell, would be another kind."""
    with refused(SchemaError, "graph 3 has an id", "the example has none", "with_ids(dataset)"):
        collate()([item(), Identified(3, item())])
    with refused(SchemaError, "item 1 has no id", "the example has one", "with_ids(dataset)"):
        collate(example=Identified(0, item()))([Identified(3, item()), item()])


def test_ids_counted_from_the_end_are_those_of_the_graphs() -> None:
    """-1 stands for padding."""
    items = tp.with_ids([item(label=i) for i in range(5)])
    assert collate(example=items[-1])([items[-1], items[-5]]).graph_ids.tolist() == [4, 0, -1, -1, -1]


def test_only_batches_are_unpadded() -> None:
    with refused(SchemaError, "PaddedBatch", "DGLGraph", "dgl.unbatch"):
        tp.unpad(graph())  # type: ignore[arg-type]


def test_batches_that_no_memory_holds() -> None:
    with refused(LimitsError, "2 packs of Limits(nodes=1152921504606846976", "bytes", "2**63-1", "smaller limits"):
        tp.PaddedCollate(tp.Limits(2**60, 2**60, 4), graph(), packs_per_batch=2)


@pytest.mark.parametrize("packs", [10**9, 2**40])
def test_batches_beyond_the_memory_of_the_machine(packs: int) -> None:
    """Allocating them would stall the machine, or end in an error of torch's."""
    with refused(LimitsError, f"a batch of {packs} packs", "bytes of memory", "fewer packs_per_batch"):
        tp.PaddedCollate(tp.Limits(2222, 5022, 256), graph(), packs_per_batch=packs)


@pytest.mark.parametrize("packs", [2**62, 2**63 - 1])
def test_packs_beyond_all_addresses(packs: int) -> None:
    with refused(LimitsError, f"a batch of {packs} packs", "2**63-1 are possible", "fewer packs_per_batch"):
        collate(packs_per_batch=packs)


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


def test_as_many_bytes_as_there_are_addresses_and_not_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node takes 16 bytes of features here and 1 of its mask."""
    monkeypatch.setattr("dgl_tuplepack.padding.shape._memory", lambda: (2**63 - 1, ""))
    lone = dgl.graph(([], []), num_nodes=1)
    lone.ndata["x"] = torch.zeros(1, 4)
    rest = tp.PaddedCollate(tp.Limits(1, 1, 1), lone).shape.nbytes - 17
    most = (2**63 - 1 - rest) // 17
    assert 2**63 - 18 < tp.PaddedCollate(tp.Limits(most, 1, 1), lone).shape.nbytes <= 2**63 - 1
    with refused(LimitsError, "2**63-1"):
        tp.PaddedCollate(tp.Limits(most + 1, 1, 1), lone)


def test_as_many_bytes_as_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = collate().shape.nbytes
    monkeypatch.setattr("dgl_tuplepack.padding.shape._memory", lambda: (needed, "few"))
    collate()
    monkeypatch.setattr("dgl_tuplepack.padding.shape._memory", lambda: (needed - 1, "few"))
    with refused(LimitsError, f"{needed} bytes", "few"):
        collate()


def test_as_many_nodes_as_int32_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the node slots is the padding's."""
    monkeypatch.setattr("dgl_tuplepack.padding.shape._memory", lambda: (2**63 - 1, ""))
    limits = tp.Limits(2**30 - 1, 8, 4)
    assert collate(limits=limits, packs_per_batch=2, idtype=torch.int32).shape.num_nodes == {"_N": 2**31 - 1}
    for nodes, packs in ((2**31 - 1, 1), (2**30, 2)):
        limits = tp.Limits(nodes, 8, 4)
        with refused(LimitsError, f"{nodes * packs + 1} node slots", f"at most {2**31 - 1}", "torch.int64"):
            collate(limits=limits, packs_per_batch=packs, idtype=torch.int32)
        collate(limits=limits, packs_per_batch=packs, idtype=torch.int64)


@pytest.mark.parametrize("value", ["no", 1, None])
@pytest.mark.parametrize("switch", ["cover_padding", "sort_edges"])
def test_switches_are_true_or_false(switch: str, value: Any) -> None:
    with refused(InputError, f"{switch} must be True or False", repr(value)):
        collate(**{switch: value})


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


def test_integer_type_of_the_graphs_does_not_matter() -> None:
    plain = [graph(3, 4, seed=i) for i in range(2)]
    short = [g.int() for g in plain]
    expected = tp.PaddedCollate(LIMITS, example=plain[0])(plain)
    assert_same_batch(
        tp.PaddedCollate(LIMITS, example=short[0])(short), dataclasses.replace(expected, _idtype=torch.int32)
    )


def test_int32_endpoints() -> None:
    pad = collate(idtype=torch.int32)
    for batch in (pad([item()]), pad([])):
        assert batch.src.dtype == batch.dst.dtype == torch.int32
        assert batch.graph.idtype == torch.int32


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


def test_named_types_of_a_homogeneous_graph_stay() -> None:
    named = dgl.heterograph({("atom", "bond", "atom"): ([0, 1], [1, 0])})
    named.nodes["atom"].data["x"] = torch.ones(2)
    pad = tp.PaddedCollate(LIMITS, example=named)
    batch = pad([named, named])
    assert batch.graph.canonical_etypes == [("atom", "bond", "atom")]
    assert batch.node_mask.sum() == 4
    for back in tp.unpad(batch):
        assert_same_graph(back, named)


def hetero(seed: int = 0, users: int = 2, items: int = 3, edges: tuple[int, int, int] = (2, 3, 1)) -> Any:
    return random_heterograph(
        generator(seed), {USER: users, ITEM: items}, dict(zip(RELATIONS, edges, strict=True)),
        {USER: {"x": ((2,), torch.float32)}}, {RELATIONS[1]: {"w": ((), torch.int64)}},
    )  # fmt: skip


HETERO_LIMITS = tp.Limits({USER: 5, ITEM: 8}, {"follows": 6, "buys": 7, "pleases": 4}, graphs=3)


def test_heterograph_shapes_and_padding_edges() -> None:
    pad = tp.PaddedCollate(HETERO_LIMITS, example=hetero())
    batch = pad([hetero(1), hetero(2)])
    assert {t: len(mask) for t, mask in batch.node_mask.items()} == {USER: 6, ITEM: 9}
    assert {t: len(mask) for t, mask in batch.edge_mask.items()} == dict(zip(RELATIONS, (6, 7, 4), strict=True))
    assert batch.num_real_nodes == {USER: 4, ITEM: 6}
    assert batch.num_real_edges == dict(zip(RELATIONS, (4, 6, 2), strict=True))
    # Users 4..5 and items 6..8 are padding; one "buys" and two "pleases" edges are.
    assert batch.src[RELATIONS[0]][4:].tolist() == batch.dst[RELATIONS[0]][4:].tolist() == [4, 5]
    assert (batch.src[RELATIONS[1]][6:].tolist(), batch.dst[RELATIONS[1]][6:].tolist()) == ([4], [6])
    assert (batch.src[RELATIONS[2]][2:].tolist(), batch.dst[RELATIONS[2]][2:].tolist()) == ([6, 7], [4, 5])
    assert batch.graph.batch_num_nodes(ITEM).tolist() == [3, 3, 0, 3]
    assert batch.graph.batch_num_edges(RELATIONS[2]).tolist() == [1, 1, 0, 2]
    assert shapes_of(pad([])) == shapes_of(batch)


def test_heterograph_covering_edges_are_counted_by_destination() -> None:
    pad = tp.PaddedCollate(HETERO_LIMITS, example=hetero(), cover_padding=True)
    assert pad.shape.num_edges == {RELATIONS[0]: 6 + 6, RELATIONS[1]: 7 + 9, RELATIONS[2]: 4 + 6}
    for batch in (pad([]), pad([hetero()])):
        for t in RELATIONS:
            padded = ~batch.node_mask[t[2]]
            assert (batch.graph.in_degrees(etype=t)[padded] > 0).all()


# The batch ----------------------------------------------------------------------------------------------------


def test_iterates_as_graph_and_labels() -> None:
    batch = collate()([item()])
    padded_graph, labels = batch
    assert padded_graph is batch.graph
    assert labels is batch.labels


def test_graph_is_built_once_and_shares_features() -> None:
    batch = collate()([item()])
    assert batch.graph is batch.graph
    assert batch.graph.ndata["x"].data_ptr() == batch.node_features["x"].data_ptr()


def test_moves_with_all_its_tensors() -> None:
    """The "meta" device stands for any other one: whatever stays behind shows."""
    items = tp.with_ids([item(label=i) for i in range(3)])
    batch = collate(example=items[0])([items[0], items[1]])
    moved = batch.to("meta")
    assert moved.device.type == "meta"
    for name in ("src", "dst", "node_mask", "edge_mask", "graph_mask", "graph_ids", "labels", "nodes_per_graph"):
        assert getattr(moved, name).device.type == "meta", name
    assert moved.edges_per_graph.device.type == "meta"
    assert moved.node_features["x"].device.type == moved.edge_features["w"].device.type == "meta"
    # Counts are plain numbers, so that nothing waits for a device.
    assert (moved.num_real_nodes, moved.num_real_graphs) == (4, 2)
    assert batch.device.type == "cpu"


def test_a_graph_built_before_does_not_move_along() -> None:
    """It would stay on the old device, beside tensors on the new one."""
    batch = collate()([item()])
    built = batch.graph
    assert batch.to("meta")._graph is None
    assert batch.to("cpu").graph is not built
    assert batch.graph is built


def test_to_the_same_device_is_the_same_batch() -> None:
    batch = collate()([item()])
    assert_same_batch(batch.to("cpu", non_blocking=True), batch)
    assert_same_batch(batch.to(torch.device("cpu")), batch)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="pinned memory needs CUDA")
def test_pin_memory() -> None:
    batch = collate()([item()])
    pinned = batch.pin_memory()
    assert pinned.graph_mask.is_pinned()
    assert pinned.node_features["x"].is_pinned()
    assert_same_batch(pinned, batch)


def test_pin_memory_reaches_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CUDA: which tensors are asked to pin themselves."""
    pinned: list[int] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor.data_ptr()) or tensor)
    batch = collate()([item()])
    assert_same_batch(batch.pin_memory(), batch)
    for tensor in (batch.src, batch.dst, batch.labels, batch.graph_mask, batch.node_mask, batch.edge_mask):
        assert tensor.data_ptr() in pinned


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda b: pickle.loads(pickle.dumps(b))])
def test_travels_without_its_graph(copied: Any) -> None:
    batch = collate()([item()])
    bare = len(pickle.dumps(batch))
    built = batch.graph
    assert len(pickle.dumps(batch)) == bare
    back = copied(batch)
    assert_same_batch(back, batch)
    assert back.graph is not built
    assert_same_graph(back.graph, built)
    assert back.graph.batch_size == built.batch_size


def test_survives_torch_save() -> None:
    """Torch's own pickler, which moves storages apart."""
    batch = collate()([item()])
    file = io.BytesIO()
    torch.save(batch, file)
    file.seek(0)
    assert_same_batch(torch.load(file, weights_only=False), batch)


def test_collate_can_be_pickled() -> None:
    pad = collate(cover_padding=True, idtype=torch.int32, label_fill=2)
    assert_same_batch(pickle.loads(pickle.dumps(pad))([item()]), pad([item()]))


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


def test_limits_without_a_cap() -> None:
    with refused(LimitsError, "limits.graphs is None", "use sampler.limits"):
        collate(limits=tp.Limits(6, 8))


def test_limits_of_other_components() -> None:
    with refused(LimitsError, "padding needs a limit on edges", "use sampler.limits"):
        collate(limits=tp.Limits(nodes=6, graphs=4))
    with refused(LimitsError, "['nodes', 'edges']", "exactly one limit for each component"):
        collate(limits=tp.Limits.from_components({"edges": 6}, graphs=4))
    with refused(LimitsError, "nodes:item", "exactly one limit for each component"):
        collate(example=hetero())


@pytest.mark.parametrize("value", [0, -1])
def test_packs_per_batch(value: int) -> None:
    with refused(LimitsError, "packs_per_batch must be an integer in 1..", str(value)):
        collate(packs_per_batch=value)


@pytest.mark.parametrize("value", [1.5, "2", None])
def test_packs_per_batch_is_an_integer(value: Any) -> None:
    with refused(LimitsError, "packs_per_batch", repr(value)):
        collate(packs_per_batch=value)


@pytest.mark.parametrize("value", [torch.float32, "int64", None, torch.int16])
def test_idtype(value: Any) -> None:
    with refused(SchemaError, "idtype must be torch.int32 or torch.int64", str(value)):
        collate(idtype=value)


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


def test_content_beyond_one_type() -> None:
    pad = tp.PaddedCollate(HETERO_LIMITS, example=hetero())
    with refused(GraphTooLargeError, "12 edges", "follows", "hold 6"):
        pad([hetero(edges=(12, 0, 0))])
    with refused(GraphTooLargeError, "9 nodes", ITEM, "hold 8"):
        pad([hetero(items=9)])


@pytest.mark.parametrize("example", ["graph", 5, None, (), {"graph": 1}])
def test_example_without_a_graph(example: Any) -> None:
    with refused(SchemaError, "the example is", type(example).__name__, "DGLGraph"):
        collate(example=example)


@pytest.mark.parametrize("wrong", ["graph", None, 5, {"graph": 1}])
def test_items_that_are_no_graphs(wrong: Any) -> None:
    with refused(
        SchemaError, "item 1 is", type(wrong).__name__, "must be a DGLGraph, a pair", "let the dataset return"
    ):
        collate()([item(), wrong])


def test_items_with_ids_are_named_by_them() -> None:
    with refused(SchemaError, "graph 41 is str"):
        collate(example=Identified(0, item()))([Identified(41, "graph")])


def test_batched_graph_as_an_item() -> None:
    with refused(SchemaError, "item 1 is a batch of 2 graphs", "single graphs", "dgl.unbatch"):
        collate()([item(), (dgl.batch([graph(), graph()]), torch.tensor([1.0]))])


def test_items_of_four_parts() -> None:
    with refused(SchemaError, "4 parts", "(DGLGraph, label)", "dict"):
        collate(example=(graph(), 1, 2, 3))
    with refused(SchemaError, "4 parts", "(DGLGraph, label)", "dict"):
        collate()([(*item(), 5, 6)])


def test_an_id_where_none_is_expected() -> None:
    with refused(SchemaError, "item 0 has an id", "the example has none"):
        collate()([(*item(), 5)])


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
    with refused(SchemaError, "graph 1", *says):
        list(tp.packed_loader(items, limits=LIMITS))
    with refused(SchemaError, "item 1", *says):
        tp.GraphStore.write(tmp_path, items)
    # All that the message names helps.
    assert collate(transform=corrected)(items).num_real_graphs == 2
    assert next(iter(tp.packed_loader(items, limits=LIMITS, transform=corrected))).num_real_graphs == 2
    assert len(tp.GraphStore.write(tmp_path, items, pre_transform=corrected)) == 2


@pytest.mark.parametrize("what", ["missing", "dtype", "shape", "name", "more", "edge"])
def test_graphs_that_agree_with_each_other_but_not_with_the_example(what: str) -> None:
    """DGL would batch them without complaint."""
    one = changed(what), torch.tensor([1.0])
    for items in ([one], [one, one]):
        with refused(SchemaError, "item 0", "but the example has", "same names, shapes and dtypes"):
            collate()(items)


def test_the_culprit_is_named_behind_graphs_of_nothing() -> None:
    """Graphs without nodes may lack features, so the first graph with nodes shows what there is."""
    bare = dgl.graph([]), torch.tensor([1.0])
    with refused(SchemaError, "item 2", "found none"):
        collate()([bare, item(), (changed("missing"), torch.tensor([1.0])), bare])
    assert collate()([bare, item(), bare]).nodes_per_graph.tolist() == [0, 2, 0, 0, 5]


def test_mixed_index_types() -> None:
    """The one thing about a graph that DGL cannot batch and a user hardly sees."""
    with refused(SchemaError, "item 1", "torch.int32", "torch.int64", "graph.long()"):
        collate()([item(), (graph().int(), torch.tensor([1.0]))])


def test_order_of_features_does_not_matter() -> None:
    one, other = dgl.graph(([0], [0])), dgl.graph(([0], [0]))
    for g, names in ((one, "ab"), (other, "ba")):
        for name in names:
            g.ndata[name] = torch.full((1,), ord(name))
    batch = tp.PaddedCollate(LIMITS, example=one)([other, one])
    assert batch.node_features["a"][:2].tolist() == [97, 97]


def test_mixed_types() -> None:
    with refused(SchemaError, "item 1", "['item', 'user']", "['_N']", "same types"):
        collate()([item(), (hetero(), torch.tensor([1.0]))])


@pytest.mark.parametrize(
    ("label", "found"),
    [
        (torch.tensor([1.0, 2.0]), "found float32 [2], but the example has float32 [1]"),
        (torch.tensor(1.0), "found float32 []"),
        (torch.tensor([1]), "found int64 [1]"),
        ({"y": torch.tensor([1.0])}, "found y float32 [1]"),
        (None, "found none"),
    ],
)
def test_mixed_labels(label: Any, found: str) -> None:
    with refused(SchemaError, "item 1, labels", found, "same names, shapes and dtypes", "the label", "in the dataset"):
        collate()([item(), (graph(), label)])


def test_item_without_its_label() -> None:
    with refused(SchemaError, "item 0, labels", "found none, but the example has float32 [1]"):
        collate()([graph()])


def test_unexpected_label_is_not_dropped_silently() -> None:
    with refused(SchemaError, "item 0, labels", "found float32 [1], but the example has none"):
        tp.PaddedCollate(LIMITS, example=graph())([item()])


@pytest.mark.parametrize("label", ["text", {"y": "text"}, object(), [1, "text"], {"y": None}])
def test_labels_that_are_no_numbers(label: Any) -> None:
    with refused(SchemaError, "label", "not a tensor, array or number", "let the dataset return"):
        collate(example=(graph(), label))


@pytest.mark.parametrize("label", ["mol-7", {"y": 1.0, "id": "mol-7"}])
def test_a_name_as_a_label_is_told_of_ids(label: Any) -> None:
    with refused(SchemaError, "'mol-7'", "with_ids(dataset)"):
        collate(example=(graph(), label))


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        (torch.eye(2).to_sparse(), ["not a dense tensor", ".to_dense()"]),
        (torch.ones(2, device="meta"), ["a tensor without values"]),
        (np.ma.array([1, 2], mask=[True, False]), ["masked"]),
        (np.array(["a"]), ["not a tensor, array or number"]),
        (10**400, ["not a tensor, array or number"]),
        (10**5000, ["not a tensor, array or number", "bits"]),
    ],
    ids=lambda value: str(type(value)),
)  # fmt: skip
def test_labels_whose_values_are_out_of_reach(label: Any, parts: list[str]) -> None:
    with refused(SchemaError, "the label is", *parts):
        collate(example=(graph(), label))


@pytest.mark.parametrize(
    "label",
    [
        np.array([1, 2], ">i8"),
        np.array([1, 2], ">i8")[()],
        np.array([2, 1])[::-1],
        np.ma.array([1, 2]),
        np.array([1, 5, 2])[::2],
    ],
)
def test_arrays_of_any_layout_are_labels(label: Any) -> None:
    assert_equal_tensors(collate(example=(graph(), label))([(graph(), label)]).labels[0], torch.tensor([1, 2]))


@pytest.mark.parametrize("fill", [0.5, float("nan"), float("inf"), 2**63, "a", None])
def test_fill_that_integers_cannot_hold(fill: Any) -> None:
    with refused(SchemaError, "label_fill is", repr(fill), "torch.int64 cannot hold", "choose a value"):
        collate(example=(graph(), 1), label_fill=fill)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        (torch.bool, 2), (torch.uint8, -1), (torch.uint8, 256), (torch.float32, "a"), (torch.float32, None),
        (torch.float32, 1e300), (torch.float16, 1e5), (torch.float32, 10**40), (torch.float64, 10**400),
    ],
)  # fmt: skip
def test_fill_that_a_feature_cannot_hold(dtype: torch.dtype, fill: Any) -> None:
    example = random_graph(generator(0), 1, 0, {"x": ((), dtype)})
    with refused(SchemaError, "feature_fill is", repr(fill)[:90], "for x", f"{dtype} cannot hold"):
        tp.PaddedCollate(LIMITS, example=example, feature_fill=fill)


def test_fill_of_unknown_names() -> None:
    with refused(SchemaError, "feature_fill names ['y']", "['w', 'x']", "correct the names"):
        collate(feature_fill={"x": 1, "y": 2})
    with refused(SchemaError, "label_fill names ['a']", "correct the names"):
        collate(example=(graph(), {"b": 1}), label_fill={"a": 1})


def test_fill_must_fit_every_feature() -> None:
    # 0.5 suits "x" but not the integers "w"; naming the feature helps.
    with refused(SchemaError, "feature_fill is 0.5 for w", "torch.int64"):
        collate(feature_fill=0.5)
    assert collate(feature_fill={"x": 0.5})([]).node_features["x"].unique().tolist() == [0.5]


@pytest.mark.parametrize("fill", [np.float32(-1), np.int64(-1), -1])
def test_numpy_numbers_fill_too(fill: Any) -> None:
    graph = dgl.graph(([0], [0]))
    collate = tp.PaddedCollate(tp.Limits(2, 2, 2), example=(graph, 1.5), label_fill=fill)
    assert collate([(graph, 1.5)]).labels.tolist() == [1.5, -1, -1]


def test_limits_of_another_kind() -> None:
    with refused(LimitsError, "limits must be Limits", "(2, 2)"):
        tp.PaddedCollate((2, 2), example=dgl.graph(([0], [0])))  # type: ignore[arg-type]


@pytest.mark.parametrize("featured_first", [True, False])
def test_features_of_nothing_may_be_there_or_not(featured_first: bool) -> None:
    # dgl.batch alone refuses this where no graph of the batch has an edge.
    bare, featured = dgl.graph(([], []), num_nodes=1), dgl.graph(([], []), num_nodes=1)
    featured.edata["w"] = torch.zeros(0, 2)
    example = dgl.graph(([0], [0]))
    example.edata["w"] = torch.ones(1, 2)
    collate = tp.PaddedCollate(tp.Limits(4, 4, 3), example=example, feature_fill=7)
    batch = collate([featured, bare] if featured_first else [bare, featured])
    assert batch.num_real_nodes == 2
    assert batch.edge_features["w"].tolist() == [[7, 7]] * 4
    assert featured.edata["w"].shape == (0, 2)  # what was handed in is left as it was
