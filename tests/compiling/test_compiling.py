"""`tp.compile`: what is compiled, for which shapes, once or again."""

from __future__ import annotations

import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import dgl_tuplepack as tp
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.errors import CompileError
from tests.support.compiled import pair, total, traced
from tests.support.messages import refused
from tests.support.threads import at_the_same_time

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("forget")]


@pytest.mark.parametrize("layer", [nn.LSTM(3, 2), nn.GRU(3, 2), nn.RNN(3, 2)], ids=["LSTM", "GRU", "RNN"])
def test_recurrent_layers_are_traced_and_torchs_setting_stays(layer: nn.Module) -> None:
    def total_of(x: Tensor) -> Tensor:
        return layer(x)[0].square().sum()  # type: ignore[no-any-return]

    before = torch._dynamo.config.allow_rnn
    step = traced(total_of)
    for seed in (0, 1):
        x = torch.randn(5, 2, 3, generator=torch.Generator().manual_seed(seed))
        found, expected = (torch.autograd.grad(each(x), layer.parameters()) for each in (step, total_of))
        torch.testing.assert_close(found, expected)
    assert torch._dynamo.config.allow_rnn is before


def test_an_lstm_in_float32_trains_through_the_whole_compiler() -> None:
    """Code of torch 2.13 for oneDNN's LSTM fails when it is called."""
    torch.manual_seed(0)
    # A single step: generated code grows with their number.
    layer, x = nn.LSTM(4, 3), torch.randn(1, 17, 4)
    before = torch.backends.mkldnn.enabled
    found, expected = tp.compile(layer)(x), layer(x)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(each[0].square().sum(), layer.parameters()) for each in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert torch.backends.mkldnn.enabled is before


def test_threads_that_begin_together_compile_once() -> None:
    counted = CompileCounter()
    step = tp.compile(lambda x: x.sin().sum(), backend=counted)

    def run(number: int, x: Tensor, barrier: threading.Barrier) -> Tensor:
        barrier.wait()
        return step(x)  # type: ignore[no-any-return]

    assert at_the_same_time(run, [torch.zeros(3)] * 4) == [0, 0, 0, 0]
    assert counted.frame_count == 1


def test_a_second_shape_warns_and_a_fifth_is_refused() -> None:
    compiled = traced(total)
    assert compiled(pair(4)) == compiled(pair(4)) == 8
    message = (
        r"total is compiled again, since pair.features\['x'\] is float32 \[5, 2\] on cpu \(expected float32 \[4, 2\]"
    )
    with pytest.warns(UserWarning, match=message) as caught:
        compiled(pair(5))
    assert [each.filename for each in caught] == [__file__]
    for rows in (6, 7, 4, 5, 6, 7):
        assert compiled(pair(rows)) == 2 * rows
    with refused(CompileError, "total is compiled for 4 shapes at most", "is float32 [9, 2]", "dynamic=True"):
        compiled(pair(9))
    assert compiled(pair(5)) == 10


def test_shapes_that_are_meant_do_not_warn() -> None:
    compiled = traced(total, shapes=2)
    assert [compiled(pair(rows)).item() for rows in (4, 6, 4, 6)] == [8, 12, 8, 12]
    with refused(CompileError, "for 2 shapes at most (shapes=2)", "is float64 [4, 2] on cpu"):
        compiled(pair(4, torch.float64))


def test_each_function_is_compiled_as_often_as_its_own_shapes_allow() -> None:
    """Torch limits how often it compiles one code object, so functions must not share one."""

    def scaled(scale: float) -> Any:
        return traced(lambda x: x.sum() * scale)

    with torch._dynamo.config.patch(recompile_limit=3, accumulated_recompile_limit=3):
        assert [scaled(i)(torch.ones(3)).item() for i in range(5)] == [0, 3, 6, 9, 12]


def test_a_torch_that_takes_no_limit_compiles_all_allowed_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "supported_arguments", lambda arguments: {})
    compiled = traced(total, shapes=10)
    assert [compiled(pair(rows)).item() for rows in range(2, 12)] == [*range(4, 24, 2)]
    assert torch._dynamo.config.recompile_limit == 8


def test_a_number_that_changes_is_an_error_that_names_a_tensor() -> None:
    compiled = traced(total, shapes=2)
    compiled(pair(4), 1.5)
    compiled(pair(4), 2.5)
    with refused(CompileError, "scale is 3.5 (expected 1.5)", "torch.tensor(value)"):
        compiled(pair(4), 3.5)
    counted = CompileCounter()
    compiled = traced(total, backend=counted)
    assert [compiled(pair(4), torch.tensor(float(i))).item() for i in range(6)] == [8.0 * i for i in range(6)]
    assert counted.frame_count == 1


def test_modes_are_not_counted() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU())
    compiled = traced(model, shapes=1)
    x = torch.randn(5, 3)
    compiled(x).sum().backward()
    compiled.eval()
    assert torch.equal(compiled(x), model(x))
    with torch.no_grad():
        assert torch.equal(compiled(x), model(x))


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"mode": "reduce-overhead"}, ("mode='reduce-overhead'", "list_mode_options")),
        ({"options": {"cpp.thread": 1}}, ("no option 'cpp.thread'", "did you mean cpp.threads")),
        ({"options": 3}, ("options must be a dict", "3")),
        ({"modes": 1}, ("no argument 'modes'", "choose from", "backend")),
        ({"fullgraph": "yes"}, ("fullgraph must be True or False", "'yes'")),
        ({"shapes": 0}, ("shapes must be an integer in 1..10000", "0")),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], parts: tuple[str, ...]) -> None:
    with refused(CompileError, *parts):
        tp.compile(total, **arguments)


def test_only_functions_and_modules_are_compiled_and_only_once() -> None:
    for thing in (3, nn.Linear, None):
        with refused(CompileError, "compile() needs a module or a function"):
            tp.compile(thing)  # type: ignore[arg-type]
    for thing in (tp.compile(total), tp.compile(nn.ReLU())):
        with refused(CompileError, "is compiled already"):
            tp.compile(thing)
    assert tp.compile(total, disable=True) is total


def test_a_compiled_module_is_the_module() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    model.temperature = 2.0  # type: ignore[assignment]
    compiled = traced(model)
    assert list(compiled.state_dict()) == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert [id(each) for each in compiled.parameters()] == [id(each) for each in model.parameters()]
    compiled.temperature = 3.0
    assert model.temperature == compiled.temperature == 3.0
    compiled.eval()
    assert not model.training
    with pytest.raises(AttributeError, match="no_such"):
        _ = compiled.no_such
    x = torch.randn(4, 3)
    assert torch.equal(compiled(x), model(x))
    other = copy.deepcopy(compiled)
    with torch.no_grad():
        other._orig_mod[0].weight.zero_()
    assert torch.equal(compiled(x), model(x))
    assert not torch.equal(other(x), model(x))


def test_methods_and_functions_inside_others_are_compiled() -> None:
    class Training:
        scale = 3.0

        @tp.compile
        def loss_of(self, x: Tensor) -> Tensor:
            return x.sum() * self.scale

    inner = traced(total)
    assert Training.__dict__["loss_of"].__name__ == "loss_of"
    assert traced(lambda batch: inner(batch) + 1)(pair(4)) == 9
    compiled = Training.__dict__["loss_of"]
    compiled._settings["backend"] = "eager"
    assert Training().loss_of(torch.ones(4)) == 12
