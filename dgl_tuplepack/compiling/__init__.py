"""Compiled training: `tp.compile`, and `TensorGraph`, a graph of plain tensors that a compiler can trace.

In: a model or a step, and the tensors of a batch. Out: the same function, compiled; its first call is compared with
the uncompiled function. It may use `_core`, `planning` and `graphs`.
"""
