"""ZINC with PyG: PNA, with a dataset object for each of the three splits."""

import torch
from torch.nn import Embedding, Linear, ModuleList, ReLU, Sequential
from torch_geometric.datasets import ZINC
from torch_geometric.nn import BatchNorm, PNAConv, global_add_pool
from torch_geometric.utils import degree

import dgl_tuplepack as tp

EPOCHS = 300
WIDTH = 75


class PNA(torch.nn.Module):
    def __init__(self, degrees):
        super().__init__()
        self.atoms, self.bonds = Embedding(28, WIDTH), Embedding(4, WIDTH)
        aggregators = ["mean", "min", "max", "std"]
        scalers = ["identity", "amplification", "attenuation"]
        self.convs, self.norms = ModuleList(), ModuleList()
        for _ in range(3):
            conv = PNAConv(WIDTH, WIDTH, aggregators, scalers, degrees, edge_dim=WIDTH)
            self.convs.append(conv)
            self.norms.append(BatchNorm(WIDTH))
        self.head = Sequential(Linear(WIDTH, WIDTH), ReLU(), Linear(WIDTH, 1))

    def forward(self, x, edge_index, edge_attr, batch):
        x, edge_attr = self.atoms(x.squeeze(-1)), self.bonds(edge_attr)
        for conv, norm in zip(self.convs, self.norms):
            x = x + norm(conv(x, edge_index, edge_attr)).relu()
        return self.head(global_add_pool(x, batch)).squeeze(-1)


def train():
    model.train()
    total_loss = 0
    for data in train_loader:
        data = data.to(device)
        optimiser.zero_grad()
        out = model(data.x, data.edge_index, data.edge_attr, data.batch)
        loss = (out - data.y).abs().mean()
        loss.backward()
        optimiser.step()
        total_loss += loss.item() * data.num_graphs
    return total_loss / len(train_loader.dataset)


@torch.no_grad()
def test(loader):
    model.eval()
    total_error = 0
    for data in loader:
        data = data.to(device)
        out = model(data.x, data.edge_index, data.edge_attr, data.batch)
        total_error += (out - data.y).abs().sum().item()
    return total_error / len(loader.dataset)


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_dataset = ZINC("data/ZINC", subset=True, split="train")
val_dataset = ZINC("data/ZINC", subset=True, split="val")
test_dataset = ZINC("data/ZINC", subset=True, split="test")

degrees = torch.zeros(8, dtype=torch.long)
for data in train_dataset:
    of_nodes = degree(data.edge_index[1], data.num_nodes, dtype=torch.long)
    degrees += torch.bincount(of_nodes, minlength=degrees.numel())

train_loader = tp.packed_loader(train_dataset, batch_size=128)
val_loader = tp.packed_loader(val_dataset, batch_size=128, shuffle=False)
test_loader = tp.packed_loader(test_dataset, batch_size=128, shuffle=False)

model = PNA(degrees).to(device)
model = tp.compile(model, [train_loader, val_loader, test_loader])
optimiser = torch.optim.Adam(model.parameters(), lr=0.001)
for epoch in range(EPOCHS):
    loss = train()
    val_error, test_error = test(val_loader), test(test_loader)
    print(f"epoch {epoch}: loss {loss:.10g}, val {val_error:.10g}, test {test_error:.10g}")
