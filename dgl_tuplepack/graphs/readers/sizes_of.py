"""Read the sizes of the graphs of any source, without their features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes


def sizes_of(source: Any, *, levels: Mapping[str, str | None] | None = None) -> GraphSizes:
    """Return the sizes of all graphs of a source, in its order.

    Parameters
    ----------
    source
        A list of DGLGraph, (DGLGraph, label) or (DGLGraph, label, id), or of these with a dict of named graphs
        ``{"atoms": g, "bonds": h}`` in place of the graph, or of PyG's Data or HeteroData; a DGLDataset, a PyG
        InMemoryDataset, a dataset object of OGB or a subset of one (anything with a length and such items); a
        `GraphStore`, a `MultiStore`, an `OgbFolder` or a `ChunkedGraph` (DGL's chunked graph format); the path of one
        of these four, of a part that `partition` wrote, or of a ``.bin`` file of `dgl.save_graphs`; a pair of arrays
        ``(num_nodes, num_edges)``, each ``[N]``; an array ``[N, k]`` or a list of such rows; or `GraphSizes`, which is
        returned unchanged.
    levels
        For PyG graphs: what attributes belong to, as in `GraphStore.write`. Attributes that are edge types, such as
        `edge_label_index`, have a component unless `levels` change that.

    Returns
    -------
    GraphSizes
        Components ``("nodes", "edges")``; for heterographs one component for each node type and each
        canonical edge type, such as ``"nodes:user"`` and ``"edges:user:follows:user"``; for named graphs
        ``"nodes:atoms"`` and ``"edges:atoms"``.

    Raises
    ------
    SizesError
        The source is empty, cannot be read as graphs or sizes, or sizes are malformed.
    SchemaError
        An item is not a graph, or graphs differ in their node or edge types.
    FormatError
        The path does not exist, cannot be read as graphs or sizes, or is damaged.

    Notes
    -----
    Time O(N); every item is fetched once, features are never copied.

    Examples
    --------
    >>> sizes_of(([3, 2], [4, 2])).array.tolist()
    [[3, 4], [2, 2]]
    """
    return resolve(source).with_levels(levels).sizes()


def histogram_of(source: Any) -> SizeHistogram:
    """Return the histogram of the sizes of any source; a `SizeHistogram` is returned unchanged."""
    return resolve(source).histogram()
