"""`TensorGraph`, and functions of DGL that accept a TensorGraph.

`free_functions` and `readouts` have our versions of DGL's functions. After `install`, DGL's own functions accept a
TensorGraph too, until `restore` is called.
"""

from dgl_tuplepack.compiling.tensor_graph import TensorGraph, free_functions, install, is_installed, readouts, restore

__all__ = ["TensorGraph", "free_functions", "install", "is_installed", "readouts", "restore"]
