"""`check_padding` says whether a model leaves padding out."""

import dgl
import pytest
import torch
from torch import nn

import dgl_tuplepack as tp
from dgl_tuplepack.errors import CompileError, InputError
from tests.support.messages import refused


def batch_of(graphs, **settings):
    return tp.PaddedCollate(tp.Limits(nodes=40, edges=90, graphs=8), example=graphs[0], **settings)(graphs)


def molecules():
    graphs = [dgl.rand_graph(n, 2 * n) for n in (3, 5, 4)]
    for graph in graphs:
        graph.ndata["x"] = torch.randn(graph.num_nodes(), 4)
    return graphs


def test_models_that_leave_padding_out_pass():
    norm, batch = tp.nn.convert(nn.BatchNorm1d(4), verbose=False), batch_of(molecules())
    before = norm.running_mean.clone()

    def model(graph):
        graph.ndata["h"] = norm(graph.ndata["x"])
        return dgl.mean_nodes(graph, "h"), graph.ndata["h"]

    tp.check_padding(model, batch)
    # Nothing was changed.
    assert torch.equal(norm.running_mean, before)
    assert "h" not in batch.graph.ndata


@pytest.mark.parametrize("wrong", [
    lambda graph, norm: norm(graph.ndata["x"]),
    lambda graph, norm: graph.ndata["x"].mean(),
    lambda graph, norm: (dgl.sum_nodes(graph, "x"), norm.weight * graph.ndata["x"].exp().sum(0)),
])  # fmt: skip
def test_results_that_padding_changes_are_named(wrong):
    norm, batch = nn.BatchNorm1d(4), batch_of(molecules())
    with pytest.raises(CompileError, match="with padding"):
        tp.check_padding(lambda graph: wrong(graph, norm), batch)


def test_named_graphs_and_graphs_of_pyg():
    named = [{"a": graph, "b": dgl.rand_graph(3, 4)} for graph in molecules()]
    limits = tp.Limits(nodes={"a": 30, "b": 30}, edges={"a": 60, "b": 60}, graphs=8)
    batch = tp.PaddedCollate(limits, example=named[0])(named)
    tp.check_padding(lambda graphs: dgl.sum_nodes(graphs["a"], "x"), batch)
    with pytest.raises(CompileError):
        tp.check_padding(lambda graphs: graphs["a"].ndata["x"].exp().sum(), batch)
    from torch_geometric.data import Data
    from torch_geometric.nn import global_add_pool

    data = [Data(x=torch.randn(n, 4), edge_index=torch.randint(0, n, (2, 5))) for n in (3, 4)]
    pyg = batch_of(data).pyg
    tp.check_padding(lambda each: global_add_pool(each.x, each.batch, each.num_graphs), pyg)
    with pytest.raises(CompileError):
        tp.check_padding(lambda each: each.x.exp().sum(), pyg)


def test_wrong_input():
    for wrong in (molecules()[0], None, batch_of(molecules()).tensors):
        with refused(InputError, "padded batch"):
            tp.check_padding(len, wrong)
    with refused(InputError, "randperm"):
        tp.check_padding(lambda graph: torch.randperm(graph.num_nodes()), batch_of(molecules()))
