"""`tp.compile`: what it gives torch, how it falls back, and what it says where a function cannot be compiled."""

from __future__ import annotations

import copy
import io
import os
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import dgl_tuplepack as tp
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.errors import CompileError
from tests.support.messages import refused
from tests.support.stores import molecules
from tests.support.threads import at_the_same_time

pytestmark = pytest.mark.compile


class Pair(NamedTuple):
    src: Tensor
    features: dict[str, Tensor]


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """No test sees what another one has compiled, or where."""
    torch.compiler.reset()
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    yield
    torch.compiler.reset()
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
    if before is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


def traced(function: Any, **settings: Any) -> Any:
    """Compiled as far as torch's tracer goes, which takes no C++ compiler."""
    return tp.compile(function, **{"backend": "eager", **settings})


def branch(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x
    return -x


def through_a_helper(x: Tensor) -> Tensor:
    return 2 * branch(x)


def number_of_real(x: Tensor) -> Tensor:
    return x if torch.bincount((x > 0).long()).shape[0] > 1 else -x


def as_list(x: Tensor) -> list[float]:
    return x.tolist()


def printing(x: Tensor) -> Tensor:
    print(x.sum())
    return x


def with_backward(x: Tensor) -> Tensor:
    loss = (x * x.detach().requires_grad_()).sum()
    loss.backward()
    return loss


def opening(x: Tensor) -> Any:
    return open("/dev/null")


@pytest.mark.parametrize(
    ("function", "line", "remedy"),
    [
        (opening, "(return open(", "move it out of the compiled function"),
        (branch, "(if x.sum() > 0:)", "torch.where"),
        (through_a_helper, "(if x.sum() > 0:)", "torch.where"),
        (number_of_real, "(return x if torch.bincount", "must not depend on values"),
        (as_list, "(return x.tolist())", "0-dimensional tensor"),
        (printing, "(print(x.sum()))", "print outside"),
        (with_backward, "(loss.backward())", "call backward() and the optimiser outside"),
    ],
)
def test_a_graph_break_names_the_line_and_the_remedy(function: Callable[..., Any], line: str, remedy: str) -> None:
    name = function.__name__
    with refused(CompileError, f"{name} cannot be compiled", "test_compiling.py, line ", line, remedy):
        traced(function)(torch.randn(4))


def test_names_of_folders_do_not_choose_the_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "dgl" / "unique" / "u12"
    folder.mkdir(parents=True)
    (folder / "ours.py").write_text("def loss_of(x):\n    open('/dev/null').close()\n    return x.sum()\n")
    found = runpy.run_path(str(folder / "ours.py"))["loss_of"]
    with refused(CompileError, "ours.py, line 2", "move it out of the compiled function"):
        traced(found)(torch.randn(4))


def test_a_generator_is_told_what_to_do() -> None:
    def rows(x: Tensor) -> Iterator[Tensor]:
        yield x

    with refused(CompileError, "rows is a generator", "a function that is not compiled yield them"):
        traced(rows)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_sparse_argument_is_left_to_torch(layout: torch.layout) -> None:
    """Such tensors have no strides; torch compiles around them, or says why not."""

    def neighbours(adjacency: Tensor, x: Tensor) -> Tensor:
        return adjacency @ x

    eye = torch.eye(4).to_sparse(layout=layout)
    with refused(CompileError, "neighbours cannot be compiled", "sparse"):
        traced(neighbours)(eye, torch.ones(4, 2))
    assert traced(neighbours, fullgraph=False)(eye, torch.ones(4, 2)).sum() == 8


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
    layer, x = nn.LSTM(4, 3), torch.randn(5, 17, 4)
    before = torch.backends.mkldnn.enabled
    found, expected = (
        torch.autograd.grad(function(x)[0].square().sum(), layer.parameters())
        for function in (tp.compile(layer), layer)
    )
    torch.testing.assert_close(found, expected)
    assert torch.backends.mkldnn.enabled is before


def test_threads_that_begin_together_compile_once() -> None:
    calls = []

    def backend(module: Any, examples: Any) -> Any:
        calls.append(threading.get_ident())
        return module

    step = tp.compile(lambda x: x.sin().sum(), backend=backend)

    def run(number: int, x: Tensor, barrier: threading.Barrier) -> Tensor:
        barrier.wait()
        return step(x)  # type: ignore[no-any-return]

    assert at_the_same_time(run, [torch.zeros(3)] * 4) == [0, 0, 0, 0]
    assert len(calls) == 1


def test_a_graph_of_dgl_in_a_closure_is_named_with_the_users_line() -> None:
    graph = molecules(1)[0][0]

    def sum_of_neighbours(x: Tensor) -> Tensor:
        return x * graph.in_degrees().sum()

    with refused(CompileError, "(return x * graph.in_degrees().sum())", "batch.tensors"):
        traced(sum_of_neighbours)(torch.randn(4))


def test_errors_of_the_function_itself_stay_as_they_are() -> None:
    def failing(x: Tensor) -> Tensor:
        raise ValueError("no such molecule")

    with pytest.raises(ValueError, match="no such molecule"):
        traced(failing)(torch.zeros(3))
    with pytest.raises(NameError, match="no_such_name"):
        traced(lambda x: no_such_name)(torch.zeros(3))  # type: ignore[name-defined] # noqa: F821
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        traced(lambda x: x @ x)(torch.zeros(4, 3))
    with pytest.raises(TypeError, match="unexpected keyword"):
        traced(branch)(torch.zeros(3), no=1)


def test_graphs_are_refused_where_tensors_are_needed() -> None:
    items = molecules(3)
    batch = tp.PaddedCollate(tp.Limits(nodes=40, edges=200, graphs=4), example=items[0])(items)

    def loss_of(batch: Any, more: Any = None) -> Any:
        return batch

    with refused(CompileError, "batch of ", "loss_of is a DGLGraph", "pass batch.tensors", ".graph"):
        traced(loss_of)(items[0][0])
    with refused(CompileError, "more['here'][0] of ", "loss_of is a PaddedBatch", "more['here'][0].tensors"):
        traced(loss_of)(torch.zeros(3), more={"here": [batch]})


def total(pair: Pair, scale: float | Tensor = 1.0) -> Tensor:
    return pair.features["x"].sum() * scale + pair.src.sum()


def pair(rows: int, dtype: torch.dtype = torch.float32) -> Pair:
    return Pair(torch.zeros(3, dtype=torch.int64), {"x": torch.ones(rows, 2, dtype=dtype)})


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


def test_a_number_that_changes_is_an_error_that_names_a_tensor() -> None:
    compiled = traced(total, shapes=2)
    compiled(pair(4), 1.5)
    compiled(pair(4), 2.5)
    with refused(CompileError, "scale is 3.5 (expected 1.5)", "torch.tensor(value)"):
        compiled(pair(4), 3.5)
    for value in (3.5, 4.5, 5.5):
        assert traced(total)(pair(4), torch.tensor(value)) == 8 * value


def test_a_tensor_in_place_of_numbers_compiles_once() -> None:
    calls = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(graph)
        return graph

    compiled = traced(total, backend=backend)
    assert [compiled(pair(4), torch.tensor(float(i))).item() for i in range(6)] == [8.0 * i for i in range(6)]
    assert len(calls) == 1


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
        ({"mode": "reduce-overhead"}, ("mode='reduce-overhead'", "options={'triton.cudagraphs': True}")),
        ({"options": {"cpp.thread": 1}}, ("no option 'cpp.thread'", "did you mean cpp.threads")),
        ({"options": 3}, ("options must be a dict", "3")),
        ({"modes": 1}, ("no argument 'modes'", "choose from", "backend")),
        ({"fullgraph": "yes"}, ("fullgraph must be True or False", "'yes'")),
        ({"dynamic": 1}, ("dynamic must be True or False", "1")),
        ({"shapes": 0}, ("shapes must be an integer in 1..10000", "0")),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: dict[str, Any], parts: tuple[str, ...]) -> None:
    with refused(CompileError, *parts):
        tp.compile(branch, **arguments)


def test_only_functions_and_modules_are_compiled_and_only_once() -> None:
    for thing in (3, nn.Linear, None):
        with refused(CompileError, "compile() needs a module or a function"):
            tp.compile(thing)  # type: ignore[arg-type]
    for thing in (tp.compile(branch), tp.compile(nn.ReLU())):
        with refused(CompileError, "is compiled already"):
            tp.compile(thing)
    assert tp.compile(branch, disable=True) is branch


class FakeTorch:
    """Takes the place of ``torch.compile``: notes the settings, and compiles by a function of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, by: Callable[[Any, dict[str, Any]], Any]) -> None:
        self.settings: list[dict[str, Any]] = []

        def fake(
            function: Any,
            *,
            options: Any = None,
            dynamic: Any = None,
            fullgraph: bool = False,
            backend: Any = "inductor",
        ) -> Any:
            self.settings.append({"options": options, "dynamic": dynamic, "fullgraph": fullgraph, "of": function})
            return by(function, options or {})

        monkeypatch.setattr(torch, "compile", fake)

    def options_for(self, function: Any) -> list[dict[str, Any] | None]:
        return [each["options"] for each in self.settings if each["of"] is function]


def test_options_are_merged_and_the_users_win(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTorch(monkeypatch, lambda function, options: function)
    for given in (None, {"cpp.threads": 4, "triton.cudagraphs": True}, {"epilogue-fusion": False}):
        tp.compile(total, options=given)(pair(4))
    ours, theirs, hyphens = fake.options_for(total)
    assert ours is not None
    assert ours.keys() == {"joint_custom_pre_pass", "cpp.threads", "max_fusion_size"}
    assert ours["cpp.threads"] == ours["max_fusion_size"] == 1
    assert theirs is not None
    assert theirs.keys() == ours.keys() | {"triton.cudagraphs"}
    assert theirs["cpp.threads"] == 4
    assert hyphens is not None
    assert hyphens["epilogue_fusion"] is False
    tp.compile(total, backend="aot_eager")(pair(4))
    assert fake.options_for(total)[3:] == [None]
    assert len(fake.settings) == 4
    assert all(each["dynamic"] is False and each["fullgraph"] is True for each in fake.settings)


@pytest.mark.parametrize("known", [None, {"cpp.threads"}, {"joint_custom_pre_pass"}])
def test_a_torch_that_cannot_be_made_right_is_refused(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "known_options", lambda: known)
    FakeTorch(monkeypatch, lambda function, options: function)
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    with refused(CompileError, "torch 2.13.0+cpu may compile sums over edges wrongly", "install torch 2.14 or newer"):
        tp.compile(total)(pair(4))
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert tp.compile(total)(pair(4)) == 8


@pytest.mark.parametrize(("version", "fusion"), [("2.9.1", 1), ("2.13.0+cpu", 1), ("2.14.0a0+git12", None)])
def test_fusion_is_switched_off_where_torch_is_wrong(
    version: str, fusion: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert torch_private.our_options("cpu").get("max_fusion_size") == fusion
    assert "max_fusion_size" not in torch_private.our_options("cuda")


def test_a_torch_without_passes_of_users_compiles_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._inductor.custom_graph_pass", None)
    fake = FakeTorch(monkeypatch, lambda function, options: function)
    assert tp.compile(total)(pair(4)) == 8
    assert "joint_custom_pre_pass" not in (fake.options_for(total)[0] or {})


def test_a_function_on_which_the_compiler_fails_stays_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    def by(function: Any, options: dict[str, Any]) -> Any:
        def fail(*args: Any) -> Any:
            raise BackendCompilerFailed("inductor", RuntimeError("no lowering of this"), None)

        return fail

    FakeTorch(monkeypatch, by)
    compiled = tp.compile(total)
    with pytest.warns(UserWarning, match="leaves total uncompiled.*no lowering of this") as caught:
        assert compiled(pair(4)) == 8
    assert len(caught) == 1
    assert compiled(pair(4)) == 8
    assert not compiled.is_compiled


def test_a_compiler_that_fails_in_the_backward_pass_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for two layers of PyG that add self-loops: then the first call has passed without an error."""
    from torch._inductor.exc import InductorError

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            raise InductorError(RuntimeError("For u1 + 61, expected [u1] to have been codegen-ed"), "")

    FakeTorch(monkeypatch, lambda function, options: lambda x: Fails.apply(function(x)))
    x = torch.ones(3, requires_grad=True)
    step = tp.compile(lambda x: x.sin())
    with pytest.warns(UserWarning, match="leaves <lambda> uncompiled.*add_self_loops=False"):
        step(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, x.detach().cos())


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


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("terminal", [True, False])
def test_the_first_call_says_on_a_terminal_that_it_compiles(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    compiled = traced(total)
    compiled(pair(4))
    said = stream.getvalue()
    assert ("compiling total (15 to 40 s; 2 to 4 s from torch's cache on disk)" in said) is terminal
    compiled(pair(4))
    assert stream.getvalue() == said


def test_every_error_of_the_compiler_is_known_to_this_torch() -> None:
    """A class that torch renames would be missed silently."""
    import torch._dynamo.exc
    import torch._inductor.exc

    cases = [
        (torch._dynamo.exc.Unsupported, torch_private.is_graph_break),
        (torch._dynamo.exc.UserError, torch_private.is_graph_break),
        (torch._dynamo.exc.TorchRuntimeError, torch_private.is_error_of_function),
        (torch._dynamo.exc.FailOnRecompileLimitHit, torch_private.is_recompile_limit),
        (torch._dynamo.exc.BackendCompilerFailed, torch_private.is_compiler_failure),
        (torch._inductor.exc.InductorError, torch_private.is_compiler_failure),
        (torch._inductor.exc.CppCompileError, torch_private.is_compiler_failure),
    ]
    for kind, is_known in cases:
        assert is_known(kind.__new__(kind))
        assert not is_known(ValueError())


def test_the_pass_is_told_from_others_by_its_text() -> None:
    """Torch's caches on disk take two passes for one if they say that they are equal."""
    options = torch_private.our_options("cpu")
    again = torch_private.our_options("cpu")["joint_custom_pre_pass"]
    assert options["joint_custom_pre_pass"].uuid() == again.uuid()
    assert len(again.uuid()) == 32
