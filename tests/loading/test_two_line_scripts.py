"""Training scripts as people write them print the same numbers after two of their lines are changed.

Each script of `tests/programs/two_lines` runs twice: with the changes, and as it is, but with the same batches.
"""

import contextlib
import difflib
import functools
import io
import re
import runpy
import warnings
from pathlib import Path

import pytest
import torch

import dgl_tuplepack as tp

FOLDER = Path(__file__).resolve().parents[1] / "programs" / "two_lines"
# Script -> the line before which the model is compiled, and the loaders that it must know: a model that gets tensors
# instead of a batch does not see the shape that batches carry. OGB is installed with DGL only.
SCRIPTS = [
    pytest.param("gin_virtual_node", "    optimizer =", "train_loader", marks=pytest.mark.dgl),
    pytest.param("mpnn_set2set", "optimizer =", "train_loader"),
    pytest.param("pna", "    optimizer =", "[train_loader, val_loader]"),
    pytest.param("gat_dgl", "    loss_fcn =", "train_loader", marks=pytest.mark.dgl),
    pytest.param("graph_gps", "optimizer =", "train_loader"),
    pytest.param("lightning_gin", "    with tempfile", "train_loader", marks=pytest.mark.dgl),
]
LOADER = re.compile(r"^( *)(\w+) = (\w*DataLoader)\((.+), batch_size=(\d+)((?:, shuffle=\w+)?)\)$", re.MULTILINE)


class NextEpochs(tp.StaticBatchSampler):
    """A sampler that moves on by an epoch with each iteration, as our loader does."""

    number = 0

    def __iter__(self):
        self.set_epoch(self.number)
        self.number += 1
        return super().__iter__()


def with_two_lines(script, before, loaders):
    """The script with a line for each loader, an import, and a line for the model."""

    def loader(found):
        indent, name, _, dataset, batch_size, shuffle = found.groups()
        shuffle = "" if shuffle == ", shuffle=True" else ", shuffle=False"
        return f"{indent}{name} = tp.packed_loader({dataset}, batch_size={batch_size}{shuffle})"

    script = LOADER.sub(loader, script)
    indent = before[: len(before) - len(before.lstrip())]
    script = script.replace(f"\n{before}", f"\n{indent}model = tp.compile(model, {loaders})\n{before}", 1)
    return script.replace("\nimport torch\n", "\nimport torch\nimport dgl_tuplepack as tp\n", 1)


def with_the_same_batches(script):
    def loader(found):
        indent, name, kind, dataset, batch_size, shuffle = found.groups()
        if shuffle != ", shuffle=True":
            return found[0]
        return f"{indent}{name} = {kind}({dataset}, batch_sampler=NextEpochs({dataset}, {batch_size}))"

    return LOADER.sub(loader, script)


def run(script, file, **names):
    """Run a script in float64 without dropout; return what it printed."""
    script = re.sub(r"^DROPOUT = .*$", "DROPOUT = 0.0", script, flags=re.MULTILINE)
    # Torch's tracer finds the names of a module by the name of the module, so no two of them are "__main__".
    file.write_text(script.replace('"__main__"', f'"{file.stem}"'), encoding="utf-8")
    printed, dtype = io.StringIO(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(file), names, file.stem)
    finally:
        torch.set_default_dtype(dtype)
    return printed.getvalue()


@pytest.mark.parametrize(("name", "before", "loaders"), SCRIPTS)
def test_two_changed_lines_leave_the_numbers(name, before, loaders, tmp_path, monkeypatch):
    script = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    changed = with_two_lines(script, before, loaders)
    lines = [*difflib.ndiff(script.splitlines(), changed.splitlines())]
    added, removed = ([line for line in lines if line.startswith(sign)] for sign in "+-")
    number = len(LOADER.findall(script))
    assert (len(added), len(removed)) == (number + 2, number)
    # Apart from the import.
    assert len(added) - 1 <= 4
    with warnings.catch_warnings():
        # Lightning warns about loaders without workers.
        warnings.simplefilter("ignore")
        expected = run(with_the_same_batches(script), tmp_path / f"plain_{name}.py", NextEpochs=NextEpochs)

    models, compile_with_settings = [], tp.compile

    @functools.wraps(tp.compile)
    def compiled(*arguments, **settings):
        models.append(compile_with_settings(*arguments, backend="eager", **settings))
        return models[-1]

    monkeypatch.setattr(tp, "compile", compiled)
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        found = run(changed, tmp_path / f"changed_{name}.py")
    assert [str(each.message) for each in record if "uncompiled" in str(each.message)] == []
    (model,) = models
    assert model._static_calls._calls
    words, expected_words = (re.split(r"[,\s]+", each) for each in (found, expected))
    assert len(words) == len(expected_words)
    for ours, theirs in zip(words, expected_words, strict=True):
        if re.fullmatch(r"[-\d.e]+", theirs):
            assert float(ours) == pytest.approx(float(theirs), rel=1e-6, abs=1e-9)
        else:
            assert ours == theirs
