"""`TensorGraph`, our versions of DGL's functions for it, and `install`, which makes DGL's own functions accept one."""

from dgl_tuplepack.compiling.tensor_graph import TensorGraph, free_functions, install, is_installed, readouts, restore

__all__ = ["TensorGraph", "free_functions", "install", "is_installed", "readouts", "restore"]
