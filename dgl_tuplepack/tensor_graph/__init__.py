"""A graph of plain tensors that models written for a DGLGraph run on, and that a compiler of torch can trace.

In reading order: `groups` (rows of nodes at edges, sums over edges) and its kernels, `relation` (the edges of one
type), `types` (names of types), `views` (features), `functions` (messages), `message_passing`, `graph`.
"""

from dgl_tuplepack.tensor_graph.graph import TensorGraph

__all__ = ["TensorGraph"]
