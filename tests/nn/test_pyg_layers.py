"""Every layer of `torch_geometric.nn` is right on padded batches, after `convert` at the latest, or is warned of."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from tests.support.messages import refused
from tests.support.pyg import batch_of, stored
from tests.support.pyg_layers import CONVERTED, EXACT, LEFT_OUT, WARNED, Case, E, W
from tests.support.tensors import seeded

from torch_geometric import nn as gnn  # isort: skip
from torch_geometric.data import Data  # isort: skip

# Padding of more nodes than any graph has, of nodes with more edges than any other, and of a few nodes without edges.
LIMITS = [tp.Limits(nodes, edges, graphs=5) for nodes, edges in ((40, 60), (20, 150), (150, 21))]
IDS = ([0, 1, 2], [1], [])


def graph(seed: int, nodes: int, edges: int) -> Any:
    """A graph whose edges are sorted by destination, as recurrent aggregations need it."""
    gen = torch.Generator().manual_seed(seed)
    ends = torch.randint(0, nodes, (2, edges), generator=gen)
    rows = lambda number, width: torch.randn(number, width, generator=gen, dtype=torch.float64)  # noqa: E731
    return Data(
        x=rows(nodes, W), pos=rows(nodes, 3), color=torch.randint(0, 3, (nodes,), generator=gen),
        edge_index=ends[:, ends[1].argsort()], edge_attr=rows(edges, E),
        kind=torch.randint(0, 3, (edges,), generator=gen),
    )  # fmt: skip


GRAPHS = [graph(seed, *size) for seed, size in enumerate(((5, 8), (4, 6), (3, 7), (6, 9), (4, 5)))]
STORE = stored(GRAPHS, levels={"kind": "edge", "color": "node"})
BATCHES = [(STORE.padded(limits)[ids], [GRAPHS[i] for i in ids]) for limits in LIMITS for ids in IDS]


@pytest.fixture(autouse=True)
def _doubles() -> Iterator[None]:
    """Some layers make tensors of torch's default dtype."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def made(case: Case) -> nn.Module:
    return seeded(case[0], 1)


def outcome(model: nn.Module, case: Case, data: Any, rows: tuple[int, int, int]) -> list[Tensor]:
    """Outputs of real rows, gradients of a loss of them by the inputs and all parameters, and statistics."""
    data.x = data.x.clone().requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        out = case[1](model, data)
    slots = (data.x.shape[0], data.edge_index.shape[1], data.num_graphs)
    out = out[: rows[slots.index(out.shape[0])]]
    leaves = [data.x, *model.parameters()]
    gradients = [torch.zeros_like(each) for each in leaves]
    if out.requires_grad:
        weights = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).reshape(out.shape)
        found = torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True)
        gradients = [zero if each is None else each for zero, each in zip(gradients, found, strict=True)]
    gradients[0] = gradients[0][: rows[0]]
    return [out.detach(), *gradients, *model.buffers()]


def compare(case: Case, model: nn.Module) -> None:
    """Compare with a model that has seen no padding; AssertionError if they differ."""
    for padded, graphs in BATCHES:
        if not graphs:
            continue
        plain, converted = made(case), copy.deepcopy(model)
        whole = batch_of(graphs)
        rows = (whole.num_nodes, whole.num_edges, len(graphs))
        expected = outcome(plain, case, whole, rows)
        with tp.nn.masked(padded):
            found = outcome(converted, case, padded.pyg, rows)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", EXACT)
def test_layers_that_padding_does_not_reach(name: str) -> None:
    # The suite makes errors of warnings.
    compare(EXACT[name], tp.nn.convert(made(EXACT[name]), verbose=False))


@pytest.mark.parametrize("name", CONVERTED)
def test_layers_that_are_right_once_converted(name: str) -> None:
    """They are wrong before, so the comparison can fail."""
    case = CONVERTED[name]
    with pytest.raises(AssertionError):
        compare(case, made(case))
    # Converted twice, they are what they are after the first time.
    compare(case, tp.nn.convert(tp.nn.convert(made(case), verbose=False), verbose=False))


@pytest.mark.parametrize("name", WARNED)
def test_layers_without_remedy_are_named(name: str) -> None:
    case = WARNED[name]
    with pytest.warns(UserWarning, match=rf"leaves the model \({name}\)"):
        model = tp.nn.convert(made(case), verbose=False)
    with pytest.raises(AssertionError):
        compare(case, model)


@pytest.mark.parametrize("name", CONVERTED)
def test_batches_without_graphs_have_finite_gradients(name: str) -> None:
    case = CONVERTED[name]
    model = tp.nn.convert(made(case), verbose=False)
    for padded, graphs in BATCHES:
        if not graphs:
            with tp.nn.masked(padded):
                results = outcome(model, case, padded.pyg, (0, 0, 0))
            assert all(each.isfinite().all() for each in results)


def test_every_layer_of_pyg_is_here() -> None:
    listed = {name.partition(" ")[0] for cases in (EXACT, CONVERTED, WARNED) for name in cases}
    listed |= {name for names in LEFT_OUT.values() for name in names}
    for part in (gnn.conv, gnn.norm, gnn.aggr, gnn.pool, gnn.models):
        layers = {name for name in part.__all__ if inspect.isclass(getattr(part, name))}
        assert layers - listed == set()


def test_a_converted_layer_without_a_mask_is_refused() -> None:
    data = BATCHES[0][0].pyg
    norm, conv = (
        tp.nn.convert(made(CONVERTED[name]), verbose=False) for name in ("GraphNorm of nodes", "SAGEConv lstm")
    )
    with refused(SchemaError, "GraphNorm over 41 rows has no mask"):
        norm(data.x)
    with refused(SchemaError, "LSTMAggregation 'aggr_module' over 60 rows has no mask"):
        conv(data.x, data.edge_index)
    # With the graph of each node, a norm needs no mask.
    torch.testing.assert_close(norm(data.x, data.batch), made(CONVERTED["GraphNorm of nodes"])(data.x, data.batch))
    # Nothing is padding.
    with tp.nn.masked(None):
        torch.testing.assert_close(norm(data.x), made(CONVERTED["GraphNorm of nodes"])(data.x))


def test_a_layer_is_bound_to_a_component_by_its_name() -> None:
    batch = STORE.padded(tp.Limits(39, 40, graphs=5))[[0, 1]]
    case = CONVERTED["GraphNorm of nodes"]
    model = tp.nn.convert(nn.Sequential(made(case)), verbose=False)
    with tp.nn.masked(batch):
        with refused(SchemaError, "GraphNorm '0' has 40 rows", "nodes and edges", "rows={'0': 'nodes'}"):
            model(batch.pyg.x)
        out = tp.nn.convert(model, rows={"0": "nodes"}, verbose=False)(batch.pyg.x)
    real = batch.num_real_nodes
    torch.testing.assert_close(out[:real], made(case)(batch.pyg.x[:real]))


def test_classes_with_a_forward_pass_of_their_own_are_named() -> None:
    class Own(gnn.GraphNorm):
        def forward(self, x: Tensor, *_: Any) -> Tensor:
            return 2 * super().forward(x)  # type: ignore[no-any-return]

    class Named(gnn.GraphNorm):
        pass

    with pytest.warns(UserWarning, match=r"leaves 0 \(Own\) "):
        tp.nn.convert(nn.Sequential(Own(W), Named(W)), verbose=False)


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("name", ["GraphNorm of nodes", "LayerNorm of nodes", "MLP layer_norm", "PairNorm of edges"])
def test_converted_norms_compile_once(name: str) -> None:
    case, counted = CONVERTED[name], CompileCounter()
    # Of a layer alone, torch compiles the hook and the layer one by one.
    model = tp.nn.convert(nn.Sequential(made(case)), verbose=False)
    compiled: Any = torch.compile(copy.deepcopy(model), backend=counted, fullgraph=True, dynamic=False)
    for padded, _ in BATCHES[: len(IDS)]:
        with tp.nn.masked(padded.tensors):
            torch.testing.assert_close(case[1](compiled, padded.pyg), case[1](model, padded.pyg))
    assert counted.frame_count == 1


def test_attention_over_padding_costs_no_more_than_over_the_largest_graph() -> None:
    """The padding of a nearly empty batch is one graph of nearly all slots, whose attention would fill the memory."""
    case, sizes = EXACT["GPSConv"], []
    model = tp.nn.convert(made(case), verbose=False)
    model.attn.register_forward_pre_hook(lambda _, args: sizes.append(args[0].shape[1]))
    for padded, graphs in BATCHES:
        with tp.nn.masked(padded):
            case[1](model, padded.pyg)
        assert sizes.pop() == max((graph.num_nodes for graph in graphs), default=1)
