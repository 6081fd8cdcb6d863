"""A GIN as a LightningModule, with a validation in each epoch and a test of the best weights (DGL)."""

import tempfile

import dgl
import pytorch_lightning as pl
import torch
from dgl.dataloading import GraphDataLoader
from dgl.nn import AvgPooling, GINConv
from torch import nn

from tests.programs.two_lines.molecules import NUM_ATOMS, draw

DROPOUT = 0.3


def molecules(number, seed):
    items = []
    for atoms, (src, dst), _ in draw(number, seed):
        graph = dgl.graph((src, dst), num_nodes=len(atoms))
        graph.ndata["kind"] = atoms
        items.append((graph, torch.tensor([float((atoms == 2).sum() > 1)])))
    return items


class GIN(pl.LightningModule):
    def __init__(self, width=16, num_layers=2):
        super().__init__()
        self.save_hyperparameters()
        self.encode = nn.Embedding(NUM_ATOMS, width)
        self.convs = nn.ModuleList(
            GINConv(nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width)))
            for _ in range(num_layers)
        )
        self.dropout, self.pool, self.head = nn.Dropout(DROPOUT), AvgPooling(), nn.Linear(width, 1)
        self.loss_fn = nn.BCEWithLogitsLoss()

    def forward(self, graph):
        h = self.encode(graph.ndata["kind"])
        for conv in self.convs:
            h = h + self.dropout(conv(graph, h).relu())
        return self.head(self.pool(graph, h))

    def training_step(self, batch, batch_idx):
        graph, labels = batch
        loss = self.loss_fn(self(graph), labels)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=graph.batch_size)
        return loss

    def validation_step(self, batch, batch_idx):
        graph, labels = batch
        logits = self(graph)
        self.log("val_loss", self.loss_fn(logits, labels), batch_size=graph.batch_size)
        self.log("val_accuracy", ((logits > 0) == labels.bool()).double().mean(), batch_size=graph.batch_size)

    def test_step(self, batch, batch_idx):
        graph, labels = batch
        self.log("test_loss", self.loss_fn(self(graph), labels), batch_size=graph.batch_size)

    def on_train_epoch_end(self):
        metrics = self.trainer.callback_metrics
        print(", ".join(f"{name} {metrics[name].item():.12g}" for name in sorted(metrics)))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=0.02, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    pl.seed_everything(7, verbose=False)
    train_set, val_set, test_set = molecules(72, seed=7), molecules(24, seed=8), molecules(24, seed=9)
    train_loader = GraphDataLoader(train_set, batch_size=16, shuffle=True)
    val_loader = GraphDataLoader(val_set, batch_size=16)
    test_loader = GraphDataLoader(test_set, batch_size=16)
    model = GIN()
    with tempfile.TemporaryDirectory() as folder:
        best = pl.callbacks.ModelCheckpoint(folder, monitor="val_loss")
        trainer = pl.Trainer(
            max_epochs=3, accelerator="cpu", callbacks=[best], logger=False, enable_progress_bar=False,
            enable_model_summary=False, num_sanity_val_steps=0,
        )  # fmt: skip
        trainer.fit(model, train_loader, val_loader)
        (result,) = trainer.test(model, test_loader, ckpt_path="best", verbose=False)
    print(f"test loss of the best epoch {result['test_loss']:.12g}")


if __name__ == "__main__":
    main()
