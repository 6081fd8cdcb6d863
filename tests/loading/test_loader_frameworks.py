"""Lightning and accelerate rebuild `tp.GraphDataLoader`; its batches stay those of DGL's loader, rebuilt alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dgl
import pytest
import pytorch_lightning as lightning
import torch
from dgl.dataloading import GraphDataLoader
from torch.utils.data import DistributedSampler

import dgl_tuplepack as tp
from tests.support.graphs import assert_same_dgl_batch
from tests.support.stores import molecules

pytestmark = [
    # Advice of torch and Lightning on this machine and this small model.
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore::pytorch_lightning.utilities.warnings.PossibleUserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

ITEMS = molecules(30)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tp.GraphStore:
    return tp.GraphStore.write(tmp_path_factory.mktemp("frameworks") / "store", ITEMS)


def assert_same_batches(found: Any, expected: Any) -> None:
    found, expected = list(found), list(expected)
    assert len(found) == len(expected) > 0
    for (graph, labels), (other, right) in zip(found, expected, strict=True):
        assert_same_dgl_batch(graph, other)
        assert torch.equal(labels, right)


def joined(items: Any) -> Any:
    """A collate function of the user's."""
    return dgl.batch([graph for graph, _ in items]), torch.stack([label for _, label in items])


class Model(lightning.LightningModule):
    """Keeps what it gets."""

    def __init__(self, kind: Any, dataset: Any, settings: dict[str, Any]) -> None:
        super().__init__()
        self.kind, self.dataset, self.settings = kind, dataset, settings
        self.layer = torch.nn.Linear(2, 1)
        self.seen: list[Any] = []

    def loader(self) -> Any:
        return self.kind(self.dataset, **self.settings)

    def train_dataloader(self) -> Any:
        return self.loader()

    def predict_dataloader(self) -> Any:
        return self.loader()

    def training_step(self, batch: Any, _: int) -> Any:
        self.seen.append(batch)
        return self.layer(batch[1]).mean()

    def predict_step(self, batch: Any, _: int) -> Any:
        self.seen.append(batch)
        return torch.zeros(1)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


def run(model: Model, inside: bool, strategy: str) -> tuple[list[Any], Any]:
    """Train and predict; return the batches, and the loader that Lightning trained with."""
    lightning.seed_everything(1, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, strategy=strategy, max_epochs=2,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, None if inside else model.loader())
    used = trainer.train_dataloader
    trainer.predict(model, None if inside else model.loader())
    return model.seen, used


@pytest.fixture
def no_group_is_left() -> Iterator[None]:
    yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("no_group_is_left")
@pytest.mark.parametrize("strategy", ["auto", "ddp"])
@pytest.mark.parametrize("inside", [True, False], ids=["made in a hook", "given to fit"])
@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 8, "shuffle": True},
        {"batch_size": 8, "drop_last": True, "num_workers": 1},
        {"batch_size": 8, "collate_fn": joined},
    ],
    ids=["shuffled", "dropped", "collate_fn"],
)
def test_lightning_gets_the_batches_of_dgls_loader(
    store: tp.GraphStore, settings: dict[str, Any], inside: bool, strategy: str
) -> None:
    """It rebuilds loaders for prediction, and for several processes with another sampler."""
    found, used = run(Model(tp.GraphDataLoader, store, settings), inside, strategy)
    expected, _ = run(Model(GraphDataLoader, ITEMS, settings), inside, strategy)
    assert_same_batches(found, expected)
    assert isinstance(used, tp.GraphDataLoader)
    assert isinstance(used.sampler, DistributedSampler) == (strategy == "ddp")


def test_accelerate_prepares_the_loader(store: tp.GraphStore) -> None:
    accelerate = pytest.importorskip("accelerate")
    for settings in (
        {"batch_size": 8}, {"batch_size": 8, "shuffle": True}, {"batch_size": 8, "collate_fn": joined},
        {"batch_sampler": [[3, 1], [0]]},
    ):  # fmt: skip
        loaders = []
        for kind, dataset in ((tp.GraphDataLoader, store), (GraphDataLoader, ITEMS)):
            torch.manual_seed(2)
            prepared = accelerate.Accelerator(cpu=True).prepare(kind(dataset, **settings))
            loaders.append([*prepared, *prepared, *accelerate.skip_first_batches(prepared, 1)])
        assert_same_batches(*loaders)


def test_pyg_loaders_are_rebuilt_too(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="PyG is absent; install dgl_tuplepack[pyg]")
    from torch_geometric.loader import DataLoader

    from tests.support.pyg import assert_same, molecule

    graphs = [molecule(2 + i % 5, 1 + i % 7, i) for i in range(20)]
    store = tp.GraphStore.write(tmp_path / "store", graphs)
    settings: dict[str, Any] = {"batch_size": 6, "follow_batch": ["x"], "exclude_keys": ["y"]}

    class OfPyg(Model):
        def training_step(self, batch: Any, _: int) -> Any:
            self.seen.append(batch)
            return self.layer(torch.ones(1, 2)).mean()

    for inside in (True, False):
        found, _ = run(OfPyg(tp.pyg.DataLoader, store, settings), inside, "auto")
        expected, _ = run(OfPyg(DataLoader, graphs, settings), inside, "auto")
        assert len(found) == len(expected) == 12
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    accelerate = pytest.importorskip("accelerate")
    loaders = (tp.pyg.DataLoader(store, **settings), DataLoader(graphs, **settings))
    for one, other in zip(*map(accelerate.Accelerator(cpu=True).prepare, loaders), strict=True):
        assert_same(one, other)
