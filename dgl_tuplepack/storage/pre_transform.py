"""Apply a transform to each graph once, before the graphs are written."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dgl_tuplepack.graphs.graph_blocks import items_of
from dgl_tuplepack.graphs.items import as_item, parts_of
from dgl_tuplepack.graphs.readers.items import sizes_of_items
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.graphs.transform import GraphTransform
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.storage.blocks import blocks_of
from dgl_tuplepack.storage.format import PreTransform


class Transformed(Source):
    """A source whose graphs are transformed when they are read; its sizes are the sizes after the transform.

    Random numbers are a function of `seed`, of the position of the graph, and of `shard`, the name of the shard. `name`
    identifies the transform in the store, instead of its `repr`.
    """

    def __init__(
        self, source: Source, transform: Callable[[Any], Any], seed: int, name: str | None = None, shard: str = ""
    ) -> None:
        super().__init__(source.title)
        self.levels, self.is_stream = source.levels, source.is_stream
        self._source, self._transform = source, GraphTransform(transform, seed, may_grow=True, levels=self.levels)
        self._stream = zlib.crc32(shard.encode("utf-8", "surrogatepass"))
        # Identify the transform before its first call, which may change its attributes and thus its `repr`.
        self.pre_transform = PreTransform.after(source.pre_transform, transform, self._transform.draws.seed, name)
        self.ties, self.indices = source.ties, source.indices

    def num_graphs(self) -> int | None:
        """Return the number of graphs; None if it is unknown before they are read."""
        return self._source.num_graphs()

    def splits(self) -> Mapping[str, Any]:
        """Return the splits of the source."""
        return self._source.splits()

    def sizes(self) -> GraphSizes:
        """Read and transform all graphs, and return their sizes."""
        return sizes_of_items(self.items(), self.levels)

    def items(self) -> Iterator[Any]:
        """Yield the transformed graphs with their labels; items keep their ids."""
        in_blocks = not self._source.prefers_items and self._source.blocks() is not None
        inner = items_of(*blocks_of(self._source)) if in_blocks else self._source.items()
        for position, item in enumerate(inner):
            yield self._transformed(position, item)

    def _transformed(self, position: int, item: Any) -> Any:
        """Return the transformed graph of an item, with its label and id."""
        where = f"item {position}"
        given = parts_of(item, where)
        # Seed random numbers by the position, in place of an id, and by the shard, in place of an epoch.
        (transformed,) = self._transform([given._replace(id=position)], [where], self._stream)
        return as_item(transformed._replace(id=given.id))
