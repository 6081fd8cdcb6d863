"""GAT that counts nitrogen atoms, in three classes, with attention as readout (DGL)."""

import dgl
import torch
import torch.nn as nn
import torch.nn.functional as F
from dgl.dataloading import GraphDataLoader
from dgl.nn import GATConv

from tests.programs.two_lines.molecules import NUM_ATOMS, draw

DROPOUT = 0.2


class Molecules(dgl.data.DGLDataset):
    def __init__(self):
        super().__init__(name="molecules")

    def process(self):
        self.graphs, self.labels = [], []
        for atoms, (src, dst), _ in draw(96, seed=4):
            graph = dgl.add_self_loop(dgl.graph((src, dst), num_nodes=len(atoms)))
            graph.ndata["attr"] = F.one_hot(atoms, NUM_ATOMS).to(torch.get_default_dtype())
            self.graphs.append(graph)
            self.labels.append(min(int((atoms == 1).sum()), 2))

    def __getitem__(self, index):
        return self.graphs[index], self.labels[index]

    def __len__(self):
        return len(self.graphs)


class GAT(nn.Module):
    def __init__(self, in_size, hidden_size, out_size, heads):
        super().__init__()
        self.gat_layers = nn.ModuleList(
            [
                GATConv(in_size, hidden_size, heads[0], feat_drop=DROPOUT, activation=F.elu),
                GATConv(hidden_size * heads[0], hidden_size, heads[1], feat_drop=DROPOUT, residual=True),
            ]
        )
        self.gate = nn.Linear(hidden_size, 1)
        self.classify = nn.Linear(hidden_size, out_size)

    def forward(self, g, h):
        h = self.gat_layers[0](g, h).flatten(1)
        h = F.elu(self.gat_layers[1](g, h).mean(1))
        with g.local_scope():
            g.ndata["h"] = h
            g.ndata["weight"] = dgl.softmax_nodes(self.add_gates(g), "gate")
            return self.classify(dgl.sum_nodes(g, "h", "weight"))

    def add_gates(self, g):
        g.ndata["gate"] = self.gate(g.ndata["h"])
        return g


def evaluate(dataloader, model, device):
    model.eval()
    total, correct = 0, 0
    with torch.no_grad():
        for batched_graph, labels in dataloader:
            batched_graph, labels = batched_graph.to(device), labels.to(device)
            logits = model(batched_graph, batched_graph.ndata["attr"])
            total += len(labels)
            correct += (logits.argmax(1) == labels).sum().item()
    return correct / total


def main():
    torch.manual_seed(4)
    device = torch.device("cpu")
    dataset = Molecules()
    train_idx, val_idx = torch.arange(72), torch.arange(72, 96)
    train_loader = GraphDataLoader(torch.utils.data.Subset(dataset, train_idx), batch_size=16, shuffle=True)
    val_loader = GraphDataLoader(torch.utils.data.Subset(dataset, val_idx), batch_size=16)
    model = GAT(NUM_ATOMS, 8, 3, heads=[2, 2]).to(device)
    loss_fcn = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    for epoch in range(4):
        model.train()
        total_loss = 0
        for batched_graph, labels in train_loader:
            batched_graph, labels = batched_graph.to(device), labels.to(device)
            logits = model(batched_graph, batched_graph.ndata["attr"])
            loss = loss_fcn(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total_loss += loss.item()
        accuracy = evaluate(val_loader, model, device)
        print(f"Epoch {epoch:05d} | Loss {total_loss / len(train_loader):.12g} | Accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
