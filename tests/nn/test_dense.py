"""Dense rows and attention inside graphs are those of a loop over graphs, for every batch, compiled or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, SchemaError
from tests.support.messages import refused
from tests.support.tensors import generator

import tests.support.pyg  # noqa: F401  # isort: skip
from torch_geometric.data import Batch, Data, HeteroData  # isort: skip
from torch_geometric.utils import to_dense_batch  # isort: skip

WIDTH, HEADS = 4, 2
COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=6)
BATCHES = ("index", "dgl", "TensorGraph", "pyg", "padded", "tensors", "padded pyg")


def features(number: int, seed: int = 0, width: int = 3 * WIDTH) -> Tensor:
    return torch.randn(number, width, generator=generator(seed), dtype=torch.float64)


def graph_of(number: int) -> Any:
    return dgl.graph(([], []), num_nodes=number)


def data_of(number: int) -> Any:
    return Data(x=features(number, number), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.ones(1))


def batch_of(kind: str, counts: list[int]) -> tuple[Any, dict[str, int], int]:
    """A batch of graphs with these numbers of nodes, more arguments, and the number of rows."""
    number = sum(counts)
    if kind == "index":
        index = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
        return index, {"num_graphs": len(counts)}, number
    if kind == "dgl":
        return dgl.batch([graph_of(n) for n in counts]), {}, number
    if kind == "TensorGraph":
        none = torch.zeros(0, dtype=torch.long)
        made = tp.TensorGraph(
            none, none, number, batch_num_nodes=torch.tensor(counts), batch_num_edges=none.new_zeros(len(counts))
        )
        return made, {}, number
    if kind == "pyg":
        return Batch.from_data_list([data_of(n) for n in counts]), {}, number
    # The padding graph has more nodes than any real graph.
    limits = tp.Limits(number + 9, 5, graphs=len(counts) + 1)
    items = [data_of(n) if kind == "padded pyg" else graph_of(n) for n in counts]
    batch = tp.PaddedCollate(limits, items[0])(items)
    view = batch.pyg if kind == "padded pyg" else batch.tensors if kind == "tensors" else batch
    return view, {}, len(batch.node_mask)


def attended(qkv: Tensor, attn_mask: Tensor | None = None) -> Tensor:
    """Attention among rows ``[..., L, 3 * WIDTH]``."""
    q, k, v = qkv.unflatten(-1, (3, HEADS, -1)).movedim(-3, 0).transpose(-3, -2)
    return scaled_dot_product_attention(q, k, v, attn_mask).transpose(-3, -2).flatten(-2)


def looped(qkv: Tensor, counts: list[int]) -> Tensor:
    """Attention inside each graph, one by one; other rows get 0."""
    found = [attended(each) for each in qkv[: sum(counts)].split(counts) if len(each)]
    return torch.cat([qkv[:0, :WIDTH], *found, qkv.new_zeros(len(qkv) - sum(counts), WIDTH)])


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


# Models by two lines, and compiled steps.


def ring(number: int, dtype: torch.dtype = torch.float64) -> tuple[Any, Tensor]:
    graph = dgl.graph((torch.arange(number), (torch.arange(number) + 1) % max(number, 1)), num_nodes=number)
    graph.ndata["x"] = features(number, number, WIDTH).to(dtype)
    return graph, torch.tensor(float(number), dtype=dtype)


def ring_of_pyg(number: int) -> Any:
    graph, label = ring(number)
    return Data(x=graph.ndata["x"], edge_index=torch.stack(graph.edges()), y=label[None])


class Model(nn.Module):
    """Attention among the nodes of a graph, then a sum."""

    def __init__(self, max_nodes: int) -> None:
        super().__init__()
        self.max_nodes, self.qkv = max_nodes, nn.Linear(WIDTH, 3 * WIDTH, dtype=torch.float64)

    def forward(self, graph: Any) -> Tensor:
        graph.ndata["h"] = inside(self.qkv(graph.ndata["x"]), graph, self.max_nodes)
        return dgl.sum_nodes(graph, "h")


class PygModel(Model):
    def forward(self, data: Any) -> Tensor:
        h = inside(self.qkv(data.x), data, self.max_nodes)
        return h.new_zeros(data.num_graphs, WIDTH).index_add(0, data.batch, h)


class TensorModel(Model):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, graphs: int) -> Tensor:
        h = inside(self.qkv(x), batch, self.max_nodes, num_graphs=graphs)
        return h.new_zeros(graphs, WIDTH).index_add(0, batch, h)


# Numbers of nodes; few graphs, so padding has large graphs.
NUMBERS = [1 + 3 * i % 11 for i in range(40)]
CASES: dict[str, tuple[type[Model], Callable[[int], Any], Callable[[Any, Any], Tensor]]] = {
    "dgl": (Model, ring, lambda model, batch: model(batch[0])),
    "pyg": (PygModel, ring_of_pyg, lambda model, batch: model(batch)),
}


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:batches of .* need a shape with:UserWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", CASES)
def test_two_lines_give_the_plain_results(case: str, backend: str) -> None:
    cls, item, call = CASES[case]
    loader = tp.packed_loader([item(n) for n in NUMBERS], batch_size=6)
    assert loader.max_nodes == max(NUMBERS)
    model = cls(loader.max_nodes)
    plain, compiled = model, tp.compile(model, loader, backend=backend, fullgraph=True)
    for batch in loader:
        found = []
        for each in (plain, compiled):
            model.zero_grad()
            out = call(each, batch)
            out.square().sum().backward()
            found.append((out.detach(), model.qkv.weight.grad.clone()))
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert compiled._static_calls.is_compiled


@pytest.mark.compile
def test_two_lines_mark_a_graph_that_is_too_large() -> None:
    loader = tp.packed_loader([ring(n) for n in NUMBERS], batch_size=6)
    model = tp.compile(Model(loader.max_nodes), loader, backend="eager")
    model(next(iter(loader))[0])
    out = model(dgl.batch([ring(3)[0], ring(12)[0]]))
    assert out.isnan().all(1).tolist() == [False, True]


@pytest.mark.compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_steps_of_padded_batches(backend: str) -> None:
    loader = tp.packed_loader([ring(n) for n in NUMBERS], graphs_per_batch=6)
    qkv = nn.Linear(WIDTH, 3 * WIDTH, dtype=torch.float64)

    def step(tensors: Any) -> Tensor:
        h = inside(qkv(tensors.node_features["x"]), tensors, loader.max_nodes)
        return h.new_zeros(len(tensors.graph_mask), WIDTH).index_add(0, tensors.node_graph_slots, h)

    compiled = torch.compile(step, backend=backend, fullgraph=True, dynamic=False)
    for batch in loader:
        real = batch.graph_mask
        graphs = [graph.ndata["x"] for graph in tp.unpad(batch)]
        expected = torch.stack([attended(qkv(x)).sum(0) for x in graphs])
        for function in (step, compiled):
            torch.testing.assert_close(function(batch.tensors)[real], expected, rtol=1e-12, atol=1e-12)


def test_loaders_count_the_nodes_of_the_largest_graph_of_all_splits() -> None:
    splits = {"train": [ring(n) for n in NUMBERS], "valid": [ring(n) for n in (2, 17)]}
    for size in ({"batch_size": 4}, {"graphs_per_batch": 4}):
        loaders = tp.packed_loader(splits, splits=True, **size)
        assert {name: loader.max_nodes for name, loader in loaders.items()} == {"train": 17, "valid": 17}
    with pytest.warns(UserWarning, match="dropped"):
        loader = tp.packed_loader(splits["valid"], limits=tp.Limits(9, 9), oversize="drop")
    assert loader.max_nodes == 2
    pairs = [{"one": ring(n)[0], "two": ring(n + 1)[0]} for n in NUMBERS]
    assert tp.packed_loader(pairs, graphs_per_batch=4).max_nodes == {"one": 11, "two": 12}
