"""A message passing network with Set2Set that predicts a property of complete graphs with distances (PyG)."""

import torch
import torch.nn.functional as F
from torch.nn import GRU, Linear, ReLU, Sequential
from torch.utils.data import Dataset, Subset
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import NNConv
from torch_geometric.nn.aggr import Set2Set
from torch_geometric.transforms import Compose, Distance

from tests.programs.two_lines.molecules import NUM_ATOMS, NUM_BONDS, draw

WIDTH = 16


class Complete:
    """Join all pairs of atoms; pairs without a bond have zeros as attributes."""

    def __call__(self, data):
        n = data.num_nodes
        edge_index = (torch.ones(n, n) - torch.eye(n)).nonzero().t().contiguous()
        attributes = data.edge_attr.new_zeros(n, n, data.edge_attr.shape[1])
        attributes[data.edge_index[0], data.edge_index[1]] = data.edge_attr
        data.edge_index, data.edge_attr = edge_index, attributes[edge_index[0], edge_index[1]]
        return data


class Molecules(Dataset):
    def __init__(self, number, transform=None):
        self.transform, self.items = transform, []
        for atoms, ends, bonds in draw(number, seed=1):
            pos = torch.randn(len(atoms), 3).cumsum(0)
            kinds, orders = F.one_hot(atoms, NUM_ATOMS), F.one_hot(bonds, NUM_BONDS)
            y = (pos - pos.mean(0)).norm(dim=1).mean() + (atoms == 2).sum()
            dtype = pos.dtype
            data = Data(x=kinds.to(dtype), edge_index=ends, edge_attr=orders.to(dtype), pos=pos, y=y.view(1, 1))
            self.items.append(data)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        data = self.items[index].clone()
        return data if self.transform is None else self.transform(data)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin0 = Linear(NUM_ATOMS, WIDTH)
        network = Sequential(Linear(NUM_BONDS + 1, 32), ReLU(), Linear(32, WIDTH * WIDTH))
        self.conv = NNConv(WIDTH, WIDTH, network, aggr="mean")
        self.gru = GRU(WIDTH, WIDTH)
        self.set2set = Set2Set(WIDTH, processing_steps=3)
        self.lin1, self.lin2 = Linear(2 * WIDTH, WIDTH), Linear(WIDTH, 1)

    def forward(self, data):
        out = F.relu(self.lin0(data.x))
        h = out.unsqueeze(0)
        for _ in range(3):
            m = F.relu(self.conv(out, data.edge_index, data.edge_attr))
            out, h = self.gru(m.unsqueeze(0), h)
            out = out.squeeze(0)
        out = self.set2set(out, data.batch)
        return self.lin2(F.relu(self.lin1(out))).view(-1)


torch.manual_seed(1)
dataset = Molecules(80, transform=Compose([Complete(), Distance(norm=False)]))
train_set, test_set = Subset(dataset, range(60)), Subset(dataset, range(60, 80))
targets = torch.cat([data.y for data in dataset])
mean, std = targets.mean(), targets.std()

train_loader = DataLoader(train_set, batch_size=12, shuffle=True)
test_loader = DataLoader(test_set, batch_size=12)

model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="min", factor=0.7, patience=1, min_lr=1e-5)


def train():
    model.train()
    loss_all = 0
    for data in train_loader:
        optimizer.zero_grad()
        loss = F.mse_loss(model(data), (data.y.view(-1) - mean) / std)
        loss.backward()
        loss_all += loss.item() * data.num_graphs
        optimizer.step()
    return loss_all / len(train_loader.dataset)


@torch.no_grad()
def test(loader):
    model.eval()
    error = 0
    for data in loader:
        error += (model(data) * std + mean - data.y.view(-1)).abs().sum().item()
    return error / len(loader.dataset)


best = None
for epoch in range(3):
    lr = scheduler.optimizer.param_groups[0]["lr"]
    loss = train()
    error = test(test_loader)
    scheduler.step(error)
    best = error if best is None else min(best, error)
    print(f"epoch {epoch}, lr {lr:.6f}, loss {loss:.12g}, test MAE {error:.12g}, best {best:.12g}")
