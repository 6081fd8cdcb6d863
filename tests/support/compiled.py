"""Ways to compile in tests without a C++ compiler, and small functions to compile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

import dgl_tuplepack as tp
from dgl_tuplepack.compiling.torch_private import keep_no_bools


class Backend:
    """A backend of ``torch.compile`` that applies our pass, or not, and notes what is kept for the backward pass."""

    def __init__(self, with_pass: bool) -> None:
        # `calls`: how often torch has compiled; `changes`: nodes that the pass has changed.
        self.with_pass, self.calls, self.changes = with_pass, 0, 0
        # Tensors that the forward pass returns: results, and what is kept.
        self.kept: list[Tensor] = []

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.calls += 1

        def partition(joint: Any, joint_inputs: Any, **settings: Any) -> Any:
            if self.with_pass:
                self.changes += keep_no_bools(joint.graph)
                joint.recompile()
            forward, backward = min_cut_rematerialization_partition(joint, joint_inputs, **settings)
            results = next(node for node in forward.graph.nodes if node.op == "output").args[0]
            self.kept += [node.meta["val"] for node in results if isinstance(node, torch.fx.Node)]
            return forward, backward

        plain = lambda module, inputs: make_boxed_func(module.forward)  # noqa: E731
        compiler = aot_autograd(fw_compiler=plain, partition_fn=partition, decompositions=select_decomp_table())
        return compiler(graph, inputs)

    def matrices_of_bools(self) -> int:
        """Bools of two dimensions that were kept."""
        return sum(each.dtype == torch.bool and each.ndim == 2 for each in self.kept)


class Miscompiles:
    """Takes the place of ``torch.compile``: the function with a mistake, a count of calls, and whether it runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, mistake: Callable[[Any], Any] = lambda result: result) -> None:
        self.calls, self.is_running, self.mistake = 0, False, mistake

        def fake(function: Any, **settings: Any) -> Any:
            def compiled(*args: Any, **kwargs: Any) -> Any:
                self.calls += 1
                self.is_running = True
                try:
                    return self.mistake(function(*args, **kwargs))
                finally:
                    self.is_running = False

            return compiled

        monkeypatch.setattr(torch, "compile", fake)


def network() -> nn.Sequential:
    """A model of rows of 5 numbers, with a batch norm."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3))


def rows(number: int = 40, seed: int = 0) -> Tensor:
    """What `network` takes."""
    return torch.randn(number, 5, generator=torch.Generator().manual_seed(seed))


def traced(function: Any, **settings: Any) -> Any:
    """Compiled as far as torch's tracer goes, which takes no C++ compiler."""
    return tp.compile(function, **{"backend": "eager", **settings})


class Pair(NamedTuple):
    src: Tensor
    features: dict[str, Tensor]


def total(pair: Pair, scale: float | Tensor = 1.0) -> Tensor:
    return pair.features["x"].sum() * scale + pair.src.sum()


def pair(rows: int, dtype: torch.dtype = torch.float32) -> Pair:
    return Pair(torch.zeros(3, dtype=torch.int64), {"x": torch.ones(rows, 2, dtype=dtype)})


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal to the last bit, NaN in any of its forms."""
    both = [torch.nan_to_num(each.detach(), nan=0.0, posinf=torch.inf, neginf=-torch.inf) for each in (one, other)]
    return torch.equal(one.isnan(), other.isnan()) and torch.equal(*(each.view(torch.int64) for each in both))


def assert_close_and_equal_where_special(found: Tensor, expected: Tensor) -> None:
    """Equal to rounding in float64; zeros with their signs, infinities and NaN at the same places."""
    assert found.dtype == expected.dtype == torch.float64
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.isinf(), expected.isinf())
    zero = expected == 0
    assert torch.equal(found == 0, zero)
    assert torch.equal(found.signbit() & zero, expected.signbit() & zero)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
