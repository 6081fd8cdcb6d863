"""A graph of plain tensors: models written for a DGLGraph run on it, and torch's compiler can trace it.

In reading order: `groups` (edges at a node, and sums over them), `structure` (types, numbers of nodes and edges, end
nodes), `views` (features), `messages`, `arguments` (checks of arguments), `refusals` (errors for methods that are
missing), `dispatch` (makes DGL's functions call ours), `graph`, `free_functions` and `readouts` (our versions of DGL's
functions).
"""

from dgl_tuplepack.compiling.tensor_graph import free_functions as free_functions
from dgl_tuplepack.compiling.tensor_graph import readouts as readouts
from dgl_tuplepack.compiling.tensor_graph.dispatch import install, is_installed, restore
from dgl_tuplepack.compiling.tensor_graph.graph import TensorGraph

__all__ = ["TensorGraph", "install", "is_installed", "restore"]
