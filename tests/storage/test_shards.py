"""Shards on real processes: pools and clusters whose workers die, interrupts, full disks, and the command line."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import dgl
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack.errors import ShardsError
from dgl_tuplepack.storage.shards import verify_shards
from dgl_tuplepack.tools.cli import main
from tests.support.messages import refused
from tests.support.shards import LIMITS, Misbehaving, assert_holds, write_bins

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = ["dgl_tuplepack", "preprocess", "--limits", "30,30"]


def named(paths: list[Path]) -> dict[str, Any]:
    """Shards by name."""
    return {path.stem: path for path in paths}


def test_a_shard_that_kills_its_worker_is_told_and_the_rest_resumed(tmp_path: Path) -> None:
    shards: dict[str, Any] = {"deadly": Misbehaving(4, "kill"), **named(write_bins(tmp_path, 2))}
    with refused(ShardsError, "\n- deadly", "its process, or another process of the pool, died", "fewer workers"):
        tp.preprocess_shards(shards, tmp_path / "out", limits=LIMITS, workers=2)
    del shards["deadly"]
    made = tp.preprocess_shards(shards, tmp_path / "out", limits=LIMITS, workers=1)
    assert {*made.written, *made.kept} == {*shards}
    assert_holds(verify_shards(tmp_path / "out"), 0, 1)


def test_a_cluster_goes_on_when_a_worker_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    distributed, dask = pytest.importorskip("distributed"), pytest.importorskip("dask")
    paths = write_bins(tmp_path, 3)
    shards = {**named(paths), "once": Misbehaving(3, "kill", tmp_path / "mark")}
    settings: Any = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    # A busy machine may take its time to start processes.
    patience = dask.config.set({f"distributed.comm.timeouts.{name}": "120s" for name in ("connect", "tcp")})
    with patience, distributed.LocalCluster(**settings, local_directory=str(tmp_path)) as cluster:
        with distributed.Client(cluster) as client:
            executor = client.get_executor(pure=False)
            made = tp.preprocess_shards(shards, tmp_path / "out", limits=LIMITS, executor=executor)
        assert (tmp_path / "mark").exists()
        # What the dead worker had done, and not yet told, is done again: it is found there, and kept.
        assert "once" in made.written
        assert {*made.written, *made.kept} == {*shards}
        assert_holds(verify_shards(tmp_path / "out"), 0, 1, 2, 3)
        # The same cluster from the command line.
        given = [*map(str, paths), "--out", str(tmp_path / "other"), "--dask", cluster.scheduler_address]
        monkeypatch.setattr(sys, "argv", [*ARGUMENTS, *given])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    assert "3 shards written" in capsys.readouterr().out
    assert_holds(verify_shards(tmp_path / "other"), 0, 1, 2)


def test_an_interrupt_leaves_nothing_half_written_and_can_be_resumed(tmp_path: Path) -> None:
    program = f"""
import dgl_tuplepack as tp
from pathlib import Path
from tests.support.shards import Misbehaving

if __name__ == "__main__":
    folder = Path({str(tmp_path)!r})
    paths = {{f"part-{{i}}": folder / f"part-{{i}}.bin" for i in range(3)}}
    slow = Misbehaving(3, "sleep", folder / "mark")
    tp.preprocess_shards({{**paths, "slow": slow}}, folder / "out", limits=tp.Limits(30, 30), workers=2)
"""
    write_bins(tmp_path, 3)
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, str(tmp_path / "program.py")]
    run = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    finished = [tmp_path / "out" / f"part-{i}" / "metadata.json" for i in range(3)]
    wait_for(lambda: (tmp_path / "mark").exists() and all(path.exists() for path in finished))
    # As a terminal does: every process gets it.
    os.killpg(run.pid, signal.SIGINT)
    begin = time.monotonic()
    _, said = run.communicate(timeout=60)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert said.count("Traceback") == 1, said
    assert time.monotonic() - begin < 30, "it waited for what was being done"
    assert not (tmp_path / "out" / "manifest.json").exists()
    # The workers are gone too, and have cleaned up.
    assert not (tmp_path / "out" / "slow").exists()
    paths = [tmp_path / f"part-{i}.bin" for i in range(3)]
    shards = {**named(paths), "slow": Misbehaving(3, "sleep", tmp_path / "mark")}
    assert tp.preprocess_shards(shards, tmp_path / "out", limits=LIMITS, workers=1).written == ("slow",)
    assert_holds(verify_shards(tmp_path / "out"), 0, 1, 2, 3)


def test_more_shards_than_files_may_be_open(tmp_path: Path) -> None:
    # Objects with tensors, which torch would send as open files.
    shards = {f"{i}": [(dgl.graph(([0, 1], [1, i % 5]), num_nodes=5), torch.zeros(1))] for i in range(80)}
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, before[1]))
    try:
        made = tp.preprocess_shards(shards, tmp_path / "out", limits=tp.Limits(20, 20), workers=2)
        batch = made.store.padded(tp.Limits(800, 300, 81))[list(range(80))]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (len(made.written), batch.num_real_graphs) == (80, 80)


def wait_for(condition: Any) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came to that")
