"""What a graph is, and where graphs come from.

In: DGLGraphs, PyG's Data, files, folders. Out: blocks of flat arrays with a `Schema`, or items one by one.
`readers/` has a file for each kind of source, `pyg/` the structure of PyG's graphs.
It may use `_core` and `planning`.
"""
