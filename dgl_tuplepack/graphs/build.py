"""A DGLGraph of tensors that are known to fit together."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from dgl_tuplepack._optional import load
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType


@functools.cache
def _dgl() -> tuple[Any, Any]:
    """DGL, and the formats as it wants them: looked for and converted once, not at each batch."""
    dgl = load("dgl")
    return dgl, dgl._ffi.object_generic.convert_to_object(["coo", "csr", "csc"])


def build_graph(
    endpoints: Mapping[EdgeType, tuple[Tensor, Tensor]],
    num_nodes: Mapping[str, int],
    node_features: Mapping[str, Mapping[str, Tensor]],
    edge_features: Mapping[EdgeType, Mapping[str, Tensor]],
) -> Any:
    """DGLGraph of the given types and features, which it shares; plain where the types are those of `dgl.graph`.

    The caller has checked endpoints and lengths. `dgl.graph` would look through the endpoints again, which takes as
    long as all the rest of it, and waits for the device. So the graph is put together as `dgl.graph` does it.
    """
    dgl, formats = _dgl()
    if set(endpoints) == {EDGE_TYPE}:
        (src, dst), number = endpoints[EDGE_TYPE], num_nodes[NODE_TYPE]
        index = dgl.heterograph_index.create_unitgraph_from_coo(1, number, number, src, dst, formats)
        nodes = dgl.frame.Frame(node_features[NODE_TYPE], num_rows=number)
        edges = dgl.frame.Frame(edge_features[EDGE_TYPE], num_rows=len(src))
        return dgl.DGLGraph(index, [NODE_TYPE], [EDGE_TYPE[1]], [nodes], [edges])
    graph = dgl.heterograph(dict(endpoints), dict(num_nodes))
    for node_type, features in node_features.items():
        graph.nodes[node_type].data.update(features)
    for edge_type, features in edge_features.items():
        graph.edges[edge_type].data.update(features)
    return graph
