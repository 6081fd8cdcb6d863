"""A few networks of the fuzzer through the whole compiler, and that its comparison sees what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.fuzzing.comparison import MODES, compare, compiled
from tests.fuzzing.networks import Module, Network

pytestmark = [pytest.mark.compile, pytest.mark.slow]

# What compiles in a few seconds, and yet has most of what a network may have: by functions of DGL, and by torch's own.
_NETWORKS = (
    replace(Network.of(3), aggregations=("mean", "attention"), edge_features=False),
    replace(Network.of(8), norm="batch", virtual_node=True),
)


@pytest.mark.parametrize("network", _NETWORKS, ids=range(len(_NETWORKS)))
def test_compiled_networks_compute_what_they_compute_uncompiled(network: Network) -> None:
    found = compare(network, lambda module: compiled(module, {}), ("training", "eval"))
    torch._dynamo.reset()
    assert not found.differences
    # A yardstick of a few per cent would let nearly everything pass.
    assert found.yardstick < 1e-4


def _with_wrong_result(module: Module) -> Callable[[Any], Any]:
    def function(t: Any) -> Any:
        loss, (first, *others) = module(t)
        return loss, (first * 1.001, *others)

    return function


def _with_nan(module: Module) -> Callable[[Any], Any]:
    return lambda t: (module(t)[0] * float("nan"), module(t)[1])


class _Wrong(torch.autograd.Function):
    """The identity, with a gradient that is wrong."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 1.001


def _with_wrong_gradient(module: Module) -> Callable[[Any], Any]:
    name = "layers.1.norm.weight"
    return lambda t: torch.func.functional_call(module, {name: _Wrong.apply(module.get_parameter(name))}, (t,))


def _with_wrong_gradient_of_the_input(module: Module) -> Callable[[Any], Any]:
    return lambda t: module(t._replace(node_features={"x": _Wrong.apply(t.node_features["x"])}))


def _with_a_wrong_statistic(module: Module) -> Callable[[Any], Any]:
    def function(t: Any) -> Any:
        results = module(t)
        if module.training:
            module.get_buffer("layers.0.norm.running_var").mul_(1.001)
        return results

    return function


def test_the_comparison_sees_what_is_wrong() -> None:
    network = replace(Network.of(2), norm="batch", nodes=60, edges=90, graphs=4)
    assert not compare(network, lambda module: module).differences
    for wrong, modes, what in (
        (_with_wrong_result, MODES, "result 0"),
        (_with_nan, MODES, "loss"),
        (_with_wrong_gradient, MODES[:2], "gradient of layers.1.norm.weight"),
        (_with_wrong_gradient_of_the_input, MODES[:2], "gradient of input"),
        (_with_a_wrong_statistic, MODES[:1], "buffer layers.0.norm.running_var"),
    ):
        found = {name.partition(",")[0] for name in compare(network, wrong).differences}
        assert {f"{mode}: {what}" for mode in modes} <= found
        # A wrong gradient or buffer is the only thing that is wrong in training.
        if not what.startswith(("result", "loss")):
            assert {name for name in found if name.startswith("training")} == {f"training: {what}"}
