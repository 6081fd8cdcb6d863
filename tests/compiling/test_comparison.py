"""What a compared call takes for a mistake of the compiler, and what for rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import dgl_tuplepack as tp
from dgl_tuplepack.compiling import check
from dgl_tuplepack.compiling.torch_versions import bug_of
from dgl_tuplepack.errors import CompileError
from tests.support.compiled import Miscompiles, network, rows
from tests.support.messages import refused

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("forget")]


def scale_gradient(share: float) -> Callable[[Tensor], Tensor]:
    """Return what leaves the value and changes the gradient."""

    def mistake(result: Tensor) -> Tensor:
        if result.requires_grad:
            result.register_hook(lambda gradient: gradient * (1 + share))
        return result * 1

    return mistake


def reads_twice() -> tuple[nn.Module, Callable[[Tensor], Any], Tensor]:
    """The smallest function that torch 2.13 compiles wrongly."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    linear, x = nn.Linear(8, 16), torch.randn(700, 8, generator=generator)
    src, dst = torch.randint(0, 700, (2, 1500), generator=generator)
    slots = torch.randint(0, 33, (700,), generator=generator)

    def loss_of(x: Tensor) -> Any:
        h = torch.relu(linear(x + torch.zeros_like(x).index_add(0, dst, x[src])))
        h2 = torch.relu(h + torch.zeros_like(h).index_add(0, dst, h[src]))
        return sum(torch.zeros(33, y.shape[1]).index_add(0, slots, y).square().sum() for y in (x, h, h2))

    return linear, loss_of, x


def test_what_torch_compiles_wrongly_is_right_or_an_error() -> None:
    linear, function, x = reads_twice()
    torch.testing.assert_close(tp.compile(function)(x), function(x))
    if bug := bug_of(torch.__version__):
        with refused(CompileError, "compiles ", "wrongly: the ", "compiled", "uncompiled", bug, "check='warn'"):
            tp.compile(function, options={"max_fusion_size": 64})(x)
    assert linear.weight.grad is None


NETWORK = network()


@pytest.mark.parametrize(
    ("mistake", "function", "parts"),
    [
        (
            lambda result: result * 1.001,
            lambda x: NETWORK(x).square().mean() + 1,
            ("<lambda> wrongly: the output result is ", " compiled and ", " uncompiled"),
        ),
        (scale_gradient(1e-3), network(), ("the gradient of Sequential.", "of norm ")),
        (scale_gradient(1e-3), lambda x: x.sin(), ("the gradient of the argument x ",)),
        (
            lambda result: result[:-1],
            lambda x: x * 2,
            ("returns result float32 [39, 5] with ", "and result float32 [40, 5] with 1 gradients uncompiled"),
        ),
        # A large number hides no other one.
        (
            lambda result: torch.where(torch.arange(5) < 2, result, result * 1.5),
            lambda x: x.detach().sin().masked_fill(torch.arange(5) < 2, -1e9),
            ("wrongly",),
        ),
        (
            lambda result: (result[0] * 1.5, result[1]),
            lambda x: (x.sin().mean(), torch.full((9,), 2**60)),
            ("wrongly",),
        ),
        # Nor does a large tensor with rounding errors.
        (
            lambda result: (result[0] * (1 + 2**-23), result[1] * 1.005),
            lambda x: (500 + x[:1].sin(), 1 + x[:1].sin().mean()),
            ("the output result[1] is ",),
        ),
    ],
)
def test_a_mistake_is_an_error_that_names_it(
    mistake: Any, function: Any, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    Miscompiles(monkeypatch, mistake)
    with refused(CompileError, *parts):
        tp.compile(function)(rows().requires_grad_())
    Miscompiles(monkeypatch)
    tp.compile(function)(rows().requires_grad_())


def test_a_wrong_gradient_of_one_small_parameter_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error would vanish next to the norm of all gradients."""
    big, small = nn.Parameter(torch.ones(50)), nn.Parameter(torch.full((3,), 0.5))
    fake = Miscompiles(monkeypatch)

    def loss_of(x: Tensor) -> Tensor:
        factor = small * 1
        if fake.is_running:
            factor.register_hook(lambda gradient: gradient * 1.1)
        return (big * x.sum() * 20).sum() + factor.sum()

    with refused(CompileError, "the gradient of a tensor outside of its arguments (float32 [3] on cpu)"):
        tp.compile(loss_of)(rows())


def test_a_wrong_buffer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()

    def mistake(result: Tensor) -> Tensor:
        with torch.no_grad():
            model[1].running_var.mul_(1.01)  # type: ignore[operator, union-attr]
        return result

    Miscompiles(monkeypatch, mistake)
    with torch.no_grad(), refused(CompileError, "wrongly: Sequential.1.running_var is of norm "):
        tp.compile(model)(rows())


def test_entries_that_are_not_finite_must_stand_at_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    x = rows().clone()
    x[3, 2] = torch.nan
    Miscompiles(monkeypatch)
    assert tp.compile(lambda x: x * 2)(x).isnan().sum() == 1
    # Numbers that the comparison itself writes in the place of NaN and infinity must not equal them.
    for number in (0.0, 1.5, 2.5, 3.5):
        Miscompiles(monkeypatch, lambda result, number=number: result.nan_to_num(nan=number))
        with refused(CompileError, "the output result is "):
            tp.compile(lambda x: x * 2)(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_is_no_difference(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in another order differ by what float64 tells, also where digits cancel."""
    fake, weight = Miscompiles(monkeypatch), nn.Parameter(torch.ones(5, dtype=dtype))

    def function(x: Tensor) -> Tensor:
        x = x.flip(0) if fake.is_running else x
        return (sum(x * weight) - 1e5 * weight).square().sum()

    x = (1e3 * rows(30) + 1e4).to(dtype) / 3
    assert tp.compile(function)(x) != function(x)


def test_a_rounding_error_beside_a_kink_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the entries changes its side, so a gradient changes by 1/40; twice a gradient stays an error."""
    x = torch.linspace(-1, 1, 40)
    x[20] = 1e-9
    fake, weight = Miscompiles(monkeypatch), nn.Parameter(torch.ones(()))

    def loss_of(x: Tensor) -> Tensor:
        error = 1e-8 if fake.is_running and wrong else 0.0
        return (torch.relu((1.0 + x * weight) - 1.0 - error) * (1 + 1e6 * error)).sum()

    wrong = False
    tp.compile(loss_of)(x)
    wrong = True
    with refused(CompileError, "wrongly"):
        tp.compile(loss_of)(x)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_arguments_with_a_history_are_compared_and_keep_it() -> None:
    """The graph behind an argument belongs to the caller, also where it leads to a parameter that is read again."""
    cell, other = nn.GRUCell(5, 5), nn.GRUCell(5, 5)
    other.load_state_dict(cell.state_dict())
    step = tp.compile(lambda x, h: cell(x, h), backend="aot_eager")
    found, expected = torch.zeros(40, 5), torch.zeros(40, 5)
    for seed in range(3):
        found, expected = step(rows(seed=seed), found), other(rows(seed=seed), expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(*([p.grad for p in each.parameters()] for each in (cell, other)))


def test_hooks_that_change_gradients_are_no_difference() -> None:
    model = network()
    model[0].weight.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
    tp.compile(model, backend="aot_eager")(rows()).sum().backward()
    assert model[0].weight.grad.abs().max() <= 1e-3


def test_sparse_gradients_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    table, ids = nn.Embedding(9, 3, sparse=True), torch.arange(5)
    Miscompiles(monkeypatch)
    tp.compile(lambda ids: table(ids).square().sum())(ids)
    Miscompiles(monkeypatch, lambda result: result * 1.01)
    with refused(CompileError, "wrongly"):
        tp.compile(lambda ids: table(ids))(ids)


def test_tensors_in_returned_objects_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Out:
        def __init__(self, value: Any) -> None:
            self.value = value

    wrong = [False]
    Miscompiles(monkeypatch, lambda result: Out({"here": result.value["here"] * 2}) if wrong[0] else result)
    tp.compile(lambda x: Out({"here": x.sin()}))(rows())
    wrong[0] = True
    with refused(CompileError, "the output result.value['here'] is "):
        tp.compile(lambda x: Out({"here": x.sin()}))(rows())
    wrong[0] = False
    with pytest.warns(UserWarning, match="not compared.*it returns no tensors"):
        tp.compile(lambda x: Out(3))(rows())


def test_masks_of_dropout_are_the_same_in_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """So dropout is compared like anything else; for a mistake next to it see `test_check`."""
    model = nn.Sequential(nn.Linear(5, 9), nn.Dropout(0.3), nn.ReLU(), nn.Dropout(0.5))
    seen = []
    real = check.difference_of
    monkeypatch.setattr(check, "difference_of", lambda *args: seen.append(real(*args)) or seen[-1])
    tp.compile(lambda x: functional.dropout(model(x), 0.2).square().mean())(rows(200))
    assert seen == [""]
