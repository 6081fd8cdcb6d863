"""Pad the structure of an ordinary batch to a static shape: graphs of padding after the real graphs."""

from __future__ import annotations

from dgl_tuplepack._core.kernels._jit import jit
from dgl_tuplepack._core.kernels.types import ConstIntVector, IntVector


@jit
def pad_nodes(counts: ConstIntVector, first: int, missing: int, all_counts: IntVector, slots: IntVector) -> None:
    """Spread `missing` nodes over the graphs of padding, in pairs, so that edges may join different nodes.

    `all_counts` gets the nodes of each graph: `counts`, then those of padding; `slots` the graph of each node, counted
    from `first`. A single node that is left belongs to the first graph of padding.
    """
    real, graphs = len(counts), len(all_counts) - len(counts)
    for g in range(real):
        all_counts[g] = counts[g]
    pairs = missing // 2
    for g in range(graphs):
        all_counts[real + g] = 2 * (pairs // graphs + (1 if g < pairs % graphs else 0))
    all_counts[real] += missing % 2
    at = 0
    for g in range(len(all_counts)):
        for _ in range(min(all_counts[g], len(slots) - at)):
            slots[at] = first + g
            at += 1


@jit
def pad_edges(
    ends: tuple[ConstIntVector, ConstIntVector], counts: ConstIntVector, same_type: bool, first_nodes: tuple[int, int],
    nodes: tuple[ConstIntVector, ConstIntVector], all_ends: tuple[IntVector, IntVector], all_counts: IntVector,
) -> None:  # fmt: skip
    """Append edges to `ends` (source and destination) until `all_ends` are full; they join nodes of padding.

    `nodes` has the numbers of source and destination nodes of each graph of padding, `first_nodes` the first of them.
    `all_counts` gets the edges of each graph, in proportion to its destination nodes, so if there are at least as many
    edges as nodes, each node has one. In a graph, edges join each node to the next one; graphs with a single node get
    edges only if there are no others. The caller makes sure that some graph has nodes of both types.
    """
    (src, dst), (sources, destinations), (all_src, all_dst) = ends, nodes, all_ends
    real, graphs, missing = len(counts), len(sources), len(all_src) - len(src)
    all_src[: len(src)] = src
    all_dst[: len(dst)] = dst
    for g in range(real):
        all_counts[g] = counts[g]
    # Graphs with more than `least` nodes of both types get edges; `allowed` counts their destination nodes.
    least, allowed = 1, 0
    for _ in range(2):
        if allowed == 0:
            for g in range(graphs):
                if min(sources[g], destinations[g]) > least:
                    allowed += destinations[g]
            if allowed == 0:
                least = 0
    before, at = 0, len(src)
    first_source, first_destination = first_nodes
    for g in range(graphs):
        number = 0
        if allowed > 0 and min(sources[g], destinations[g]) > least:
            number = missing * (before + destinations[g]) // allowed - missing * before // allowed
            before += destinations[g]
        all_counts[real + g] = number
        for i in range(number):
            all_src[at] = first_source + i % sources[g]
            all_dst[at] = first_destination + (i + (1 if same_type else 0)) % destinations[g]
            at += 1
        first_source += sources[g]
        first_destination += destinations[g]
