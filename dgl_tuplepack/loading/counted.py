"""The sizes that were counted when a loader was made, to notice items that have grown when they are read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.errors import GraphTooLargeError
from dgl_tuplepack.graphs.items import shape_index_of
from dgl_tuplepack.graphs.named import counts_of, is_graph, is_pyg
from dgl_tuplepack.graphs.readers.items import sizes_of_items
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray


@dataclass(frozen=True)
class CountedSizes:
    """Counted sizes of a dataset, the `ids` of its items, and `most`, the largest content of a batch of each shape."""

    sizes: GraphSizes
    ids: IntArray
    most: IntArray
    levels: Any

    def collated(self, collate: Callable[[Any], Any], items: Sequence[Any], positions: Sequence[int]) -> Any:
        """Return the batch; GraphTooLargeError names an item that has grown, if the batch exceeds the limits."""
        try:
            batch = collate(items)
        except GraphTooLargeError:
            self._refuse_growth(items, positions, None)
            raise
        graph, shape = batch[0] if isinstance(batch, tuple | list) and batch else batch, shape_index_of(positions)
        most = self.most[-1 if shape is None else shape]
        # Reading the size of each item takes as long as `dgl.batch`, so look at the batch first.
        if items and not isinstance(batch, PaddedBatch) and not _within(graph, most):
            self._refuse_growth(items, positions, most)
        return batch

    def _refuse_growth(self, items: Sequence[Any], positions: Sequence[int], most: IntArray | None) -> None:
        """Raise GraphTooLargeError if items have grown, and their total exceeds `most`, if given."""
        now, counted = sizes_of_items(items, self.levels).array, self.sizes.array[list(positions)]
        growth = (now - counted).max(axis=1)
        worst = int(growth.argmax())
        if growth[worst] > 0 and (most is None or (now.sum(axis=0) > most).any()):
            before, after = (
                ", ".join(map("{} {}".format, row[worst], self.sizes.components)) for row in (counted, now)
            )
            raise GraphTooLargeError(
                f"item {self.ids[positions[worst]]} had {before} when sizes were counted, but {after} when it was read "
                f"again; {(growth > 0).sum()} of the {len(items)} items of this batch have grown, so it exceeds the "
                "limits. Let the dataset return the same sizes each time, and give random crops or edge dropout as "
                "transform=..., or freeze the items by in_memory=True."
            )


def _within(batch: Any, most: IntArray) -> bool:
    """Return whether a batched graph has at most `most` nodes and edges of each type; False if it has other types."""
    counts = counts_of(batch) if is_graph(batch) else {}
    total = [batch.num_nodes, batch.num_edges] if is_pyg(batch) else [*counts.values()]
    return len(total) == len(most) and bool((np.array(total) <= most).all())
