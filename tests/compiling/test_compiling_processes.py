"""Compiling in processes of its own: torch's caches on disk, several threads, a machine without a C++ compiler."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import run

pytestmark = [pytest.mark.compile, pytest.mark.processes, pytest.mark.slow]

PROGRAM = """
import json, warnings
import torch
import dgl_tuplepack as tp
from torch._dynamo.utils import counters

def loss_of(x, weight, src, dst):
    hidden = torch.relu(torch.nn.functional.dropout(x, 0.0) @ weight).index_select(0, src)
    return torch.zeros_like(x).index_add_(0, dst, torch.relu(hidden)).square().sum()

def gradients(function):
    x, weight = (torch.linspace(-1, 1, 8 * n, dtype=torch.float64).reshape(n, 8).requires_grad_() for n in (3000, 8))
    src = torch.arange(3000)
    loss = function(x, weight, src, src.flip(0) // 2)
    return torch.autograd.grad(loss, (x, weight))

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    compiled = tp.compile(loss_of)
    found = gradients(compiled)
print(json.dumps({
    "equal": all(torch.allclose(*pair, rtol=1e-12, atol=0) for pair in zip(found, gradients(loss_of))),
    "hits": [counters["inductor"]["fxgraph_cache_hit"], counters["aot_autograd"]["autograd_cache_hit"]],
    "misses": [counters["inductor"]["fxgraph_cache_miss"], counters["aot_autograd"]["autograd_cache_miss"]],
    "bypasses": [counters["inductor"]["fxgraph_cache_bypass"], counters["aot_autograd"]["autograd_cache_bypass"]],
    "warnings": [str(each.message) for each in caught if "tp.compile" in str(each.message)],
    "threads": torch.get_num_threads(),
    "is_compiled": compiled.is_compiled,
}))
"""


def compiled_in(cache: Path, **variables: str) -> dict[str, Any]:
    """What the program finds in a process that has this folder for compiled code."""
    done = run("-c", PROGRAM, TORCHINDUCTOR_CACHE_DIR=str(cache), **variables)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of compiled code that a process has left, with the right results."""
    folder = tmp_path_factory.mktemp("cache")
    first = compiled_in(folder, OMP_NUM_THREADS="2")
    assert first["equal"]
    assert first["threads"] == 2
    assert first["warnings"] == []
    assert first["hits"] == first["bypasses"] == [0, 0]
    assert first["misses"][1] == 1
    return folder


def test_other_processes_use_compiled_code_from_both_caches(cache: Path) -> None:
    # Sums over edges by several threads would take atomic operations.
    code = [file.read_text() for file in cache.rglob("*.cpp")]
    assert sum("extern" in text and "kernel" in text for text in code) >= 2
    assert not any("omp parallel" in text or "atomic_add(" in text for text in code)
    second = compiled_in(cache, OMP_NUM_THREADS="2")
    assert second["equal"]
    assert second["hits"][1] == 1
    assert second["misses"] == second["bypasses"] == [0, 0]


@pytest.mark.parametrize("ending", [".so", ".py"])
def test_programs_that_a_killed_process_left_are_compiled_again(ending: str, cache: Path, tmp_path: Path) -> None:
    shutil.copytree(cache, tmp_path / "cache")
    files = list(tmp_path.rglob(f"*{ending}"))
    assert files
    for file in files:
        os.truncate(file, 100)
    found = compiled_in(tmp_path / "cache", OMP_NUM_THREADS="2")
    assert found["equal"]
    assert found["is_compiled"]
    assert found["warnings"] == []


def test_without_a_compiler_functions_run_uncompiled_with_one_warning(tmp_path: Path) -> None:
    found = compiled_in(tmp_path, CXX="/nonexistent/c++")
    assert found["equal"]
    (warning,) = found["warnings"]
    assert "leaves loss_of uncompiled" in warning
    assert "C++" in warning or "compiler" in warning


def test_without_a_folder_for_compiled_code_functions_run_uncompiled_with_a_warning_each(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "folder"
    program = """
import torch, warnings
import dgl_tuplepack as tp
x = torch.tensor([-1.0, 2.0], requires_grad=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for options in (None, {"cpp.threads": 1}):
        step = tp.compile(lambda x: x.relu().sum(), options=options)
        assert [step(x).item(), step(x).item(), step.is_compiled] == [2.0, 2.0, False]
print(*[each.message for each in caught], sep="|")
"""
    done = run("-c", program, TORCHINDUCTOR_CACHE_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    warnings = done.stdout.strip().split("|")
    assert len(warnings) == 2
    for part in ("uncompiled, which is slower", str(folder), "TORCHINDUCTOR_CACHE_DIR"):
        assert all(part in warning for warning in warnings)
