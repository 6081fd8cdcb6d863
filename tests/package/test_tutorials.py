"""The tutorials run, with fewer graphs than on the site."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

# What torch 2.13 prints if it aborts at the exit of a process that has trained with gloo. On a busy machine, a script
# without this package, which only uses DistributedDataParallel, does so in every fifth run.
ABORTED = b"terminate called without an active exception"
TUTORIALS = sorted((Path(__file__).resolve().parents[2] / "docs" / "tutorials").glob("*.py"))


@pytest.mark.dgl
@pytest.mark.processes
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    plt = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is absent; install dgl_tuplepack[plots].")
    if "torch_geometric" in (source := path.read_text(encoding="utf-8")):
        import tests.support.pyg  # noqa: F401  (skips without PyG)
    shortened = re.sub(r"^num_graphs = \d+$", "num_graphs = 400", source, flags=re.MULTILINE)
    threads = torch.get_num_threads()
    try:
        for remaining in (3, 2, 1, 0):
            try:
                # Torch's compiler looks for global names in modules that Python knows, and remembers these by name.
                name = f"tutorial_{path.stem}"
                monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
                exec(compile(shortened, str(path), "exec"), vars(sys.modules[name]))
                break
            except subprocess.CalledProcessError as error:
                if ABORTED not in error.stderr or not remaining:
                    pytest.fail(f"{error}\n{error.stderr.decode()}")
        assert plt.get_fignums(), "a tutorial shows at least one picture"
    finally:
        plt.close("all")
        torch.set_num_threads(threads)
        torch.set_default_dtype(torch.float32)
