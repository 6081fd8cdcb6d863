"""Attention inside graphs is that of a loop over graphs, for every batch, compiled or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import dgl_tuplepack as tp
from dgl_tuplepack.errors import GraphTooLargeError, SchemaError
from dgl_tuplepack.nn import graph_attention, node_graphs
from tests.support.messages import refused
from tests.support.node_rows import BATCHES, COUNTS, HEADS, WIDTH, attended, batch_of, features, looped

from torch_geometric.data import Data  # isort: skip

# How attention runs: uncompiled; in compiled code, where a CPU reads sizes; and on other devices, which use bounds.
WAYS = ("eager", "sizes", "bounds")


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param != "eager":
        for each in (graph_attention, node_graphs):
            monkeypatch.setattr(each, "is_traced", lambda: True)
    if request.param == "bounds":
        monkeypatch.setattr(graph_attention, "_opaque", None)
        monkeypatch.setattr(graph_attention, "_NARROW", 0)
    return str(request.param)


def inside(qkv: Tensor, batch: Any, max_nodes: int | None = None, **more: Any) -> Tensor:
    q, k, v = qkv.view(len(qkv), 3, HEADS, WIDTH // HEADS).unbind(1)
    return tp.nn.attention(q, k, v, batch, max_nodes, **more).flatten(1)


def densely(qkv: Tensor, batch: Any, max_nodes: int, **more: Any) -> Tensor:
    rows = tp.nn.dense(qkv, batch, max_nodes, **more)
    return rows.to_nodes(attended(rows.values, rows.attn_mask))


@pytest.mark.parametrize("kind", BATCHES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(COUNTS, st.integers(0, 2))
def test_attention_and_its_gradients_are_those_of_a_loop(way: str, kind: str, counts: list[int], more: int) -> None:
    batch, arguments, number = batch_of(kind, counts)
    most = max(1, *counts) + more
    ours, theirs = (features(number).requires_grad_() for _ in range(2))
    found, expected = inside(ours, batch, most, **arguments), looped(theirs, counts)
    torch.testing.assert_close(found[: sum(counts)], expected[: sum(counts)], rtol=1e-12, atol=1e-12)
    assert found.isfinite().all()
    weights = features(number, 1, WIDTH)
    weights[sum(counts) :] = 0
    for each in (found, expected):
        (each * weights).sum().backward()
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)


LARGE = st.lists(st.one_of(st.integers(0, 3), st.integers(0, 60)), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LARGE, st.booleans())
@example([], True)
@example([0], False)
@example([1], True)
@example([0, 7, 0], True)
@example([40] + [1] * 30, True)
def test_graphs_of_very_different_sizes(way: str, counts: list[int], with_most: bool) -> None:
    index = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts, dtype=torch.int64))
    found = inside(features(sum(counts)), index, max(1, *counts, 0) if with_most else None, num_graphs=len(counts))
    torch.testing.assert_close(found, looped(features(sum(counts)), counts), rtol=1e-12, atol=1e-12)


@given(st.lists(st.integers(0, 1000), max_size=50))
def test_blocks_have_all_graphs_with_nodes_and_little_padding(counts: list[int]) -> None:
    counts.sort(reverse=True)
    cuts = graph_attention._cuts(counts)
    assert [i for first, last, _ in cuts for i in range(first, last)] == [i for i, n in enumerate(counts) if n]
    assert all(width == max(counts[first], 16) for first, _, width in cuts)
    assert all(width == 16 or width < 1.4 * counts[last - 1] for _, last, width in cuts)
    # Where sizes cannot be read, bounds take their place.
    bounds = [min(1000, sum(counts) // (k + 1)) for k in range(len(counts))]
    assert all(n <= bound for n, bound in zip(counts, bounds, strict=True))


def test_padding_is_0_and_takes_no_time(way: str) -> None:
    for kind in ("padded", "tensors", "padded pyg"):
        batch, _, number = batch_of(kind, [2, 1])
        # The padding graph has more nodes than `max_nodes`.
        assert not inside(features(number) / 0, batch, 2)[3:].any()


def test_nan_stays_in_its_graph(way: str) -> None:
    qkv = features(7)
    qkv[3] = torch.nan
    found = inside(qkv, torch.tensor([0, 0, 1, 1, 2, 2, 2]), 3, num_graphs=3)
    assert found.isnan().all(1).tolist() == [False, False, True, True, False, False, False]
    assert found.isnan().any(1).tolist() == found.isnan().all(1).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scale_width_of_values_and_dtype(way: str, dtype: torch.dtype) -> None:
    q, k, v = (features(5, i, 2 * width).view(5, 2, width).to(dtype) for i, width in enumerate((4, 4, 6)))
    found = tp.nn.attention(q, k, v, torch.tensor([0, 0, 0, 1, 1]), num_graphs=2, scale=0.3)
    assert found.dtype == dtype
    for rows in (slice(0, 3), slice(3, 5)):
        scores = torch.einsum("ihd,jhd->hij", q[rows].double(), k[rows].double())
        expected = torch.einsum("hij,jhd->ihd", (0.3 * scores).softmax(2), v[rows].double())
        torch.testing.assert_close(found[rows].double(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", BATCHES)
def test_a_graph_that_is_too_large_is_an_error(kind: str) -> None:
    batch, more, number = batch_of(kind, [1, 3])
    with refused(GraphTooLargeError, "graph 1 ", "3 nodes", "max_nodes is 2", "loader.max_nodes"):
        inside(features(number), batch, 2, **more)


@pytest.mark.parametrize("way", WAYS[1:], indirect=True)
def test_compiled_code_marks_a_graph_that_is_too_large(way: str) -> None:
    found = inside(features(6), torch.tensor([0, 0, 1, 1, 1, 2]), 2, num_graphs=3)
    assert found.isnan().all(1).tolist() == [False, False, True, True, True, False]
    torch.testing.assert_close(found[[0, 1, 5]], looped(features(6), [2, 3, 1])[[0, 1, 5]])


def test_torch_accepts_the_operation() -> None:
    rows = torch.nn.functional.pad(features(6, 0, 24).view(6, 2, 12), (0, 0, 0, 0, 0, 1)).requires_grad_()
    torch.library.opcheck(graph_attention._opaque, (rows, torch.tensor([0, 2, 2]), torch.tensor([2, 0, 3]), 4, 0.5))


WRONG: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a list": ({"query": [1.0]}, ("[N, heads, width]", "list", "(3, 2, 4)")),
    "no heads": ({"key": features(3)}, ("[N, heads, width]", "(3, 12)", "view(N, heads, -1)")),
    "other keys": ({"key": features(3).view(3, 2, 6)}, ("same width", "(3, 2, 6)")),
    "other rows of values": ({"value": features(4).view(4, 2, 6)}, ("same nodes", "(4, 2, 6)")),
    "other rows": (dict.fromkeys(("query", "key", "value"), features(4).view(4, 2, 6)), ("4 rows", "3 nodes")),
    "integers": (dict.fromkeys(("query", "key", "value"), torch.ones(3, 2, 4).long()), ("floats", "int64")),
    "two dtypes": ({"value": torch.ones(3, 2, 4)}, ("one dtype", "float32", "float64")),
    "no slots": ({"max_nodes": 0}, ("max_nodes", "is 0")),
    "half a slot": ({"max_nodes": 1.5}, ("max_nodes", "1.5")),
    "no number": ({"num_graphs": None}, ("num_graphs is missing", "data.num_graphs")),
    "not sorted": ({"batch": torch.tensor([0, 1, 0])}, ("ascending", "[0, 1, 0]", "sort")),
    "a text": ({"batch": "batch", "num_graphs": None}, ("batch must be", "'batch'")),
    "a scale": ({"scale": "1"}, ("scale", "'1'", "1 / sqrt(width)")),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case: str) -> None:
    changed, parts = WRONG[case]
    x = features(3, 0, 8).view(3, 2, 4)
    right = {"query": x, "key": x, "value": x, "batch": torch.tensor([0, 0, 1]), "max_nodes": 2, "num_graphs": 2}
    with refused(SchemaError, *parts):
        tp.nn.attention(**right | changed)  # type: ignore[arg-type]


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

    def __init__(self, max_nodes: int, inside: Callable[..., Tensor] = inside) -> None:
        super().__init__()
        self.max_nodes, self.qkv = max_nodes, nn.Linear(WIDTH, 3 * WIDTH, dtype=torch.float64)
        self.inside = inside

    def forward(self, graph: Any) -> Tensor:
        graph.ndata["h"] = self.inside(self.qkv(graph.ndata["x"]), graph, self.max_nodes)
        return dgl.sum_nodes(graph, "h")


class PygModel(Model):
    def forward(self, data: Any) -> Tensor:
        h = self.inside(self.qkv(data.x), data, self.max_nodes)
        return h.new_zeros(data.num_graphs, WIDTH).index_add(0, data.batch, h)


# Numbers of nodes; few graphs, so padding has large graphs.
NUMBERS = [1 + 3 * i % 11 for i in range(40)]
CASES: dict[str, tuple[type[Model], Callable[[int], Any], Callable[[Any, Any], Tensor]]] = {
    "dgl": (Model, ring, lambda model, batch: model(batch[0])),
    "pyg": (PygModel, ring_of_pyg, lambda model, batch: model(batch)),
}


@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:batches of .* need a shape with:UserWarning")
@pytest.mark.parametrize("way", ["sizes", "bounds", "dense"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", CASES)
def test_two_lines_give_the_plain_results(case: str, backend: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if way == "bounds":
        monkeypatch.setattr(graph_attention, "_opaque", None)
    cls, item, call = CASES[case]
    loader = tp.packed_loader([item(n) for n in NUMBERS], batch_size=6)
    assert loader.max_nodes == max(NUMBERS)
    model = cls(loader.max_nodes, densely if way == "dense" else inside)
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
@pytest.mark.filterwarnings("ignore:Model is not compared:UserWarning")
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
