"""A compiled model on ordinary batches of PyG gives what the model itself gives, or a clear error."""

import copy
import warnings

import pytest
import torch
import torch_geometric.nn as layers
from torch import nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.errors import CompileError

EAGER = {"backend": "eager"}


def molecule(n, generator):
    edges = 2 * n + n % 3
    return Data(
        x=torch.randn(n, 8, generator=generator, dtype=torch.float64),
        edge_index=torch.randint(0, n, (2, edges), generator=generator),
        edge_attr=torch.randn(edges, 8, generator=generator, dtype=torch.float64),
        pos=torch.randn(n, 3, generator=generator, dtype=torch.float64),
        charge=torch.randn(1, 8, generator=generator, dtype=torch.float64),
        y=torch.randn(1, 1, generator=generator, dtype=torch.float64),
    )


GRAPHS = [molecule(3 + i % 9, torch.Generator().manual_seed(i)) for i in range(50)]


class Model(nn.Module):
    def __init__(self, function, **parts):
        super().__init__()
        self.function, self.lin = function, nn.Linear(8, 8)
        self.conv = layers.GINEConv(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU()))
        for name, part in parts.items():
            setattr(self, name, part)
        self.double()

    def forward(self, data):
        return self.function(self, data)


class OnTensors(Model):
    def forward(self, x, edge_index, edge_attr, batch):
        return layers.global_add_pool(self.conv(x, edge_index, edge_attr), batch)


def pooled(model, data):
    return layers.global_mean_pool(model.conv(data.x, data.edge_index, data.edge_attr), data.batch)


def results_of(model, batch, call):
    model.zero_grad()
    out = call(model, batch)
    tensors = [*out] if isinstance(out, tuple) else [out]
    sum((each * torch.linspace(1, 2, each.numel()).reshape(each.shape)).sum() for each in tensors).backward()
    features = [batch[key] for key in sorted(batch.keys()) if isinstance(batch[key], torch.Tensor)]
    return tensors, [each.grad for each in model.parameters() if each.grad is not None], features, [*model.buffers()]


def assert_alike(model, loader, call=lambda model, data: model(data), epochs=1):
    plain = copy.deepcopy(model)
    compiled = tp.compile(model, loader, **EAGER)
    for _ in range(epochs):
        for batch in loader:
            found, expected = (results_of(each, batch.clone(), call) for each in (compiled, plain))
            for ours, theirs in zip(found, expected, strict=True):
                for one, other in zip(ours, theirs, strict=True):
                    torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert len(compiled._static_calls._calls) == 1
    return compiled


def loader_of(graphs=GRAPHS, batch_size=8):
    return tp.packed_loader(graphs, batch_size=batch_size)


def set_again(model, data):
    data.x = model.conv(data.x, data.edge_index, data.edge_attr)
    data["h"] = data.x * 2
    return layers.global_add_pool(data.h, data.batch)


FUNCTIONS = {
    "pool without a size": pooled,
    "pool with a size": lambda m, d: layers.global_max_pool(m.lin(d.x), d.batch, size=d.num_graphs),
    "largest graph": lambda m, d: m.lin(d.x).new_zeros(int(d.batch.max()) + 1, 8).index_add(0, d.batch, m.lin(d.x)),
    "pointers": lambda m, d: m.lin(d.x).cumsum(0)[d.ptr[1:] - 1].diff(dim=0, prepend=m.lin(d.x).new_zeros(1, 8)),
    "attributes of graphs": lambda m, d: pooled(m, d) + m.lin(d.charge),
    "nodes and edges": lambda m, d: (m.lin(d.x), m.lin(d.edge_attr), pooled(m, d)),
    "distances": lambda m, d: (
        m.lin(d.x),
        (d.pos[d.edge_index[0]] - d.pos[d.edge_index[1]]).norm(dim=1) * m.lin.bias[0],
    ),
    "set attributes": set_again,
    "softmax": lambda m, d: layers.global_add_pool(m.gat(m.lin(d.x), d.edge_index), d.batch),
    "norms": lambda m, d: (
        pooled(m, d) + layers.global_add_pool(m.norm(m.lin(d.x), d.batch) + m.pair(m.lin(d.x)), d.batch)
    ),
    "norm of a pool without a size": lambda m, d: m.batch_norm(pooled(m, d)),
    "set2set": lambda m, d: m.set2set(m.lin(d.x), d.batch),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_model_on_batches(name):
    parts = {"gat": layers.GATConv(8, 8, add_self_loops=False), "norm": layers.GraphNorm(8), "pair": layers.PairNorm(),
             "batch_norm": nn.BatchNorm1d(8), "set2set": layers.Set2Set(8, 2)}  # fmt: skip
    torch.manual_seed(0)
    compiled = assert_alike(Model(FUNCTIONS[name], **parts), loader_of(), epochs=2)
    assert not hasattr(compiled.pair, "masked_rows")


def test_pyg_s_own_loader_and_attributes_whose_names_do_not_tell():
    sampler = tp.StaticBatchSampler(GRAPHS, 8)
    model = Model(lambda m, d: pooled(m, d) + m.lin(d.charge))
    plain, compiled = copy.deepcopy(model), tp.compile(model, sampler, **EAGER)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in DataLoader(GRAPHS, batch_sampler=sampler):
            torch.testing.assert_close(compiled(batch), plain(batch))
            # PyG joined a row of `charge` for each graph, so the first batch is enough.
            assert len(compiled._static_calls._calls) == 1


def test_as_many_rows_of_each_graph_as_it_has_nodes_prove_nothing_if_all_have_as_many():
    graphs = [molecule(3, torch.Generator().manual_seed(i)) for i in range(6)]
    for graph in graphs:
        graph.charge, graph.cell = None, torch.randn(3, 8, dtype=torch.float64)
    model = Model(lambda m, d: pooled(m, d) + m.lin(d.cell.view(-1, 3, 8).sum(1)))
    plain, compiled = copy.deepcopy(model), tp.compile(model, tp.StaticBatchSampler([*GRAPHS, *graphs], 6), **EAGER)
    batch = Batch.from_data_list(graphs)
    torch.testing.assert_close(compiled(batch), plain(batch))
    assert not compiled._static_calls._calls


def test_graphs_of_a_batch_are_looked_at_once(monkeypatch):
    calls, inner = [], Batch.to_data_list
    monkeypatch.setattr(Batch, "to_data_list", lambda batch: calls.append(batch) or inner(batch))
    model = tp.compile(Model(lambda m, d: pooled(m, d) + m.lin(d.charge)), tp.StaticBatchSampler(GRAPHS, 8), **EAGER)
    for batch in DataLoader(GRAPHS, batch_sampler=tp.StaticBatchSampler(GRAPHS, 8)):
        model(batch)
    assert len(calls) == 1
    assert model._static_calls._calls


def test_a_declared_argument_may_be_absent_later():
    class Optional(Model):
        def forward(self, data, u=None, mask=None):
            out = pooled(self, data)
            return out + (u if mask is None else mask[:, None])

    model = Optional(None)
    plain, compiled = copy.deepcopy(model), tp.compile(model, loader_of(), rows={"u": "graphs"}, **EAGER)
    for data in loader_of():
        torch.testing.assert_close(compiled(data, data.charge), plain(data, data.charge))
        mask = torch.ones(data.num_graphs, dtype=torch.float64)
        torch.testing.assert_close(compiled(data, mask=mask), plain(data, mask=mask))


def test_an_attribute_that_was_added_to_a_batch():
    model = Model(lambda m, d: pooled(m, d) + m.lin(d.added))
    plain, compiled = copy.deepcopy(model), tp.compile(model, loader_of(), **EAGER)
    for batch in DataLoader(GRAPHS, batch_sampler=tp.StaticBatchSampler(GRAPHS, 8)):
        batch.added = torch.ones(batch.num_graphs, 8, dtype=torch.float64)
        torch.testing.assert_close(compiled(batch), plain(batch))


@pytest.mark.parametrize("name", ["per_node", "per_edge"])
def test_rows_of_nodes_and_edges_with_other_names_are_known_in_the_first_batch(name):
    graphs = [graph.clone() for graph in GRAPHS[:8]]
    for graph in graphs:
        graph[name] = graph.x if name == "per_node" else graph.edge_attr
    model = Model(lambda m, d: m.lin(d[name]))
    plain, compiled = copy.deepcopy(model), tp.compile(model, tp.StaticBatchSampler(graphs, 8), **EAGER)
    batch = Batch.from_data_list(graphs)
    torch.testing.assert_close(compiled(batch), plain(batch))
    assert compiled._static_calls._calls


def test_plain_tensors_by_their_names():
    model = OnTensors(None)
    assert_alike(model, loader_of(), lambda m, d: m(d.x, d.edge_index, batch=d.batch, edge_attr=d.edge_attr))


@pytest.mark.parametrize("rows", [None, {"u": "graphs"}])
def test_a_tensor_of_graphs_beside_tensors_of_nodes(rows):
    class Global(Model):
        def forward(self, x, edge_index, u, batch):
            return layers.global_add_pool(self.lin(x) + u[batch], batch, size=u.shape[0])

    model = Global(None)
    plain, compiled = copy.deepcopy(model), tp.compile(model, loader_of(), rows=rows, **EAGER)
    for _ in range(2):
        for d in loader_of():
            found, expected = (each(d.x, d.edge_index, d.charge, d.batch) for each in (compiled, plain))
            torch.testing.assert_close(found, expected)
    assert compiled._static_calls._calls


def test_a_tensor_of_ours_beside_the_batch():
    class Beside(Model):
        def forward(self, data, x):
            return layers.global_add_pool(self.lin(x), data.batch)

    assert_alike(Beside(None), loader_of(), lambda m, d: m(d, d.x))


def test_edits_of_attributes_are_seen():
    loader = loader_of()
    compiled = tp.compile(Model(pooled), loader, **EAGER)
    batch = next(iter(loader))
    first = compiled(batch)
    batch.x[0] = 0
    second = compiled(batch)
    batch.x = torch.zeros_like(batch.x)
    third = compiled(batch.to("cpu"))
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)
    torch.testing.assert_close(third, compiled._static_calls._model(batch))


def test_heterogeneous_graphs():
    graphs = []
    for i in range(40):
        graph = HeteroData()
        a, b = 2 + i % 4, 1 + i % 3
        graph["a"].x, graph["b"].x = torch.randn(a, 8, dtype=torch.float64), torch.randn(b, 8, dtype=torch.float64)
        graph["a", "to", "b"].edge_index = torch.stack([torch.randint(0, a, (5,)), torch.randint(0, b, (5,))])
        graph["b", "to", "a"].edge_index = graph["a", "to", "b"].edge_index.flip(0)
        graph.u = torch.randn(1, 8, dtype=torch.float64)
        graphs.append(graph)
    convs = {edge: layers.SAGEConv((8, 8), 8) for edge in graphs[0].edge_types}

    class Hetero(Model):
        def forward(self, data):
            x = self.hetero(data.x_dict, data.edge_index_dict)
            return layers.global_add_pool(self.norm(x["a"]), data["a"].batch) + data.u

    model = Hetero(None, hetero=layers.HeteroConv(convs), norm=nn.BatchNorm1d(8))
    plain, loader = copy.deepcopy(model), loader_of(graphs)
    compiled = tp.compile(model, loader, **EAGER)
    for batch in loader:
        torch.testing.assert_close(compiled(batch), plain(batch))
    assert len(compiled._static_calls._calls) == 1


def test_padding_that_changes_a_result_is_an_error():
    for function in (lambda m, d: m.lin(d.x).mean(), lambda m, d: pooled(m, d).sum() / d.num_graphs):
        loader = loader_of()
        with pytest.raises(CompileError, match="with padding"):
            tp.compile(Model(function), loader, **EAGER)(next(iter(loader)))


def test_a_single_graph_runs_plain_with_a_warning():
    model = Model(lambda m, d: m.lin(d.x))
    with pytest.warns(UserWarning, match="single graph"):
        out = tp.compile(model, loader_of(), **EAGER)(GRAPHS[0])
    assert torch.equal(out, model(GRAPHS[0]))


def test_without_warnings():
    loader = loader_of()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        compiled = tp.compile(Model(pooled), loader, **EAGER)
        for batch in loader:
            compiled(batch)


def test_batches_that_were_edited_by_hand():
    """Batches of a user's own collation, without our shape or levels."""
    model = Model(pooled)
    compiled = tp.compile(model, tp.Limits(nodes=100, edges=300, graphs=9), **EAGER)
    for start in (0, 8):
        batch = Batch.from_data_list([Data(x=g.x, edge_index=g.edge_index, edge_attr=g.edge_attr)
                                      for g in GRAPHS[start : start + 8]])  # fmt: skip
        torch.testing.assert_close(compiled(batch), model(batch))
    assert compiled._static_calls._calls


def with_pairs(number):
    generator = torch.Generator().manual_seed(number)
    data = molecule(3 + number % 9, generator)
    pairs = data.num_nodes + number % 4
    data.pair_index = torch.randint(0, data.num_nodes, (2, pairs), generator=generator)
    data.pair_length = torch.randn(pairs, 8, generator=generator, dtype=torch.float64)
    return data


def along_pairs(model, data):
    h = model.conv(data.x, data.edge_index, data.edge_attr)
    h = model.conv(h, data.pair_index, model.lin(data.pair_length))
    return layers.global_mean_pool(h, data.batch), model.lin(data.pair_length)


@pytest.mark.parametrize("own_loader", [True, False])
def test_several_lists_of_edges(own_loader):
    graphs = [with_pairs(i) for i in range(50)]
    loader = loader_of(graphs)
    if not own_loader:
        loader = DataLoader(graphs, batch_sampler=loader.sampler)
        model = Model(along_pairs)
        plain, compiled = copy.deepcopy(model), tp.compile(model, loader.batch_sampler, **EAGER)
        for batch in loader:
            for one, other in zip(compiled(batch.clone()), plain(batch), strict=True):
                torch.testing.assert_close(one, other)
        assert len(compiled._static_calls._calls) == 1
        return
    assert_alike(Model(along_pairs), loader)


def between(number):
    generator = torch.Generator().manual_seed(number)
    left, right = 3 + number % 4, 2 + number % 5
    ends = [torch.randint(0, n, (2 * left,), generator=generator) for n in (left, right)]
    sources, targets = (torch.randn(n, 8, generator=generator, dtype=torch.float64) for n in (left, right))
    return PairData(x_s=sources, x_t=targets, edge_index=torch.stack(ends))


class PairData(Data):
    def __inc__(self, key, value, *args):
        if key == "edge_index":
            return torch.tensor([[self.x_s.shape[0]], [self.x_t.shape[0]]])
        return super().__inc__(key, value, *args)


def from_left_to_right(model, data):
    source, target = data.edge_index
    h = torch.zeros_like(data.x_t).index_add(0, target, model.norm(model.lin(data.x_s))[source])
    return layers.global_add_pool(h + data.x_t, data.x_t_batch), h


def test_two_kinds_of_nodes_in_a_data(tmp_path):
    graphs = [between(i) for i in range(50)]
    store = tp.GraphStore.write(tmp_path / "store", graphs, levels={"edge_index": "x_s -> x_t"})
    assert_alike(Model(from_left_to_right, norm=nn.BatchNorm1d(8)), loader_of(store))


def test_ids_of_graphs_need_no_second_size_of_batches():
    loader = tp.packed_loader(GRAPHS[:16], batch_size=8, with_ids=True)
    model = tp.compile(Model(pooled), loader, **EAGER)
    model(next(iter(loader)))
    assert model._static_calls.is_compiled


def test_flags_and_removed_attributes_of_a_batch():
    def scaled_once(model, data):
        if not getattr(data, "scaled", False):
            data.x, data.scaled = data.x * 0.1, True
            if "gone" in data:
                del data.gone
        return pooled(model, data)

    graphs = [each.clone() for each in GRAPHS]
    for each in graphs:
        each.gone = each.x.clone()
    model, loader = Model(scaled_once), loader_of(graphs)
    compiled, data = tp.compile(copy.deepcopy(model), loader, **EAGER), next(iter(loader))
    for _ in range(2):
        first, again = compiled(data), model(data.clone())
        torch.testing.assert_close(first, again)
    assert data.scaled is True
    assert "gone" not in data


class Counted(Model):
    def forward(self, x, edge_index, edge_attr, batch, batch_size):
        h = self.conv(x, edge_index, edge_attr)
        return layers.global_add_pool(h, batch, batch_size), h.new_ones(batch_size, 2), h.topk(2, dim=1)


def test_a_number_of_graphs_as_an_argument_is_that_of_the_shape():
    """Compiled code must not depend on it, and the last batch has another one."""
    model = Counted(None)
    loader = tp.packed_loader(GRAPHS, batch_size=8)
    compiled = tp.compile(model, loader, **EAGER)
    for data in loader:
        args = data.x, data.edge_index, data.edge_attr, data.batch
        found, expected = compiled(*args, batch_size=data.num_graphs), model(*args, data.num_graphs)
        for one, other in zip((*found[:2], *found[2]), (*expected[:2], *expected[2]), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
        # A result of torch's own tuple types stays one.
        assert type(found[2]) is type(expected[2])
    assert len(compiled._static_calls._calls) == 1


def test_tensors_without_graphs_say_what_is_missing():
    class WithoutBatch(Model):
        def forward(self, x, edge_index):
            return self.lin(x)

    compiled = tp.compile(WithoutBatch(None), tp.packed_loader(GRAPHS, batch_size=8), **EAGER)
    with pytest.warns(UserWarning, match="no tensor named batch"):
        compiled(GRAPHS[0].x, GRAPHS[0].edge_index)


def test_a_batch_without_graphs_runs_plain_and_only_it():
    # Four ranks get eight batches each; the last one of rank 0 is empty.
    graphs = [
        Data(x=torch.randn(n, 8, dtype=torch.float64), edge_index=torch.zeros(2, 2 * n, dtype=torch.int64))
        for n in (5 + i % 20 for i in range(290))
    ]
    with pytest.warns(UserWarning, match="graphs_per_batch is 10"):
        loader = tp.packed_loader(graphs, graphs_per_batch=10, padded=False, num_replicas=4, rank=0)
    norm = nn.BatchNorm1d(8).double()
    model = Model(lambda m, d: layers.global_add_pool(m.norm(m.lin(d.x)), d.batch, d.num_graphs), norm=norm)
    plain, compiled = copy.deepcopy(model), tp.compile(model, loader, **EAGER)
    batches = [*loader]
    loader.set_epoch(1)
    batches += loader
    assert 0 in {batch.num_graphs for batch in batches}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for batch in batches:
            torch.testing.assert_close(compiled(batch.clone()), plain(batch.clone()))
    said = [str(each.message) for each in caught]
    assert [text for text in said if "this batch, and others like it" in text and "a batch without graphs" in text]
    assert not [text for text in said if "other results" in text]


@pytest.mark.filterwarnings("error:.*other results:UserWarning")
def test_a_training_that_diverges_is_not_the_fault_of_padding():
    loader, norm = loader_of(), nn.BatchNorm1d(8)
    model = Model(lambda m, d: layers.global_add_pool(m.norm(m.lin(d.x)).tanh(), d.batch), norm=norm).float()
    compiled = tp.compile(model, loader, **EAGER)
    for i, batch in enumerate(loader):
        if i == 2:
            with torch.no_grad():
                # Variances overflow to infinity, and in another order of sums to NaN.
                model.lin.weight[:2] *= 1e19
        batch.x = batch.x.float()
        compiled(batch).sum().backward()
    assert not norm.running_var.isfinite().all()


class OnEdges(nn.Module):
    """A model of vectors of edges, which gets the positions, too, but does not read them."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 1).double()

    def forward(self, x, edge_index, batch, pos, edge_vec):
        return layers.global_add_pool(self.lin(edge_vec).sin(), batch[edge_index[1]])


@pytest.mark.parametrize("evaluates_first", [False, True])
def test_arguments_that_depend_on_each_other_outside_of_the_model(evaluates_first):
    loader, plain = loader_of(), OnEdges()
    compiled = tp.compile(plain, loader, **EAGER)
    for number, data in enumerate(loader):
        gradients = []
        for model in (compiled, plain):
            pos = data.pos.clone().requires_grad_()
            vectors = pos[data.edge_index[1]] - pos[data.edge_index[0]]
            with torch.set_grad_enabled(number > 0 or not evaluates_first):
                found = model(data.x, data.edge_index, data.batch, pos, vectors)
            if found.requires_grad:
                gradients += torch.autograd.grad(found.square().sum(), pos)
        torch.testing.assert_close(gradients[:1], gradients[1:])
