"""A compiled model on ordinary batches of DGL gives what the model itself gives, or a clear error."""

import copy
import io
import warnings

import dgl
import dgl.function as fn
import dgl.nn as layers
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import dgl_tuplepack as tp
from dgl_tuplepack.errors import CompileError
from tests.support.messages import refused

# Torch's tracer with its eager backend: our code is the same, and no C++ compiler takes its time.
EAGER = {"backend": "eager"}


def ring(n):
    return dgl.graph((torch.arange(n), (torch.arange(n) + 1) % n))


def tree(n):
    return dgl.graph((torch.arange(1, n), torch.arange(1, n) // 2), num_nodes=n)


def random(n):
    number = min(2 * n + n % 3, n * n)
    return dgl.rand_graph(n, number)


def graphs_of(make, sizes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for n in sizes:
        graph = make(n)
        graph.ndata["x"] = torch.randn(n, 8, generator=generator, dtype=torch.float64)
        graph.edata["w"] = torch.randn(graph.num_edges(), 8, generator=generator, dtype=torch.float64)
        graphs.append(graph)
    return graphs


GRAPHS = graphs_of(random, [3 + i % 9 for i in range(60)])


class Model(nn.Module):
    """A model whose forward pass is a function, with layers for it."""

    def __init__(self, function, **parts):
        super().__init__()
        self.lin, self.function = nn.Linear(8, 8), function
        self.book, self.square = nn.Parameter(torch.randn(6, 8)), nn.Parameter(torch.randn(8, 8))
        for name, part in parts.items():
            setattr(self, name, part)
        self.double()

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def convolved(model, graph):
    graph.ndata["h"] = model.lin(graph.ndata["x"])
    graph.update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "out"))
    return graph.ndata["out"]


def of_graphs(model, graph):
    convolved(model, graph)
    return dgl.mean_nodes(graph, "out")


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    return [each for inner in values for each in tensors_in(inner)]


def results_of(model, graph, call):
    """What a call returns, its gradients, and the features that the graph has afterwards."""
    model.zero_grad()
    out = call(model, graph)
    floats = [each for each in tensors_in(out) if each.requires_grad]
    if floats:
        sum((each * torch.linspace(1, 2, each.numel()).reshape(each.shape)).sum() for each in floats).backward()
    gradients = [each.grad for each in model.parameters() if each.grad is not None]
    features = [frame[name] for frame in (graph.ndata, graph.edata) for name in sorted(frame)]
    return tensors_in(out), gradients, features, [*model.buffers()]


def assert_alike(function, graphs=GRAPHS, batch_size=6, call=lambda model, graph: model(graph), padded=True, **parts):
    """Train and evaluate on batches of one shape, on the last, smaller one too; compare with the model itself."""
    torch.manual_seed(0)
    model = Model(function, **parts)
    plain, sampler = copy.deepcopy(model), tp.StaticBatchSampler(graphs, batch_size)
    compiled = tp.compile(model, sampler, **EAGER)
    ids = list(sampler)
    for training in (True, False):
        for batch in (*ids[:2], ids[-1]):
            found, expected = (
                results_of(each.train(training), dgl.batch([graphs[i] for i in batch]), call)
                for each in (compiled, plain)
            )
            for ours, theirs in zip(found, expected, strict=True):
                assert len(ours) == len(theirs)
                for one, other in zip(ours, theirs, strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert bool(compiled._static_calls._calls) == padded
    return compiled


@pytest.mark.parametrize("make", [ring, tree, random])
@pytest.mark.parametrize(
    "function",
    [
        of_graphs,
        lambda m, g: convolved(m, g),
        lambda m, g: m.lin(g.edata["w"]),
        lambda m, g: {"nodes": convolved(m, g), "others": [dgl.max_nodes(g, "x"), (g.edata["w"], 3, None, "text")]},
    ],
)
def test_rows_of_nodes_edges_and_graphs_are_told_apart(make, function):
    # A ring has as many nodes as edges, a tree of 8 nodes as many edges as a row has columns.
    assert_alike(function, graphs_of(make, [3 + i % 7 for i in range(40)]))


OUTPUTS = {
    "codebook": lambda m, g: (of_graphs(m, g) @ m.book.T, m.book, m.book.softmax(0)),
    "square": lambda m, g: (of_graphs(m, g) @ m.square, m.square * 2),
    "parameter": lambda m, g: (of_graphs(m, g), m.lin.weight),
    "gram": lambda m, g: (lambda h: h @ h.T)(convolved(m, g)),
    "flattened": lambda m, g: convolved(m, g).reshape(-1),
    "heads": lambda m, g: convolved(m, g).reshape(-1, 2, 4).transpose(0, 1),
    "graph": lambda m, g: (of_graphs(m, g), g)[1].ndata["h"],
    "numbers": lambda m, g: (of_graphs(m, g), g.batch_size * 0, None, "text", True),
    "size": lambda m, g: dgl.sum_nodes(g, "x") / g.batch_num_nodes().double()[:, None] + 0 * of_graphs(m, g),
    "counts": lambda m, g: (g.batch_num_nodes(), g.batch_num_edges(), of_graphs(m, g)),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_are_cut_to_real_rows_in_any_dimension(name):
    assert_alike(OUTPUTS[name])


def test_as_many_nodes_as_graphs():
    assert_alike(of_graphs, graphs_of(random, [6] * 12), batch_size=6)


def test_a_returned_graph_is_the_user_s_graph():
    model = tp.compile(Model(lambda m, g: (convolved(m, g), g)[1]), tp.StaticBatchSampler(GRAPHS, 6), **EAGER)
    graph = dgl.batch(GRAPHS[:6])
    assert model(graph) is graph
    assert graph.ndata["out"].shape == (graph.num_nodes(), 8)


def scoped(model, graph):
    with graph.local_scope():
        return of_graphs(model, graph)


def test_features_that_the_model_sets_and_removes_stay_inside():
    model = assert_alike(scoped)
    graph = dgl.batch(GRAPHS[:6])
    model(graph)
    assert [*graph.ndata] == ["x"]


LAYERS = {
    "GraphConv": lambda: layers.GraphConv(8, 8),
    "GATConv": lambda: layers.GATConv(8, 4, 2),
    "GINConv": lambda: layers.GINConv(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))),
    "Set2Set": lambda: layers.Set2Set(8, 2, 1),
    "GlobalAttentionPooling": lambda: layers.GlobalAttentionPooling(nn.Linear(8, 1)),
    "SortPooling": lambda: layers.SortPooling(3),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    graphs = [dgl.add_self_loop(graph) for graph in GRAPHS]
    assert_alike(lambda m, g: m.layer(g, m.lin(g.ndata["x"])), graphs, layer=LAYERS[name]())


def test_batch_norm_over_nodes_edges_and_graphs():
    def normed(model, graph):
        nodes, edges = model.one(convolved(model, graph)), model.two(model.lin(graph.edata["w"]))
        graph.ndata["n"] = nodes
        return model.three(dgl.mean_nodes(graph, "n")), edges

    compiled = assert_alike(
        normed, one=nn.BatchNorm1d(8), two=nn.BatchNorm1d(8, momentum=None), three=nn.BatchNorm1d(8)
    )
    # Outside of the call, the model has the layers that the user gave it.
    assert type(compiled.one) is nn.BatchNorm1d
    assert not hasattr(compiled.one, "rows")


def test_nodes_without_edges_are_refused_as_by_the_model_itself():
    model = tp.compile(Model(lambda m, g: m.conv(g, g.ndata["x"]), conv=layers.GraphConv(8, 8)), [sampler_of(GRAPHS)])
    with pytest.raises(dgl.DGLError, match="0-in-degree"):
        model(dgl.batch(graphs_of(tree, [4] * 6)))


def sampler_of(graphs, batch_size=6):
    return tp.StaticBatchSampler(graphs, batch_size)


def test_a_model_that_adds_the_edges_of_such_nodes_runs_plain_with_a_warning():
    graphs = graphs_of(tree, [4, 5, 6, 4])
    assert not graphs[0].in_degrees().all()
    model = Model(lambda m, g: m.conv(dgl.add_self_loop(g), g.ndata["x"]), conv=layers.GraphConv(8, 8))
    compiled = tp.compile(model, tp.StaticBatchSampler(graphs, 2), **EAGER)
    with pytest.warns(UserWarning, match="allow_zero_in_degree"):
        found = compiled(dgl.batch(graphs[:2]))
    torch.testing.assert_close(found, model(dgl.batch(graphs[:2])), rtol=0, atol=0)


def test_a_batch_that_does_not_fit_runs_plain_with_one_warning():
    model = Model(of_graphs)
    compiled = tp.compile(model, sampler_of(GRAPHS), **EAGER)
    graph = dgl.batch(GRAPHS[:20])
    with pytest.warns(UserWarning, match="does not fit") as record:
        found = [compiled(graph), compiled(graph)]
    assert [each.filename for each in record if "does not fit" in str(each.message)] == [__file__]
    torch.testing.assert_close(found, [model(graph)] * 2, rtol=0, atol=0)


def test_two_loaders_of_different_shapes():
    loaders = [tp.packed_loader(GRAPHS, batch_size=size, seed=size) for size in (6, 12)]
    model = Model(of_graphs)
    compiled = tp.compile(model, loaders, **EAGER)
    for loader in loaders:
        for graph in loader:
            torch.testing.assert_close(compiled(graph), model(graph))
    assert len(compiled._static_calls._calls) == 2


def test_an_evaluation_loader_need_not_be_named():
    items = [(graph, torch.tensor(i)) for i, graph in enumerate(GRAPHS)]
    loaders = tp.packed_loader(items, batch_size=6, splits={"train": range(48), "valid": range(48, 60)})
    model = Model(of_graphs)
    compiled = tp.compile(model, loaders["train"], **EAGER)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        for graph, _ in loaders["valid"]:
            torch.testing.assert_close(compiled.eval()(graph), model.eval()(graph))
    assert compiled._static_calls._calls


def test_edits_of_features_are_seen():
    compiled = tp.compile(Model(of_graphs), sampler_of(GRAPHS), **EAGER)
    graph = dgl.batch(GRAPHS[:6])
    first = compiled(graph)
    graph.ndata["x"] = graph.ndata["x"] * 2
    graph.edata["w"][0] += 1
    assert not torch.equal(compiled(graph), first)
    torch.testing.assert_close(compiled(graph), compiled._static_calls._model(graph))


def test_inputs_get_gradients():
    graph = dgl.batch(GRAPHS[:6])
    graph.ndata["x"].requires_grad_()
    model = Model(of_graphs)
    found = [torch.autograd.grad(each(graph).sin().sum(), graph.ndata["x"])[0]
             for each in (tp.compile(model, sampler_of(GRAPHS), **EAGER), model)]  # fmt: skip
    torch.testing.assert_close(*found)


# Tensors beside the graph.


@pytest.mark.parametrize("check", [True, False])
def test_tensors_that_are_no_features_get_gradients(check):
    model = Model(lambda m, g, h: of_graphs(m, g) + dgl.sum_nodes(with_feature(g, m.lin(h)), "own"))
    sampler = sampler_of(GRAPHS)
    compiled = tp.compile(model, sampler, rows={"argument 1": "nodes"}, check=check, **EAGER)
    for ids in sampler:
        graph = dgl.batch([GRAPHS[i] for i in ids])
        grads = []
        for each in (compiled, model):
            h = graph.ndata["x"].clone().requires_grad_()
            grads += torch.autograd.grad(each(graph, 2 * h).sin().sum(), h)
        torch.testing.assert_close(*grads)


def with_feature(graph, h):
    graph = graph.local_var()
    graph.ndata["own"] = h
    return graph


def test_a_feature_of_the_graph_as_an_argument():
    assert_alike(lambda m, g, x: m.lin(x), call=lambda model, graph: model(graph, graph.ndata["x"]))


def test_rows_of_other_tensors_are_known_after_batches_of_different_sizes():
    model = Model(lambda m, g, other: m.lin(other))
    compiled = tp.compile(model, sampler_of(GRAPHS), **EAGER)
    for numbers in ((0, 6), (10, 16), (20, 25)):
        graph = dgl.batch(GRAPHS[slice(*numbers)])
        other = graph.ndata["x"] * 2
        torch.testing.assert_close(compiled(graph, other), model(graph, other))
    assert compiled._static_calls._calls


@pytest.mark.parametrize(("rows", "make"), [
    ("graphs", lambda graph: torch.ones(graph.batch_size, 8, dtype=torch.float64)),
    (None, lambda graph: torch.ones(6, 8, dtype=torch.float64)),
])  # fmt: skip
def test_rows_can_be_declared(rows, make):
    def function(model, graph, other):
        return of_graphs(model, graph) + (other if rows else other.mean(0))

    model, graph = Model(function), dgl.batch(GRAPHS[:6])
    compiled = tp.compile(model, sampler_of(GRAPHS), rows={"argument 1": rows}, **EAGER)
    torch.testing.assert_close(compiled(graph, make(graph)), model(graph, make(graph)))
    assert compiled._static_calls._calls


@pytest.mark.parametrize(("rows", "parts"), [
    ({"argument 2": "nodes"}, ("'argument 2'", "does not get", "'argument 1'")),
    ({"argument 1": "nodes:atom"}, ("'argument 1'", "'nodes', 'edges'")),
])  # fmt: skip
def test_rows_of_wrong_names_are_refused(rows, parts):
    compiled = tp.compile(Model(lambda m, graph, other: of_graphs(m, graph) + other), sampler_of(GRAPHS), rows=rows)
    graph = dgl.batch(GRAPHS[:6])
    with refused(CompileError, *parts):
        compiled(graph, torch.ones(6, 8, dtype=torch.float64))


def test_several_graphs_with_ties():
    items = []
    for graph in graphs_of(random, [3 + i % 6 for i in range(40)]):
        graph.edata["w"] = graph.edata["w"][:, :8]
        line = dgl.line_graph(graph)
        items.append(({"atoms": graph, "bonds": line}, torch.tensor(1.0)))
    loader = tp.packed_loader(items, batch_size=5)

    def function(model, graphs):
        atoms, bonds = graphs["atoms"], graphs["bonds"]
        bonds.ndata["b"] = model.norm(model.lin(atoms.edata["w"]))
        bonds.update_all(fn.copy_u("b", "m"), fn.sum("m", "c"))
        atoms.edata["c"] = bonds.ndata["c"]
        atoms.update_all(fn.copy_e("c", "m"), fn.sum("m", "d"))
        return dgl.mean_nodes(atoms, "d"), bonds.ndata["c"]

    model = Model(function, norm=nn.BatchNorm1d(8))
    plain = copy.deepcopy(model)
    compiled = tp.compile(model, loader, **EAGER)
    for graphs, _ in loader:
        torch.testing.assert_close(compiled(graphs), plain(graphs))
    assert len(compiled._static_calls._calls) == 1


def test_heterographs():
    graphs = []
    for i in range(40):
        a, b = 2 + i % 4, i % 3
        ends = {("a", "to", "a"): (torch.arange(a), torch.arange(a).flip(0)),
                ("a", "of", "b"): (torch.arange(min(a, b)), torch.arange(min(a, b)))}  # fmt: skip
        graph = dgl.heterograph(ends, num_nodes_dict={"a": a, "b": b})
        graph.nodes["a"].data["x"] = torch.randn(a, 8, dtype=torch.float64)
        graph.nodes["b"].data["x"] = torch.randn(b, 8, dtype=torch.float64)
        graphs.append(graph)

    def function(model, graph):
        graph.nodes["a"].data["h"] = model.norm(model.lin(graph.nodes["a"].data["x"]))
        graph.multi_update_all(
            {"to": (fn.copy_u("h", "m"), fn.sum("m", "s")), "of": (fn.copy_u("h", "m"), fn.mean("m", "s"))}, "sum"
        )
        return dgl.sum_nodes(graph, "s", ntype="a") + dgl.sum_nodes(graph, "s", ntype="b")

    model = Model(function, norm=nn.BatchNorm1d(8))
    plain, loader = copy.deepcopy(model), tp.packed_loader(graphs, batch_size=5)
    compiled = tp.compile(model, loader, **EAGER)
    for graph in loader:
        torch.testing.assert_close(compiled(graph), plain(graph))
    assert compiled._static_calls._calls


# The model as an object.


def test_both_models_share_everything_and_the_user_s_stays_plain():
    model = Model(of_graphs, norm=nn.BatchNorm1d(8))
    optimiser = torch.optim.Adam(model.parameters())
    compiled = tp.compile(model, sampler_of(GRAPHS), **EAGER)
    assert isinstance(compiled, Model)
    assert [*compiled.state_dict()] == [*model.state_dict()]
    assert all(a is b for a, b in zip(compiled.parameters(), model.parameters(), strict=True))
    compiled.eval()
    assert not model.norm.training
    compiled.note = 3
    assert model.note == 3
    before = copy.deepcopy(model.state_dict())
    compiled(dgl.batch(GRAPHS[:6])).sum().backward()
    optimiser.step()
    assert not torch.equal(model.lin.weight, before["lin.weight"])
    compiled.load_state_dict(before)
    assert torch.equal(model.lin.weight, before["lin.weight"])
    assert type(model).forward is Model.forward


def test_layers_can_be_frozen_in_the_middle_of_a_training():
    model = Model(of_graphs)
    compiled, graph = tp.compile(model, sampler_of(GRAPHS), **EAGER), dgl.batch(GRAPHS[:6])
    compiled(graph).sum().backward()
    # The gradient of the last step is still there.
    model.lin.weight.requires_grad_(False)
    torch.testing.assert_close(compiled(graph), model(graph))
    with torch.no_grad():
        torch.testing.assert_close(compiled.eval()(graph), model(graph))


def module_of(model, graph):
    return dgl.mean_nodes(graph, "x") @ model.square


def test_copies_and_pickles_are_compiled_anew():
    compiled = tp.compile(Model(module_of), sampler_of(GRAPHS), **EAGER)
    graph = dgl.batch(GRAPHS[:6])
    file = io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    for other in (copy.deepcopy(compiled), torch.load(file, weights_only=False)):
        torch.testing.assert_close(other(graph), compiled(graph))
        assert other.square is not compiled.square
        assert other._static_calls is not compiled._static_calls
        assert other._static_calls._calls


def test_averaged_models():
    model = Model(of_graphs)
    compiled = tp.compile(model, sampler_of(GRAPHS), **EAGER)
    average = torch.optim.swa_utils.AveragedModel(compiled)
    graph = dgl.batch(GRAPHS[:6])
    torch.testing.assert_close(average(graph), model(graph))
    average.update_parameters(compiled)
    assert torch.equal(average.module.lin.weight, model.lin.weight)


def test_hooks_see_ordinary_batches():
    seen = []
    model = Model(of_graphs)
    model.register_forward_hook(lambda module, args, out: seen.append((type(args[0]), out.shape)))
    tp.compile(model, sampler_of(GRAPHS), **EAGER)(dgl.batch(GRAPHS[:6]))
    assert seen == [(dgl.DGLGraph, (6, 8))]


def test_autocast_and_accumulation():
    model = Model(lambda m, g: m.lin(dgl.mean_nodes(g, "x"))).float()
    plain = copy.deepcopy(model)
    compiled = tp.compile(model, sampler_of(GRAPHS), **EAGER)
    for each in (compiled, plain):
        for numbers in ((0, 6), (6, 12)):
            graph = dgl.batch(GRAPHS[slice(*numbers)])
            graph.ndata["x"], graph.edata["w"] = graph.ndata["x"].float(), graph.edata["w"].float()
            with torch.autocast("cpu", torch.bfloat16):
                out = each(graph)
            out.float().square().mean().backward()
        nn.utils.clip_grad_norm_(each.parameters(), 1.0)
    torch.testing.assert_close(model.lin.weight.grad, plain.lin.weight.grad, rtol=0.05, atol=0.01)
    assert len(compiled._static_calls._calls) == 1


@pytest.mark.parametrize(("arguments", "message"), [
    ((nn.Linear(2, 2), 3), "needs a loader"),
    ((nn.Linear(2, 2), tp.Limits(5, 5)), "number of graphs"),
    ((len, tp.Limits(5, 5, 5)), "Module"),
])  # fmt: skip
def test_wrong_arguments(arguments, message):
    with pytest.raises(CompileError, match=message):
        tp.compile(*arguments)


def test_more_wrong_arguments():
    shape = tp.Limits(5, 5, 5)
    compiled = tp.compile(nn.Linear(2, 2), shape)
    wrong = {"rows": [{"x": "lines"}, 3], "shapes": [3], "coordinates": ["loc", [1]]}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(CompileError, match=name):
                tp.compile(nn.Linear(2, 2), shape, **{name: value})
    with pytest.raises(CompileError, match="already"):
        tp.compile(compiled, shape)
    with pytest.raises(CompileError, match="padded batches"):
        tp.compile(nn.Linear(2, 2), tp.packed_loader(GRAPHS, graphs_per_batch=6))
    with pytest.raises(CompileError, match="rows"):
        tp.compile(nn.Linear(2, 2), rows={"x": "nodes"})


@pytest.mark.filterwarnings("ignore:batches of .* need a shape")
@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 8), min_size=4, max_size=24),
    batch_size=st.integers(1, 6),
    kind=st.sampled_from(["ring", "random"]),
    seed=st.integers(0, 99),
)
def test_any_graphs(sizes, batch_size, kind, seed):
    graphs = graphs_of(ring if kind == "ring" else random, sizes, seed)
    sampler = tp.StaticBatchSampler(graphs, min(batch_size, len(graphs)), seed=seed)

    def function(model, graph):
        return dgl.mean_nodes(graph, "x") @ model.square, model.lin(convolved(model, graph)), graph.edata["w"] * 2

    model = Model(function)
    compiled = tp.compile(model, sampler, **EAGER)
    for ids in sampler:
        graph = dgl.batch([graphs[i] for i in ids])
        torch.testing.assert_close(compiled(graph), model(graph), rtol=1e-9, atol=1e-11)
