"""ogbg-molhiv with PyG: a GIN with a virtual node, scored by OGB's evaluator."""

import torch
from ogb.graphproppred import Evaluator, PygGraphPropPredDataset
from ogb.graphproppred.mol_encoder import AtomEncoder, BondEncoder
from torch import nn
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool, global_mean_pool

NAME = "ogbg-molhiv"
EPOCHS = 50
WIDTH = 128
LAYERS = 3
DROPOUT = 0.5
# OGB 1.3.6 saves objects of these classes, and torch 2.6 and newer load only listed classes.
torch.serialization.add_safe_globals([DataEdgeAttr, DataTensorAttr, GlobalStorage])
loss_fn = nn.BCEWithLogitsLoss()


def mlp():
    first, norm = nn.Linear(WIDTH, 2 * WIDTH), nn.BatchNorm1d(2 * WIDTH)
    return nn.Sequential(first, norm, nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))


class GIN(nn.Module):
    def __init__(self, num_tasks):
        super().__init__()
        self.atoms, self.virtual = AtomEncoder(WIDTH), nn.Embedding(1, WIDTH)
        self.bonds = nn.ModuleList(BondEncoder(WIDTH) for _ in range(LAYERS))
        self.convs = nn.ModuleList(GINEConv(mlp(), train_eps=True) for _ in range(LAYERS))
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in range(LAYERS))
        self.updates = nn.ModuleList(mlp() for _ in range(LAYERS))
        self.dropout, self.head = nn.Dropout(DROPOUT), nn.Linear(WIDTH, num_tasks)

    def forward(self, data):
        batch, h = data.batch, self.atoms(data.x)
        virtual = self.virtual(batch.new_zeros(batch[-1].item() + 1))
        for bonds, conv, norm, update in zip(self.bonds, self.convs, self.norms, self.updates):
            h = h + virtual[batch]
            virtual = virtual + self.dropout(update(global_add_pool(h, batch) + virtual).relu())
            h = h + self.dropout(norm(conv(h, data.edge_index, bonds(data.edge_attr))).relu())
        return self.head(global_mean_pool(h, batch))


def train(model, loader, optimiser, device):
    model.train()
    total = 0.0
    for data in loader:
        data = data.to(device)
        out = model(data)
        labelled = data.y == data.y  # missing labels are NaN
        loss = loss_fn(out[labelled], data.y[labelled].to(out.dtype))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item() * data.num_graphs
    return total / len(loader.dataset)


@torch.no_grad()
def evaluate(model, loader, evaluator, device):
    model.eval()
    truth, scores = [], []
    for data in loader:
        data = data.to(device)
        scores.append(model(data).cpu())
        truth.append(data.y.view(scores[-1].shape).cpu())
    return evaluator.eval({"y_true": torch.cat(truth), "y_pred": torch.cat(scores)})["rocauc"]


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = PygGraphPropPredDataset(NAME)
    split = dataset.get_idx_split()
    train_loader = DataLoader(dataset[split["train"]], batch_size=32, shuffle=True)
    valid_loader = DataLoader(dataset[split["valid"]], batch_size=32, shuffle=False)
    test_loader = DataLoader(dataset[split["test"]], batch_size=32, shuffle=False)
    model = GIN(dataset.num_tasks).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.001)
    evaluator, best = Evaluator(NAME), (0.0, 0.0)
    for epoch in range(EPOCHS):
        loss = train(model, train_loader, optimiser, device)
        valid = evaluate(model, valid_loader, evaluator, device)
        test = evaluate(model, test_loader, evaluator, device)
        best = max(best, (valid, test))
        print(f"epoch {epoch}: loss {loss:.10g}, valid {valid:.10g}, test {test:.10g}")
    print(f"best valid {best[0]:.10g}, test {best[1]:.10g}")


if __name__ == "__main__":
    main()
