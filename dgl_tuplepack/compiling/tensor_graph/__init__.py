"""A graph of plain tensors that models written for a DGLGraph run on, and that a compiler of torch can trace.

In reading order: `groups` (rows of nodes at edges, sums over edges), `structure` (types, numbers, edges), `views`
(features), `messages`, `dispatch` (how functions of DGL find ours), `graph`, `free_functions` and `readouts` (what they
find).
"""

from dgl_tuplepack.compiling.tensor_graph import free_functions as free_functions
from dgl_tuplepack.compiling.tensor_graph import readouts as readouts
from dgl_tuplepack.compiling.tensor_graph.dispatch import install, is_installed, restore
from dgl_tuplepack.compiling.tensor_graph.graph import TensorGraph

__all__ = ["TensorGraph", "install", "is_installed", "restore"]
