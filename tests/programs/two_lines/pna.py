"""PNA, whose scalers need the degrees of the training graphs; the model gets tensors, not a batch (PyG)."""

import torch
from torch.nn import Embedding, Linear, ModuleList, ReLU, Sequential
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import BatchNorm, PNAConv, global_add_pool
from torch_geometric.utils import degree

from tests.programs.two_lines.molecules import NUM_ATOMS, NUM_BONDS, draw


def molecules(number, seed):
    return [
        Data(
            x=atoms.view(-1, 1), edge_index=ends, edge_attr=bonds, y=((atoms == 1).sum() - 0.3 * len(atoms) + 2).view(1)
        )
        for atoms, ends, bonds in draw(number, seed)
    ]


class Net(torch.nn.Module):
    def __init__(self, deg):
        super().__init__()
        self.node_emb = Embedding(NUM_ATOMS, 16)
        self.edge_emb = Embedding(NUM_BONDS, 8)
        aggregators, scalers = ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"]
        self.convs, self.batch_norms = ModuleList(), ModuleList()
        for _ in range(2):
            conv = PNAConv(16, 16, aggregators, scalers, deg=deg, edge_dim=8, towers=4, divide_input=False)
            self.convs.append(conv)
            self.batch_norms.append(BatchNorm(16))
        self.mlp = Sequential(Linear(16, 8), ReLU(), Linear(8, 1))

    def forward(self, x, edge_index, edge_attr, batch):
        x = self.node_emb(x.squeeze())
        edge_attr = self.edge_emb(edge_attr)
        for conv, batch_norm in zip(self.convs, self.batch_norms, strict=True):
            x = batch_norm(conv(x, edge_index, edge_attr)).relu()
        return self.mlp(global_add_pool(x, batch))


def train(epoch):
    model.train()
    total_loss = 0
    for data in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        out = model(data.x, data.edge_index, data.edge_attr, data.batch)
        loss = (out.squeeze() - data.y).abs().mean()
        loss.backward()
        total_loss += loss.item() * data.num_graphs
        optimizer.step()
    return total_loss / len(train_loader.dataset)


@torch.no_grad()
def test(loader):
    model.eval()
    total_error = 0
    for data in loader:
        data = data.to(device)
        out = model(data.x, data.edge_index, data.edge_attr, data.batch)
        total_error += (out.squeeze() - data.y).abs().sum().item()
    return total_error / len(loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_dataset, val_dataset = molecules(70, seed=2), molecules(20, seed=3)

    deg = torch.zeros(8, dtype=torch.long)
    for data in train_dataset:
        deg += torch.bincount(degree(data.edge_index[1], data.num_nodes, dtype=torch.long), minlength=8)

    train_loader = DataLoader(train_dataset, batch_size=16, shuffle=True)
    val_loader = DataLoader(val_dataset, batch_size=16)
    model = Net(deg).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    for epoch in range(1, 4):
        loss = train(epoch)
        val_mae = test(val_loader)
        print(f"Epoch: {epoch:02d}, Loss: {loss:.12g}, Val: {val_mae:.12g}")
