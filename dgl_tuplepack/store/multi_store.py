"""A dataset of many stores, read as one."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path

from dgl_tuplepack._checks import as_path
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.store.graph_store import GraphStore, StoredGraphs
from dgl_tuplepack.store.manifest import Manifest, ShardEntry, was_written_anew
from dgl_tuplepack.store.part import Part


class MultiStore(StoredGraphs):
    """All graphs of a dataset that was preprocessed in shards, one shard after the other.

    It does what a `GraphStore` of all graphs would do, and its batches are equal. A batch may draw from any number of
    shards; that takes little longer than drawing from one.

    Parameters
    ----------
    path
        Folder that `preprocess_shards` made.

    Attributes
    ----------
    path
        The folder.
    schema
        Types, features and labels of the graphs.
    limits
        Of the plans beside the shards.
    original_ids
        int64 ``[N]``, the id in all shards of each graph; those of a subset count from 0.

    Raises
    ------
    FormatError
        There is no manifest, a shard is missing, was written anew, or is not as it was written.
    SchemaError
        Shards hold different kinds of graphs.

    Notes
    -----
    Opening looks at each file of each shard, some 2 ms a shard.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Workers may have another working folder.
        path = as_path(path).absolute()
        self.manifest = Manifest.load(path)
        parts = [Part.open(path / shard.name) for shard in self.manifest.shards]
        for part, shard in zip(parts, self.manifest.shards, strict=True):
            _check_same(part.checksum, path, shard)
        super().__init__(path, parts)

    @property
    def limits(self) -> Limits:
        """Of the plans beside the shards."""
        return self.manifest.limits

    @functools.cached_property
    def shards(self) -> Mapping[str, GraphStore]:
        """The shards on their own, by name.

        Raises
        ------
        FormatError
            A shard was written anew since this was opened.
        """
        stores = {shard.name: GraphStore(self.path / shard.name) for shard in self.manifest.shards}
        for shard in self.manifest.shards:
            _check_same(stores[shard.name].checksum, self.path, shard)
        return stores


def _check_same(checksum: str, path: Path, shard: ShardEntry) -> None:
    """Refuse a store that is not the one that the manifest tells of."""
    if checksum != shard.store:
        raise FormatError(was_written_anew(path, shard.name))
