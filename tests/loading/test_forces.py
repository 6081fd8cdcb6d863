"""Models whose forward pass computes forces, compiled on ordinary batches, against the models themselves."""

import copy
import math
from contextlib import nullcontext

import dgl
import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import dgl_tuplepack as tp
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.errors import CompileError
from dgl_tuplepack.loading.static_padding import spacing_of

# Torch's compiler without its C++ compiler; as with it, second derivatives exist only inside of compiled code.
AOT = {"backend": "aot_eager"}


def molecule(n, generator):
    ends = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    return Data(
        z=torch.randint(0, 5, (n,), generator=generator),
        pos=torch.randn(n, 3, generator=generator, dtype=torch.float64) * 2,
        cell=10 * torch.eye(3, dtype=torch.float64)[None] + torch.rand(1, 3, 3, generator=generator),
        edge_index=ends[ends[:, 0] != ends[:, 1]].T.contiguous(),
        energy=torch.randn(1, 1, generator=generator, dtype=torch.float64),
        force=torch.randn(n, 3, generator=generator, dtype=torch.float64),
    )


GRAPHS = [molecule(2 + i % 7, torch.Generator().manual_seed(i)) for i in range(40)]


class Potential(nn.Module):
    """Energies from distances; `function` makes results of them."""

    def __init__(self, function):
        super().__init__()
        self.function, self.kinds = function, nn.Embedding(5, 16)
        self.near, self.head = nn.Linear(8, 16), nn.Sequential(nn.Tanh(), nn.Linear(16, 1))
        self.register_buffer("centers", torch.linspace(0, 4, 8))
        self.double()

    def energies(self, data, pos):
        source, target = data.edge_index
        distances = (pos[source] - pos[target]).norm(dim=1, keepdim=True)
        near = self.near(torch.exp(-((distances - self.centers) ** 2)))
        h = self.kinds(data.z).index_add(0, target, near * self.kinds(data.z)[source])
        return torch.zeros(data.num_graphs, 1, dtype=h.dtype).index_add(0, data.batch, self.head(h))

    def forward(self, data):
        return self.function(self, data)


def inside(model, data):
    data.pos.requires_grad_()
    return outside(model, data)


def outside(model, data):
    energies = model.energies(data, data.pos)
    (gradient,) = torch.autograd.grad(energies.sum(), data.pos, create_graph=model.training)
    return energies, -gradient


def loss_of(outputs, data):
    energies, forces = outputs[:2]
    return (energies - data.energy).pow(2).mean() + (forces - data.force).pow(2).mean()


def trained(model, call, batches, needs_gradients):
    """The results of three steps of training, and of an evaluation."""
    optimiser, found = torch.optim.Adam(model.parameters(), lr=0.01), []
    for data in batches[:3]:
        data = data.clone()
        data.pos.requires_grad_(needs_gradients)
        outputs = call(data)
        found += [each.detach() for each in outputs]
        optimiser.zero_grad()
        loss_of(outputs, data).backward()
        optimiser.step()
    model.eval()
    data = data.clone()
    data.pos.detach_().requires_grad_(needs_gradients)
    return found, [*model.parameters()], [each.detach() for each in call(data)]


@pytest.mark.parametrize("function", [inside, outside])
def test_training_on_forces_and_evaluation_equal_the_model_itself(function):
    loader = tp.packed_loader(GRAPHS, batch_size=8)
    model, batches = Potential(function), [*loader]
    expected = trained(other := copy.deepcopy(model), other, batches, function is outside)
    found = trained(model, tp.compile(model, loader, **AOT), batches, function is outside)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("trains", [False, True])
def test_forces_inside_of_no_grad(trains):
    def enabled(model, data):
        with torch.enable_grad():
            return inside(model, data)

    loader = tp.packed_loader(GRAPHS, batch_size=8)
    model, data = Potential(enabled).train(trains), next(iter(loader))
    with torch.no_grad():
        found, expected = tp.compile(model, loader, **AOT)(data.clone()), model(data.clone())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_forces_that_padding_changes_are_an_error():
    def of_mean(model, data):
        # With padding, this mean has more terms.
        energies = model.energies(data, data.pos.requires_grad_())
        return energies, -torch.autograd.grad(energies.mean(), data.pos, create_graph=True)[0]

    loader = tp.packed_loader(GRAPHS, batch_size=8)
    with pytest.raises(CompileError, match=r"gives other results with padding: the output result\.output\[1\]"):
        tp.compile(Potential(of_mean), loader, **AOT)(next(iter(loader)))


def test_whole_steps_on_forces():
    loader = tp.packed_loader(GRAPHS, graphs_per_batch=8, coordinates=("pos",))
    model, batch = Potential(outside), next(iter(loader))

    def step(data, count):
        errors = (model(data)[1] - data.force).square().sum(1)
        return tp.nn.masked_mean(errors, data.node_mask, count=count)

    gradients = []
    for call in (step, tp.compile(step, **AOT)):
        data = batch.pyg
        data.pos = data.pos.clone().requires_grad_()
        model.zero_grad()
        call(data, torch.tensor(8.0)).backward()
        gradients.append([each.grad for each in model.parameters() if each.grad is not None])
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def strained(model, data, strain):
    data.pos.requires_grad_()
    energies = model.energies(data, data.pos + torch.einsum("ni,nij->nj", data.pos, strain[data.batch]))
    gradient, virial = torch.autograd.grad(energies.sum(), [data.pos, strain], create_graph=True)
    return energies, -gradient, virial / torch.linalg.det(data.cell)[:, None, None]


def test_stress_is_the_virial_over_the_volume():
    def stressed(model, data):
        return strained(model, data, torch.zeros_like(data.cell) + 0 * data.pos.requires_grad_().sum())

    def unable(model, data):
        return strained(model, data, torch.zeros_like(data.cell, requires_grad=True))

    loader = tp.packed_loader(GRAPHS, batch_size=8)
    data, model = next(iter(loader)), Potential(stressed)
    plain = copy.deepcopy(model)
    plain.function = unable
    found, expected = tp.compile(model, loader, **AOT)(data.clone()), plain(data.clone())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    for outputs in (found, expected):
        loss_of(outputs, data).add(outputs[2].pow(2).sum()).backward()
    torch.testing.assert_close([x.grad for x in model.parameters()], [x.grad for x in plain.parameters()])
    with pytest.raises(
        CompileError, match=r"test_forces.py.*without clone.*must depend on an argument.*positions.sum\(\)"
    ):
        tp.compile(plain, loader, **AOT)(data.clone())


def test_what_cannot_be_compiled_is_an_error_with_the_edit(monkeypatch):
    def set_flag(model, data):
        data.pos.requires_grad = True
        return outside(model, data)

    loader = tp.packed_loader(GRAPHS, batch_size=8)
    data = next(iter(loader))
    with pytest.raises(CompileError, match=r"test_forces.py.*write x.requires_grad_\(\)"):
        tp.compile(Potential(set_flag), loader, **AOT)(data.clone())
    energies = tp.compile(Potential(lambda model, data: model.energies(data, data.pos)), loader, **AOT)
    data.pos.requires_grad_()
    with pytest.raises(CompileError, match=r"create_graph=True.*inside of the compiled forward pass"):
        torch.autograd.grad(energies(data).sum(), data.pos, create_graph=True)
    # First derivatives are as of any model.
    torch.autograd.grad(energies(data).sum(), data.pos)
    monkeypatch.setattr(torch_private, "permission_for", lambda error: "")
    with pytest.raises(CompileError, match=r"torch .* cannot compile this torch\.autograd\.grad; from 2.13 on"):
        tp.compile(Potential(outside), loader, **AOT)(data)


@pytest.mark.parametrize("name", ["pos", "coords", "coordinates", "R", "xyz"])
def test_nodes_of_padding_are_apart(name):
    # All atoms of these graphs are at the same place, so copies of them would be too.
    atoms = [
        Data(**{name: torch.zeros(1, 3), "edge_index": torch.zeros(2, 0, dtype=torch.int64), "num_nodes": 1})
        for _ in range(9)
    ]
    pair = Data(**{name: torch.eye(2, 3), "edge_index": torch.tensor([[0, 1], [1, 0]]), "num_nodes": 2})
    lengths = nn.Linear(1, 1)

    class Lengths(nn.Module):
        def __init__(self):
            super().__init__()
            self.weigh = lengths

        def forward(self, data):
            pos = data[name].requires_grad_()
            source, target = data.edge_index
            per_edge = self.weigh((pos[source] - pos[target]).pow(2).sum(1, keepdim=True).sqrt())
            result = torch.zeros(data.num_graphs, 1).index_add(0, data.batch[source], per_edge)
            return torch.autograd.grad(result.sum(), pos, create_graph=True)[0]

    loader = tp.packed_loader([*atoms, pair], batch_size=5)
    model = tp.compile(Lengths(), loader, **AOT)
    for data in loader:
        lengths.zero_grad()
        model(data)[:, 0].sum().backward()
        assert lengths.weight.grad.isfinite().all()


class Vectors(nn.Module):
    """Lengths of sums of vectors to neighbours nearer than 2.5, as in PaiNN; they have no second derivatives at 0."""

    def __init__(self, shift=None):
        super().__init__()
        self.shift, self.near = shift, nn.Linear(1, 4)
        self.mix, self.head = nn.Linear(4, 4, bias=False), nn.Linear(4, 1)
        self.double()

    def forward(self, data, pos=None):
        pos = data.pos if pos is None else pos
        pos.requires_grad_()
        source, target = data.edge_index
        vectors = pos[target] - pos[source]
        if self.shift is not None:
            vectors = vectors + torch.einsum("ei,eij->ej", data[self.shift], data.cell[data.batch[source]])
        lengths = vectors.norm(dim=1, keepdim=True)
        near = self.near(lengths) * (2.5 - lengths).relu() ** 3
        sums = near.new_zeros(data.num_nodes, 3, 4)
        sums = self.mix(sums.index_add(0, target, (vectors / lengths)[:, :, None] * near[:, None]))
        energies = sums.new_zeros(data.num_graphs, 1).index_add(0, data.batch, self.head(sums.norm(dim=1)))
        (gradient,) = torch.autograd.grad(energies.sum(), pos, create_graph=True)
        return energies, -gradient

    def is_the_same_compiled(self, loader, has_own_pos=False):
        compiled, batches = tp.compile(copy.deepcopy(self), loader, **AOT), [*loader]
        for data in batches:
            gradients = []
            for model in (self, compiled):
                model.zero_grad()
                copied = data.clone()
                energies, forces = model(copied, copied.pos) if has_own_pos else model(copied)
                (energies.square().sum() + forces.square().sum()).backward()
                gradients.append([x.grad for x in model.parameters()])
            assert all(each.isfinite().all() for each in gradients[0])
            torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def chain(n, edges, generator):
    """Atoms in a row, about 1 apart, with edges to the next `edges` atoms and back."""
    pos = torch.arange(n)[:, None] * torch.tensor([1.0, 0, 0]) + 0.3 * torch.rand(n, 3, generator=generator)
    ends = torch.tensor([(i, j) for i in range(n) for j in range(n) if 0 < abs(i - j) <= edges])
    return Data(pos=pos.double(), edge_index=ends.T.contiguous())


@pytest.mark.parametrize("has_own_pos", [False, True])
def test_edges_of_padding_are_short(has_own_pos):
    # Since the chains differ in size, some graphs of padding have many nodes.
    generator = torch.Generator().manual_seed(0)
    graphs = [chain(3 + 3 * (i % 6), 2, generator) for i in range(20)]
    Vectors().is_the_same_compiled(tp.packed_loader(graphs, batch_size=4, shuffle=False), has_own_pos)


def crystal(n, name):
    """Atoms with edges to their own images in the neighbouring cells."""
    shifts = torch.cat([torch.eye(3), -torch.eye(3)[:2]]).double()
    return Data(
        pos=torch.rand(n, 3, generator=torch.Generator().manual_seed(n), dtype=torch.float64),
        edge_index=torch.arange(n).repeat_interleave(5).repeat(2, 1),
        cell=(2 * torch.eye(3, dtype=torch.float64) + torch.tensor([[0, 0.2, 0], [0, 0, 0.3], [0.1, 0, 0]]))[None],
        **{name: shifts.repeat(n, 1)},
    )


def test_edges_of_padding_stay_within_the_cell():
    """Copies of the shifts of real edges would make edges of padding longer than the cutoff."""
    crystals = [crystal(n, "shift") for n in (1, 2, 3, 2, 1, 3, 2, 1)]
    Vectors("shift").is_the_same_compiled(tp.packed_loader(crystals, batch_size=3, shuffle=False))


SHIFTS = ["shift", "shifts", "unit_shifts", "cell_offsets", "edge_cell_shift", "pbc_offset", "images", "shift_far"]


@pytest.mark.parametrize(("name", "is_shift"), [*((name, True) for name in SHIFTS), ("vector", False)])
def test_which_features_of_edges_are_shifts(name, is_shift):
    loader = tp.packed_loader([crystal(n, name) for n in (2, 3, 4)], batch_size=2, shuffle=False)
    first = next(iter(loader))

    padding = []

    class Padded(nn.Module):
        def forward(self, data):
            padding.append(data[name][first.num_edges :].detach())
            return data[name].sum(1)

    tp.compile(Padded(), loader, backend="eager", check=False)(first)
    assert len(padding[-1]) >= 2
    assert bool((padding[-1] == 0).all()) == is_shift


@pytest.mark.parametrize(
    "chains",
    [
        # The first batch has all edges that the shape holds, and few nodes; then all nodes, and few edges.
        [(8, 7), (8, 7), (15, 2), (15, 2), (4, 3)],
        [(15, 1), (15, 1), (8, 7), (8, 7), (4, 3)],
        [(4, 3), (5, 2), (2, 1)],
    ],
)
def test_nodes_of_padding_have_about_as_many_edges_as_real_nodes(chains):
    """Without edges, lengths of sums have no second derivatives; with very many, sums become infinite."""
    generator = torch.Generator().manual_seed(0)
    loader = tp.packed_loader([chain(n, edges, generator) for n, edges in chains], batch_size=2, shuffle=False)
    Vectors().is_the_same_compiled(loader)
    degrees = []

    class Degrees(nn.Module):
        def forward(self, data):
            degrees.append(torch.bincount(data.edge_index[1], minlength=data.num_nodes))
            return data.pos.sum(1)

    model = tp.compile(Degrees(), loader, backend="eager", check=False)
    for data in loader:
        model(data)
        of_padding = degrees[-1][data.num_nodes :]
        assert len(of_padding) >= 8
        assert of_padding.min() >= 1
        assert of_padding.max() <= 2 * 7 + 1


def test_a_batch_that_is_used_again_is_not_compiled_again():
    torch.manual_seed(0)
    model, loader = Potential(inside), tp.packed_loader(GRAPHS, batch_size=8)
    compiled = tp.compile(model, loader, **AOT)
    data = next(iter(loader))
    first = [each.detach() for each in compiled(data)]
    assert data.pos.requires_grad
    torch.testing.assert_close(first, [each.detach() for each in compiled(data)])
    assert len(compiled._static_calls._calls) == 1


class Near(nn.Module):
    """Energies of vectors to atoms that are nearer than 0.4, with a cell of each structure; for any names."""

    def __init__(self, positions):
        super().__init__()
        self.positions, self.kinds, self.mix = positions, nn.Embedding(5, 8), nn.Linear(8, 8, bias=False)
        self.double()

    def forward(self, data):
        pos, (source, target) = data[self.positions], data.edge_index
        pos.requires_grad_()
        vectors = pos[source] - pos[target]
        lengths = vectors.norm(dim=1, keepdim=True)
        near = self.kinds(data.z)[source] * (1 - lengths / 0.4).clamp(min=0) ** 3
        sums = near.new_zeros(len(pos), 3, 8).index_add(0, target, (vectors / lengths)[:, :, None] * near[:, None])
        atoms = self.mix(sums).norm(dim=1).sum(1) / torch.linalg.det(data.lattice.view(-1, 3, 3))[data.batch]
        energies = atoms.new_zeros(data.num_graphs, 1).index_add(0, data.batch, atoms[:, None])
        (gradient,) = torch.autograd.grad(energies.sum(), pos, create_graph=True)
        return energies, -gradient


@pytest.mark.parametrize("name", ["pos", "positions", "atom_coord", "R", "loc"])
def test_names_of_positions_their_unit_and_cells_with_three_rows(name):
    # Angles of a triangle make no sum of vectors 0.
    triangle, generator = torch.tensor([[0.0, 0, 0], [0.1, 0, 0], [0.03, 0.12, 0]]).double(), torch.Generator()
    graphs = []
    for i in range(30):
        data = molecule(3, generator.manual_seed(i))
        del data.pos, data.cell
        data[name] = triangle + 0.01 * torch.randn(3, 3, generator=generator, dtype=torch.float64)
        data.lattice = (2 + torch.rand(3, generator=generator).double()).diag()
        data.num_nodes = 3
        graphs.append(data)
    # One without edges, so that numbers of rows differ.
    graphs[0] = molecule(2, generator)
    pos = graphs[0].pos / 20
    del graphs[0].pos, graphs[0].cell
    graphs[0][name], graphs[0].lattice, graphs[0].num_nodes = pos, torch.eye(3).double(), 2
    loader, model = tp.packed_loader(graphs, batch_size=8, with_ids=True), Near(name)
    # This name does not tell.
    named = {"coordinates": ["loc"]} if name == "loc" else {}
    compiled = tp.compile(copy.deepcopy(model), loader, **named, **AOT)
    for data in loader:
        found = compiled(data)
        torch.testing.assert_close(found, model(data.clone().detach()), rtol=1e-10, atol=1e-12)
        loss_of(found, data).backward()
    assert compiled._static_calls.is_compiled
    assert all(each.grad.isfinite().all() for each in compiled.parameters())


@pytest.mark.parametrize("unit", [1.0, 2.0**-4, 2.0**7])
def test_edges_of_padding_are_as_long_as_real_ones(unit):
    for seed in range(50):
        data = molecule(2 + seed % 7, torch.Generator().manual_seed(seed))
        lengths = (data.pos[data.edge_index[0]] - data.pos[data.edge_index[1]]).norm(dim=1)
        spacing = spacing_of(data.edge_index, data.pos * unit, data.pos * unit) / unit
        assert spacing == 2.0 ** round(math.log2(spacing))
        assert spacing <= max(1.5 * lengths.min(), lengths.max() / 1.8)
        assert 2 * spacing > min(lengths.min() / 1.5, lengths.max() / 1.8)
        assert spacing < lengths.max()
    assert spacing_of(data.edge_index, 0 * data.pos, 0 * data.pos) == 1.0


@torch.compiler.disable
def untraced(x):
    return 2 * x


def structures():
    """DGLGraphs with positions."""
    graphs = []
    for n in range(5, 25):
        graphs.append(dgl.rand_graph(n, 4 * n))
        graphs[-1].ndata["pos"] = torch.randn(n, 3, dtype=torch.float64)
    return graphs


class OnDgl(nn.Module):
    """Forces of a DGLGraph, also under `torch.no_grad()`."""

    def __init__(self, fails=False):
        super().__init__()
        self.lin, self.fails = nn.Linear(3, 1, dtype=torch.float64), fails

    def forward(self, graph):
        with torch.enable_grad(), graph.local_scope():
            pos = graph.ndata["pos"].requires_grad_()
            graph.ndata["r"] = pos
            graph.apply_edges(dgl.function.v_sub_u("r", "r", "v"))
            graph.edata["h"] = self.lin(graph.edata["v"].sin())
            energies = dgl.sum_edges(graph, "h")
            (gradient,) = torch.autograd.grad(energies.sum(), pos, create_graph=self.training)
            if self.fails and not self.training:
                gradient = untraced(gradient)
            return energies, -gradient


@pytest.mark.dgl
@pytest.mark.parametrize("fails", [False, True])
def test_the_first_evaluation_of_forces_on_dgl_ends_no_training(fails):
    loader = tp.packed_loader(structures(), batch_size=5)
    model = OnDgl(fails)
    compiled = tp.compile(model, loader, backend="eager", fullgraph=True)
    for graph in loader:
        compiled(graph)[1].square().sum().backward()
    compiled.eval()
    warns = pytest.warns(UserWarning, match="run without padding, uncompiled")
    with torch.no_grad(), warns if fails else nullcontext():
        for graph in loader:
            for found, expected in zip(compiled(graph), model(graph), strict=True):
                torch.testing.assert_close(found, expected)


class BesideDgl(nn.Module):
    """Forces of a DGLGraph whose positions are an argument, too; energies are of `read`."""

    def __init__(self, read):
        super().__init__()
        self.lin, self.read = nn.Linear(3, 1, dtype=torch.float64), read

    def forward(self, graph, pos):
        pos.requires_grad_()
        with graph.local_scope():
            if self.read == "written":
                graph.ndata["r"] = pos
            graph.apply_edges(dgl.function.v_sub_u("r", "r", "v") if self.read == "written" else
                              dgl.function.v_sub_u("pos", "pos", "v"))  # fmt: skip
            graph.edata["h"] = self.lin(graph.edata["v"].sin())
            energies = dgl.sum_edges(graph, "h")
        return energies, -torch.autograd.grad(energies.sum(), pos, create_graph=True)[0]


@pytest.mark.dgl
@pytest.mark.parametrize("read", ["written", "of the graph"])
def test_positions_as_an_argument_beside_their_graph(read):
    loader = tp.packed_loader(structures(), batch_size=5)
    model = BesideDgl(read)
    compiled = tp.compile(model, loader, backend="eager", fullgraph=True)
    for graph in loader:
        for found, expected in zip(compiled(graph, graph.ndata["pos"]), model(graph, graph.ndata["pos"]), strict=True):
            torch.testing.assert_close(found, expected)
