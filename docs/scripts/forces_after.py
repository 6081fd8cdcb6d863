"""Revised MD17 with PyG: a potential of aspirin, trained on energies and forces."""

import torch
from torch import nn
from torch_geometric.datasets import MD17
from torch_geometric.nn import global_add_pool

import dgl_tuplepack as tp

EPOCHS = 1000
WIDTH = 128
CUTOFF = 5.0


def with_edges(data):
    near = torch.cdist(data.pos, data.pos) < CUTOFF
    data.edge_index = near.fill_diagonal_(False).nonzero().t().contiguous()
    return data


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(10, WIDTH)
        self.radial = nn.ModuleList(nn.Linear(20, WIDTH) for _ in range(3))
        self.updates = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))
        self.register_buffer("centres", torch.linspace(0, CUTOFF, 20))

    def energies(self, data):
        source, target = data.edge_index
        lengths = (data.pos[source] - data.pos[target]).norm(dim=1, keepdim=True)
        smooth = (lengths * torch.pi / CUTOFF).cos() / 2 + 0.5
        waves = (-4 * (lengths - self.centres) ** 2).exp()
        h = self.kinds(data.z)
        for radial, update in zip(self.radial, self.updates):
            messages = h[source] * radial(waves) * smooth
            summed = torch.zeros_like(h).index_add(0, target, messages)
            h = h + nn.functional.silu(update(summed))
        return global_add_pool(self.head(h), data.batch).squeeze(-1)

    def forward(self, data):
        data.pos.requires_grad_()
        energies = self.energies(data)
        (slope,) = torch.autograd.grad(energies.sum(), data.pos, create_graph=self.training)
        return energies, -slope


def train(model, loader, optimiser, device):
    model.train()
    total = 0
    for data in loader:
        data = data.to(device)
        energies, forces = model(data)
        loss = (energies - (data.energy - mean)).square().mean()
        loss = loss + 100 * (forces - data.force).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item() * data.num_graphs
    return total / len(loader.dataset)


def evaluate(model, loader, device):
    model.eval()
    of_energies, of_forces = [], []
    for data in loader:
        data = data.to(device)
        energies, forces = model(data)
        of_energies.append((energies.detach() + mean - data.energy).abs())
        of_forces.append((forces.detach() - data.force).abs())
    return torch.cat(of_energies).mean().item(), torch.cat(of_forces).mean().item()


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = MD17("data/MD17", name="revised aspirin", pre_transform=with_edges).shuffle()
train_set, val_set = dataset[:0.01], dataset[0.99:]
mean = torch.cat([data.energy for data in train_set]).mean().item()
train_loader = tp.packed_loader(train_set, batch_size=8)
val_loader = tp.packed_loader(val_set, batch_size=8, shuffle=False)
model = Potential().to(device)
model = tp.compile(model, train_loader)
optimiser = torch.optim.Adam(model.parameters(), lr=0.001)
for epoch in range(EPOCHS):
    loss = train(model, train_loader, optimiser, device)
    energy_error, force_error = evaluate(model, val_loader, device)
    print(f"epoch {epoch}: loss {loss:.10g}, errors {energy_error:.10g}, {force_error:.10g}")
