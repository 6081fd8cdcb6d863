"""Torch's cache on disk, several threads, and a machine without a C++ compiler or a folder for compiled code."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import dgl_tuplepack as tp
from tests.support.processes import run

pytestmark = [pytest.mark.compile, pytest.mark.processes, pytest.mark.slow, pytest.mark.usefixtures("forget")]


def loss_of(x: Tensor, weight: Tensor, src: Tensor, dst: Tensor) -> Tensor:
    hidden = torch.relu(torch.nn.functional.dropout(x, 0.0) @ weight).index_select(0, src)
    return torch.zeros_like(x).index_add_(0, dst, torch.relu(hidden)).square().sum()


def gradients(function: Any) -> tuple[Tensor, ...]:
    x, weight = (torch.linspace(-1, 1, 8 * n, dtype=torch.float64).reshape(n, 8).requires_grad_() for n in (3000, 8))
    src = torch.arange(3000)
    return torch.autograd.grad(function(x, weight, src, src.flip(0) // 2), (x, weight))


def outcome(cache: object) -> dict[str, Any]:
    """What compiling gives with two threads and this folder for compiled code; nothing is left in memory before."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    torch.compiler.reset()
    if counters:
        torch._inductor.utils.clear_caches()
        counters.clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled = tp.compile(loss_of)
            found = gradients(compiled)
        pairs = zip(found, gradients(loss_of), strict=True)
    finally:
        torch.set_num_threads(threads)
    named = {"fxgraph_cache": counters["inductor"], "autograd_cache": counters["aot_autograd"]}
    return {
        "equal": all(torch.allclose(*pair, rtol=1e-12, atol=0) for pair in pairs),
        "warnings": [str(each.message) for each in caught if "tp.compile" in str(each.message)],
        "is_compiled": compiled.is_compiled,
        **{what: [of[f"{name}_{what}"] for name, of in named.items()] for what in ("hit", "miss", "bypass")},
    }


def outcomes(*caches: Path) -> list[dict[str, Any]]:
    """What compiling gives in a new process with each folder in turn."""
    program = """
import json, sys
from tests.compiling.test_compiling_processes import outcome
print(*[json.dumps(outcome(cache)) for cache in sys.argv[1:]], sep="\\n")
"""
    done = run("-c", program, *caches)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_another_process_uses_compiled_code_from_both_caches_and_repairs_it(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    # Not in this process: settings that other tests left behind are a part of the caches' keys.
    (first,) = outcomes(cache)
    assert first["equal"]
    assert first["warnings"] == []
    assert first["hit"] == first["bypass"] == [0, 0]
    assert first["miss"][1] == 1
    # Sums over edges by several threads would take atomic operations.
    code = [file.read_text() for file in cache.rglob("*.cpp")]
    assert sum("extern" in text and "kernel" in text for text in code) >= 2
    assert not any("omp parallel" in text or "atomic_add(" in text for text in code)
    # As if a process was killed while it compiled.
    folders = [tmp_path / f"broken{ending}" for ending in (".so", ".py")]
    for folder in folders:
        shutil.copytree(cache, folder)
        files = list(folder.rglob(f"*{folder.suffix}"))
        assert files
        for file in files:
            os.truncate(file, 100)
    second, *repaired = outcomes(cache, *folders)
    assert second["equal"]
    assert second["hit"][1] == 1
    assert second["miss"] == second["bypass"] == [0, 0]
    for found in repaired:
        assert found["equal"]
        assert found["is_compiled"]
        assert found["warnings"] == []


def test_without_a_compiler_functions_run_uncompiled_with_one_warning(tmp_path: Path) -> None:
    # Torch asks only once in a process which vectors the compiler can use; other tests need the right answer.
    torch._inductor.cpu_vec_isa.pick_vec_isa()
    with torch._inductor.config.patch({"cpp.cxx": ("/nonexistent/c++",)}):
        found = outcome(tmp_path)
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
    shown = done.stdout.strip().split("|")
    assert len(shown) == 2
    for part in ("uncompiled, which is slower", str(folder), "TORCHINDUCTOR_CACHE_DIR"):
        assert all(part in warning for warning in shown)
