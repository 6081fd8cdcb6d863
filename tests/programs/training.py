"""A training loop that saves checkpoints and resumes from them: FOLDER LOADER, one step for each line on stdin.

The model's state counts how often it saw each graph in each epoch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import dgl_tuplepack as tp
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.support.samplers import Ids

GRAPHS, EPOCHS, EVERY = 90, 3, 4
ROWS = np.random.default_rng(0).integers(1, 9, (GRAPHS, 2))


def sampler() -> tp.PackBatchSampler:
    return tp.PackBatchSampler(tp.GraphSizes(ROWS), tp.Limits(20, 22), seed=3)


class Model(torch.nn.Module):
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(EPOCHS, GRAPHS, dtype=torch.int64))


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    batches, model = sampler(), Model()
    loader: Any
    if kind == "stateful":
        loader = StatefulDataLoader(range(GRAPHS), batch_sampler=batches, num_workers=2)  # type: ignore[arg-type]
    else:
        loader = PackedLoader(Ids(), batches, num_workers=2)
    file, epoch = folder / "checkpoint.pt", 0
    if file.exists():
        saved = torch.load(file, weights_only=True)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["data"])
        epoch = saved["epoch"]

    def save(epoch: int) -> None:
        state = {"model": model.state_dict(), "data": loader.state_dict(), "epoch": epoch}
        torch.save(state, folder / "new.pt")
        os.replace(folder / "new.pt", file)

    for now in range(epoch, EPOCHS):
        batches.set_epoch(now)
        for step, ids in enumerate(loader, start=1):
            if not sys.stdin.readline():
                return
            model.seen[now, ids] += 1
            if step % EVERY == 0:
                save(now)
            print(now, step, flush=True)
        save(now + 1)


if __name__ == "__main__":
    main()
