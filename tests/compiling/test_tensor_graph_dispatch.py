"""How DGL's free functions find ours: for a TensorGraph only, for everyone who holds them, and not for ever."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import dgl
import dgl.ops
import pytest
import torch
from dgl import max_nodes, mean_nodes
from dgl.nn import GATConv, Sequential
from dgl.nn.functional import edge_softmax
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from dgl_tuplepack import TensorGraph, tensor_graph
from dgl_tuplepack.compiling.tensor_graph import dispatch
from dgl_tuplepack.errors import SchemaError, UnsupportedError
from tests.support.messages import refused
from tests.support.processes import run

# As users hold functions: by name, in a dict, in a partial function, as a default.
HELD = {"mean": mean_nodes, "weighted": functools.partial(dgl.sum_nodes, weight="w")}


def pool(graph: Any, feat: str, function: Callable[..., Tensor] = max_nodes) -> Tensor:
    return function(graph, feat)


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> Iterator[None]:
    tensor_graph.restore()
    yield
    tensor_graph.install()


def batch() -> Any:
    torch.manual_seed(0)
    dgl.seed(0)
    graph = dgl.batch([dgl.rand_graph(4, 9), dgl.graph(([], []), num_nodes=2), dgl.rand_graph(5, 12)])
    graph.ndata["x"], graph.edata["w"] = torch.randn(graph.num_nodes(), 3), torch.randn(graph.num_edges(), 1)
    graph.ndata["w"] = torch.randn(graph.num_nodes(), 1)
    return graph


def on_tensors(graph: Any) -> TensorGraph:
    return TensorGraph(
        *graph.edges(),
        graph.num_nodes(),
        batch_num_nodes=graph.batch_num_nodes(),
        batch_num_edges=graph.batch_num_edges(),
        node_features=dict(graph.ndata),
        edge_features=dict(graph.edata),
    )


CALLS: dict[str, Callable[[Any], Tensor]] = {
    "u_mul_e_sum": lambda g: dgl.ops.u_mul_e_sum(g, g.ndata["x"], g.edata["w"]),
    "copy_u_max": lambda g: dgl.ops.copy_u_max(g, g.ndata["x"]).nan_to_num(neginf=0.0),
    "u_dot_v": lambda g: dgl.ops.u_dot_v(g, g.ndata["x"], g.ndata["x"]),
    "edge_softmax": lambda g: edge_softmax(g, g.edata["w"]),
    "edge_softmax by source": lambda g: edge_softmax(graph=g, logits=g.edata["w"], norm_by="src"),
    "mean_nodes": lambda g: HELD["mean"](g, "x"),
    "sum_nodes": lambda g: HELD["weighted"](g, "x"),
    "max_nodes": lambda g: pool(g, "x"),
    "readout_edges": lambda g: dgl.readout_edges(g, feat="w", op="min"),
    "softmax_nodes": lambda g: dgl.softmax_nodes(g, "x"),
    "broadcast_edges": lambda g: dgl.broadcast_edges(g, dgl.sum_edges(g, "w")),
    "topk_nodes": lambda g: dgl.topk_nodes(g, "w", 2)[0],
    "segment_reduce": lambda g: dgl.ops.segment_reduce(g.batch_num_nodes(), g.ndata["x"], reducer="mean"),
    "segment_softmax": lambda g: dgl.ops.segment_softmax(g.batch_num_nodes(), g.ndata["x"]),
    "gather_mm": lambda g: dgl.ops.gather_mm(g.ndata["x"], torch.ones(2, 3, 4), idx_b=(g.nodes() % 2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_results_on_a_dglgraph_are_the_same_bit_for_bit(name: str) -> None:
    def run() -> list[Tensor]:
        graph = batch()
        leaves = [each.requires_grad_() for each in (graph.ndata["x"], graph.ndata["w"], graph.edata["w"])]
        result = CALLS[name](graph)
        return [result, *torch.autograd.grad(result.square().sum(), leaves, allow_unused=True, materialize_grads=True)]

    before = run()
    tensor_graph.install()
    torch.testing.assert_close(run(), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", CALLS)
def test_functions_that_others_hold_take_a_tensor_graph(name: str) -> None:
    # They were imported before the first TensorGraph was made, which makes them take it.
    assert not tensor_graph.is_installed()
    graph = batch()
    torch.testing.assert_close(CALLS[name](on_tensors(graph)), CALLS[name](graph))


def test_functions_are_traced_in_one_graph_and_once() -> None:
    counted = CompileCounter()

    @torch.compile(backend=counted, fullgraph=True, dynamic=False)
    def run(*tensors: Tensor) -> list[Tensor]:
        src, dst, x, w, node_weight, nodes, edges = tensors
        graph = TensorGraph(src, dst, x.shape[0], batch_num_nodes=nodes, batch_num_edges=edges)
        graph.ndata["x"], graph.edata["w"], graph.ndata["w"] = x, w, node_weight
        return [call(graph) for call in CALLS.values()]

    torch.compiler.reset()
    for shift in (0, 1):
        graph = batch()
        numbers = [each.roll(shift) for each in (graph.batch_num_nodes(), graph.batch_num_edges())]
        features = graph.ndata["x"], graph.edata["w"], graph.ndata["w"]
        ends = tuple(each.roll(shift) for each in graph.edges())
        other = dgl.graph(ends, num_nodes=graph.num_nodes())
        other.ndata["x"], other.edata["w"], other.ndata["w"] = features
        other.set_batch_num_nodes(numbers[0])
        other.set_batch_num_edges(numbers[1])
        expected = [call(other) for call in CALLS.values()]
        torch.testing.assert_close(run(*ends, *features, *numbers), expected)
    assert counted.frame_count == 1


def test_everything_is_as_before_after_restore() -> None:
    functions = [dgl.ops.gspmm, edge_softmax, dgl.readout_nodes, dgl.reverse]
    parts = [(f.__code__, f.__defaults__, f.__kwdefaults__, dict(f.__dict__)) for f in functions]
    names = set(dgl.ops.gspmm.__globals__)
    tensor_graph.install()
    tensor_graph.install()
    assert tensor_graph.is_installed()
    assert all(f.__code__ is not code for f, (code, *_) in zip(functions, parts, strict=True))
    tensor_graph.restore()
    assert not tensor_graph.is_installed()
    assert [(f.__code__, f.__defaults__, f.__kwdefaults__, dict(f.__dict__)) for f in functions] == parts
    assert set(dgl.ops.gspmm.__globals__) == names


def test_functions_look_the_same_to_those_who_ask() -> None:
    held = dgl.ops.gspmm, edge_softmax, dgl.readout_nodes
    before = [(inspect.signature(f), f.__doc__, inspect.getsource(f)) for f in held]
    tensor_graph.install()
    assert [(inspect.signature(f), f.__doc__, inspect.getsource(f)) for f in held] == before
    assert pickle.loads(pickle.dumps(dgl.mean_nodes)) is mean_nodes


def test_every_replacement_names_a_function_of_dgl() -> None:
    tensor_graph.install()
    patched = {patch.original.__name__ for patch in dispatch._PATCHES}
    assert patched == {each.name for each in dispatch.REPLACEMENTS}
    assert len(dispatch._PATCHES) == len(dispatch.REPLACEMENTS)


def test_modules_one_after_the_other_take_a_tensor_graph() -> None:
    graph = batch()
    torch.manual_seed(0)
    modules = Sequential(*(GATConv(3, 3, 1, allow_zero_in_degree=True) for _ in range(2)))
    expected = modules(graph, graph.ndata["x"])
    torch.testing.assert_close(modules(on_tensors(graph), graph.ndata["x"]), expected)


def test_what_is_tensors_alone_runs_where_dgl_does_not() -> None:
    tensor_graph.install()
    values = torch.ones(6, 3, device="meta")
    lengths = torch.tensor([2, 4], device="meta")
    assert dgl.ops.segment_reduce(seglen=lengths, value=values).shape == (2, 3)
    assert dgl.ops.gather_mm(values, torch.ones(2, 3, 5, device="meta"), idx_b=lengths.repeat(3)).shape == (6, 5)


NEW_PROCESS = """
import sys, warnings; warnings.simplefilter("ignore")
import torch
from dgl_tuplepack import TensorGraph, tensor_graph
graph = TensorGraph(torch.tensor([0, 1]), torch.tensor([2, 2]), 3)
assert "dgl" not in sys.modules and not tensor_graph.is_installed()
import dgl
from dgl import mean_nodes
graph.ndata["x"] = torch.ones(3, 1)
try:
    dgl.ops.copy_u_sum(graph, graph.ndata["x"])
except AttributeError as error:
    assert "tensor_graph.install()" in str(error), error

@torch.compile(backend="eager", fullgraph=True)
def run(src, dst, x):
    graph = TensorGraph(src, dst, 3)
    graph.ndata["x"] = x
    return mean_nodes(graph, "x")

assert not tensor_graph.is_installed()
mean = run(torch.tensor([0, 1]), torch.tensor([2, 2]), torch.ones(3, 1))
assert tensor_graph.is_installed()
print(mean.tolist(), dgl.ops.copy_u_sum(graph, graph.ndata["x"]).flatten().tolist())
"""


def test_a_graph_made_before_dgl_is_imported_and_one_in_compiled_code() -> None:
    done = run("-c", NEW_PROCESS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[[1.0]] [0.0, 0.0, 2.0]"


@pytest.mark.parametrize(
    ("call", "name"),
    [(dgl.add_self_loop, "add_edges"), (dgl.to_simple, "_graph"), (dgl.to_homogeneous, "_node_frames")],
)
def test_unsupported_functions_say_what_they_need(call: Callable[[Any], Any], name: str) -> None:
    with refused(UnsupportedError, repr(name), "TensorGraph"):
        call(on_tensors(batch()))


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda g: dgl.ops.gspmm(g, "mul", "sum", g.ndata["x"], None), ("'mul'", "right", "None")),
        (lambda g: edge_softmax(g, g.edata["w"], norm_by="graph"), ("'graph'", "'dst' or 'src'")),
        (lambda g: dgl.readout_nodes(g, "x", op="median"), ("'median'", "'sum' or 'mean' or 'max'")),
        (lambda g: dgl.broadcast_nodes(g, torch.ones(2, 1)), ("(2, 1)", "3 graphs")),
        (lambda g: dgl.topk_nodes(g, "flat", 1), ("'flat'", "two axes", "1")),
    ],
)
def test_bad_arguments_are_named(call: Callable[[Any], Any], parts: tuple[str, ...]) -> None:
    graph = on_tensors(batch())
    graph.ndata["flat"] = torch.ones(graph.num_nodes())
    with refused(SchemaError, *parts):
        call(graph)
