"""The scripts of `docs/scripts` print the same numbers before and after their conversion, which is a few lines."""

from __future__ import annotations

import difflib
import functools
import importlib
import re
import runpy
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dgl_tuplepack as tp
from tests.package.test_docs import DIFF
from tests.support import datasets

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "scripts"
SCRIPTS = sorted(path.stem.removesuffix("_before") for path in FOLDER.glob("*_before.py"))
# Small networks and batches. Dropout draws other numbers for padding. ogbg-molhiv has no missing labels.
SETTINGS = {
    "EPOCHS": "3",
    "WIDTH": "8",
    "DROPOUT": "0.0",
    "NAME": '"ogbg-moltox21"',
    "batch_size": "8",
    "BATCH_SIZE": "8",
}
SETTING = re.compile(rf'\b({"|".join(SETTINGS)})( ?= ?)[\d"][\d."a-z-]*')


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


def run(name: str) -> tuple[list[str], set[str]]:
    """Run a script in float64 with small settings; return the lines that it prints, and the warnings."""
    script = SETTING.sub(lambda found: found[1] + found[2] + SETTINGS[found[1]], read(name))
    file, lines = Path(f"run_{name}.py"), list[str]()
    # Torch's tracer finds the names of a module by the name of the module, so no two of them are "__main__".
    file.write_text(script.replace('"__main__"', f'"{file.stem}"'), encoding="utf-8")
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with warnings.catch_warnings(record=True) as record:
            warnings.simplefilter("always")
            # What libraries print, such as rates, is not compared.
            runpy.run_path(str(file), {"print": lines.append}, file.stem)
    finally:
        torch.set_default_dtype(dtype)
    return lines, {str(each.message) for each in record}


@pytest.fixture
def small_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the scripts would download, and the current directory, in which they write."""
    monkeypatch.chdir(tmp_path)
    datasets.write_tox21(tmp_path / "dataset")
    datasets.write_code2(tmp_path / "dataset")
    datasets.provide_pyg(monkeypatch)
    datasets.provide_gin_dataset(monkeypatch)
    trusted = torch.serialization.get_safe_globals()
    yield
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(trusted)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The models that scripts compile, here without a C++ compiler, which takes long."""
    made: list[Any] = []

    @functools.wraps(tp.compile)
    def compiled(*arguments: Any, given: Any = tp.compile) -> Any:
        made.append(given(*arguments, backend="eager"))
        return made[-1]

    monkeypatch.setattr(tp, "compile", compiled)
    return made


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.usefixtures("small_data")
def test_a_converted_script_prints_the_same_numbers(
    name: str, models: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for module, kind in (("torch_geometric.loader", "DataLoader"), ("dgl.dataloading", "GraphDataLoader")):
            patch.setattr(f"{module}.{kind}", with_our_batches(getattr(importlib.import_module(module), kind)))
        expected, usual_warnings = run(f"{name}_before")
    # Lightning warns about a folder of checkpoints that exists.
    shutil.rmtree("checkpoints", ignore_errors=True)
    found, all_warnings = run(f"{name}_after")
    assert not all_warnings - usual_warnings
    words, expected_words = (re.split(r"[:,\s]+", "\n".join(lines)) for lines in (found, expected))
    assert len(words) == len(expected_words)
    assert len(expected) >= 3
    for ours, theirs in zip(words, expected_words, strict=True):
        if re.fullmatch(r"[-\d.e]*\d", theirs):
            assert float(ours) == pytest.approx(float(theirs), rel=1e-6, abs=1e-9)
        else:
            assert ours == theirs
    (model,) = models
    assert model._static_calls._calls
    assert all(call.is_compiled for call in model._static_calls._calls.values())


@pytest.mark.parametrize("name", SCRIPTS)
def test_few_lines_change(name: str) -> None:
    lines = [read(f"{name}_{when}").splitlines() for when in ("before", "after")]
    changes = [line for line in difflib.ndiff(*lines) if line[0] in "+-" and line[2:]]
    imports = [line for line in changes if re.match("from|import", line[2:])]
    added, removed = ([line for line in changes if line[0] == sign and line not in imports] for sign in "+-")
    assert [line[2:] for line in imports if line[0] == "+"] == ["import dgl_tuplepack as tp"]
    assert len(imports) == 2
    assert len(added) == len(removed) + 1 <= 5


def test_the_page_shows_every_change() -> None:
    page = (FOLDER.parent / "migrate" / "scripts.md").read_text(encoding="utf-8")
    shown = {
        re.search(r"scripts/(\w+)_after\.py", section)[1]: DIFF.findall(section) for section in page.split("\n## ")[1:]
    }  # type: ignore[index]
    for name in SCRIPTS:
        lines = [read(f"{name}_{when}").splitlines() for when in ("before", "after")]
        # Without the names of the files. Editors remove the space of empty lines.
        expected = [line.rstrip() for line in difflib.unified_diff(*lines, lineterm="")][2:]
        assert shown[name] == ["\n".join(expected) + "\n"]
