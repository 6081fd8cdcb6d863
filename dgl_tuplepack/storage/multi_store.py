"""A dataset of many stores, read as if it were one store."""

from __future__ import annotations

import os

from dgl_tuplepack._core.checks import as_path, shown
from dgl_tuplepack._core.progress import DELAY, progress_bar
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.planning.buckets import Buckets
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.storage.graph_store import StoredGraphs
from dgl_tuplepack.storage.manifest import Manifest, check_unchanged
from dgl_tuplepack.storage.segment import Segment


class MultiStore(StoredGraphs):
    """All graphs of a dataset that was preprocessed in shards, in the order of the shards.

    It behaves like one `GraphStore` of all graphs, and makes equal batches. A batch may hold graphs of any number of
    shards; making such a batch takes little longer than making a batch from one shard.

    Parameters
    ----------
    path
        Folder that `preprocess_shards` made.

    Attributes
    ----------
    path, schema, original_ids
        As in `GraphStore`; an id is the position of a graph among the graphs of all shards.
    limits
        Limits of the plans of the shards.

    Raises
    ------
    FormatError
        There is no manifest, or a shard is missing, was written again, or is damaged.
    SchemaError
        The schemas of the shards differ.

    Notes
    -----
    Opening checks each file of each shard, which takes about 2 ms per shard.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise FormatError(
                f"MultiStore opens one folder, which preprocess_shards made, but got {shown(path)}; give its path, or "
                "join stores first: MultiStore(out) after preprocess_shards([store, other], out)."
            )
        # Worker processes may have another working folder.
        path = as_path(path).absolute()
        self.manifest = Manifest.load(path)
        shards = progress_bar(self.manifest.shards, desc="open", unit=" shards", delay=DELAY, leave=False)
        segments = [Segment.open(path / shard.name) for shard in shards]
        for segment, shard in zip(segments, self.manifest.shards, strict=True):
            check_unchanged(segment.checksum, path, shard)
        super().__init__(path, segments)

    @property
    def limits(self) -> Limits | Buckets:
        """Limits of the plans of the shards."""
        return self.manifest.limits
