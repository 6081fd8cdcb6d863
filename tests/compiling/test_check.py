"""Which calls of a compiled function are compared with uncompiled code, and what is reported."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import dgl_tuplepack as tp
from dgl_tuplepack.compiling.check import check_call
from dgl_tuplepack.compiling.torch_versions import release_of
from dgl_tuplepack.errors import CompileError
from tests.support.compiled import Miscompiles, network, rows
from tests.support.messages import refused

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("forget")]


class WrongFrom:
    """A backend of torch's compiler that is wrong from its n-th graph on."""

    def __init__(self, first: int) -> None:
        self.first, self.graphs = first, 0

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        if self.graphs < self.first:
            return graph
        return lambda *values: [each * 1.5 for each in graph(*values)]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "evaluation": lambda model: model.eval(),
    "frozen": lambda model: model[0].requires_grad_(False),
    "a module replaced": lambda model: model.__setitem__(2, nn.Tanh()),
    "precision": lambda model: model.double(),
    "threads": lambda model: torch.set_num_threads(torch.get_num_threads() + 1),
}


@pytest.mark.parametrize("change", [*CHANGES, "shape", "no gradients", "autocast", "inference"])
def test_a_call_for_which_torch_compiles_again_is_compared_again(change: str) -> None:
    if change == "frozen" and release_of(torch.__version__) < (2, 13):
        pytest.skip("this torch does not compile again if a parameter is frozen")
    model, x, threads, wrong = network(), rows(), torch.get_num_threads(), WrongFrom(2)
    step = tp.compile(lambda x: model(x), shapes=3, backend=wrong)
    step(x)
    step(rows(seed=1))
    assert wrong.graphs == 1
    modes = {"no gradients": torch.no_grad(), "autocast": torch.autocast("cpu"), "inference": torch.inference_mode()}
    try:
        if change in CHANGES:
            CHANGES[change](model)
        x = rows(41) if change == "shape" else x.double() if change == "precision" else x
        with modes.get(change, contextlib.nullcontext()), refused(CompileError, "wrongly"):
            step(x)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_part_behind_a_graph_break_is_compared_again() -> None:
    """Torch compiles it again without tracing the function as a whole."""
    model, wrong = network(), WrongFrom(1000)

    def inner(x: Tensor) -> Tensor:
        x = model(x)
        print(end="")
        return x.sin()

    step = tp.compile(lambda x: inner(x) * 2, fullgraph=False, backend=wrong)
    step(rows())
    wrong.first = wrong.graphs + 1
    model.eval()
    with refused(CompileError, "wrongly"):
        step(rows())


def test_with_dynamic_shapes_each_code_is_compared() -> None:
    wrong = WrongFrom(2)
    step = tp.compile(lambda x: x.sin(), dynamic=True, backend=wrong)
    for number in (6, 7, 8):
        step(rows(number))
    assert wrong.graphs == 1
    with refused(CompileError, "wrongly"):
        step(rows(1))


def test_a_batch_that_shows_nothing_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of padding alone has gradients of 0, however wrong the code is."""
    weight = nn.Parameter(torch.ones(5))
    Miscompiles(monkeypatch, lambda result: result * 2)
    step = tp.compile(lambda x: (x * weight).sum())
    assert step(torch.zeros(4, 5)) == 0
    with refused(CompileError, "wrongly"):
        step(torch.ones(4, 5))


@pytest.mark.parametrize(("compares", "uncompiled", "compiled"), [(True, 2, 2), (False, 0, 1)])
def test_what_a_first_call_costs(compares: bool, uncompiled: int, compiled: int, monkeypatch: Any) -> None:
    calls = []
    fake = Miscompiles(monkeypatch, lambda result: result if compares else 2 * result)
    step = tp.compile(lambda x: (calls.append(1), x * 1)[1], check=compares)  # type: ignore[func-returns-value]
    assert torch.equal(step(rows()), rows() if compares else 2 * rows())
    # The compiled function of this test calls the uncompiled one.
    assert (len(calls) - fake.calls, fake.calls) == (uncompiled, compiled)


def test_check_warn_leaves_the_function_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    Miscompiles(monkeypatch, lambda result: result * 2)
    step = tp.compile(lambda x: x * 1, check="warn", shapes=2)
    with pytest.warns(UserWarning, match="wrongly.*it stays uncompiled"):
        assert torch.equal(step(rows()), rows())
    assert not step.is_compiled
    assert torch.equal(step(rows(9)), rows(9))
    for value in (None, "error", 2):
        with refused(CompileError, "check must be True or False"):
            tp.compile(network(), check=value)  # type: ignore[arg-type]


def test_gradients_that_are_not_finite_are_said_once() -> None:
    """Compiled and uncompiled code agree on them, so nothing else would say so."""
    labels = torch.tensor([1.0, torch.nan, 3.0])
    mask, head = ~labels.isnan(), nn.Linear(1, 1)

    def loss_of(x: Tensor) -> Tensor:
        return tp.nn.masked_mean((head(x)[:, 0] - labels).square(), mask)

    step = tp.compile(loss_of, backend="aot_eager")
    with pytest.warns(
        UserWarning, match=r"result of loss_of is finite.*gradient of Linear.weight is not.*masked_loss.*label_fill"
    ):
        assert step(torch.ones(3, 1)).isfinite()
    step(torch.zeros(3, 1))


def test_other_random_numbers_are_not_compared_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    Miscompiles(monkeypatch)
    step = tp.compile(lambda x: x + torch.randn_like(x), shapes=2)
    warning = "not compared with uncompiled code .compiled code draws different random numbers in randn_like"
    with pytest.warns(UserWarning, match=warning):
        step(rows())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(rows(9))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mistake_next_to_dropout_is_found_in_any_precision(dtype: torch.dtype) -> None:
    """Once, the exact run drew other masks for a float64 model, so that every difference looked like rounding."""
    torch.manual_seed(0)
    layer = nn.Linear(16, 32).to(dtype)

    def step(x: Tensor) -> Tensor:
        # The first dropout draws nothing.
        return functional.dropout(functional.dropout(layer(x), 0.0), 0.5).square().mean()

    def compiled(x: Tensor, factor: float = 1.0) -> Tensor:
        hidden = layer(x)
        return (2.0 * factor * hidden * (torch.rand(hidden.shape, dtype=dtype) > 0.5)).square().mean()

    arguments: Any = ((torch.randn(64, 16, dtype=dtype),), {}, {})
    assert check_call(step, compiled, *arguments, True, True).difference == ""
    wrong = check_call(step, functools.partial(compiled, factor=1.01), *arguments, True, True)
    assert "the output result is" in wrong.difference


def test_dropout_whose_result_is_not_used_is_not_compared() -> None:
    """Compiled code does not draw its mask, so that all later masks are others."""

    def function(x: Tensor) -> Tensor:
        functional.dropout(x, 0.5)
        return functional.dropout(x, 0.5)

    with pytest.warns(UserWarning, match="not compared.*compiled code draws different random numbers"):
        tp.compile(function)(rows())
