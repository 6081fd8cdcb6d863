"""Compiled training: `tp.compile`, and `TensorGraph`, a graph of plain tensors that a compiler can trace.

In: a model or a function, such as a training step, and the tensors of a batch. Out: the same model or function,
compiled. Its first call is compared with an uncompiled call. It uses `_core` and `graphs`.
"""
