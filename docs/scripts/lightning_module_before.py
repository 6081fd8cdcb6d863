"""PROTEINS with DGL: a GIN as a LightningModule, tested with the weights of its best epoch."""

import dgl
import pytorch_lightning as pl
import torch
from dgl.dataloading import GraphDataLoader
from dgl.nn import GINConv, SumPooling
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import random_split

EPOCHS = 100
WIDTH = 64
DROPOUT = 0.5
BATCH_SIZE = 32


class GIN(pl.LightningModule):
    def __init__(self, features, classes):
        super().__init__()
        self.save_hyperparameters()
        self.encode = nn.Linear(features, WIDTH)
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for _ in range(3):
            mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
            self.convs.append(GINConv(mlp, learn_eps=True))
            self.norms.append(nn.BatchNorm1d(WIDTH))
        self.pool, self.dropout = SumPooling(), nn.Dropout(DROPOUT)
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, graph):
        h = self.encode(graph.ndata["attr"])
        for conv, norm in zip(self.convs, self.norms):
            h = h + norm(conv(graph, h)).relu()
        return self.head(self.dropout(self.pool(graph, h)))

    def step(self, batch, name):
        graph, labels = batch
        logits = self(graph)
        loss = nn.functional.cross_entropy(logits, labels)
        accuracy = (logits.argmax(1) == labels).double().mean()
        metrics = {f"{name}_loss": loss, f"{name}_accuracy": accuracy}
        self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=graph.batch_size)
        return loss

    def training_step(self, batch, index):
        return self.step(batch, "train")

    def validation_step(self, batch, index):
        self.step(batch, "val")

    def test_step(self, batch, index):
        self.step(batch, "test")

    def on_train_epoch_end(self):
        metrics = self.trainer.callback_metrics
        print(", ".join(f"{name} {metrics[name].item():.10g}" for name in sorted(metrics)))

    def configure_optimizers(self):
        optimiser = torch.optim.AdamW(self.parameters(), lr=0.001)
        steps = self.trainer.estimated_stepping_batches
        schedule = OneCycleLR(optimiser, max_lr=0.01, total_steps=steps)
        return [optimiser], [{"scheduler": schedule, "interval": "step"}]


def main():
    pl.seed_everything(0)
    dataset = dgl.data.GINDataset("PROTEINS", self_loop=False)
    train_set, val_set, test_set = random_split(dataset, [0.8, 0.1, 0.1])
    train_loader = GraphDataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True)
    val_loader = GraphDataLoader(val_set, batch_size=BATCH_SIZE)
    test_loader = GraphDataLoader(test_set, batch_size=BATCH_SIZE)
    model = GIN(dataset.dim_nfeats, dataset.gclasses)
    best = pl.callbacks.ModelCheckpoint("checkpoints", monitor="val_loss")
    trainer = pl.Trainer(max_epochs=EPOCHS, callbacks=[best], logger=False)
    trainer.fit(model, train_loader, val_loader)
    (result,) = trainer.test(model, test_loader, ckpt_path="best")
    print(f"test loss {result['test_loss']:.10g}, accuracy {result['test_accuracy']:.10g}")


if __name__ == "__main__":
    main()
