"""`TensorGraph`, and functions of DGL that accept a TensorGraph."""

from dgl_tuplepack.compiling.tensor_graph import TensorGraph, free_functions, install, is_installed, restore

__all__ = ["TensorGraph", "free_functions", "install", "is_installed", "restore"]
