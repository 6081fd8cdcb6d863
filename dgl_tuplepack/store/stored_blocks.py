"""The graphs of a store, as blocks of flat arrays, to be written once more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock
from dgl_tuplepack.store.arrays import StoreArrays
from dgl_tuplepack.store.format import DTYPES, ENDS

_GRAPHS = 4096


def stored_blocks(arrays: StoreArrays) -> Iterator[GraphBlock]:
    """All graphs in their order, a few thousand at a time, in the dtypes that are handed out.

    Raises
    ------
    FormatError
        Offsets or endpoints are damaged.
    """
    arrays.check_positions()
    for first in range(0, arrays.num_graphs, _GRAPHS):
        yield _block(arrays, slice(first, min(first + _GRAPHS, arrays.num_graphs)))


def _block(arrays: StoreArrays, graphs: slice) -> GraphBlock:
    schema = arrays.schema
    bounds = {t: arrays.offsets(t)[graphs.start : graphs.stop + 1] for t in arrays.rows}
    rows = {t: slice(int(found[0]), int(found[-1])) for t, found in bounds.items()}

    def values(content: str, t: Any, names: Iterable[str], part: slice) -> dict[str, Array]:
        dtypes = {n: DTYPES[arrays.entries[content, t, n].dtype] for n in names}
        return {n: arrays.array(content, t, n)[part].astype(dtype, copy=False) for n, dtype in dtypes.items()}

    def endpoints(e: EdgeType) -> tuple[Array, Array]:
        source, destination = (arrays.array(end, e)[rows[e]].astype(np.int64) for end in ENDS)
        return source, destination

    return GraphBlock(
        num_nodes={t: np.diff(bounds[t]) for t in schema.node_types},
        num_edges={t: np.diff(bounds[t]) for t in schema.edge_types},
        endpoints={e: endpoints(e) for e in schema.edge_types},
        node_features={t: values("node_feature", t, n, rows[t]) for t, n in schema.node_features.items()},
        edge_features={e: values("edge_feature", e, n, rows[e]) for e, n in schema.edge_features.items()},
        labels=values("label", None, schema.labels, graphs),
    )
