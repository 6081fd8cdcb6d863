"""The scripts of `docs/scripts` print the same numbers before and after their conversion."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import io
import re
import runpy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dgl_tuplepack as tp
from tests.support import datasets

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "scripts"
SCRIPTS = ("ogb_molhiv", "three_datasets", "qm9_regression", "lightning_module", "text_targets", "forces")
# Small networks; dropout draws other numbers for padding; ogbg-molhiv has no missing labels.
SETTINGS = {"EPOCHS": "3", "WIDTH": "8", "DROPOUT": "0.0", "NAME": '"ogbg-moltox21"', "batch_size": "8", "BATCH_SIZE": "8"}


class NextEpochs(tp.StaticBatchSampler):
    """A sampler that moves on by an epoch with each iteration, as our loader does."""

    number = 0

    def __iter__(self) -> Iterator[list[int]]:
        self.set_epoch(self.number)
        self.number += 1
        return super().__iter__()


def with_our_batches(loader: Callable[..., Any]) -> Callable[..., Any]:
    """Return a framework's loader, but with the batches of ours if it shuffles."""

    def made(dataset: Any, batch_size: int, shuffle: bool = False) -> Any:
        batches = {"batch_sampler": NextEpochs(dataset, batch_size)} if shuffle else {"batch_size": batch_size}
        return loader(dataset, **batches)

    return made


def read(name: str) -> str:
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def run(name: str) -> str:
    """Run a script in float64 with small settings; return what it printed."""
    script = re.sub(
        rf"\b({'|'.join(SETTINGS)})( ?= ?)[\d.\"a-z-]+", lambda found: found[1] + found[2] + SETTINGS[found[1]], read(name)
    )
    file = Path(f"run_{name}.py")
    # Torch's tracer finds the names of a module by the name of the module, so no two of them are "__main__".
    file.write_text(script.replace('"__main__"', f'"{file.stem}"'), encoding="utf-8")
    printed, dtype = io.StringIO(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        torch.manual_seed(0)
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(file), None, file.stem)
    finally:
        torch.set_default_dtype(dtype)
    return printed.getvalue()


@pytest.fixture
def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the scripts would download, in the current directory."""
    monkeypatch.chdir(tmp_path)
    datasets.write_tox21(tmp_path / "dataset")
    datasets.write_code2(tmp_path / "dataset")
    datasets.provide_pyg(monkeypatch)
    datasets.provide_gin_dataset(monkeypatch)
    trusted = torch.serialization.get_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(trusted)


def expected_of(name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run the script before its conversion, with our batches."""
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, kind in (("torch_geometric.loader", "DataLoader"), ("dgl.dataloading", "GraphDataLoader")):
            patch.setattr(f"{module}.{kind}", with_our_batches(getattr(importlib.import_module(module), kind)))
        return run(f"{name}_before")


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.usefixtures("small_data")
def test_a_converted_script_prints_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = expected_of(name, monkeypatch)
    models: list[Any] = []
    compile_with_settings = tp.compile

    @functools.wraps(tp.compile)
    def compiled(*arguments: Any, **settings: Any) -> Any:
        models.append(compile_with_settings(*arguments, backend="eager", **settings))
        return models[-1]

    monkeypatch.setattr(tp, "compile", compiled)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        found = run(f"{name}_after")
    print(expected); print(found)
    print(*[(each.filename, each.category, str(each.message)[:200]) for each in record], sep="\n")
    (model,) = models
    calls = model._static_calls._calls
    print(calls)
    words, expected_words = (re.split(r"[,\s]+", each) for each in (found, expected))
    assert len(words) == len(expected_words)
    for ours, theirs in zip(words, expected_words, strict=True):
        if re.fullmatch(r"[-\d.e]+", theirs):
            assert float(ours) == pytest.approx(float(theirs), rel=1e-6, abs=1e-9)
        else:
            assert ours == theirs
    assert 0
