"""The content of `manifest.json`, as docs/reference/format.md specifies it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack._core.files import JsonFormat, is_there
from dgl_tuplepack._version import __version__
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.planning.buckets import Buckets, shapes_from_dict
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.storage.format import MANIFEST, METADATA, PLAIN_NAME

_FILE = JsonFormat("dgl_tuplepack.manifest", 1, "dataset of shards", "preprocess the shards again")


@dataclass(frozen=True)
class ShardEntry:
    """One shard: the name of its folder, its number of graphs, and `store`, the checksum of its store."""

    name: str
    num_graphs: int
    store: str

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ShardEntry:
        """Check one entry of the list `shards` and return it."""
        whole_number("num_graphs of a shard", document["num_graphs"], 1)
        entry = cls(**document)
        if not PLAIN_NAME.fullmatch(entry.name):
            raise ValueError(f"a shard has a name that is not a plain file name: {document!r:.200}")
        return entry


@dataclass(frozen=True)
class Manifest:
    """Content of `manifest.json`: the shards in order, and the limits and the seed of their plans."""

    num_graphs: int
    limits: Limits | Buckets
    seed: int
    shards: tuple[ShardEntry, ...]
    written_by: str = __version__

    def save(self, folder: Path) -> None:
        """Write `manifest.json`, which completes the dataset."""
        shards = [asdict(shard) for shard in self.shards]
        _FILE.write(folder / MANIFEST, {**vars(self), "limits": self.limits.to_dict(), "shards": shards}, indent=1)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read `manifest.json`; raise FormatError if it is missing, of another format or version, or damaged."""
        path = folder / MANIFEST
        if not is_there(path):
            if is_there(folder / METADATA):
                raise FormatError(f"{folder} is a single store, not a dataset of shards; open it with GraphStore.")
            raise FormatError(
                f"{folder} is not a dataset of shards: it has no {MANIFEST}; give a folder in which preprocess_shards "
                "has finished, or run it there again."
            )
        with _FILE.reading(path) as document:
            shards = tuple(map(ShardEntry.from_dict, document["shards"]))
            number = whole_number("num_graphs", document["num_graphs"], 1)
            if number != sum(shard.num_graphs for shard in shards) or len({s.name for s in shards}) != len(shards):
                raise ValueError("num_graphs is not the sum over the shards, or a shard is listed twice")
            seed, written_by = whole_number("seed", document["seed"], 0), str(document["written_by"])
            return cls(number, shapes_from_dict(document["limits"]), seed, shards, written_by)


def check_unchanged(checksum: str, folder: Path, shard: ShardEntry) -> None:
    """Raise FormatError if the checksum of a store differs from its checksum in the manifest."""
    if checksum != shard.store:
        raise FormatError(
            f"{folder / shard.name} was written again after {folder / MANIFEST}; preprocess the shards again."
        )
