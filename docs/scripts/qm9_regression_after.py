"""QM9 with PyG: a message passing network with Set2Set, on normalised targets."""

import torch
from torch import nn
from torch_geometric.datasets import QM9
from torch_geometric.nn import NNConv
from torch_geometric.nn.aggr import Set2Set
from torch_geometric.transforms import Compose, Distance

import dgl_tuplepack as tp

TARGET = 0
EPOCHS = 300
WIDTH = 64


class Complete:
    """Join all pairs of atoms; pairs without a bond have zeros as attributes."""

    def __call__(self, data):
        n = data.num_nodes
        edge_index = (~torch.eye(n, dtype=torch.bool)).nonzero().t().contiguous()
        attributes = data.edge_attr.new_zeros(n, n, data.edge_attr.size(1))
        attributes[data.edge_index[0], data.edge_index[1]] = data.edge_attr
        data.edge_index, data.edge_attr = edge_index, attributes[edge_index[0], edge_index[1]]
        return data


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(11, WIDTH)
        network = nn.Sequential(nn.Linear(5, 128), nn.ReLU(), nn.Linear(128, WIDTH * WIDTH))
        self.conv = NNConv(WIDTH, WIDTH, network, aggr="mean")
        self.gru = nn.GRUCell(WIDTH, WIDTH)
        self.pool = Set2Set(WIDTH, processing_steps=3)
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))

    def forward(self, data):
        h = self.encode(data.x).relu()
        for _ in range(3):
            h = self.gru(self.conv(h, data.edge_index, data.edge_attr).relu(), h)
        return self.head(self.pool(h, data.batch)).squeeze(-1)


def train(model, loader, optimiser, device):
    model.train()
    total = 0
    for data in loader:
        data = data.to(device)
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(model(data), (data.y[:, TARGET] - mean) / std)
        loss.backward()
        optimiser.step()
        total += loss.item() * data.num_graphs
    return total / len(loader.dataset)


@torch.no_grad()
def mean_error(model, loader, device):
    model.eval()
    total = 0
    for data in loader:
        data = data.to(device)
        total += (model(data) * std + mean - data.y[:, TARGET]).abs().sum().item()
    return total / len(loader.dataset)


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = QM9("data/QM9", transform=Compose([Complete(), Distance(norm=False)])).shuffle()
train_set, val_set, test_set = dataset[:0.8], dataset[0.8:0.9], dataset[0.9:]
mean, std = dataset.mean(TARGET), dataset.std(TARGET)
train_loader = tp.packed_loader(train_set, batch_size=128)
val_loader = tp.packed_loader(val_set, batch_size=128, shuffle=False)
test_loader = tp.packed_loader(test_set, batch_size=128, shuffle=False)
model = Net().to(device)
model = tp.compile(model, train_loader)
optimiser = torch.optim.Adam(model.parameters(), lr=0.001)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, factor=0.7, patience=5)

best = float("inf")
for epoch in range(EPOCHS):
    loss = train(model, train_loader, optimiser, device)
    error = mean_error(model, val_loader, device)
    scheduler.step(error)
    if error < best:
        best = error
        torch.save({"model": model.state_dict(), "epoch": epoch}, "best.pt")
    rate = optimiser.param_groups[0]["lr"]
    print(f"epoch {epoch}: rate {rate:.3g}, loss {loss:.10g}, val {error:.10g}")

checkpoint = torch.load("best.pt")
model.load_state_dict(checkpoint["model"])
error = mean_error(model, test_loader, device)
print(f"epoch {checkpoint['epoch']} is the best, test {error:.10g}")
