"""Several processes: torchrun, Lightning, and a training program that is killed and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import dgl_tuplepack as tp
from tests.programs import lightning, training
from tests.sampling.test_other_ranks import SIZES
from tests.support.processes import ROOT, environment, run

pytestmark = [pytest.mark.processes, pytest.mark.slow]

PROGRAMS = ROOT / "tests" / "programs"


@pytest.mark.dgl
def test_ranks_train_as_one_process() -> None:
    """Gradients, losses of nothing, comparison, streams and packed datasets; see the program."""
    done = run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=3", PROGRAMS / "ranks.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok: ") == 12


def test_lightning_advances_epochs_on_two_processes(tmp_path: Path) -> None:
    done = run(PROGRAMS / "lightning.py", tmp_path)
    assert done.returncode == 0, done.stderr
    results = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    samplers = [
        tp.PackBatchSampler(tp.GraphSizes(lightning.ROWS), tp.Limits(20, 22), num_replicas=2, rank=rank)
        for rank in range(2)
    ]
    assert results[0]["weights"] == results[1]["weights"]
    epochs = []
    for sampler, result in zip(samplers, results, strict=True):
        # Known before the first batch.
        assert result["lengths"] == [len(sampler), lightning.EPOCHS * len(sampler)]
        assert len(result["seen"]) == lightning.EPOCHS
        for epoch, seen in enumerate(result["seen"]):
            sampler.set_epoch(epoch)
            assert seen == list(sampler)
        epochs += result["seen"]
    assert len({str(epoch) for epoch in epochs}) == 2 * lightning.EPOCHS
    for epoch in range(lightning.EPOCHS):
        ids = [graph for result in results for batch in result["seen"][epoch] for graph in batch]
        assert sorted(ids) == list(range(len(lightning.ROWS)))


def test_an_epoch_goes_on_with_other_numbers_of_processes(tmp_path: Path) -> None:
    for ranks, steps in ((2, 3), (1, 4), (2, 0)):
        torchrun = "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"
        done = run(*torchrun, PROGRAMS / "other_ranks.py", tmp_path, steps)
        assert done.returncode == 0, done.stderr
    results = [json.loads(file.read_text()) for file in tmp_path.glob("*rank ?.json")]
    assert [*map(len, results)].count(12) == 2
    assert len(results) == 5
    assert sorted(i for ids in results for i in ids) == list(range(len(SIZES)))


def steps_of(folder: Path, kind: str, steps: int) -> list[str]:
    """Let the training program take some steps, then kill it; what it printed."""
    command = [sys.executable, str(PROGRAMS / "training.py"), str(folder), kind]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        printed = []
        for _ in range(steps):
            program.stdin.write("\n")
            program.stdin.flush()
            printed.append(program.stdout.readline())
        program.send_signal(signal.SIGKILL)
    assert all(printed), "the program ended early"
    return printed


@pytest.mark.parametrize("kind", ["stateful", "packed"])
def test_a_killed_training_sees_every_graph_once(tmp_path: Path, kind: str) -> None:
    """Killed behind a checkpoint in mid-epoch, then behind that of an epoch's end: no graph is missing or twice."""
    length = len(training.sampler())
    assert length % training.EVERY == 2
    # The two steps behind the last checkpoint are lost with the model that took them.
    first = 2 * training.EVERY + 2
    assert first < length
    assert steps_of(tmp_path, kind, first)[-1] == f"0 {first}\n"
    file = tmp_path / "checkpoint.pt"
    assert torch.load(file)["epoch"] == 0
    # What is left of epoch 0 and its checkpoint, and a step of epoch 1 behind it.
    steps_of(tmp_path, kind, length - 2 * training.EVERY + 1)
    assert torch.load(file)["epoch"] == 1
    command: list[Any] = [sys.executable, PROGRAMS / "training.py", tmp_path, kind]
    steps = (training.EPOCHS - 1) * length
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), input="\n" * steps, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == steps
    saved = torch.load(file)
    assert saved["epoch"] == training.EPOCHS
    assert (saved["model"]["seen"] == 1).all()
