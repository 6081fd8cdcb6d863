"""Every model trains by two lines, `tp.packed_loader` and `tp.compile`, with the loss of its plain training script."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import dgl_tuplepack as tp
from tests.zoo.graphs import CATEGORIES, molecules
from tests.zoo.models import MODELS

# Of so few graphs, the largest is large beside a batch.
pytestmark = [pytest.mark.compile, pytest.mark.filterwarnings("ignore:batches of .* need a shape with:UserWarning")]

# Edges of both directions and several layers need few graphs; 20 make three batches of 6 and one of 2.
GRAPHS, BATCH_SIZE, WIDTH, LAYERS = 20, 6, 8, 2
CASES = [(name, framework) for name in MODELS for framework in ("dgl", "pyg")]


def loader_of(name: str, framework: str, dtype: torch.dtype) -> Any:
    """Return the first of the two lines."""
    items = [MODELS[name].item(framework, graph, label) for graph, label in molecules(GRAPHS, dtype)]
    return tp.packed_loader(items, batch_size=BATCH_SIZE, seed=1)


def model_of(name: str, framework: str, dtype: torch.dtype, layers: int = LAYERS) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name].new(framework, WIDTH, layers, CATEGORIES).to(dtype)


def trained(name: str, framework: str, model: nn.Module, batches: list[Any]) -> Iterator[tuple[str, Tensor]]:
    """Train for a step on each batch, and yield losses, parameters and buffers with their names."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for number, batch in enumerate(batches):
        loss = MODELS[name].loss_of_plain(framework, model, batch, BATCH_SIZE)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        yield f"loss {number}", loss.detach()
    yield from model.state_dict().items()


def outputs_of(framework: str, model: nn.Module, batch: Any) -> list[Tensor]:
    out = model(batch[0] if framework == "dgl" else batch)
    return [*out] if isinstance(out, tuple) else [out]


@pytest.mark.parametrize(("name", "framework"), CASES)
def test_two_lines_train_as_the_plain_model_does(name: str, framework: str) -> None:
    loader, model = loader_of(name, framework, torch.float64), model_of(name, framework, torch.float64)
    plain, batches = copy.deepcopy(model), list(loader)
    compiled = tp.compile(model, loader, backend="eager", **MODELS[name].compiling.get(framework, {}))
    expected = dict(trained(name, framework, plain, batches[:3]))
    for what, value in trained(name, framework, compiled, batches[:3]):
        torch.testing.assert_close(value, expected[what], rtol=1e-9, atol=1e-9, msg=f"{what}: {{}}".format)
    # Not a single call ran without padding.
    assert compiled._static_calls._calls
    compiled.eval()
    with torch.no_grad():
        for batch in batches:
            # Both have the same parameters, which padding must not change.
            for ours, theirs in zip(
                outputs_of(framework, compiled, batch), outputs_of(framework, model, batch), strict=True
            ):
                torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def with_dropout(model: nn.Module) -> nn.Module:
    """Add dropout of nodes, of graphs and of attention."""
    for name in ("encode", "head"):
        setattr(model, name, nn.Sequential(getattr(model, name), nn.Dropout(0.2)))
    for module in model.modules():
        for name in ("feat_drop", "attn_drop"):
            if hasattr(module, name):
                getattr(module, name).p = 0.2
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "framework", "is_autocast"),
    [
        *(("GAT", "dgl", False), ("SchNet", "dgl", False), ("GIN-VN", "pyg", False)),
        # DGL's own sums refuse half precision on the CPU.
        ("SchNet", "pyg", True),
    ],
)
def test_the_check_raises_no_false_alarm(name: str, framework: str, is_autocast: bool) -> None:
    loader, model = loader_of(name, framework, torch.float32), model_of(name, framework, torch.float32)
    if not is_autocast:
        # In half precision, compiled dropout draws other numbers, and one warning says that nothing was compared.
        model = with_dropout(model)
    batches = list(loader)
    # Compiled by C++. Warnings are errors here.
    compiled = tp.compile(model, loader)
    with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
        dict(trained(name, framework, compiled, batches[:3]))
        compiled.eval()
        with torch.no_grad():
            for batch in batches:
                ours, theirs = (outputs_of(framework, each, batch) for each in (compiled, model))
                tolerance = 5e-2 if is_autocast else 1e-4
                torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    assert all(call.is_compiled for call in compiled._static_calls._calls.values())
    torch.compiler.reset()
