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
from torch._dynamo.testing import CompileCounter

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


@pytest.mark.parametrize("make", [PlainGIN, pna])
def test_norms_on_nodes_edges_and_graphs_see_real_rows_alone(make: Callable[[], nn.Module]) -> None:
    """Equal losses, gradients and statistics, with padding and without, over some batches."""
    plain, converted = seeded(make), tp.nn.convert(seeded(make), verbose=False)
    for seed in range(2):
        items = graphs(seed=seed)
        whole, batch = dgl.batch(items), padded(items)
        expected = plain(whole, whole.ndata["h"]).square().mean()
        with tp.nn.masked(batch):
            out = converted(batch.graph, batch.node_features["h"])
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
    for size, rows in ((15, {}), (12, {t: f"nodes:{t}" for t in whole.ntypes})):
        padded_batch = batch(12, size)
        converted = tp.nn.convert(copy.deepcopy(norms), rows=rows, verbose=False)
        with tp.nn.masked(padded_batch):
            for t in whole.ntypes:
                out = converted[t](padded_batch.node_features[t]["x"])
                torch.testing.assert_close(out[: whole.num_nodes(t)], expected[t])
    # With equally many slots, nothing tells which of the two is meant.
    unbound = tp.nn.convert(norms, verbose=False)
    with (
        tp.nn.masked(padded_batch),
        refused(SchemaError, "norm 'user' has 13 rows", "nodes:item and nodes:user", "rows={'user': 'nodes:item'}"),
    ):
        unbound["user"](padded_batch.node_features["user"]["x"])


def test_a_norm_without_a_mask_is_refused() -> None:
    norm = tp.nn.convert(nn.BatchNorm1d(WIDTH), verbose=False)
    with refused(SchemaError, "a norm over 5 rows has no mask", "tp.nn.masked(batch)"):
        norm(torch.ones(5, WIDTH))
    with refused(SchemaError, "a norm over 5 rows has no mask"):
        norm.eval()(torch.ones(5, WIDTH))
    batch = padded(graphs())
    parts = "a norm has 5 rows", "nodes (41)", "edges", "graphs (7)", "if the model made these rows", "second argument"
    with tp.nn.masked(batch), refused(SchemaError, *parts):
        norm(torch.ones(5, WIDTH))
    with tp.nn.masked(batch):
        assert not norm(torch.ones(5, WIDTH), torch.arange(5) < 3)[3:].any()
    # After the scope, and after an error in it, the mask is gone.
    with refused(SchemaError, "has no mask"):
        norm(torch.ones(41, WIDTH))


def test_messages_name_the_layer_as_the_last_conversion_knows_it() -> None:
    """Also in a copy, and for a norm in two places; a part that is converted first has a longer name in the whole."""
    part = tp.nn.convert(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)), verbose=False)
    with refused(SchemaError, "norm '1' over 5 rows has no mask", "torch.utils.checkpoint", "inside the checkpointed"):
        part(torch.ones(5, WIDTH))
    whole = tp.nn.convert(
        nn.ModuleDict({"encoder": part, "again": part[1]}), rows={"encoder.1": "edges"}, verbose=False
    )
    for model in (whole, copy.deepcopy(whole)):
        with refused(SchemaError, "norm 'encoder.1' over 5 rows has no mask"):
            model["again"](torch.ones(5, WIDTH))
        with tp.nn.masked(padded(graphs())), refused(SchemaError, "norm 'encoder.1' is bound to 'edges'", "41 rows"):
            model["encoder"](torch.ones(41, WIDTH))
    assert "name_in_model" not in whole.state_dict()


@pytest.mark.usefixtures("forget")
def test_the_names_of_norms_do_not_compile_them_again() -> None:
    batch, counted = padded(graphs()), CompileCounter()
    norms = tp.nn.convert(nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(3)).double(), verbose=False)
    with tp.nn.masked(batch):
        for norm in norms:
            norm.compile(backend=counted, fullgraph=True)
            norm(batch.node_features["h"])
    assert counted.frame_count == 1


def line_graphs() -> Any:
    """A padded batch of graphs and their line graphs: bonds are edges of one graph and nodes of the other."""
    gen, items = generator(0), []
    for n in range(3, 6):
        graph = ring_with_chords(gen, n, n)
        bonds = dgl.line_graph(graph)
        graph.edata["h"] = torch.randn(graph.num_edges(), WIDTH, generator=gen)
        items.append({"atoms": graph, "bonds": bonds})
    return next(iter(tp.packed_loader(items, graphs_per_batch=2, ties={"nodes:bonds": "edges:atoms"})))


@pytest.mark.parametrize("form", ["batch", "tensors", "pyg"])
def test_tied_components_have_one_mask(form: str) -> None:
    batch = line_graphs()
    h, real = batch.edge_features["atoms"]["h"], batch.edge_mask["atoms"]
    expected = nn.BatchNorm1d(WIDTH)(h[real])
    each = batch if form == "batch" else getattr(batch, form)
    for rows in ({}, {"0": "nodes:bonds"}, {"0": "edges:atoms"}):
        model = tp.nn.convert(nn.Sequential(nn.BatchNorm1d(WIDTH)), rows=rows, verbose=False)
        with tp.nn.masked(each):
            torch.testing.assert_close(model(h)[real], expected)
    # Edges of bonds are tied to nothing, and have a mask of their own.
    assert sum(row_mask.is_tied for row_mask in each.row_masks().values()) == 1


def test_a_tie_ends_if_the_user_replaces_one_of_both_masks() -> None:
    data = line_graphs().pyg
    h, norm = data.edge_stores[0].h, tp.nn.convert(nn.BatchNorm1d(WIDTH), verbose=False)
    # A copy on another device has other masks, which are equal.
    with tp.nn.masked(data.clone()):
        norm(h)
    data["bonds"].node_mask = data["bonds"].node_mask & (torch.arange(len(h)) % 2 == 0)
    with tp.nn.masked(data), refused(SchemaError, "nodes:bonds and edges:atoms have that many slots"):
        norm(h)


def test_scopes_are_nested() -> None:
    one, two = padded(graphs(), 40), padded(graphs(seed=1), 30)
    norm = tp.nn.convert(nn.BatchNorm1d(WIDTH), verbose=False).double()
    scope = tp.nn.masked(one)
    with scope, scope:
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
    # Each of its names will do, and also both.
    for rows in ({"1": "edges"}, {"0": "nodes"}, {"0": "graphs", "1": "graphs"}):
        tp.nn.convert(model, rows=rows, verbose=False)
        assert norm.rows == next(iter(rows.values()))
    with refused(SchemaError, "'1'", "'edges'", "another name to 'nodes'", "use two layers"):
        tp.nn.convert(model, rows={"0": "nodes", "1": "edges"}, verbose=False)


class OwnNorm(nn.BatchNorm1d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * 2


class ForeignNorm(nn.Module):
    """No subclass of torch's norms, such as e3nn's BatchNorm; with `instance`, its buffers are None, as there."""

    def __init__(self, *names: str, instance: bool = False) -> None:
        super().__init__()
        for name in names:
            self.register_buffer(name, None if instance else torch.zeros(2))


class SubclassOfMasked(tp.nn.MaskedBatchNorm1d):
    pass


STATISTICS = "running_mean", "running_var"
# Of ForeignNorm, the first has also a scale and a shift, which are parameters.
UNCHANGED = [
    OwnNorm(2), nn.LazyBatchNorm1d(), nn.BatchNorm2d(2), nn.BatchNorm3d(2, track_running_stats=False),
    nn.InstanceNorm1d(2, track_running_stats=True), "scripted", ForeignNorm(*STATISTICS), ForeignNorm("running_var"),
]  # fmt: skip
UNCHANGED[-2].weight = nn.Parameter(torch.ones(2))


@pytest.mark.parametrize("layer", UNCHANGED, ids=lambda layer: type(layer).__name__)
def test_what_cannot_be_converted_is_told(layer: Any) -> None:
    layer = torch.jit.script(nn.BatchNorm1d(3, track_running_stats=False)) if layer == "scripted" else layer
    model = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"norm": layer, "other": nn.LayerNorm(2)}))
    # Its own name, once: not those of modules around it.
    with pytest.warns(UserWarning, match=rf"leaves 1\.norm \({type(layer).__name__}\) unchanged"):
        tp.nn.convert(model, verbose=False)


def test_norms_that_mix_no_rows_are_not_told() -> None:
    """The suite makes errors of warnings."""
    frozen = ForeignNorm("weight", "bias", *STATISTICS)
    masked = SubclassOfMasked(2)
    norms = [nn.BatchNorm1d(2), nn.SyncBatchNorm(2), nn.InstanceNorm1d(2), nn.LayerNorm(2)]
    norms += [nn.GroupNorm(1, 2), ForeignNorm(*STATISTICS, instance=True), frozen, masked]
    for _ in range(2):
        tp.nn.convert(nn.ModuleList(norms), verbose=False)
    lazy = nn.LazyBatchNorm1d()
    lazy(torch.ones(3, 2))
    assert type(tp.nn.convert(lazy, verbose=False)) is tp.nn.MaskedBatchNorm1d


MODEL = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: tp.nn.convert("model"), ("torch.nn.Module", "str")),
        (lambda: tp.nn.convert(MODEL, rows={"0": "nodes"}), ("rows has the name", "'0'", "'1'")),
        (lambda: tp.nn.convert(MODEL, rows={"1": 5}), ("rows", "5")),
        (lambda: tp.nn.convert(MODEL, rows=["x"]), ("rows must be a dict", "['x']")),
        (lambda: tp.nn.masked(torch.ones(3)), ("PaddedBatch", "Tensor")),
        (lambda: tp.nn.MaskedBatchNorm1d(2)(None, torch.ones(2, dtype=torch.bool)), ("must be a tensor", "NoneType")),
    ],
)
def test_wrong_arguments(call: Callable[[], object], parts: tuple[str, ...]) -> None:
    with refused(SchemaError, *parts):
        call()
    # Nothing was changed by the refused call.
    assert type(MODEL[1]) is nn.BatchNorm1d
