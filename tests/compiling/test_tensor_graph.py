"""TensorGraph: compiled code, errors, and how features are kept."""

from __future__ import annotations

import copy
from typing import Any

import dgl
import dgl.function as fn
import dgl.nn
import pytest
import torch
from torch import Tensor

from dgl_tuplepack import TensorGraph, compile
from dgl_tuplepack.compiling.tensor_graph.structure import Groups
from dgl_tuplepack.errors import CompileError, SchemaError, UnsupportedError
from tests.support.messages import refused

WIDTH = 4
FOLLOWS, BUYS, SOLD = ("user", "follows", "user"), ("user", "buys", "item"), ("item", "sold", "user")


def path() -> TensorGraph:
    """0 -> 1 -> 2."""
    return TensorGraph(torch.tensor([0, 1]), torch.tensor([1, 2]), 3, node_features={"x": torch.arange(3.0)})


def shop() -> TensorGraph:
    ends = {FOLLOWS: ([0, 1], [1, 1]), BUYS: ([0], [2]), SOLD: ([], [])}
    src, dst = ({t: torch.tensor(each[i], dtype=torch.int64) for t, each in ends.items()} for i in (0, 1))
    return TensorGraph(src, dst, {"user": 2, "item": 3})


def batch(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ends of 11 edges among 7 nodes, features of nodes, and of edges."""
    generator = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(0, 7, (2, 11), generator=generator)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    return src, dst, make(7, WIDTH), make(11, WIDTH)


def by_user(graph: Any, x: Tensor, e: Tensor) -> Tensor:
    with graph.local_scope():
        graph.ndata["x"], graph.edata["e"] = x, e
        graph.apply_edges(lambda edges: {"g": torch.sigmoid(edges.src["x"] * edges.dst["x"] + edges.data["e"])})
        graph.update_all(fn.u_mul_e("x", "g", "m"), fn.max("m", "h"))
        graph.update_all(
            lambda edges: {"m": edges.src["h"] - edges.data["g"]},
            fn.mean("m", "h"),
            lambda nodes: {"h": nodes.data["h"] + nodes.data["x"]},
        )
        degrees = graph.in_degrees() + graph.out_degrees()
        return graph.ndata["h"] * degrees.to(x.dtype).view(-1, 1)


@pytest.mark.parametrize("is_made_inside", [True, False])
def test_functions_of_users_are_compiled_once_without_a_break_and_equal_dgl(is_made_inside: bool) -> None:
    """`tests/scripts` compares the layers of DGL."""
    torch._dynamo.reset()

    def inside(src: Tensor, dst: Tensor, x: Tensor, e: Tensor) -> Tensor:
        return by_user(TensorGraph(src, dst, x.shape[0]), x, e)

    compiled = torch.compile(inside if is_made_inside else by_user, backend="aot_eager", fullgraph=True, dynamic=False)
    for step in range(3):
        src, dst, x, e = batch(step)
        results = []
        for graph in ([src, dst] if is_made_inside else [TensorGraph(src, dst, len(x))], None):
            inputs = x.clone().requires_grad_(), e.clone().requires_grad_()
            with torch._dynamo.config.patch(error_on_recompile=step > 0):
                out = compiled(*graph, *inputs) if graph else by_user(dgl.graph((src, dst), num_nodes=7), *inputs)
            results.append([out, *torch.autograd.grad((out * torch.arange(out.numel()).view_as(out)).sum(), inputs)])
        torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_compiled_code_says_how_a_layer_leaves_out_its_look_at_degrees() -> None:
    torch._dynamo.reset()
    layer = dgl.nn.GraphConv(1, 1)
    with pytest.raises(dgl.DGLError, match="allow_zero_in_degree"):
        layer(path(), torch.ones(3, 1))
    # DGL's own error speaks of self-loops, which a batch cannot be given.
    said = "allow_zero_in_degree=True", "set_allow_zero_in_degree(True)", "cover_padding=True", "torch.compiler.disable"
    with refused(CompileError, "GraphConv cannot be compiled in one graph", "because of graphconv.py, line ", *said):
        compile(layer, backend="aot_eager")(path(), torch.ones(3, 1))


def test_a_reduce_function_of_a_user_is_refused_with_the_remedy() -> None:
    with refused(UnsupportedError, "user-defined", "sum, mean, max and min of dgl.function", "edge_softmax"):
        path().update_all(fn.copy_u("x", "m"), lambda nodes: {"h": nodes.mailbox["m"].sum(1)})
    with refused(UnsupportedError, "nodes.mailbox"):
        path().apply_nodes(lambda nodes: {"h": nodes.mailbox["m"]})


def test_a_method_that_it_lacks_is_an_error_that_copies_and_hasattr_understand() -> None:
    graph = path()
    assert not hasattr(graph, "add_edges")
    with refused(UnsupportedError, "no attribute 'add_edges'", "before they are packed", "graph.edges()", "weight 0"):
        graph.add_edges([0], [1])
    assert issubclass(UnsupportedError, AttributeError)
    assert torch.equal(copy.deepcopy(graph).ndata["x"], graph.ndata["x"])


def test_compiled_code_may_ask_for_a_method_that_it_lacks() -> None:
    def outcome(graph: TensorGraph) -> torch.Tensor:
        return graph.ndata["x"] * (3 if hasattr(graph, "add_edges") else getattr(graph, "level", 2))

    graph = path()
    assert torch.equal(compile(outcome, backend="eager")(graph), 2 * graph.ndata["x"])


ENDS, TWO = torch.tensor([0, 1]), torch.tensor([1, 1])
LOOP = ("a", "to", "a")


@pytest.mark.parametrize(
    ("arguments", "settings", "parts"),
    [
        ((ENDS, ENDS, -1), {}, ("num_nodes", "-1")),
        ((ENDS.float(), ENDS, 2), {}, ("src", "float32")),
        ((ENDS, ENDS[:1], 2), {}, ("src and dst", "2", "1")),
        ((ENDS, ENDS, 2), {"node_features": {"x": torch.ones(3)}}, ("'x'", "(3,)", "2 nodes")),
        (({LOOP: ENDS}, ENDS, 2), {}, ("num_nodes is one value", "src is dict")),
        (({("a", "to", "b"): ENDS},) * 2 + ({"a": 2},), {}, ("('a', 'to', 'b')", "['a']")),
        (({LOOP: ENDS}, {}, {"a": 2}), {}, ("dst has the types []", "('a', 'to', 'a')")),
        (({}, {}, {"user": 2, "item": 1}), {"batch_num_nodes": {"user": TWO}}, ("batch_num_nodes", "user")),
        ((ENDS, ENDS, 2), {"batch_num_nodes": TWO, "node_graph_slots": TWO.int()}, ("node_graph_slots", "int64")),
        ((ENDS, ENDS, 2), {"edge_graph_slots": ENDS}, ("edge_graph_slots", "batch_num_edges")),
        (
            (ENDS, ENDS, 2),
            {"batch_num_nodes": TWO, "batch_num_edges": torch.tensor([2])},
            ("batch_num_edges", "[2, 1]"),
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: Any, settings: Any, parts: tuple[str, ...]) -> None:
    with refused(SchemaError, *parts):
        TensorGraph(*arguments, **settings)


def test_numbers_of_graphs_that_do_not_add_up_are_refused() -> None:
    graph = TensorGraph(ENDS, ENDS, 2, batch_num_nodes=torch.tensor([1, 2]), node_features={"x": torch.ones(2)})
    with refused(SchemaError, "must add up to 2", "add up to 3"):
        dgl.sum_nodes(graph, "x")


def test_an_end_node_that_is_not_there_is_named() -> None:
    good, wrong = torch.tensor([1, 2]), torch.tensor([0, 3])
    with refused(SchemaError, "dst[1]", "is 3", "3 nodes", "0..2"):
        TensorGraph(good, wrong, 3)
    with refused(SchemaError, "src[1]", "is -1", "3 nodes", "0..2"):
        TensorGraph(torch.tensor([0, -1]), good, 3)
    with refused(SchemaError, "src[0]", "0 nodes", "no edges"):
        TensorGraph(good, good, 0)


@pytest.mark.parametrize(("bad", "end"), [(3, 0), (-1, 1)])
def test_an_end_node_that_is_changed_later_is_an_error_not_a_wild_write(bad: int, end: int) -> None:
    graph = path()
    graph.all_edges()[end][1] = bad
    with pytest.raises(IndexError, match="out of"):
        graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "h"))


def two_to_one() -> TensorGraph:
    """Two edge types with one middle name."""
    ends = {("a", "r", "a"): torch.tensor([0]), ("b", "r", "a"): torch.tensor([0])}
    return TensorGraph(ends, ends, {"a": 1, "b": 1})


@pytest.mark.parametrize(
    ("make", "call", "error", "parts"),
    [
        (path, lambda g: g.update_all("copy_u", fn.sum("m", "h")), SchemaError, ("message function", "'copy_u'")),
        (path, lambda g: g.update_all(fn.copy_u("x", "m"), "sum"), SchemaError, ("reduce function", "'sum'")),
        (path, lambda g: g.update_all(fn.copy_u("x", "m"), fn.sum("o", "h")), SchemaError, ("'o'", "['m']")),
        (path, lambda g: g.update_all(fn.copy_u("y", "m"), fn.sum("m", "h")), SchemaError, ("'y'", "source", "'x'")),
        (path, lambda g: g.update_all(lambda e: e.src["x"], fn.sum("m", "h")), SchemaError, ("a dict", "Tensor")),
        (path, lambda g: g.apply_edges(fn.copy_u("x", "m"), ENDS), UnsupportedError, ("all nodes or edges",)),
        (path, lambda g: g.nodes[[0, 1]], UnsupportedError, ("indexed by a type", "[0, 1]")),
        (path, lambda g: g.edges(order="srcdst"), UnsupportedError, ("'eid'", "'srcdst'")),
        (path, lambda g: g.ndata.update({"h": torch.ones(2)}), SchemaError, ("'h'", "(2,)", "3 nodes")),
        (path, lambda g: g.apply_edges(fn.u_dot_v("wide", "thin", "e")), SchemaError, ("dot", "4)", "1)")),
        (shop, lambda g: g.ndata.update({"x": torch.ones(2)}), SchemaError, ("must be a dict by type",)),
        (shop, lambda g: g["likes"], SchemaError, ("'likes'",)),
        (shop, lambda g: g.num_nodes("shop"), SchemaError, ("node type 'shop'",)),
        (shop, lambda g: g.apply_edges(lambda edges: {}), SchemaError, ("edge types", "no type is named")),
        (shop, lambda g: g.update_all(fn.copy_u("x", "m"), fn.sum("m", "h")), SchemaError, ("no type is named",)),
        (shop, lambda g: g.multi_update_all({}, "prod"), SchemaError, ("cross reducer", "'prod'")),
        (two_to_one, lambda g: g["r"], SchemaError, ("'r' is ambiguous",)),
    ],
)
def test_calls_that_cannot_be_are_refused(make: Any, call: Any, error: Any, parts: tuple[str, ...]) -> None:
    graph = make()
    if make is path:
        graph.ndata["wide"], graph.ndata["thin"] = torch.ones(3, 4), torch.ones(3, 1)
    with refused(error, *parts):
        call(graph)


def test_features_of_several_types_are_dicts_by_type() -> None:
    graph = shop()
    graph.ndata["x"] = {"user": torch.ones(2), "item": torch.zeros(3)}
    graph.edata["w"] = {"buys": torch.ones(1)}
    assert set(graph.ndata["x"]) == {"user", "item"}
    assert list(graph.edata["w"]) == [BUYS]
    assert list(graph.nodes["user"].data) == ["x"]
    assert len(graph.edges["buys"].data) == 1
    assert "x" in graph.srcdata
    del graph.ndata["x"]
    assert "x" not in graph.ndata
    assert graph.edata.pop("w")
    assert not dict(graph.edata)


def test_it_moves_and_changes_its_dtype_with_all_that_it_holds() -> None:
    graph = path()
    for made in (graph.int(), graph.to("cpu"), graph.clone(), graph.cpu(), graph.int().long()):
        made.update_all(fn.copy_u("x", "m"), fn.sum("m", "h"))
        assert made.ndata["h"].tolist() == [0, 0, 1]
        assert made.in_degrees().dtype == made.idtype
    assert graph.int().idtype == torch.int32
    assert "h" not in graph.ndata
    assert not graph.is_pinned()
    meta = graph.to("meta")
    assert meta.device.type == meta.ndata["x"].device.type == "meta"


def test_batches_know_the_graph_of_each_node_and_edge() -> None:
    ends = torch.tensor([0, 2, 3]), torch.tensor([1, 3, 2])
    numbers = {"batch_num_nodes": torch.tensor([2, 0, 2]), "batch_num_edges": torch.tensor([1, 0, 2])}
    graph = TensorGraph(*ends, 4, **numbers)
    assert graph.batch_size == 3
    assert graph.node_graph_slots().tolist() == [0, 0, 2, 2]
    assert graph.edge_graph_slots().tolist() == [0, 2, 2]
    assert graph.batch_num_edges().tolist() == [1, 0, 2]
    assert path().node_graph_slots().tolist() == [0, 0, 0]
    assert path().batch_num_edges().tolist() == [2]
    # As in DGL, the part of an edge type is one graph.
    assert graph["_E"].batch_size == dgl.batch([dgl.graph(([0], [1]))] * 2)["_E"].batch_size == 1
    given = TensorGraph(*ends, 4, **numbers, node_graph_slots=torch.tensor([0, 0, 2, 2]))
    assert torch.equal(given.node_graph_slots(), graph.node_graph_slots())


def test_infinity_and_nan_among_messages_stay() -> None:
    inf, nan = float("inf"), float("nan")
    values = torch.tensor([inf, 1, nan, 2, 3, nan, -inf]).requires_grad_()
    out = Groups(torch.tensor([0, 0, 1, 1, 2, 2, 3]), 5).extreme(values, True)
    torch.testing.assert_close(out, torch.tensor([inf, nan, nan, -inf, 0]), equal_nan=True)
    out.sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.bfloat16, torch.int32])
def test_features_of_every_dtype_are_summed(dtype: torch.dtype) -> None:
    graph = TensorGraph(torch.tensor([0, 1, 0]), torch.tensor([2, 2, 1]), 3)
    graph.ndata["x"] = torch.tensor([[3, 4], [5, -6], [7, 8]], dtype=dtype)
    graph.edata["w"] = torch.tensor([[1], [2], [3]], dtype=dtype)
    for reducer, of_last in (("sum", [13, -8]), ("mean", [6.5, -4]), ("max", [10, 4]), ("min", [3, -12])):
        graph.update_all(fn.u_mul_e("x", "w", "m"), getattr(fn, reducer)("m", "h"))
        assert graph.ndata["h"].tolist() == [[0, 0], [9, 12], of_last]
