"""Norms of any model on padded batches: after `convert`, inside `masked`, results are those without padding."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import dgl
import dgl.nn
import pytest
import torch
from torch import Tensor, nn

import dgl_tuplepack as tp
from dgl_tuplepack.errors import SchemaError
from tests.support.graphs import generator, ring_with_chords
from tests.support.messages import refused
from tests.support.tensors import seeded

WIDTH = 4


def graphs(number: int = 3, seed: int = 0) -> list[Any]:
    """Rings with chords: every node has an incoming edge."""
    gen = generator(seed)
    made = [ring_with_chords(gen, 3 + i, 2 + i) for i in range(number)]
    for graph in made:
        graph.ndata["h"] = torch.randn(graph.num_nodes(), WIDTH, generator=gen, dtype=torch.float64)
    return made


def padded(items: list[Any], nodes: int = 40, edges: int = 50, cap: int = 6) -> Any:
    collate = tp.PaddedCollate(tp.Limits(nodes, edges, cap), items[0], cover_padding=True, feature_fill=1e3)
    return collate(items)


class PlainGIN(nn.Module):
    """The usual network: norms inside of an MLP, after a convolution, on edges and after the readout."""

    def __init__(self) -> None:
        super().__init__()
        mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.conv = dgl.nn.GINConv(mlp, "sum")
        self.edges = dgl.nn.EdgeConv(WIDTH, WIDTH, batch_norm=True)
        self.after = nn.BatchNorm1d(WIDTH)
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 1))

    def forward(self, graph: Any, h: Tensor) -> Tensor:
        h = self.edges(graph, self.after(self.conv(graph, h)).relu())
        with graph.local_scope():
            graph.ndata["h"] = h
            return self.head(dgl.mean_nodes(graph, "h"))


def pna() -> nn.Module:
    return dgl.nn.PNAConv(WIDTH, WIDTH, ["mean", "max", "sum"], ["identity", "amplification"], 2.5)


def assert_same_training(make: Callable[[], nn.Module], run: Callable[[nn.Module, Any, Any], Tensor]) -> None:
    """Equal losses, gradients and statistics, with padding and without, over some batches."""
    plain, converted = seeded(make), tp.nn.convert(seeded(make), verbose=False)
    for seed in range(2):
        items = graphs(seed=seed)
        whole, batch = dgl.batch(items), padded(items)
        expected = run(plain, whole, whole.ndata["h"]).square().mean()
        with tp.nn.masked(batch):
            out = run(converted, batch.graph, batch.node_features["h"])
        mask = batch.graph_mask if len(out) == len(batch.graph_mask) else batch.node_mask
        found = tp.nn.masked_mean(out.square(), mask)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
        for model, loss in ((plain, expected), (converted, found)):
            model.zero_grad()
            loss.backward()
        for (name, one), other in zip(converted.named_parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-9, atol=1e-9, msg=name)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(converted.state_dict()[name], value, rtol=1e-10, atol=1e-10, msg=name)


def test_norms_on_nodes_edges_and_graphs_see_real_rows_alone() -> None:
    assert_same_training(PlainGIN, lambda model, graph, h: model(graph, h))


def test_norms_inside_of_dgls_layers() -> None:
    assert_same_training(pna, lambda model, graph, h: model(graph, h))
    # Each of them is wrong without conversion, so the comparison can fail.
    model, items = seeded(pna), graphs()
    batch, whole = padded(items), dgl.batch(items)
    out = model(batch.graph, batch.node_features["h"])[: whole.num_nodes()]
    assert not torch.allclose(out, seeded(pna)(whole, whole.ndata["h"]), atol=1e-3)


def test_two_node_types() -> None:
    gen = generator(0)

    def item(users: int, items: int) -> Any:
        edges = (torch.arange(users), torch.arange(users) % items)
        graph = dgl.heterograph({("user", "buys", "item"): edges}, {"user": users, "item": items})
        graph.nodes["user"].data["x"] = torch.randn(users, 3, generator=gen)
        graph.nodes["item"].data["x"] = torch.randn(items, 3, generator=gen)
        return graph

    items = [item(3, 2), item(4, 5)]
    whole = dgl.batch(items)

    def batch(users: int, others: int) -> Any:
        limits = tp.Limits({"user": users, "item": others}, {("user", "buys", "item"): 20}, 4)
        return tp.PaddedCollate(limits, items[0], feature_fill=50.0)(items)

    norms = nn.ModuleDict({t: nn.BatchNorm1d(3) for t in whole.ntypes})
    expected = {t: copy.deepcopy(norms)[t](whole.nodes[t].data["x"]) for t in whole.ntypes}
    converted = tp.nn.convert(copy.deepcopy(norms), verbose=False)
    with tp.nn.masked(batch(12, 15)) as _:
        for t in whole.ntypes:
            out = converted[t](batch(12, 15).node_features[t]["x"])
            torch.testing.assert_close(out[: whole.num_nodes(t)], expected[t])
    # With equally many slots, nothing tells which of the two is meant.
    with tp.nn.masked(batch(12, 12)), refused(SchemaError, "a norm has 13 rows", "nodes:user", "nodes:item", "rows="):
        converted["user"](batch(12, 12).node_features["user"]["x"])
    bound = tp.nn.convert(copy.deepcopy(norms), rows={t: f"nodes:{t}" for t in whole.ntypes}, verbose=False)
    with tp.nn.masked(batch(12, 12)):
        for t in whole.ntypes:
            out = bound[t](batch(12, 12).node_features[t]["x"])
            torch.testing.assert_close(out[: whole.num_nodes(t)], expected[t])


def test_a_norm_without_a_mask_is_refused() -> None:
    norm = tp.nn.convert(nn.BatchNorm1d(WIDTH), verbose=False)
    with refused(SchemaError, "a norm over 5 rows has no mask", "tp.nn.masked(batch)"):
        norm(torch.ones(5, WIDTH))
    with refused(SchemaError, "a norm over 5 rows has no mask"):
        norm.eval()(torch.ones(5, WIDTH))
    batch = padded(graphs())
    with tp.nn.masked(batch), refused(SchemaError, "a norm has 5 rows", "nodes (41)", "edges", "graphs (7)"):
        norm(torch.ones(5, WIDTH))
    # After the scope, and after an error in it, the mask is gone.
    with refused(SchemaError, "has no mask"):
        norm(torch.ones(41, WIDTH))


def test_nothing_is_padding_with_none() -> None:
    x = torch.randn(6, WIDTH, generator=generator(0))
    norm = tp.nn.convert(nn.BatchNorm1d(WIDTH), verbose=False)
    with tp.nn.masked(padded(graphs())), tp.nn.masked(None):
        torch.testing.assert_close(norm(x), nn.BatchNorm1d(WIDTH)(x))


def test_scopes_are_nested() -> None:
    one, two = padded(graphs(), 40), padded(graphs(seed=1), 30)
    norm = tp.nn.convert(nn.BatchNorm1d(WIDTH), verbose=False).double()
    with tp.nn.masked(one):
        with tp.nn.masked(two):
            norm(two.node_features["h"])
        norm(one.node_features["h"])
        with refused(SchemaError, "that many slots"):
            norm(two.node_features["h"])


def test_conversion_keeps_parameters_hooks_and_state() -> None:
    model = nn.Sequential(nn.Linear(2, WIDTH), nn.BatchNorm1d(WIDTH), nn.Sequential(nn.SyncBatchNorm(WIDTH)))
    parameters, seen = list(model.parameters()), []
    model[1].register_forward_hook(lambda *_: seen.append(True))
    state = copy.deepcopy(model.state_dict())
    same = tp.nn.convert(model, verbose=False)
    assert same is model
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    assert model.state_dict().keys() == state.keys()
    nn.Sequential(nn.Linear(2, WIDTH), nn.BatchNorm1d(WIDTH), nn.Sequential(nn.BatchNorm1d(WIDTH))).load_state_dict(
        model.state_dict()
    )
    with tp.nn.masked(None):
        model(torch.randn(5, 2))
    assert seen == [True]
    assert model[2][0].across_ranks
    assert not model[1].across_ranks


def test_a_norm_in_two_places_is_converted_once() -> None:
    norm = nn.BatchNorm1d(WIDTH)
    model = tp.nn.convert(nn.ModuleList([norm, norm]), verbose=False)
    assert model[0] is model[1]


def test_what_is_converted_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    tp.nn.convert(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    assert capsys.readouterr().err == "convert: 1 layer reads masks now: 1\n"
    tp.nn.convert(nn.Linear(2, 2))
    assert capsys.readouterr().err == "convert: no layer was changed.\n"


class OwnNorm(nn.BatchNorm1d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 2


TRACKING = nn.InstanceNorm1d(2, track_running_stats=True)


@pytest.mark.parametrize("layer", [OwnNorm(2), nn.LazyBatchNorm1d(), nn.BatchNorm2d(2), TRACKING, "scripted"])
def test_what_cannot_be_converted_is_told(layer: Any) -> None:
    layer = torch.jit.script(nn.BatchNorm1d(3)) if layer == "scripted" else layer
    with pytest.warns(UserWarning, match=rf"leaves 1 \({type(layer).__name__}\)"):
        tp.nn.convert(nn.Sequential(nn.Linear(2, 2), layer), verbose=False)


def test_one_scope_entered_twice() -> None:
    scope = tp.nn.masked(padded(graphs()))
    with scope, scope:
        pass
    with refused(SchemaError, "has no mask"):
        tp.nn.convert(nn.BatchNorm1d(WIDTH), verbose=False)(torch.ones(41, WIDTH))


def test_a_norm_bound_to_other_rows() -> None:
    bound = tp.nn.convert(nn.Sequential(nn.BatchNorm1d(2)), rows={"0": "edges"}, verbose=False)
    with tp.nn.masked(padded(graphs())), refused(SchemaError, "'edges'", "41 rows", "nodes (41)"):
        bound[0](torch.ones(41, 2))


MODEL = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: tp.nn.convert("model"), ("torch.nn.Module", "str")),
        (lambda: tp.nn.convert(MODEL, rows={"0": "nodes"}), ("rows has the name", "'0'", "'1'")),
        (lambda: tp.nn.convert(MODEL, rows={"1": 5}), ("rows", "5")),
        (lambda: tp.nn.convert(MODEL, rows=["x"]), ("rows must be a dict", "['x']")),
        (lambda: tp.nn.convert(MODEL, verbose="x"), ("verbose must be True or False", "'x'")),
        (lambda: tp.nn.masked(tp.PaddedBatch), ("PaddedBatch", "type")),
        (lambda: tp.nn.masked(torch.ones(3)), ("PaddedBatch", "Tensor")),
        (lambda: tp.nn.MaskedBatchNorm1d(2, rows=5), ("rows must be the name", "5")),
        (lambda: tp.nn.MaskedBatchNorm1d(2, bias=5), ("bias must be True or False", "5")),
        (lambda: tp.nn.MaskedBatchNorm1d(2)(None, torch.ones(2, dtype=torch.bool)), ("must be a tensor", "NoneType")),
    ],
)
def test_wrong_arguments(call: Callable[[], object], parts: tuple[str, ...]) -> None:
    with refused(SchemaError, *parts):
        call()
    # Nothing was changed by the refused call.
    assert type(MODEL[1]) is nn.BatchNorm1d
