"""Graphs: their schema, and the sources that they are read from.

In: DGLGraphs, PyG's Data, files, folders. Out: blocks of flat arrays with a `Schema`, or items one by one.
It may use `_core` and `planning`.
"""
