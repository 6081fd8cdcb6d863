"""GraphGPS: local layers and attention among all atoms of a molecule, with random walks as positions (PyG)."""

import torch
from torch.nn import BatchNorm1d, Embedding, Linear, ModuleList, ReLU, Sequential
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool
from torch_geometric.transforms import AddRandomWalkPE

from tests.programs.two_lines.molecules import NUM_ATOMS, NUM_BONDS, draw

DROPOUT = 0.1


def molecules(number, seed):
    transform, dtype = AddRandomWalkPE(walk_length=6, attr_name="pe"), torch.get_default_dtype()
    for atoms, ends, bonds in draw(number, seed):
        data = transform(Data(x=atoms.view(-1, 1), edge_index=ends, edge_attr=bonds))
        data.pe, data.y = data.pe.to(dtype), (atoms > 0).to(dtype).mean().view(1)
        yield data


class GPS(torch.nn.Module):
    def __init__(self, channels, pe_dim, num_layers):
        super().__init__()
        self.node_emb = Embedding(NUM_ATOMS, channels - pe_dim)
        self.pe_lin, self.pe_norm = Linear(6, pe_dim), BatchNorm1d(6)
        self.edge_emb = Embedding(NUM_BONDS, channels)
        self.convs = ModuleList()
        for _ in range(num_layers):
            mlp = Sequential(Linear(channels, channels), ReLU(), Linear(channels, channels))
            conv = GPSConv(channels, GINEConv(mlp), heads=2, dropout=DROPOUT, attn_kwargs={"dropout": DROPOUT})
            self.convs.append(conv)
        self.mlp = Sequential(Linear(channels, channels // 2), ReLU(), Linear(channels // 2, 1))

    def forward(self, x, pe, edge_index, edge_attr, batch):
        x = torch.cat((self.node_emb(x.squeeze(-1)), self.pe_lin(self.pe_norm(pe))), 1)
        edge_attr = self.edge_emb(edge_attr)
        for conv in self.convs:
            x = conv(x, edge_index, batch, edge_attr=edge_attr)
        return self.mlp(global_add_pool(x, batch))


torch.manual_seed(5)
train_dataset, val_dataset = list(molecules(64, seed=5)), list(molecules(16, seed=6))
train_loader = DataLoader(train_dataset, batch_size=16, shuffle=True)
val_loader = DataLoader(val_dataset, batch_size=8)

device = torch.device("cpu")
model = GPS(channels=16, pe_dim=4, num_layers=2).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001, weight_decay=1e-5)
scheduler = ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=20, min_lr=0.00001)


def train():
    model.train()
    total_loss = 0
    for data in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        out = model(data.x, data.pe, data.edge_index, data.edge_attr, data.batch)
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
        out = model(data.x, data.pe, data.edge_index, data.edge_attr, data.batch)
        total_error += (out.squeeze() - data.y).abs().sum().item()
    return total_error / len(loader.dataset)


for epoch in range(1, 4):
    loss = train()
    val_mae = test(val_loader)
    scheduler.step(val_mae)
    print(f"Epoch: {epoch:02d}, Loss: {loss:.12g}, Val: {val_mae:.12g}")
