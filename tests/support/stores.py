"""Small stores with something of everything, and ways to damage them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import dgl_tuplepack as tp
from dgl_tuplepack.storage.format import Manifest, ShardEntry, StoreMetadata
from tests.support.graphs import (
    ITEM,
    RELATIONS,
    USER,
    assert_same_item,
    generator,
    random_graph,
    random_heterograph,
    random_tensor,
)

SPLITS = {"train": [0, 3, 5, 1], "test": [2, 4]}
LIMITS = tp.Limits(nodes=400, edges=800, graphs=60)


def molecules(number: int = 12, seed: int = 0, most: int = 7) -> list[Any]:
    """Labelled homogeneous graphs; all have a node and an edge, so that no file is empty."""
    gen = generator(seed)
    sizes = torch.randint(1, most + 1, (number, 2), generator=gen).tolist()
    features = {"feat": ((3,), torch.int64), "x": ((), torch.float32)}, {"feat": ((2,), torch.int64)}
    return [(random_graph(gen, *size, *features), random_tensor(gen, (2,), torch.float32)) for size in sizes]


def purchases(number: int = 8, seed: int = 0) -> list[Any]:
    """Unlabelled heterographs; the items have no feature."""
    gen = generator(seed)
    features = {USER: {"feat": ((2,), torch.int32)}}
    sizes = [({USER: 2 + i % 3, ITEM: 1 + i % 2}, dict.fromkeys(RELATIONS, 1 + i % 4)) for i in range(number)]
    return [random_heterograph(gen, *size, features) for size in sizes]


def data_of(path: Path) -> Path:
    """Folder of the arrays of a store."""
    return path / StoreMetadata.load(path).data


def files_of(path: Path) -> dict[str, Path]:
    """Array files by what they hold: content and name, of the last edge or node type."""
    return {
        " ".join(filter(None, (entry.content, entry.name))): data_of(path) / entry.file
        for entry in StoreMetadata.load(path).arrays
    }


def flip(file: Path, at: int) -> None:
    """Change one bit of a byte of a file."""
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)


def plans_in(path: Path) -> list[str]:
    """Names of the plans of the store in a folder."""
    return sorted(file.name for file in data_of(path).glob("plan*"))


def rewrite_metadata(path: Path, change: Any) -> None:
    """Let `change` edit the document, and give it a checksum that is right again."""
    file = path / "metadata.json"
    document = json.loads(file.read_text())
    change(document)
    document["checksum"] = checksum_of(document)
    file.write_text(json.dumps(document))


def checksum_of(document: dict[str, Any]) -> str:
    """As docs/reference/format.md has it: SHA-256 of all but the checksum, as JSON with sorted keys."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def assert_same_items(store: Any, expected: Any) -> None:
    """A store is intact, and holds what `expected` holds."""
    assert len(store) == len(expected)
    store.verify()
    for i in range(len(expected)):
        assert_same_item(store[i], expected[i])


def write_shards(
    out: Path, parts: Sequence[Any], splits: Sequence[dict[str, Any]] | None = None, **settings: Any
) -> tp.MultiStore:
    """A dataset of shards as `preprocess_shards` leaves it, without plans, by the simplest means."""
    entries = []
    for i, graphs in enumerate(parts):
        store = tp.GraphStore.write(out / f"part-{i}", graphs, splits=splits[i] if splits else None, **settings)
        entries.append(ShardEntry(f"part-{i}", len(store), store.segments[0].metadata.checksum))
    number = sum(entry.num_graphs for entry in entries)
    Manifest(number, tp.Limits(99, 99), 0, tuple(entries)).save(out)
    return tp.MultiStore(out)
