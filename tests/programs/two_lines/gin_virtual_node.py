"""GIN with a virtual node, on several binary tasks with missing labels, scored by OGB's evaluator (PyG)."""

import torch
import torch.nn.functional as F
from ogb.graphproppred import Evaluator
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool, global_mean_pool

from tests.programs.two_lines.molecules import NUM_ATOMS, NUM_BONDS, draw

DROPOUT = 0.5


class GIN(nn.Module):
    def __init__(self, num_tasks, num_layers=3, width=16):
        super().__init__()
        self.num_layers = num_layers
        self.atom_encoder = nn.Embedding(NUM_ATOMS, width)
        self.virtual_node = nn.Embedding(1, width)
        nn.init.constant_(self.virtual_node.weight, 0)
        self.bond_encoders, self.convs, self.norms, self.updates = (nn.ModuleList() for _ in range(4))
        for _ in range(num_layers):
            mlp = nn.Sequential(
                nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width)
            )
            self.bond_encoders.append(nn.Embedding(NUM_BONDS, width))
            self.convs.append(GINEConv(mlp, train_eps=True))
            self.norms.append(nn.BatchNorm1d(width))
        for _ in range(num_layers - 1):
            self.updates.append(nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU()))
        self.head = nn.Linear(width, num_tasks)

    def forward(self, data):
        edge_index, batch = data.edge_index, data.batch
        h = self.atom_encoder(data.x)
        virtual = self.virtual_node(torch.zeros(batch[-1].item() + 1).to(edge_index.dtype).to(edge_index.device))
        for layer in range(self.num_layers):
            h = h + virtual[batch]
            out = self.norms[layer](self.convs[layer](h, edge_index, self.bond_encoders[layer](data.edge_attr)))
            if layer == self.num_layers - 1:
                out = F.dropout(out, DROPOUT, training=self.training)
            else:
                out = F.dropout(F.relu(out), DROPOUT, training=self.training)
                pooled = global_add_pool(h, batch) + virtual
                virtual = virtual + F.dropout(self.updates[layer](pooled), DROPOUT, training=self.training)
            h = out + h
        return self.head(global_mean_pool(h, batch))


def train(model, device, loader, optimizer, criterion):
    model.train()
    losses = []
    for batch in loader:
        batch = batch.to(device)
        if batch.x.shape[0] == 1 or batch.batch[-1] == 0:
            continue
        pred = model(batch)
        optimizer.zero_grad()
        is_labeled = batch.y == batch.y
        loss = criterion(pred[is_labeled], batch.y[is_labeled])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@torch.no_grad()
def evaluate(model, device, loader, evaluator):
    model.eval()
    y_true, y_pred = [], []
    for batch in loader:
        batch = batch.to(device)
        pred = model(batch)
        y_true.append(batch.y.view(pred.shape).detach().cpu())
        y_pred.append(pred.detach().cpu())
    y_true = torch.cat(y_true, dim=0).numpy()
    y_pred = torch.cat(y_pred, dim=0).numpy()
    return evaluator.eval({"y_true": y_true, "y_pred": y_pred})["rocauc"]


def make_dataset(number):
    dataset = []
    for atoms, ends, bonds in draw(number, seed=0):
        has_nitrogen, has_double_bonds = float((atoms == 1).sum() > 1), float((bonds == 1).sum() > 6)
        y = torch.tensor([[has_nitrogen, has_double_bonds]])
        y[torch.rand(y.shape) < 0.2] = float("nan")
        dataset.append(Data(x=atoms, edge_index=ends, edge_attr=bonds, y=y))
    return dataset


def main():
    torch.manual_seed(0)
    device = torch.device("cpu")
    dataset = make_dataset(120)
    train_set, valid_set, test_set = dataset[:72], dataset[72:96], dataset[96:]
    evaluator = Evaluator("ogbg-molclintox")
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=16, shuffle=False)
    test_loader = DataLoader(test_set, batch_size=16, shuffle=False)

    model = GIN(num_tasks=2).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    criterion = nn.BCEWithLogitsLoss()
    valid_curve, test_curve = [], []
    for epoch in range(1, 4):
        loss = train(model, device, train_loader, optimizer, criterion)
        valid_curve.append(evaluate(model, device, valid_loader, evaluator))
        test_curve.append(evaluate(model, device, test_loader, evaluator))
        print(f"epoch {epoch}: loss {loss:.12g}, valid {valid_curve[-1]:.12g}, test {test_curve[-1]:.12g}")
    best = max(range(len(valid_curve)), key=lambda i: valid_curve[i])
    print(f"best valid {valid_curve[best]:.12g}, test {test_curve[best]:.12g}")


if __name__ == "__main__":
    main()
