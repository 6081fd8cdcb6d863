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
from dgl_tuplepack.graphs.readers.datasets import sizes_of_items
from dgl_tuplepack.loading.opened import Graphs
from dgl_tuplepack.planning.buckets import Shapes, all_of, as_shapes
from dgl_tuplepack.planning.sizes import IntArray


@dataclass(frozen=True)
class CountedSizes:
    """The counted sizes of graphs, and the limits of their batches."""

    graphs: Graphs
    limits: Shapes
    packs_per_batch: int

    def collated(self, collate: Callable[[Any], Any], items: Sequence[Any], positions: Sequence[int]) -> Any:
        """Return the batch; GraphTooLargeError names an item that has grown, if the batch exceeds the limits."""
        try:
            batch = collate(items)
        except GraphTooLargeError:
            self._refuse_growth(items, positions, None)
            raise
        if not items or isinstance(batch, PaddedBatch):
            return batch
        shape, graph = shape_index_of(positions), batch[0] if isinstance(batch, tuple | list) and batch else batch
        limits = all_of(as_shapes(self.limits))[-1 if shape is None else shape]
        most, total = self.packs_per_batch * np.array(limits.values), []
        # Reading the size of each item takes as long as `dgl.batch`, so look at the batch first.
        if is_pyg(graph):
            total = [graph.num_nodes, graph.num_edges]
        elif is_graph(graph):
            total = [*counts_of(graph).values()]
        if len(total) != len(most) or (np.array(total) > most).any():
            self._refuse_growth(items, positions, most)
        return batch

    def _refuse_growth(self, items: Sequence[Any], positions: Sequence[int], most: IntArray | None) -> None:
        """Raise GraphTooLargeError if items have grown, and their total exceeds `most`, if given."""
        sizes = self.graphs.sizes
        now, counted = sizes_of_items(items, self.graphs.levels).array, sizes.array[list(positions)]
        growth = (now - counted).max(axis=1)
        worst = int(growth.argmax())
        if growth[worst] > 0 and (most is None or (now.sum(axis=0) > most).any()):
            before, after = (", ".join(map("{} {}".format, row[worst], sizes.components)) for row in (counted, now))
            raise GraphTooLargeError(
                f"item {self.graphs.ids[positions[worst]]} had {before} when sizes were counted, but {after} when it "
                f"was read again; {(growth > 0).sum()} of the {len(items)} items of this batch have grown, so it "
                "exceeds the limits. Let the dataset return the same sizes each time, and give random crops or edge "
                "dropout as transform=..., or freeze the items by in_memory=True."
            )
