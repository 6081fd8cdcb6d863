"""Dense rows are those of a loop over graphs, for every batch; so are the mask of flex_attention and first nodes."""

from __future__ import annotations

from typing import Any

import dgl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, SchemaError
from tests.support.messages import refused
from tests.support.node_rows import (
    BATCHES,
    COUNTS,
    HEADS,
    WIDTH,
    attended,
    batch_of,
    data_of,
    features,
    graph_of,
    looped,
)

from torch_geometric.data import Batch, HeteroData  # isort: skip
from torch_geometric.utils import to_dense_batch  # isort: skip


def inside(qkv: Tensor, batch: Any, most: int, **more: Any) -> Tensor:
    rows = tp.nn.dense(qkv, batch, most, **more)
    return rows.to_nodes(attended(rows.values, rows.attn_mask))


@pytest.mark.parametrize("kind", BATCHES)
@settings(max_examples=15, deadline=None)
@given(COUNTS, st.integers(0, 2))
def test_attention_and_its_gradients_are_those_of_a_loop(kind: str, counts: list[int], more: int) -> None:
    batch, arguments, number = batch_of(kind, counts)
    most = max(1, *counts) + more
    ours, theirs = (features(number).requires_grad_() for _ in range(2))
    rows = tp.nn.dense(ours, batch, most, **arguments)
    assert rows.values.shape == (*rows.mask.shape, 3 * WIDTH)
    for i, each in enumerate(theirs[: sum(counts)].split(counts)):
        assert torch.equal(rows.values[i, : len(each)], each)
        assert rows.mask[i].tolist() == [True] * len(each) + [False] * (most - len(each))
    assert not rows.values[~rows.mask].any()
    found, expected = rows.to_nodes(attended(rows.values, rows.attn_mask)), looped(theirs, counts)
    torch.testing.assert_close(found[: sum(counts)], expected[: sum(counts)], rtol=1e-12, atol=1e-12)
    weights = features(number, 1, WIDTH)
    weights[sum(counts) :] = 0
    for each in (found, expected):
        (each * weights).sum().backward()
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)


@given(
    COUNTS, st.sampled_from([torch.bool, torch.int32, torch.float16, torch.complex64]), st.sampled_from([(), (2, 3)])
)
@settings(deadline=None)
def test_rows_of_any_kind_there_and_back(counts: list[int], dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    batch, more, number = batch_of("pyg", counts)
    x = features(number, 3, 6)[:, : 6 if shape else 1].reshape(number, *shape).to(dtype)
    rows = tp.nn.dense(x, batch, max(1, *counts), **more)
    assert torch.equal(rows.to_nodes(rows.values), x)
    values, mask = to_dense_batch(x, batch.batch, max_num_nodes=max(1, *counts), batch_size=len(counts))
    assert torch.equal(rows.values, values)
    assert torch.equal(rows.mask, mask)


@pytest.mark.parametrize("kind", ["padded", "tensors", "padded pyg"])
def test_nodes_of_padding_beyond_get_0(kind: str) -> None:
    batch, _, number = batch_of(kind, [2, 1])
    rows = tp.nn.dense(features(number), batch, 2)
    assert rows.mask.sum(1).tolist() == [2, 1, 0, 2]
    assert not rows.to_nodes(rows.values + 1)[5:].any()


@pytest.mark.parametrize("kind", BATCHES)
def test_a_graph_that_is_too_large_is_an_error(kind: str) -> None:
    batch, more, number = batch_of(kind, [1, 3])
    with refused(GraphTooLargeError, "graph 1 ", "3 nodes", "max_nodes is 2", "loader.max_nodes"):
        tp.nn.dense(features(number), batch, 2, **more)


def test_the_padding_graph_of_a_dglgraph_is_known_by_the_scope() -> None:
    padded = batch_of("padded", [2, 1])[0]
    with refused(GraphTooLargeError, "graph 3 ", "give the batch itself"):
        tp.nn.dense(features(len(padded.node_mask)), padded.graph, 2)
    with tp.nn.masked(padded):
        assert tp.nn.dense(features(len(padded.node_mask)), padded.graph, 2).mask.sum() == 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
def test_compiled_code_marks_graphs_that_are_too_large(dtype: torch.dtype) -> None:
    def function(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        rows = tp.nn.dense(x, index, 2, num_graphs=3)
        return rows.values, rows.to_nodes(rows.values.double())

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True, dynamic=False)
    values, back = compiled(torch.arange(6).to(dtype), torch.tensor([0, 0, 1, 1, 1, 2]))
    assert values[0].tolist() == [0, 1]
    assert values[1].isnan().all() if dtype.is_floating_point else (values[1] == torch.iinfo(dtype).min).all()
    assert back.isnan().tolist() == [False, False, True, True, True, False]


def test_heterographs_have_a_type() -> None:
    graphs = [dgl.heterograph({("a", "to", "b"): ([0, 1], [0, 0])}, {"a": 2 + i, "b": 1}) for i in range(3)]
    limits = tp.Limits.from_components({"nodes:a": 12, "nodes:b": 12, "edges:a:to:b": 9}, 3)
    padded = tp.PaddedCollate(limits, graphs[0])(graphs)
    data = HeteroData()
    data["a"].x, data["b"].x, data["a", "to", "b"].edge_index = features(2), features(1), torch.tensor([[0, 1], [0, 0]])
    batches = [
        (dgl.batch(graphs), [2, 3, 4]),
        (padded, [2, 3, 4, 4]),
        (padded.tensors, [2, 3, 4, 4]),
        (padded.tensors.graph, [2, 3, 4, 4]),
        (Batch.from_data_list([data, data]), [2, 2]),
    ]
    for batch, counts in batches:
        rows = tp.nn.dense(features(sum(counts)), batch, 4, ntype="a")
        assert rows.mask.sum(1).tolist() == counts
    offsets = padded.tensors.node_offsets
    assert offsets["a"].tolist() == [0, 2, 5, 9, 13]
    assert offsets["b"].dtype == torch.int32
    with refused(SchemaError, "ntype is None", "['a', 'b']"):
        tp.nn.dense(features(13), padded, 4)


@pytest.mark.filterwarnings("ignore:flex_attention called without:UserWarning")
@pytest.mark.parametrize("kind", ["index", "dgl", "pyg", "padded", "tensors"])
@settings(max_examples=10, deadline=None)
@given(counts=COUNTS)
def test_flex_attention_sees_the_same_graph(kind: str, counts: list[int]) -> None:
    batch, more, number = batch_of(kind, counts)
    if not number:
        return
    qkv = features(number)
    q, k, v = qkv.unflatten(-1, (3, HEADS, -1)).movedim(-3, 0).transpose(-3, -2)[:, None]
    block_mask = create_block_mask(tp.nn.same_graph(batch, **more), None, None, number, number, device="cpu")
    found = flex_attention(q, k, v, block_mask=block_mask)[0].transpose(0, 1).flatten(1)
    torch.testing.assert_close(found[: sum(counts)], looped(qkv, counts)[: sum(counts)], rtol=1e-12, atol=1e-12)


@given(COUNTS)
@settings(max_examples=20, deadline=None)
def test_offsets_are_first_nodes(counts: list[int]) -> None:
    tensors = batch_of("tensors", counts)[0]
    offsets = tensors.node_offsets
    assert offsets.dtype == torch.int32
    assert offsets.tolist() == [0, *torch.tensor([*counts, 0, len(tensors.node_mask) - sum(counts)]).cumsum(0).tolist()]


INDEX = torch.tensor([0, 0, 1])
WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a list": ({"x": [1.0]}, ("x must be a tensor", "list")),
    "no rows": ({"x": torch.tensor(1.0)}, ("has no rows",)),
    "other rows": ({"x": features(4)}, ("x has 4 rows", "3 nodes")),
    "no slots": ({"max_nodes": 0}, ("max_nodes", "is 0")),
    "half a slot": ({"max_nodes": 1.5}, ("max_nodes", "1.5")),
    "true slots": ({"max_nodes": True}, ("max_nodes", "True")),
    "no number": ({"num_graphs": None}, ("num_graphs is missing", "data.num_graphs")),
    "a negative number": ({"num_graphs": -1}, ("num_graphs", "-1")),
    "too few graphs": ({"num_graphs": 1}, ("0..0", "[0, 0, 1]")),
    "not sorted": ({"batch": torch.tensor([0, 1, 0])}, ("ascending", "[0, 1, 0]", "sort")),
    "negative graphs": ({"batch": torch.tensor([-1, 0, 1])}, ("0..1", "[-1, 0, 1]")),
    "floats": ({"batch": torch.zeros(3)}, ("int64", "float32")),
    "two axes": ({"batch": torch.zeros(3, 1, dtype=torch.long)}, ("(3, 1)",)),
    "a text": ({"batch": "batch", "num_graphs": None}, ("batch must be", "'batch'")),
    "a class": ({"batch": Batch, "num_graphs": None}, ("batch must be",)),
    "a graph of PyG": ({"batch": data_of(3), "num_graphs": None}, ("batch must be", "Data(")),
    "too many slots": ({"max_nodes": 2**63}, ("max_nodes", "9223372036854775808")),
    "a type of an index": ({"ntype": "a"}, ("ntype is 'a'", "leave it out")),
    "an unknown type": ({"batch": dgl.batch([graph_of(3)]), "num_graphs": None, "ntype": "a"}, ("'a'", "['_N']")),
    "no type": ({"batch": dgl.batch([graph_of(3)]), "num_graphs": None, "ntype": torch.ones(2)}, ("ntype is tensor",)),
    "a number of a batch": ({"batch": dgl.batch([graph_of(3)])}, ("num_graphs=2", "leave num_graphs out")),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case: str) -> None:
    changed, parts = WRONG[case]
    with refused(SchemaError, *parts):
        tp.nn.dense(**{"x": features(3), "batch": INDEX, "max_nodes": 2, "num_graphs": 2, **changed})


def test_wrong_values_on_the_way_back() -> None:
    rows = tp.nn.dense(features(3), INDEX, 2, num_graphs=2)
    with refused(SchemaError, "[2, 2, ...]", "(2, 3)"):
        rows.to_nodes(torch.zeros(2, 3))
    with refused(SchemaError, "type list"):
        rows.to_nodes([1.0])  # type: ignore[arg-type]
