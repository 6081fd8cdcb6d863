"""What a compiled model on ordinary batches notices: results that padding changes, and what cannot be compared."""

import copy
import warnings

import dgl
import dgl.function as fn
import dgl.nn as layers
import pytest
import torch
from torch import nn

import dgl_tuplepack as tp
from dgl_tuplepack.errors import CompileError
from tests.loading.test_static_model import (
    EAGER,
    GRAPHS,
    Model,
    convolved,
    graphs_of,
    of_graphs,
    random,
    ring,
    sampler_of,
)

MIXING = {
    "sum / num_graphs": lambda m, g: convolved(m, g).sum() / g.batch_size,
    "mean of all rows": lambda m, g: convolved(m, g).mean(),
    "softmax of all rows": lambda m, g: convolved(m, g).softmax(0),
    "penalty": lambda m, g: (of_graphs(m, g), convolved(m, g).square().sum()),
    "own norm": lambda m, g: (lambda h: (h - h.mean(0)) / h.std(0))(convolved(m, g)),
}


@pytest.mark.parametrize("name", MIXING)
def test_padding_that_changes_a_result_is_an_error(name):
    model = tp.compile(Model(MIXING[name]), sampler_of(GRAPHS), **EAGER)
    graph = dgl.batch(GRAPHS[:6])
    with pytest.raises(CompileError, match="with padding"):
        model(graph)
    # Nothing was set or changed.
    assert [*graph.ndata] == ["x"]


def test_with_warn_the_model_stays_plain():
    model = Model(MIXING["penalty"])
    compiled = tp.compile(model, sampler_of(GRAPHS), check="warn", **EAGER)
    graph = dgl.batch(GRAPHS[:6])
    with pytest.warns(UserWarning, match="runs without padding"):
        found = compiled(graph)
    torch.testing.assert_close(found, model(graph), rtol=0, atol=0)


@pytest.mark.parametrize("edit", [lambda g: dgl.add_self_loop(g), lambda g: g.add_self_loop()])
def test_changes_of_the_structure_are_an_error_that_names_the_edit(edit):
    model = tp.compile(Model(lambda m, g: convolved(m, edit(g))), sampler_of(GRAPHS), **EAGER)
    with pytest.raises(CompileError, match="add_self_loop"):
        model(dgl.batch(GRAPHS[:6]))


class Root(nn.Module):
    """The square roots of lengths, whose derivative at 0 is not finite."""

    def forward(self, x):
        return x.pow(2).sum(-1, keepdim=True).sqrt()


@pytest.mark.parametrize("is_layer", [False, True])
def test_gradients_that_padding_breaks_are_traced_to_a_layer(is_layer):
    def lengths(model, graph):
        graph.update_all(fn.copy_u("x", "m"), fn.sum("m", "h"))
        h = model.encode(graph.ndata["h"])
        graph.ndata["h"] = model.root(h) if is_layer else Root()(h)
        return dgl.sum_nodes(graph, "h")

    # There is room for 9 nodes of padding, and for 2 edges that end at them.
    graph = dgl.batch(graphs_of(ring, [5] * 6))
    model = Model(lengths, encode=nn.Linear(8, 8, bias=False), root=Root())
    compiled = tp.compile(model, tp.Limits(nodes=39, edges=32, graphs=7), **EAGER)
    expected = "layer root .Root. makes other gradients" if is_layer else "result of the layer encode .Linear."
    with pytest.raises(
        CompileError,
        match=f"with padding: the gradient.*NaN or infinity with padding.*backward pass.*{expected}",
    ):
        compiled(graph)


@pytest.mark.parametrize("call", [4, 16])
def test_a_penalty_that_is_zero_at_first_is_noticed_later(call):
    def with_penalty(model, graph):
        return of_graphs(model, graph) + model.weight * model.lin(graph.ndata["x"]).square().mean()

    model = Model(with_penalty)
    model.register_buffer("weight", torch.zeros((), dtype=torch.float64))
    compiled = tp.compile(model, sampler_of(GRAPHS), **EAGER)
    for _ in range(1, call):
        compiled(dgl.batch(GRAPHS[:6]))
    model.weight.fill_(1.0)
    # The training goes on, with right results.
    with pytest.warns(UserWarning, match=r"gives other results with padding.*runs without padding, uncompiled"):
        found = compiled(dgl.batch(GRAPHS[:6]))
    torch.testing.assert_close(found, model(dgl.batch(GRAPHS[:6])))


def test_numbers_of_python_that_padding_changes_are_an_error():
    compiled = tp.compile(Model(lambda m, g: (of_graphs(m, g), g.num_nodes())), sampler_of(GRAPHS), **EAGER)
    with pytest.raises(
        CompileError, match=r"returns or sets the numbers .* with padding, and .* without; compute them outside"
    ):
        compiled(dgl.batch(GRAPHS[:6]))


def test_attributes_with_rows_of_padding_are_said():
    def setting(model, graph):
        model.latest = convolved(model, graph)
        return dgl.sum_nodes(graph, "out")

    compiled = tp.compile(Model(setting), sampler_of(GRAPHS), **EAGER)
    with pytest.warns(
        UserWarning, match=r"Model sets Model\.latest in its forward pass, with rows of padding; return it"
    ):
        compiled(dgl.batch(GRAPHS[:6]))


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_that_wait_for_each_other_check_the_same_calls(monkeypatch, ranks):
    # Half a batch can be compared only if it fits the shape, which depends on the batch of each rank.
    monkeypatch.setattr("dgl_tuplepack.loading.static_call.runs_on_several_ranks", lambda: ranks == 2)
    seen = set()

    def normed(model, graph):
        if not torch.compiler.is_compiling():
            seen.add(graph.batch_size)
        return model.norm(of_graphs(model, graph))

    # On the CPU, torch has this norm only in evaluation.
    compiled = tp.compile(Model(normed, norm=nn.SyncBatchNorm(8)).eval(), sampler_of(GRAPHS), **EAGER)
    compiled(dgl.batch(GRAPHS[:6]))
    assert (3 in seen) == (ranks == 1)


def test_noise_is_compared_by_the_numbers_of_real_rows():
    def noisy(model, graph):
        h = convolved(model, graph)
        noise = torch.randn(graph.num_nodes(), 8).double(), torch.rand_like(h), torch.empty_like(h).exponential_()
        return h + sum(noise) * torch.bernoulli(torch.full_like(h, 0.5))

    with warnings.catch_warnings(action="error"):
        tp.compile(Model(noisy), sampler_of(GRAPHS), **EAGER)(dgl.batch(GRAPHS[:6]))
    wrong = Model(lambda m, g: (lambda h: h - h.mean(0))(noisy(m, g)))
    with pytest.raises(CompileError, match="with padding"):
        tp.compile(wrong, sampler_of(GRAPHS), **EAGER)(dgl.batch(GRAPHS[:6]))


def test_other_random_numbers_are_said_once():
    shuffled = Model(lambda m, g: convolved(m, g)[torch.randperm(g.num_nodes())])
    model = tp.compile(shuffled, sampler_of(GRAPHS), **EAGER)
    with pytest.warns(UserWarning, match="not compared.*with padding, other random numbers.*randperm") as record:
        model(dgl.batch(GRAPHS[:6]))
    # The warning names the line of the call.
    assert [each.filename for each in record] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(dgl.batch(GRAPHS[:6]))


# Only our backend draws as uncompiled code does.
@pytest.mark.filterwarnings("ignore:.*draws different random numbers in dropout:UserWarning")
def test_dropout_is_compared_with_equal_masks():
    model = Model(lambda m, g: m.drop(of_graphs(m, g)) + 0 * m.drop(convolved(m, g)).sum(), drop=nn.Dropout(0.5))
    tp.compile(model, sampler_of(GRAPHS), **EAGER)(dgl.batch(GRAPHS[:6]))
    wrong = Model(lambda m, g: m.drop(convolved(m, g)).sum(), drop=nn.Dropout(0.5))
    with pytest.raises(CompileError, match="with padding"):
        tp.compile(wrong, sampler_of(GRAPHS), **EAGER)(dgl.batch(GRAPHS[:6]))


def test_whole_numbers_that_differ_are_counted():
    compiled = tp.compile(Model(lambda m, g: convolved(m, g)[:, 0].argsort()), sampler_of(GRAPHS), **EAGER)
    with pytest.raises(CompileError, match=r"\d+ of \d+ entries of the output result.output are others with padding"):
        compiled(dgl.batch(GRAPHS[:6]))


def test_a_batch_that_the_plain_model_saw_before():
    def kept(model, graph):
        graph.ndata["h"] = graph.ndata["x"]
        graph.ndata["x"] = model.lin(graph.ndata["h"])
        return of_graphs(model, graph)

    model, graph = Model(kept), dgl.batch(GRAPHS[:6])
    aliased = dgl.batch(GRAPHS[:6])
    aliased.ndata["h"] = aliased.ndata["x"]
    found, expected = tp.compile(copy.deepcopy(model), sampler_of(GRAPHS), **EAGER)(aliased), model(graph)
    torch.testing.assert_close(found, expected)
    for name in ("h", "x"):
        torch.testing.assert_close(aliased.ndata[name], graph.ndata[name])


def test_a_source_that_is_smaller_than_a_batch():
    model = Model(of_graphs)
    compiled = tp.compile(copy.deepcopy(model), sampler_of(GRAPHS[:3], 8), **EAGER)
    torch.testing.assert_close(compiled(dgl.batch(GRAPHS[:3])), model(dgl.batch(GRAPHS[:3])))
    assert compiled._static_calls.is_compiled


def test_a_layer_that_refuses_nodes_without_edges_gets_none_in_padding():
    model = Model(lambda m, g: m.conv(g, g.ndata["x"], g.edata["w"])[0].flatten(1), conv=layers.EGATConv(8, 8, 4, 4, 2))
    # Edges fill the shape, and seven nodes of padding are left.
    graph = dgl.batch(graphs_of(ring, [5] * 6))
    shape = tp.Limits(nodes=37, edges=32, graphs=7)
    compiled = tp.compile(copy.deepcopy(model), shape, fullgraph=False, **EAGER)
    torch.testing.assert_close(compiled(graph), model(graph))
    assert compiled._static_calls.is_compiled


@pytest.mark.parametrize("autocast", [False, True])
def test_sums_over_padding_stay_finite_in_float16(autocast):
    def deep(model, graph):
        # DGL's kernels on the CPU have no float16.
        (source, target), h = graph.edges(), graph.ndata["x"].float() if autocast else graph.ndata["x"]
        for _ in range(6):
            h = model.lin(torch.zeros_like(h).index_add(0, target, h[source]))
        return h

    graphs = graphs_of(ring, [5] * 6)
    graph = dgl.batch(graphs)
    model = Model(deep).to(torch.float32 if autocast else torch.float16)
    with torch.no_grad():
        model.lin.weight.copy_(torch.eye(8))
    if not autocast:
        graph.ndata["x"] = graph.ndata["x"].half()
    # There is room for 2 nodes of padding, and for 32 edges between them.
    compiled = tp.compile(model, tp.Limits(nodes=32, edges=62, graphs=7), **EAGER)
    with torch.autocast("cpu", torch.float16, enabled=autocast):
        compiled(graph).float().sum().backward()
    assert compiled._static_calls.is_compiled
    assert all(each.grad.isfinite().all() for each in model.lin.parameters())


BRANCHES = {
    "one graph": lambda m, g: m.norm(of_graphs(m, g)) if g.batch_size > 1 else of_graphs(m, g),
    "one row": lambda m, g: (lambda h: m.norm(h) if len(h) > 1 else 2 * h)(of_graphs(m, g)),
    "no edges": lambda m, g: dgl.sum_nodes(g, "x") if g.num_edges() else dgl.mean_nodes(g, "x"),
    "squeeze": lambda m, g: of_graphs(m, g)[:, 0].squeeze(),
}


@pytest.mark.parametrize("name", BRANCHES)
def test_code_may_branch_on_single_graphs_and_on_missing_edges(name):
    torch.manual_seed(0)
    model = Model(BRANCHES[name], norm=nn.BatchNorm1d(8))
    compiled, plain = tp.compile(copy.deepcopy(model), sampler_of(GRAPHS), **EAGER), model
    bare = [dgl.remove_edges(graph, torch.arange(graph.num_edges())) for graph in GRAPHS[:6]]
    for graphs in (GRAPHS[:6], GRAPHS[6:7], bare, GRAPHS[6:12], GRAPHS[12:13], bare[:1]):
        found, expected = (each(dgl.batch(graphs)) for each in (compiled, plain))
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected)
    assert compiled._static_calls.is_compiled


def test_what_depends_on_the_smallest_graph_is_compared_in_the_first_smaller_batch():
    model = Model(lambda m, g: of_graphs(m, g) * (g.batch_num_nodes().min() > 3))
    compiled = tp.compile(model, tp.Limits(nodes=60, edges=140, graphs=7), **EAGER)
    compiled(dgl.batch(graphs_of(random, [8] * 6)))
    # Ten nodes of padding make small graphs.
    large = dgl.batch(graphs_of(random, [25] * 2))
    with pytest.warns(UserWarning, match=r"runs without padding, uncompiled\. Earlier calls may have been wrong"):
        found = compiled(large)
    torch.testing.assert_close(found, model(large))


def test_numbers_and_removed_features_are_those_of_the_model():
    def moved(model, graph):
        if "x" in graph.ndata:
            graph.ndata["y"] = graph.ndata.pop("x")
        return dgl.sum_nodes(graph, "y")

    compiled, graph = tp.compile(Model(moved), sampler_of(GRAPHS), **EAGER), dgl.batch(GRAPHS[:6])
    first = compiled(graph)
    assert [*graph.ndata] == ["y"]
    torch.testing.assert_close(compiled(graph), first)


def test_no_error_stops_a_training_whose_first_calls_ran_plain():
    plain = Model(lambda m, g, own: (of_graphs(m, g) + own, convolved(m, g).mean()))
    compiled = tp.compile(plain, sampler_of(GRAPHS), **EAGER)
    # Six rows of another tensor may be anything; with five, they are those of graphs, and the call is compared.
    for i in range(3):
        graph = dgl.batch(GRAPHS[:6])
        assert compiled(graph, torch.full((6, 8), float(i)))[0].shape == (6, 8)
    with pytest.warns(UserWarning, match="other results with padding.*runs without padding, uncompiled"):
        found = compiled(dgl.batch(GRAPHS[:5]), torch.zeros(5, 8))
    torch.testing.assert_close(found, plain(dgl.batch(GRAPHS[:5]), torch.zeros(5, 8)))


def test_no_error_stops_a_training_whose_model_changes_its_code():
    def staged(model, graph):
        if model.stage == 2:
            graph.ndata["x"].add_(0)
        return of_graphs(model, graph)

    plain = Model(staged)
    compiled = tp.compile(plain, sampler_of(GRAPHS), **EAGER)
    graph = dgl.batch(GRAPHS[:6])
    for plain.stage in (0, 1):
        compiled(graph)
    plain.stage = 2
    with pytest.warns(UserWarning, match="writes to.*run without padding, uncompiled"):
        found = compiled(graph)
    torch.testing.assert_close(found, plain(graph))


def test_a_switch_of_the_model_may_change_its_results():
    model = Model(lambda m, g: (of_graphs(m, g), convolved(m, g)) if m.returns_nodes else of_graphs(m, g))
    compiled = tp.compile(model, sampler_of(GRAPHS), **EAGER)
    graph = dgl.batch(GRAPHS[:6])
    with warnings.catch_warnings(record=True) as found:
        for model.returns_nodes in (True, False, True, False):
            torch.testing.assert_close(compiled(graph), model(graph))
    assert not [each for each in found if "Model" in str(each.message)]


def test_code_that_is_compiled_too_often_runs_uncompiled_with_a_warning():
    def counted(model, graph):
        model.text = model.text + "a"
        return of_graphs(model, graph) * len(model.text)

    model = Model(counted)
    model.text = ""
    compiled, plain = tp.compile(copy.deepcopy(model), sampler_of(GRAPHS), **EAGER), model
    outputs = []
    with pytest.warns(UserWarning, match="has been compiled too often.*runs uncompiled"):
        outputs += [[each(dgl.batch(GRAPHS[:6])) for each in (compiled, plain)] for _ in range(12)]
    for found, expected in outputs:
        torch.testing.assert_close(found, expected)


def test_a_moving_average_of_parameters_may_be_updated():
    class Averaged(Model):
        def __init__(self):
            super().__init__(None)
            self.target = copy.deepcopy(self.lin).requires_grad_(False)

        def forward(self, graph):
            with torch.no_grad():
                for kept, latest in zip(self.target.parameters(), self.lin.parameters(), strict=True):
                    kept.mul_(0.9).add_(latest, alpha=0.1)
            graph.ndata["h"] = self.lin(graph.ndata["x"]) - self.target(graph.ndata["x"])
            return dgl.mean_nodes(graph, "h")

    torch.manual_seed(0)
    model = Averaged()
    with torch.no_grad():
        model.target.weight.zero_()
    compiled, plain = tp.compile(copy.deepcopy(model), sampler_of(GRAPHS), **EAGER), model
    for _ in range(3):
        torch.testing.assert_close(*(each(dgl.batch(GRAPHS[:6])) for each in (compiled, plain)))
    torch.testing.assert_close(compiled.target.weight, plain.target.weight)


def test_rows_that_depend_on_values_are_noticed_before_padding_is_returned():
    """As of `h[mask]`: padding copies the first rows, so the mask may choose some of its rows in a later batch."""
    graphs = graphs_of(ring, [3 + i % 9 for i in range(40)])
    for i, graph in enumerate(graphs):
        # The first batch chooses no row.
        graph.ndata["chosen"] = torch.arange(graph.num_nodes()) < (i >= 6)

    def chosen(model, graph):
        return convolved(model, graph)[graph.ndata["chosen"]]

    plain, sampler = Model(chosen).eval(), sampler_of(graphs)
    compiled = tp.compile(plain, sampler, **EAGER)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for begin in range(0, 36, 6):
            batch = dgl.batch(graphs[begin : begin + 6])
            with torch.no_grad():
                torch.testing.assert_close(compiled(batch), plain(batch), rtol=0, atol=1e-12)
    assert [each for each in caught if "depends on values" in str(each.message) and "Earlier" in str(each.message)]


def test_rows_that_depend_on_values_are_an_error_in_the_first_call():
    def positive(model, graph):
        h = convolved(model, graph)
        return h[h[:, 0] > 0]

    with pytest.raises(CompileError, match="rows"):
        tp.compile(Model(positive), sampler_of(GRAPHS), **EAGER)(dgl.batch(GRAPHS[:6]))


def test_code_that_torch_cannot_compile_runs_as_it_is_with_a_warning():
    def mixed(model, graph):
        h = convolved(model, graph)
        rows = torch.where(h[:, 0] > 0)[0]
        if len(rows):
            h = h.index_add(0, rows, h[rows])
        graph.ndata["h"] = h
        return dgl.sum_nodes(graph, "h")

    plain = Model(mixed)
    compiled = tp.compile(plain, sampler_of(GRAPHS), backend="aot_eager")
    batch = dgl.batch(GRAPHS[:6])
    with pytest.warns(UserWarning, match="uncompiled.*depends on values"):
        found = compiled(batch)
    torch.testing.assert_close(found, plain(batch), rtol=0, atol=0)


LATER = {
    "lists": lambda m, g: [*convolved(m, g).split(g.batch_num_nodes().tolist())],
    "a mean of all rows": lambda m, g: convolved(m, g).mean(0),
}


@pytest.mark.parametrize("name", LATER)
def test_after_the_first_call_no_difference_stops_a_training(name):
    def other_in_evaluation(model, graph):
        return of_graphs(model, graph) if model.training else LATER[name](model, graph)

    plain = Model(other_in_evaluation)
    compiled = tp.compile(plain, sampler_of(GRAPHS), **EAGER)
    batch = dgl.batch(GRAPHS[:6])
    compiled(batch)
    with pytest.warns(UserWarning, match="padding") as caught:
        found = compiled.eval()(batch)
    for one, other in zip([*found], [*plain(batch)], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert not [each for each in caught if "Earlier calls" in str(each.message)]
