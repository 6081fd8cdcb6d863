"""A graph of plain tensors: models written for a DGLGraph run on it, and torch's compiler can trace it.

In reading order: `graph` (the class), `structure` (types, numbers, edges and features), `messages`, `dispatch` (makes
DGL's functions call ours), `free_functions` (our versions of DGL's functions).
"""

from dgl_tuplepack.compiling.tensor_graph import free_functions as free_functions
from dgl_tuplepack.compiling.tensor_graph.dispatch import install, is_installed, restore
from dgl_tuplepack.compiling.tensor_graph.graph import TensorGraph

__all__ = ["TensorGraph", "install", "is_installed", "restore"]
