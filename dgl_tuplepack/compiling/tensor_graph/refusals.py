"""Methods of a DGLGraph that a TensorGraph lacks, and what to do instead."""

from __future__ import annotations

from dgl_tuplepack.errors import UnsupportedError

_STRUCTURE = (
    "its structure does not change: in compiled code, shapes must not depend on data. Change the DGLGraphs "
    "before they are packed, as with dgl.add_self_loop(graph) or a transform of the dataset."
)
_SUBGRAPH = (
    "it has no samples or subgraphs: their shapes depend on data, which compiled code forbids. Make them from the "
    "DGLGraphs before they are packed."
)
_QUERY = (
    "the shape of the result depends on data, which compiled code forbids. Compute the result from graph.edges(), or "
    "call the method of the DGLGraphs before they are packed."
)
_SOME = "it sends messages along all edges at once. Use update_all or apply_edges, with weight 0 for unwanted edges."
_REVERSE = "dgl.reverse(graph) returns the graph with all edges reversed."
_FORMAT = "it has one format, the end nodes of its edges. Use graph.edges()."
_FEATURES = "its features are tensors. Read their dtype and shape, as in graph.ndata['x'].shape."
_BATCH = "a TensorGraph gets these numbers when it is made: TensorGraph(..., batch_num_nodes=..., batch_num_edges=...)."
_MEMORY = "it is made of plain tensors. Move or pin these, as batch.to(device) and batch.pin_memory() do."

_FREE = (
    "a TensorGraph is accepted by the functions of dgl.ops, edge_softmax, dgl.reverse, and the readouts and broadcasts "
    "of nodes and edges. If your function is one of them, DGL was imported after the graph was made: call "
    "dgl_tuplepack.tensor_graph.install(). If not, call your function before graphs are packed."
)
# Private attributes of a DGLGraph that functions of DGL read.
_INSIDE = {"_graph", "_node_frames", "_edge_frames", "_idtype_str"}

# Remedy -> names of the methods that it replaces.
_INSTEAD = {
    _STRUCTURE: "add_nodes add_edges remove_nodes remove_edges add_self_loop remove_self_loop reorder_graph "
    "set_n_initializer set_e_initializer",
    _SUBGRAPH: (
        "subgraph node_subgraph edge_subgraph in_subgraph out_subgraph khop_in_subgraph khop_out_subgraph "
        "sample_neighbors sample_neighbors_biased sample_neighbors_fused sample_labors "
        "sample_etype_neighbors select_topk node_type_subgraph edge_type_subgraph line_graph "
        "to_simple global_uniform_negative_sampling random_walk_states get_node_storage get_edge_storage"
    ),
    _QUERY: (
        "has_node has_nodes has_edge_between has_edges_between predecessors successors edge_id edge_ids in_edges "
        "out_edges filter_nodes filter_edges is_multigraph incidence_matrix inc adj adjacency_matrix adj_external "
        "adjacency_matrix_scipy metagraph to_networkx to_cugraph"
    ),
    _REVERSE: "reverse",
    _SOME: "send_and_recv pull push prop_nodes prop_edges group_apply_edges group_apply",
    _FORMAT: "adj_tensors formats create_formats_ shared_memory",
    _FEATURES: "node_attr_schemes edge_attr_schemes",
    _BATCH: "set_batch_num_nodes set_batch_num_edges",
    _MEMORY: "pin_memory_ unpin_memory_ record_stream",
}
INSTEAD = {name: remedy for remedy, names in _INSTEAD.items() for name in names.split()}


def refusal(name: str) -> AttributeError:
    """Return the error for an attribute that a TensorGraph does not have."""
    if name in _INSIDE:
        return UnsupportedError(f"a function of DGL reads {name!r} of a DGLGraph, which a TensorGraph lacks: {_FREE}")
    if name in INSTEAD:
        return UnsupportedError(f"a TensorGraph does not offer {name!r}: {INSTEAD[name]}")
    return AttributeError(
        f"a TensorGraph has no attribute {name!r}; it offers features, message passing and counts of a DGLGraph, "
        "listed in docs/explain/compile.md."
    )
