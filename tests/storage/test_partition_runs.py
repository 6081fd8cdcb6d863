"""A second run of a partition does only what is missing; a killed run goes on; processes write the same."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

import dgl_tuplepack as tp
from dgl_tuplepack._core.files import checksum
from dgl_tuplepack.errors import FormatError, ShardsError
from dgl_tuplepack.storage.partition import partition
from tests.support.messages import refused
from tests.support.partitions import divided, files_of, ids_of
from tests.support.processes import exit_code_if_killed
from tests.support.shards import Misbehaving, snapshot
from tests.support.stores import SPLITS, flip, molecules


def test_a_second_run_writes_only_what_is_missing_or_damaged(tmp_path: Path) -> None:
    source, out = molecules(12), tmp_path / "out"
    assert divided(source, out, 3).written == (0, 1, 2)
    before = snapshot(out / "part1")
    shutil.rmtree(out / "part0")
    flip(out / "part2" / "node_feat.dgl", -20)
    assert (divided(source, out, 3).written, snapshot(out / "part1")) == ((0, 2), before)
    (out / "part2" / "graphs.npz").unlink()
    (out / "graphs.json").unlink()
    again = divided(source, out, 3)
    assert (again.written, again.kept) == ((2,), (0, 1))
    assert len(ids_of(again, 3)) == 3
    assert divided(source, out, 3, overwrite=True).written == (0, 1, 2)
    # Another partition needs permission, and then leaves nothing of the earlier one.
    for graphs, parts in ((source, 2), (source[:9], 3)):
        with refused(FormatError, "another partition", "overwrite"):
            divided(graphs, out, parts)
    done = divided(source, out, 2, overwrite=True, name="other")
    assert sorted(path.name for path in out.iterdir()) == [
        ".lock", "_N.txt", "graph_parts.npy", "other.json", "part0", "part1", "partition.json",
    ]  # fmt: skip
    assert done.written == (0, 1)
    # A record that was altered, or names other places, removes nothing there.
    (tmp_path / "precious").touch()
    for files in (["..", "../precious", str(tmp_path / "precious"), ""], None):
        document = json.loads((out / "partition.json").read_text())
        if files is None:
            document["identity"] = "other"
        else:
            document["files"] = files
            document["checksum"] = checksum(document)
        (out / "partition.json").write_text(json.dumps(document))
        with refused(FormatError, "another partition"):
            divided(source, out, 2, name="other")
        assert divided(source, out, 2, overwrite=True, name="other").written == (0, 1)
        assert (tmp_path / "precious").exists()
    # A damaged record names no files, but the files and parts of ours are found.
    divided(source, out, 3, overwrite=True)
    flip(out / "partition.json", -20)
    with refused(FormatError, "another partition"):
        divided(source, out, 2)
    done = divided(source, out, 2, overwrite=True, name="new")
    assert [path.name for path in sorted(out.glob("part*"))] == ["part0", "part1", "partition.json"]
    assert sorted(path.name for path in out.glob("*.json")) == ["new.json", "partition.json"]
    # A part is a source of a partition, too.
    assert sum(map(len, ids_of(divided(out / "part0", tmp_path / "deeper", 2), 2))) == len(ids_of(done, 2)[0])


def _shaped(shape: tuple[int, ...], label: Any = 0.0) -> list[Any]:
    """Graphs whose arrays have equal bytes, whatever the shape of a row."""
    graphs = [dgl.graph((torch.arange(n - 1), torch.arange(1, n))) for n in (3, 4, 5, 6)]
    for graph in graphs:
        graph.ndata["x"] = torch.arange(4.0 * graph.num_nodes()).reshape(-1, *shape)
    return [(graph, torch.tensor(label)) for graph in graphs]


def test_graphs_of_equal_bytes_and_another_schema_are_another_partition(tmp_path: Path) -> None:
    divided(_shaped((4,)), tmp_path / "out", 2)
    for other in (_shaped((2, 2)), _shaped((4,), [0.0]), [(graph.int(), label) for graph, label in _shaped((4,))]):
        with refused(FormatError, "another partition", "overwrite"):
            divided(other, tmp_path / "out", 2)


def test_parts_that_were_exchanged_are_written_again(tmp_path: Path) -> None:
    source, out = molecules(12), tmp_path / "out"
    divided(source, out, 2)
    shutil.rmtree(out / "part1")
    shutil.copytree(out / "part0", out / "part1")
    again = divided(source, out, 2)
    assert (again.written, again.kept) == ((1,), (0,))
    assert sorted(itertools.chain(*ids_of(again, 2))) == list(range(12))


@pytest.mark.processes
def test_processes_and_executors_write_the_same(tmp_path: Path) -> None:
    source = tp.GraphStore.write(tmp_path / "s", molecules(12), splits=SPLITS)
    divided(source, tmp_path / "one", 3)
    partition(source, tmp_path / "two", 3, workers=2)
    with ThreadPoolExecutor(2) as executor:
        partition(source, tmp_path / "three", 3, executor=executor)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two") == files_of(tmp_path / "three")


def test_a_part_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = dgl.data.save_tensors

    def failing(path: str, tensors: Any) -> None:
        if ".part1." in path:
            raise RuntimeError("the disk is full")
        save(path, tensors)

    store = tp.GraphStore.write(tmp_path / "s", molecules(12))
    with monkeypatch.context() as patched:
        patched.setattr(dgl.data, "save_tensors", failing)
        with refused(ShardsError, "1 of 3 parts failed", "part1: RuntimeError: the disk is full"):
            divided(store, tmp_path / "out", 3)
    assert not (tmp_path / "out" / "graphs.json").exists()
    assert divided(store, tmp_path / "out", 3).written == (1,)
    # A source that fails leaves nothing.
    with pytest.raises(RuntimeError, match="torn"):
        divided(Misbehaving(0, "raise"), tmp_path / "bad" / "deep", 2)
    assert not (tmp_path / "bad").exists()


DISK_STEPS = [
    *((os, name) for name in ("replace", "fsync", "unlink", "rmdir", "mkdir")),
    (np, "save"),
    (dgl.data, "save_tensors"),
]


@pytest.fixture(scope="module")
def killed_steps() -> list[int]:
    """Steps at which a run is killed: every ninth, from another one in each run of the tests."""
    begin = int.from_bytes(os.urandom(2)) % 9
    return list(range(begin, 400, 9))


def test_a_run_that_is_killed_anywhere_goes_on_and_keeps_what_is_complete(
    tmp_path: Path, killed_steps: list[int]
) -> None:
    """At each step either DGL opens the old or the new partition, or there is none; the next run completes it."""
    old, new = molecules(5), [graph for graph, _ in molecules(7, seed=1)]
    expected = divided(new, tmp_path / "right", 2)
    right = files_of(tmp_path / "right")
    for step in killed_steps:
        out = tmp_path / f"out{step}"
        divided(old, out, 3)
        code = exit_code_if_killed(lambda out=out: divided(new, out, 2, overwrite=True), step, DISK_STEPS)
        if (out / "graphs.json").exists():
            number = json.loads((out / "graphs.json").read_text())["num_parts"]
            for part in range(number):
                graph, *_ = dgl.distributed.load_partition(str(out / "graphs.json"), part)
                assert bool(graph.ndata["inner_node"].all())
        done = divided(new, out, 2, overwrite=not _is_new(out))
        assert done.imbalance == expected.imbalance
        assert files_of(out) == right
        if code == 0:
            break
    else:
        pytest.fail("the run never came to its end")


def _is_new(out: Path) -> bool:
    state = out / "partition.json"
    return state.exists() and "part2" not in json.loads(state.read_text())["files"]
