"""Make partitions in this process, and look into them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack.storage.partition import Partitioned, partition
from tests.support.shards import snapshot


def divided(source: Any, out: Path, parts: int, **settings: Any) -> Partitioned:
    """Partition in this process."""
    return partition(source, out, parts, **{"workers": 1, **settings})


def ids_of(done: Partitioned, parts: int) -> list[list[int]]:
    """The graphs of each part."""
    return [np.load(done.config.parent / f"part{i}" / "graphs.npz")["ids"].tolist() for i in range(parts)]


def files_of(out: Path) -> dict[str, bytes]:
    """All files but those of graphs, in which DGL leaves random bytes, and those with their checksums."""
    found = {name: data for name, (_, data) in snapshot(out).items()}
    return {name: found[name] for name in found if not name.endswith(("/graph.dgl", "/part.json"))}
