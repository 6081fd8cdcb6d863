"""One large graph that consists of small graphs: read the small graphs, and their sizes, from the large graph."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock, GraphType, components_of
from dgl_tuplepack.planning.sizes import GraphSizes, IntArray

# Graphs in a block, and edges that are read at once.
_GRAPHS, _EDGES = 4096, 1 << 20


class Rows(Protocol):
    """Rows of an array, or of several files."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def __getitem__(self, rows: IntArray) -> Array:
        """Return the rows at these indices."""


@dataclass(frozen=True)
class LargeGraph:
    """Arrays with a row for each node (edge) of a large graph, and the index of the small graph of each node.

    There are V_t nodes of each node type t, and E_t edges of each edge type t, in any order. The nodes and
    edges of a small graph keep this order.
    """

    title: str
    num_graphs: int
    # [V_t] for each node type.
    graph_of_node: Mapping[str, IntArray]
    # Source and destination of each edge, [E_t, 2]; nodes are numbered 0..V_t-1 in each type.
    edges: Mapping[EdgeType, Rows]
    # Features [V_t, ...] and [E_t, ...] by type and name, and labels [N, ...] by name.
    node_data: Mapping[str, Mapping[str, Rows]]
    edge_data: Mapping[EdgeType, Mapping[str, Rows]]
    labels: Mapping[str, Array] = field(default_factory=dict)

    def blocks(self) -> Iterator[GraphBlock]:
        """Yield all small graphs in order, a few thousand at a time."""
        graph_of: dict[GraphType, IntArray] = dict([*self.graph_of_node.items(), *self.graph_of_edge.items()])
        counts = {t: np.bincount(graphs, minlength=self.num_graphs) for t, graphs in graph_of.items()}
        # order[t]: all nodes (edges), sorted by small graph. In it, those of graph i begin at offsets[t][i].
        order = {t: np.argsort(graphs, kind="stable") for t, graphs in graph_of.items()}
        offsets = {t: np.append(0, np.cumsum(own)) for t, own in counts.items()}
        # The position of each node in its small graph.
        position = {t: _inverse(order[t]) - offsets[t][graphs] for t, graphs in self.graph_of_node.items()}
        for begin in range(0, self.num_graphs, _GRAPHS):
            end = min(begin + _GRAPHS, self.num_graphs)
            rows = {t: order[t][own[begin] : own[end]] for t, own in offsets.items()}
            # Source and destination of each edge of this block, as nodes of the large graph, [n, 2].
            ends = {e: edges[rows[e]] for e, edges in self.edges.items()}
            yield GraphBlock(
                {t: counts[t][begin:end] for t in self.graph_of_node},
                {e: counts[e][begin:end] for e in self.edges},
                {e: (position[e[0]][pairs[:, 0]], position[e[2]][pairs[:, 1]]) for e, pairs in ends.items()},
                {t: {n: values[rows[t]] for n, values in data.items()} for t, data in self.node_data.items()},
                {e: {n: values[rows[e]] for n, values in data.items()} for e, data in self.edge_data.items()},
                {name: values[begin:end] for name, values in self.labels.items()},
            )

    def sizes(self) -> GraphSizes:
        """Return the sizes of the small graphs."""
        graphs = (*self.graph_of_node.values(), *self.graph_of_edge.values())
        array = np.stack([np.bincount(own, minlength=self.num_graphs) for own in graphs], axis=1)
        return GraphSizes(array, components_of([*self.graph_of_node], [*self.edges]))

    @functools.cached_property
    def graph_of_edge(self) -> Mapping[EdgeType, IntArray]:
        """The small graph of each edge, ``[E_t]``; FormatError for an edge between two small graphs."""
        found = {}
        for e, edges in self.edges.items():
            found[e] = np.empty(len(edges), np.int64)
            for begin, pairs in pairs_of(edges, e, {t: len(own) for t, own in self.graph_of_node.items()}, self.title):
                ours, theirs = self.graph_of_node[e[0]][pairs[:, 0]], self.graph_of_node[e[2]][pairs[:, 1]]
                apart = np.flatnonzero(ours != theirs)
                if len(apart):
                    raise FormatError(
                        f"edge {begin + apart[0]:,} of {text_of(e)} in {self.title} connects the graphs "
                        f"{ours[apart[0]]} and {theirs[apart[0]]}; correct the node data graph_id, "
                        "or pass a different graph_ids= to ChunkedGraph."
                    )
                found[e][begin : begin + len(pairs)] = ours
        return found


def pairs_of(edges: Rows, e: EdgeType, num_nodes: Mapping[str, int], title: str) -> Iterator[tuple[int, IntArray]]:
    """Yield runs of consecutive edges of a type: the index of the first edge of the run, and all its edges, ``[n, 2]``.

    Raise FormatError for a node of a type t outside 0..num_nodes[t]-1.
    """
    for begin in range(0, len(edges), _EDGES):
        pairs = edges[np.arange(begin, min(begin + _EDGES, len(edges)))]
        for t, ends in zip((e[0], e[2]), pairs.T, strict=True):
            wrong = np.flatnonzero((ends < 0) | (ends >= num_nodes[t]))
            if len(wrong):
                raise FormatError(
                    f"edge {begin + wrong[0]:,} of {text_of(e)} in {title} has the node {ends[wrong[0]]}, but nodes of "
                    f"{t!r} are 0..{num_nodes[t] - 1}; correct the files of edges."
                )
        yield begin, pairs.astype(np.int64)


def text_of(edge_type: EdgeType) -> str:
    """Return the name of an edge type in DGL's files, "source:relation:destination"."""
    return ":".join(edge_type)


def _inverse(order: IntArray) -> IntArray:
    positions = np.empty_like(order)
    positions[order] = np.arange(len(order))
    return positions
