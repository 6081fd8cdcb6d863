"""A training under Lightning that stops and resumes from a checkpoint takes every batch of every epoch once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as lightning
import torch
from pytorch_lightning.callbacks import Callback, ModelCheckpoint, OnExceptionCheckpoint

import dgl_tuplepack as tp
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.loading.packed_loader import PackedLoader
from tests.support.messages import refused
from tests.support.samplers import Ids

pytestmark = [
    # Advice of torch and Lightning on this machine and this small model.
    pytest.mark.filterwarnings("ignore::pytorch_lightning.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*ckpt_path:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.processes,
    pytest.mark.slow,
]

ROWS = np.random.default_rng(0).integers(1, 9, (120, 2))
EPOCHS = 3


def sampler_of() -> tp.PackBatchSampler:
    return tp.PackBatchSampler(tp.GraphSizes(ROWS), tp.Limits(40, 44), seed=2)


LENGTH = len(sampler_of())


class Stopped(Exception):
    """The process ends here."""


class Model(lightning.LightningModule):
    """Its checkpoints hold the graphs of every step, which tells what the saved weights were trained on."""

    def __init__(self, workers: int, stop: int | None, loaders: int = 1) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.workers, self.stop, self.loaders = workers, stop, loaders
        self.seen: list[Any] = []

    def train_dataloader(self) -> Any:
        made = [PackedLoader(Ids(), sampler=sampler_of(), num_workers=self.workers) for _ in range(self.loaders)]
        return made if self.loaders > 1 else made[0]

    def val_dataloader(self) -> Any:
        return torch.utils.data.DataLoader(torch.zeros(2, 1))

    def training_step(self, ids: Any, _: int) -> Any:
        if self.trainer.global_step == self.stop:
            raise Stopped
        self.seen.append(ids)
        return self.layer(torch.ones(1, 1)).mean()

    def validation_step(self, values: Any, _: int) -> None:
        self.log("loss", self.layer(values).mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seen"] = list(self.seen)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.seen = checkpoint["seen"]


def trainer_of(folder: Path, callback: Any, **settings: Any) -> lightning.Trainer:
    return lightning.Trainer(
        accelerator="cpu", devices=1, default_root_dir=folder, callbacks=[callback], logger=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        **{"max_epochs": EPOCHS, "limit_val_batches": 0, **settings},
    )  # fmt: skip


def fit(folder: Path, model: Model, callback: Any, resumed: bool, **settings: Any) -> list[Any]:
    """Train from the start, or from the checkpoint in the folder; what the model was trained on."""
    (file,) = sorted(folder.glob("*.ckpt")) if resumed else [None]
    trainer_of(folder, callback, **settings).fit(model, ckpt_path=file, weights_only=False)
    return model.seen


def expected(epochs: int = EPOCHS) -> list[Any]:
    sampler = sampler_of()
    batches: list[Any] = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        batches += list(sampler)
    return batches


STEPS: dict[str, Any] = {"max_epochs": None, "max_steps": EPOCHS * LENGTH}
VALIDATED: dict[str, Any] = {"limit_val_batches": 1}
# When checkpoints are saved, the step that the first run does not take any more, and settings of the Trainer.
CASES: dict[str, tuple[dict[str, Any], int, dict[str, Any]]] = {
    "in a later epoch": ({"every_n_train_steps": LENGTH + 3}, LENGTH + 4, {}),
    "behind the last batch, counted in steps": ({"every_n_train_steps": LENGTH}, LENGTH + 2, STEPS),
    "at the end of an epoch": ({"save_on_train_epoch_end": True}, LENGTH + 2, {}),
    "validation in mid-epoch": ({"save_on_train_epoch_end": False}, 6, {**VALIDATED, "val_check_interval": 4}),
    "validation at the end": ({"save_on_train_epoch_end": False}, LENGTH + 2, VALIDATED),
}


@pytest.mark.parametrize(
    ("case", "workers"),
    [
        *((case, 0) for case in CASES),
        ("in a later epoch", 2),
        ("validation in mid-epoch", 2),
    ],
)
def test_every_batch_comes_once_over_both_runs(tmp_path: Path, workers: int, case: str) -> None:
    assert LENGTH > 10
    when, stop, settings = CASES[case]
    with pytest.raises(Stopped):
        fit(tmp_path, Model(workers, stop), ModelCheckpoint(tmp_path, **when), False, **settings)
    seen = fit(tmp_path, Model(workers, None), ModelCheckpoint(tmp_path, **when), True, **settings)
    assert seen == expected()


@pytest.mark.parametrize(("steps", "workers"), [(4, 0), (LENGTH + 3, 2)])
def test_a_checkpoint_that_is_saved_after_the_last_step(tmp_path: Path, workers: int, steps: int) -> None:
    """Lightning has closed the epoch then; what is left of it comes in the next one, whose number is used up."""
    trainer, model = trainer_of(tmp_path, Callback(), max_epochs=None, max_steps=steps), Model(workers, None)
    trainer.fit(model)
    assert model.seen == expected()[:steps]
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    epoch = steps // LENGTH
    with pytest.warns(UserWarning, match=rf"in the middle of epoch {epoch}, but epoch {epoch + 1} was set.*max_steps"):
        seen = fit(tmp_path, Model(workers, None), Callback(), True, **STEPS)
    whole = expected(EPOCHS + 1)
    del whole[(epoch + 1) * LENGTH : (epoch + 2) * LENGTH]
    assert seen == whole


@pytest.mark.parametrize(("stop", "workers"), [(LENGTH + 4, 2), (LENGTH - 1, 0)], ids=["amid", "last"])
def test_a_batch_that_failed_is_not_repeated(tmp_path: Path, workers: int, stop: int) -> None:
    """The loader has delivered it; all others come once."""
    with pytest.raises(Stopped):
        fit(tmp_path, Model(workers, stop), OnExceptionCheckpoint(tmp_path), False)
    seen = fit(tmp_path, Model(workers, None), OnExceptionCheckpoint(tmp_path), True)
    assert seen == [ids for step, ids in enumerate(expected()) if step != stop]


def test_several_loaders_resume_together(tmp_path: Path) -> None:
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=4)
    with pytest.raises(Stopped):
        fit(tmp_path, Model(0, 5, loaders=2), checkpoint, False)
    assert fit(tmp_path, Model(0, None, loaders=2), checkpoint, True) == [[batch, batch] for batch in expected()]


@pytest.mark.parametrize(
    ("inside", "settings"), [(True, {}), (False, {"limits": [tp.Limits(24, 30), tp.Limits(40, 44)]})]
)
@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_overfit_batches_trains_on_the_same_batches_in_each_epoch(
    tmp_path: Path, inside: bool, settings: dict[str, Any]
) -> None:
    """Lightning rebuilds the loader with a SequentialSampler, to turn shuffling off."""
    given = {"limits": tp.Limits(40, 44), "seed": 2, **settings}

    def loader_of() -> PackedLoader:
        return PackedLoader(Ids(), sampler=tp.PackBatchSampler(tp.GraphSizes(ROWS), **given))

    class Overfit(Model):
        def train_dataloader(self) -> Any:
            return loader_of()

    model, trainer = Overfit(0, None), trainer_of(tmp_path, Callback(), overfit_batches=2)
    before = model.layer.bias.item()
    trainer.fit(model, None if inside else loader_of())
    plain = {name: value for name, value in given.items() if name != "content"}
    unshuffled = list(tp.PackBatchSampler(tp.GraphSizes(ROWS), shuffle=False, **plain))
    assert model.seen == unshuffled[:2] * EPOCHS
    assert model.layer.bias.item() < before
    rebuilt: Any = trainer.train_dataloader
    assert isinstance(rebuilt.sampler, tp.PackBatchSampler)
    assert list(rebuilt) == unshuffled
    assert rebuilt.sampler.count_tensor == loader_of().sampler.count_tensor


def test_a_distributed_sampler_of_lightning_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with refused(InputError, "PackBatchSampler", "DistributedSampler", "use_distributed_sampler=False to Lightning"):
        trainer_of(tmp_path, Callback(), strategy="ddp").fit(Model(0, None))
    torch.distributed.destroy_process_group()
