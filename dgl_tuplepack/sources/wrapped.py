"""Any source wrapped by `with_ids`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dgl_tuplepack.graphs.blocks import GraphBlock
from dgl_tuplepack.graphs.items import Identified, WithIds
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.sizes import GraphSizes
from dgl_tuplepack.sources.kind import Source, resolve


class Wrapped(Source):
    """What is wrapped, with positions as the ids of items."""

    def __init__(self, inner: Source) -> None:
        super().__init__(inner.title)
        self._inner = inner
        self.knows_sizes, self.schema = inner.knows_sizes, inner.schema

    @classmethod
    def of_object(cls, given: Any) -> Source | None:
        """Recognise what `with_ids` returns."""
        return cls(resolve(given.dataset)) if isinstance(given, WithIds) else None

    def sizes(self, cache: Path | None = None) -> GraphSizes:
        """Sizes of what is wrapped."""
        return self._inner.sizes(cache)

    def histogram(self) -> SizeHistogram:
        """Histogram of what is wrapped."""
        return self._inner.histogram()

    def num_graphs(self) -> int | None:
        """Number of graphs of what is wrapped."""
        return self._inner.num_graphs()

    def splits(self) -> Mapping[str, Any]:
        """Splits of what is wrapped."""
        return self._inner.splits()

    def blocks(self) -> Iterator[GraphBlock] | None:
        """Blocks of what is wrapped; their ids are positions anyway."""
        return self._inner.blocks()

    def items(self) -> Iterable[Any]:
        """Items with their positions, which go before ids inside the items."""
        return (Identified(position, item) for position, item in enumerate(self._inner.items()))
