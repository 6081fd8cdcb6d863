"""Compiled code computes what uncompiled code does: networks through the pass, and all of the compiler."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

import dgl_tuplepack as tp
from dgl_tuplepack.compiling.torch_private import keep_no_bools
from tests.support.compiled import Backend, assert_close_and_equal_where_special, same_bits
from tests.support.graphs import generator

pytestmark = pytest.mark.compile

# `other` is a second matrix.
ACTIVATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda x, other: torch.relu(x),
    "leaky_relu": lambda x, other: functional.leaky_relu(x, 0.25),
    "relu6": lambda x, other: functional.relu6(x),
    "hardtanh": lambda x, other: functional.hardtanh(x),
    "threshold": lambda x, other: functional.threshold(x, 0.5, -1.0),
    "where above": lambda x, other: torch.where(x > 0.5, x, 0.25 * x),
    "where larger": lambda x, other: torch.where(x >= other, 2 * x, other),
    "where both": lambda x, other: torch.where((x > 0) & ~(other < 0), x, other),
    "where not nan": lambda x, other: torch.where(torch.isnan(x) | (x == other), other, x),
    "masked_fill": lambda x, other: x.masked_fill(other > 1, 0.0),
    "absolute": lambda x, other: x.abs(),
    "times mask": lambda x, other: x * (other > 0),
    "row mask": lambda x, other: torch.where(other[:, :1] > 0, x, 0.0),
    "gathered": lambda x, other: torch.relu(x[torch.arange(len(x)).flip(0)]),
    "dropout of nothing": lambda x, other: functional.dropout(x, 0.0, training=True),
}  # fmt: skip
# Torch's own decompositions make 0 of relu6(-0), and have other gradients of these two at NaN.
DIFFERENT_IN_TORCH = {"relu6", "hardtanh"}
SPECIAL = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0, 1.0, 0.5], dtype=torch.float64)


def matrices(seed: int, number: int, special: bool) -> list[Tensor]:
    """Random matrices ``[6, 5]``; with `special`, a third of the values are inf, NaN, 0 or -0."""
    gen = generator(seed)
    drawn = [torch.randn(6, 5, dtype=torch.float64, generator=gen) for _ in range(number)]
    for each in drawn if special else ():
        chosen = torch.rand(each.shape, generator=gen) < 0.35
        each[chosen] = SPECIAL[torch.randint(0, len(SPECIAL), (int(chosen.sum()),), generator=gen)]
    return drawn


def gradients(function: Any, inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    leaves = [each.clone().requires_grad_() for each in inputs]
    result = function(*leaves)
    return [result.detach(), *torch.autograd.grad(result, leaves, upstream, materialize_grads=True)]


def in_a_row(x: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    for activation in ACTIVATIONS.values():
        x = activation(x @ weight, other)
    return x


def next_to_each_other(x: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    return torch.stack([activation(x, other) * weight[0] for activation in ACTIVATIONS.values()]).sum(0)


def one_by_one(x: Tensor, other: Tensor, weight: Tensor) -> Tensor:
    return torch.stack([activation(x, other) for activation in ACTIVATIONS.values()])


@pytest.mark.parametrize(("network", "special"), [(in_a_row, False), (next_to_each_other, False), (one_by_one, True)])
def test_the_pass_changes_no_bit_and_keeps_no_matrix_of_bools(network: Any, special: bool) -> None:
    x, other = matrices(7, 2, special)
    weight = torch.randn(5, 5, dtype=torch.float64, generator=generator(7))
    upstream = torch.stack(matrices(8, len(ACTIVATIONS), special)) if special else matrices(8, 1, special)[0]
    ours, torchs = Backend(True), Backend(False)
    found, expected = (
        gradients(torch.compile(network, backend=backend, dynamic=False, fullgraph=True), [x, other, weight], upstream)
        for backend in (ours, torchs)
    )
    torch.compiler.reset()
    assert ours.calls == torchs.calls == 1
    assert all(map(same_bits, found, expected))
    assert ours.changes
    assert ours.matrices_of_bools() == 0 < torchs.matrices_of_bools()


def test_dropout_draws_by_torch_with_a_mask_for_each_layer() -> None:
    probability = 0.25

    def twice(x: Tensor) -> Tensor:
        return torch.stack([functional.dropout(x, probability), functional.dropout(x, probability)])

    backend = Backend(True)
    compiled = torch.compile(twice, backend=backend, dynamic=False, fullgraph=True)
    ones = torch.ones(300, 20, dtype=torch.float64)
    torch.manual_seed(3)
    result, gradient = gradients(compiled, [ones], torch.ones(2, 300, 20, dtype=torch.float64))
    torch.manual_seed(3)
    again = compiled(ones)
    torch.compiler.reset()
    # The gradient uses the masks of the forward pass, and equal seeds give equal masks.
    assert torch.equal(gradient, result.sum(0))
    assert torch.equal(again, result)
    masks = (result != 0).double()
    assert set(result.unique().tolist()) == {0.0, 1 / (1 - probability)}
    assert (masks.mean((1, 2)) - (1 - probability)).abs().max() < 0.03
    assert abs(masks.prod(0).mean() - (1 - probability) ** 2) < 0.03
    assert backend.matrices_of_bools() == 0


def test_the_mask_of_dropout_is_the_same_forward_and_backward() -> None:
    """Generated code compares numbers before it rounds them to half precision, and the backward pass has them rounded.

    It takes the whole compiler: what runs uncompiled rounds everywhere.
    """

    def network(*inputs: Tensor) -> list[Tensor]:
        return [functional.dropout(torch.relu(x), 0.3) for x in inputs]

    dtypes = torch.bfloat16, torch.float16, torch.float32
    inputs = [torch.ones(2000, 20, dtype=dtype, requires_grad=True) for dtype in dtypes]
    # Uncompiled code draws other numbers in half precision, so there is nothing to compare.
    results = tp.compile(network, check=False)(*inputs)
    gradients = torch.autograd.grad([result.sum() for result in results], inputs)
    for result, gradient in zip(results, gradients, strict=True):
        assert torch.equal(gradient != 0, result != 0)


def test_policies_of_the_user_stay() -> None:
    """Nodes inside ``torch.utils.checkpoint`` are computed again as torch wants it."""

    def network(x: Tensor, other: Tensor) -> Tensor:
        inner = torch.utils.checkpoint.checkpoint(ACTIVATIONS["where both"], x, other, use_reentrant=False)
        return torch.relu(torch.sin(inner)) * inner

    x, other, upstream = matrices(1, 3, special=True)
    found, expected = (
        gradients(torch.compile(network, backend=Backend(with_pass), fullgraph=True), [x, other], upstream)
        for with_pass in (True, False)
    )
    torch.compiler.reset()
    assert all(map(same_bits, found, expected))


def test_all_activations_through_the_whole_compiler_equal_uncompiled_ones() -> None:
    """Gradients to 1e-12 in float64, and the same places of inf, NaN, 0 and -0."""

    names = sorted(ACTIVATIONS.keys() - DIFFERENT_IN_TORCH)

    def network(x: Tensor, other: Tensor) -> Tensor:
        return torch.stack([ACTIVATIONS[name](x, other) for name in names])

    x, other = matrices(2, 2, special=True)
    upstream = torch.stack(matrices(3, len(names), special=True))
    found = gradients(tp.compile(network), [x, other], upstream)
    for one, expected in zip(found, gradients(network, [x, other], upstream), strict=True):
        assert_close_and_equal_where_special(one, expected)


def test_draws_keep_their_order():
    # Generated code may change the order of independent draws, and then compiled dropout has other masks.
    graph = make_fx(lambda: (torch.rand(4, 3), torch.rand(7), torch.rand(4, 3)), tracing_mode="fake")().graph
    assert keep_no_bools(graph) == 3
    draws = [node for node in graph.nodes if node.target is torch.ops.aten.uniform.default]
    for before, draw in itertools.pairwise(draws):
        assert draw.args[0].args[0].args[0] is before
    torch.manual_seed(0)
    found = torch.fx.GraphModule({}, graph)()
    torch.manual_seed(0)
    for each, shape in zip(found, ((4, 3), (7,), (4, 3)), strict=True):
        assert torch.equal(each, torch.rand(shape))


class Warmed(torch.nn.Module):
    """A weight that a counter in the forward pass sets, and a moving mean."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3).double()
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("mean", torch.ones(3, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        out = self.layer(x)
        self.mean.mul_(0.9).add_(0.1 * out.detach().mean(0))
        return out * (self.calls - 2).clamp(min=0) * self.mean


@pytest.mark.slow
def test_the_backward_pass_has_the_values_that_buffers_had() -> None:
    """Torch computes them again in the backward pass, of the buffers that the forward pass has changed by then."""
    torch.manual_seed(0)
    plain, x = Warmed(), torch.randn(5, 3, dtype=torch.float64)
    compiled = tp.compile(copy.deepcopy(plain), check=False)
    for _ in range(6):
        for model in (plain, compiled):
            model.zero_grad()
            model(x).sum().backward()
        for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-10, atol=1e-12)
