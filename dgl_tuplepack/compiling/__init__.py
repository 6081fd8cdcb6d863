"""Compiled training: ``torch.compile`` with what makes it fast on graphs.

::

    step = compile(loss_of)                             a model, or a function of tensors
    keep_no_bools                                       the pass over the joint graph (joint_pass.py)
    check_call(function, compiled, ...)                 the first call, compared with the uncompiled one (check.py)
"""

from dgl_tuplepack.compiling.function import compile

__all__ = ["compile"]
