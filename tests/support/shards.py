"""Shards for the tests: small files, and sources that misbehave."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import torch

import dgl_tuplepack as tp
from tests.support.molecules import random_molecules
from tests.support.stores import assert_same_items

LIMITS = tp.Limits(30, 30)


def molecules(seed: int, number: int = 20) -> list[Any]:
    """Labelled molecules of 2..8 atoms."""
    sizes = np.random.default_rng(seed).integers(2, 9, (number, 2))
    return random_molecules(tp.GraphSizes(sizes), seed)


def write_bin(path: Path, items: Sequence[Any]) -> Path:
    """A file of `dgl.save_graphs`."""
    dgl.save_graphs(str(path), [graph for graph, _ in items], {"y": torch.stack([label for _, label in items])})
    return path


def write_bins(folder: Path, number: int) -> list[Path]:
    """Shards part-0.bin, part-1.bin, ... of 20 molecules each."""
    return [write_bin(folder / f"part-{i}.bin", molecules(i)) for i in range(number)]


def make_shards(shards: Any, out: Path, **settings: Any) -> Any:
    """Write shards in this process."""
    return tp.preprocess_shards(shards, out, **{"limits": LIMITS, "workers": 1, **settings})


def snapshot(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files but locks: when they were written, and what they hold."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def assert_holds(store: tp.MultiStore, *seeds: int) -> None:
    """Shards of 20 molecules each, by their seeds."""
    assert_same_items(store, [item for seed in seeds for item in molecules(seed)])


class Misbehaving:
    """Molecules whose reading kills the process, raises, or takes long.

    `mark`, if given, is a file: what is to happen happens only until it exists.
    """

    def __init__(self, seed: int, how: str, mark: Path | None = None) -> None:
        self.seed, self.how, self.mark = seed, how, mark

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        if index == 10 and not (self.mark and self.mark.exists()):
            if self.mark:
                self.mark.touch()
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self.how == "raise":
                raise RuntimeError("the tape is torn")
            else:
                time.sleep(60)
        return molecules(self.seed)[index]
