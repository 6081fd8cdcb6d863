"""What `manifest.json` says of a dataset of shards; the mirror of docs/format.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._checks import INT64_MAX, whole_number
from dgl_tuplepack._files import check_header, checksum, is_there, read_json, write_text
from dgl_tuplepack._version import __version__
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.store.format import MANIFEST, METADATA

FORMAT, VERSION = "dgl_tuplepack.manifest", 1

# Names of shards, which are names of folders.
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_HEX = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ShardEntry:
    """One shard: the name of its folder, its number of graphs, and the checksum of its store."""

    name: str
    num_graphs: int
    store: str

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> ShardEntry:
        """Check one entry of the list `shards`."""
        whole_number("num_graphs of a shard", found["num_graphs"], 1, INT64_MAX)
        entry = cls(**found)
        if not PLAIN_NAME.fullmatch(entry.name) or not _HEX.fullmatch(entry.store):
            raise ValueError(f"an entry of the shards is {found!r:.200}")
        return entry


@dataclass(frozen=True)
class Manifest:
    """Content of `manifest.json`: the shards in their order, and the limits of the plans beside their stores."""

    num_graphs: int
    limits: Limits
    seed: int
    shards: tuple[ShardEntry, ...]
    written_by: str = __version__

    def to_dict(self) -> dict[str, Any]:
        """The document as it is saved."""
        shards = [asdict(shard) for shard in self.shards]
        content = {**self.__dict__, "limits": self.limits.to_dict(), "shards": shards}
        document = {"format": FORMAT, "version": VERSION, **content}
        return {**document, "checksum": checksum(document)}

    def save(self, folder: Path) -> None:
        """Write `manifest.json`; with that the dataset exists."""
        write_text(folder / MANIFEST, json.dumps(self.to_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read `manifest.json` and check that it is whole and consistent.

        Raises
        ------
        FormatError
            It is missing, foreign, newer or altered.
        """
        path = folder / MANIFEST
        if not is_there(path):
            if is_there(folder / METADATA):
                raise FormatError(f"{folder} is a single store, not a dataset of shards; open it with GraphStore.")
            raise FormatError(
                f"{folder} is no dataset of shards: it has no {MANIFEST}; give a folder in which preprocess_shards has "
                "finished, or run it there again."
            )
        document = read_json(path)
        check_header(document, path, FORMAT, VERSION)
        try:
            intact = document["checksum"] == checksum(document)
            shards = tuple(map(ShardEntry.from_dict, document["shards"]))
            number = whole_number("num_graphs", document["num_graphs"], 1)
            if number != sum(shard.num_graphs for shard in shards) or len({s.name for s in shards}) != len(shards):
                raise ValueError("its shards do not add up, or one is listed twice")
            seed, written_by = whole_number("seed", document["seed"], 0), str(document["written_by"])
            limits = Limits.from_dict(document["limits"])
            manifest = cls(number, limits, seed, shards, written_by)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{path} describes no valid dataset: {error!s:.500}; preprocess it again.") from error
        if not intact:
            raise FormatError(f"{path} was altered: its content does not match its checksum; preprocess it again.")
        return manifest


def was_written_anew(folder: Path, name: str) -> str:
    """Message for a shard that is not the one of the manifest."""
    return f"{folder / name} was written anew since {folder / MANIFEST} was; run the preprocessing again."
