"""ogbg-code2 with DGL: the words of a function's name, which are kept outside of the graphs."""

from collections import Counter

import dgl
import torch
from dgl.nn import GATv2Conv, GlobalAttentionPooling
from ogb.graphproppred import DglGraphPropPredDataset, Evaluator
from torch import nn

import dgl_tuplepack as tp

EPOCHS = 25
WIDTH = 256
LENGTH = 5


class Net(nn.Module):
    def __init__(self, num_words):
        super().__init__()
        self.kinds, self.depths = nn.Embedding(98, WIDTH), nn.Embedding(21, WIDTH)
        self.attributes = nn.Embedding(10030, WIDTH)
        self.convs = nn.ModuleList(GATv2Conv(WIDTH, WIDTH // 4, 4) for _ in range(3))
        self.pool = GlobalAttentionPooling(nn.Linear(WIDTH, 1))
        self.heads = nn.ModuleList(nn.Linear(WIDTH, num_words) for _ in range(LENGTH))

    def forward(self, graph):
        kinds, attributes = graph.ndata["feat"].unbind(1)
        depths = graph.ndata["depth"].view(-1).clamp(max=20)
        h = self.kinds(kinds) + self.attributes(attributes) + self.depths(depths)
        for conv in self.convs:
            h = h + conv(graph, h).flatten(1).relu()
        pooled = self.pool(graph, h)
        return torch.stack([head(pooled) for head in self.heads], 1)


def train(model, loader, numbers, optimiser, device):
    model.train()
    total = 0
    for graph, ids in loader:
        graph, truth = graph.to(device), numbers[ids].to(device)
        loss = nn.functional.cross_entropy(model(graph).flatten(0, 1), truth.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def evaluate(model, loader, texts, words, device):
    model.eval()
    truth, found = [], []
    for graph, ids in loader:
        truth += [texts[i] for i in ids.tolist()]
        for row in model(graph.to(device)).argmax(2).tolist():
            row = row[: row.index(0)] if 0 in row else row
            found.append([words[number] for number in row])
    return Evaluator("ogbg-code2").eval({"seq_ref": truth, "seq_pred": found})["F1"]


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = DglGraphPropPredDataset("ogbg-code2")
    split, texts = dataset.get_idx_split(), dataset.labels
    counts = Counter(word for i in split["train"].tolist() for word in texts[i])
    words = ["", "unknown", *(word for word, _ in counts.most_common(5000))]
    number_of = {word: number for number, word in enumerate(words)}
    numbers = torch.zeros(len(texts), LENGTH, dtype=torch.long)
    for i, text in enumerate(texts):
        for place, word in enumerate(text[:LENGTH]):
            numbers[i, place] = number_of.get(word, 1)

    def with_ids(ids):
        return [(dgl.to_bidirected(dataset[i][0], copy_ndata=True), i) for i in ids.tolist()]

    train_loader = tp.packed_loader(with_ids(split["train"]), batch_size=128)
    valid_loader = tp.packed_loader(with_ids(split["valid"]), batch_size=128, shuffle=False)
    test_loader = tp.packed_loader(with_ids(split["test"]), batch_size=128, shuffle=False)
    model = Net(len(words)).to(device)
    model = tp.compile(model, train_loader)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.001)
    for epoch in range(EPOCHS):
        loss = train(model, train_loader, numbers, optimiser, device)
        valid = evaluate(model, valid_loader, texts, words, device)
        print(f"epoch {epoch}: loss {loss:.10g}, valid F1 {valid:.10g}")
    print(f"test F1 {evaluate(model, test_loader, texts, words, device):.10g}")


if __name__ == "__main__":
    main()
