"""Potentials train on energies and forces by two lines, with the losses and parameters of the plain loop."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dgl_tuplepack as tp
from tests.zoo.forces import POTENTIALS, Molecule, loss_of

# Of so few graphs, the largest is large beside a batch.
pytestmark = [pytest.mark.compile, pytest.mark.filterwarnings("ignore:batches of .* need a shape with:UserWarning")]

BATCH_SIZE, WIDTH, LAYERS = 6, 8, 2
CASES = [(name, framework) for name, potential in POTENTIALS.items() for framework in potential.classes]


def molecules() -> list[Molecule]:
    """Three batches of 6 and one of 2; some molecules are single atoms, and some have the same places as others."""
    gen = torch.Generator().manual_seed(0)
    made = [Molecule.random(1 + i % 7, gen, torch.float64) for i in range(18)]
    return [*made, *(replace(made[i], energy=made[i].energy + 1) for i in (0, 3))]


def trained(framework: str, model: nn.Module, batches: list[Any]) -> Iterator[tuple[str, Tensor]]:
    """Train for a step on each batch; yield losses, gradients and parameters with their names."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for number, batch in enumerate(batches):
        loss = loss_of(framework, model, batch)
        optimiser.zero_grad()
        loss.backward()
        yield f"loss {number}", loss.detach()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                yield f"gradient {number} of {name}", parameter.grad.clone()
        optimiser.step()
    yield from model.state_dict().items()


@pytest.mark.parametrize(("name", "framework"), CASES)
def test_two_lines_train_on_forces_as_the_plain_model_does(name: str, framework: str) -> None:
    loader = tp.packed_loader([each.item(framework) for each in molecules()], batch_size=BATCH_SIZE, seed=1)
    torch.manual_seed(0)
    model = POTENTIALS[name].new(framework, WIDTH, LAYERS).double()
    # Plain models leave `requires_grad` in their batches, so each model gets its own.
    plain, batches = copy.deepcopy(model), [*loader]
    same = copy.deepcopy(batches)
    # With the backend "eager", second derivatives would not be those of compiled code.
    compiled = tp.compile(model, loader, backend="aot_eager")
    expected = dict(trained(framework, plain, same[:3]))
    found = dict(trained(framework, compiled, batches[:3]))
    assert found.keys() == expected.keys()
    for what, value in found.items():
        assert value.isfinite().all(), what
        torch.testing.assert_close(value, expected[what], rtol=1e-9, atol=1e-9, msg=f"{what}: {{}}".format)
    compiled.eval()
    for batch, other in zip(batches, same, strict=True):
        # Both have the same parameters, which padding must not change. Gradients stay enabled, for the forces.
        ours, theirs = (m(b[0] if framework == "dgl" else b) for m, b in ((compiled, batch), (model, other)))
        for own, their in zip(ours, theirs, strict=True):
            assert own.isfinite().all()
            torch.testing.assert_close(own, their, rtol=1e-12, atol=1e-12)
    assert compiled._static_calls._calls
    torch.compiler.reset()
