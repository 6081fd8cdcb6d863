"""Degrees in compiled code, which says by what argument a layer leaves out its check for nodes without edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.errors import UnsupportedError


def traced(degrees: Tensor) -> Tensor:
    """Return the same degrees, whose comparison with a number refuses to tell whether it holds anywhere.

    Layers of DGL stop if ``(graph.in_degrees() == 0).any()``: a branch that depends on data, which a tracer cannot
    follow. Its message would not name the remedy.
    """
    return degrees.as_subclass(_Degrees)


class _Degrees(Tensor):
    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = _plain(func, args, kwargs)
        if func is Tensor.eq or func is Tensor.__eq__:
            return result.as_subclass(_Comparison)
        return result


class _Comparison(Tensor):
    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is Tensor.any and len(args) == 1 and not kwargs:
            raise UnsupportedError(
                "whether any node has no edges depends on data, which compiled code cannot branch on; make the layer "
                "with allow_zero_in_degree=True (nodes without messages then get 0). A layer without that argument, "
                "such as EGATConv, can stay uncompiled: layer.forward = torch.compiler.disable(layer.forward), and "
                "tp.compile(..., fullgraph=False)."
            )
        return _plain(func, args, kwargs)


def _plain(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))
