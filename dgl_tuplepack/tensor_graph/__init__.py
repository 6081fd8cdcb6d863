"""A graph of plain tensors that models written for a DGLGraph run on, and that a compiler of torch can trace.

In reading order: `groups` (rows of nodes at edges, sums over edges) and its kernels, `relation` (the edges of one
type), `types` (names of types), `views` (features), `functions` (messages), `message_passing`, `dispatch` (how
functions of DGL find ours), `structure`, `graph`, `segments`, `free_functions` and `readouts` (what they find).
"""

from dgl_tuplepack.tensor_graph import free_functions as free_functions
from dgl_tuplepack.tensor_graph import readouts as readouts
from dgl_tuplepack.tensor_graph.dispatch import install, is_installed, restore
from dgl_tuplepack.tensor_graph.graph import TensorGraph

__all__ = ["TensorGraph", "install", "is_installed", "restore"]
