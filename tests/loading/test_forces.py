"""Models whose forward pass computes forces, compiled on ordinary batches, against the models themselves."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.data import Data

import dgl_tuplepack as tp
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.errors import CompileError

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


def test_a_model_may_enable_gradients_itself_in_an_evaluation_without():
    @torch.enable_grad()
    def enabled(model, data):
        energies, forces = inside(model, data)
        return energies.detach(), forces.detach()

    loader = tp.packed_loader(GRAPHS, batch_size=8)
    model = Potential(enabled).eval()
    compiled = tp.compile(model, loader, **AOT)
    with torch.no_grad():
        for data in loader:
            torch.testing.assert_close(compiled(data.clone()), model(data), rtol=1e-12, atol=1e-12)
    assert compiled._static_calls._calls


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
    with pytest.raises(CompileError, match=r"test_forces.py.*must depend on an argument.*positions.sum\(\)"):
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
    with pytest.raises(CompileError, match=r"torch .* cannot compile torch\.autograd\.grad, which torch 2.13 can"):
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
