"""Compiled training: ``torch.compile`` with what makes it fast on graphs.

::

    step = compile(loss_of)                             a model, or a function of tensors
    keep_no_bools                                       the pass over the joint graph (joint_pass.py)
    verdict_on(device)                                  whether it holds in this torch (self_test.py)
"""

from dgl_tuplepack.compiling.function import compile

__all__ = ["compile"]
