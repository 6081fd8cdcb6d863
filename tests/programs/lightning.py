"""Lightning's Trainer on two processes, as its users write it; each rank writes what it saw into FOLDER."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as lightning
import torch
from torch.utils.data import DataLoader

import dgl_tuplepack as tp

ROWS = np.random.default_rng(0).integers(1, 9, (90, 2))
EPOCHS = 3


class Numbers(lightning.LightningDataModule):
    def train_dataloader(self) -> Any:
        # The process group exists here, so the sampler knows its rank.
        self.sampler = tp.PackBatchSampler(tp.GraphSizes(ROWS), tp.Limits(20, 22))
        return DataLoader(range(len(ROWS)), batch_sampler=self.sampler, collate_fn=lambda ids: ids)  # type: ignore[arg-type]


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[list[int]]] = []
        self.lengths: list[Any] = []

    def on_train_start(self) -> None:
        self.lengths = [self.trainer.num_training_batches, self.trainer.estimated_stepping_batches]

    def on_train_epoch_start(self) -> None:
        self.seen.append([])

    def training_step(self, ids: list[int], _: int) -> Any:
        self.seen[-1].append(ids)
        x = torch.tensor(ids or [0], dtype=torch.float32)[:, None] / 100
        count = self.trainer.datamodule.sampler.graphs_per_batch  # type: ignore[attr-defined]
        return tp.nn.masked_mean(self.layer(x), torch.full((len(x),), bool(ids)), count=count)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def main() -> None:
    model = Model()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=EPOCHS,
        # The sampler deals to the ranks itself; with True Lightning refuses it.
        use_distributed_sampler=sys.argv[2:] == ["replace"],
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, Numbers())
    weights = [parameter.tolist() for parameter in model.parameters()]
    result = {"seen": model.seen, "lengths": model.lengths, "weights": weights}
    (Path(sys.argv[1]) / f"{trainer.global_rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
