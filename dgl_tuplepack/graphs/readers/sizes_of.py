"""Read the sizes of the graphs of any source, without their features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.sizes import GraphSizes


def sizes_of(source: Any, *, levels: Mapping[str, str | None] | None = None) -> GraphSizes:
    """Return the sizes of all graphs of a source, in the order of the source.

    Parameters
    ----------
    source
        Graphs, a path or sizes.

        Graphs may be given as a list or dataset whose items are DGLGraph, (DGLGraph, label), (DGLGraph, label, id), or
        PyG's Data or HeteroData. A dict of named graphs ``{"atoms": g, "bonds": h}`` may take the place of the
        DGLGraph. A dataset is anything with a length and such items: a DGLDataset, a PyG InMemoryDataset, a dataset
        object of OGB, or a subset of a dataset. Graphs may also be given as a `GraphStore`, a `MultiStore`, an
        `OgbFolder` or a `ChunkedGraph` (DGL's chunked graph format).

        A path may lead to a store, a dataset of shards, an OGB folder, a folder in DGL's chunked graph format, a part
        that `partition` wrote, or a ``.bin`` file of `dgl.save_graphs`.

        Sizes may be given as a pair of arrays ``(num_nodes, num_edges)``, each ``[N]``; as an array ``[N, k]``, or a
        list of N rows of k numbers; or as `GraphSizes`, which is returned unchanged.
    levels
        For PyG graphs: a dict from attributes to their levels, as in `GraphStore.write`. An attribute that holds
        endpoints of edges, such as `edge_label_index`, is an edge type and has a component, unless `levels` assigns
        another level to the attribute.

    Returns
    -------
    GraphSizes
        Components ``("nodes", "edges")``; for heterographs one component for each node type and each
        canonical edge type, such as ``"nodes:user"`` and ``"edges:user:follows:user"``; for named graphs
        ``"nodes:atoms"`` and ``"edges:atoms"``.

    Raises
    ------
    SizesError
        The source is empty or cannot be read as graphs or sizes, or its sizes are malformed.
    SchemaError
        An item is not a graph, or graphs differ in their node or edge types.
    FormatError
        The path does not exist, cannot be read as graphs or sizes, or is damaged.

    Notes
    -----
    Takes time O(N) for N graphs. Every item is read once. Features are copied only if PyG graphs have more
    types than `edge_index` shows, so that they must be joined before their sizes can be read.

    Examples
    --------
    >>> sizes_of(([3, 2], [4, 2])).array.tolist()
    [[3, 4], [2, 2]]
    """
    return resolve(source).with_levels(levels).sizes()


def histogram_of(source: Any) -> SizeHistogram:
    """Return the histogram of the sizes of any source; a `SizeHistogram` is returned unchanged."""
    return resolve(source).histogram()
