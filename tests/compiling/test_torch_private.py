"""What `tp.compile` gives torch, and how it falls back where torch's compiler lacks something or fails."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dgl_tuplepack as tp
from dgl_tuplepack._core.optional import missing
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.compiling.torch_versions import OLDEST, bug_of, is_tried, remark_on
from dgl_tuplepack.errors import CompileError
from tests.support.compiled import pair, total
from tests.support.messages import refused

pytestmark = [pytest.mark.compile, pytest.mark.usefixtures("forget")]


class FakeTorch:
    """Takes the place of ``torch.compile``: notes the settings, and compiles by a function."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, by: Callable[[Any], Any] = lambda function: function) -> None:
        self.settings: list[dict[str, Any]] = []

        def fake(function: Any, *, dynamic: Any, fullgraph: Any, options: Any = None, backend: Any = None) -> Any:
            self.settings.append({"options": options, "dynamic": dynamic, "fullgraph": fullgraph})
            return by(function)

        monkeypatch.setattr(torch, "compile", fake)

    @property
    def options(self) -> list[dict[str, Any] | None]:
        return [each["options"] for each in self.settings]


def test_options_are_merged_and_the_users_win(monkeypatch: pytest.MonkeyPatch) -> None:
    # Newer versions need no option against wrong sums.
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    fake = FakeTorch(monkeypatch)
    for given in (None, {"cpp.threads": 4, "triton.cudagraphs": True}, {"epilogue-fusion": False}):
        tp.compile(total, options=given)(pair(4))
    ours, theirs, hyphens = fake.options
    assert ours is not None
    assert ours.keys() == {"joint_custom_pre_pass", "cpp.threads", "max_fusion_size"}
    assert ours["cpp.threads"] == ours["max_fusion_size"] == 1
    assert theirs is not None
    assert theirs.keys() == ours.keys() | {"triton.cudagraphs"}
    assert theirs["cpp.threads"] == 4
    assert hyphens is not None
    assert hyphens["epilogue_fusion"] is False
    tp.compile(total, backend="aot_eager")(pair(4))
    assert fake.options[3:] == [None]
    monkeypatch.setitem(sys.modules, "torch._inductor.custom_graph_pass", None)
    assert tp.compile(total)(pair(4)) == 8
    assert "joint_custom_pre_pass" not in (fake.options[-1] or {})
    assert all(each["dynamic"] is False and each["fullgraph"] is True for each in fake.settings)


def test_a_torch_that_cannot_be_made_right_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "known_options", lambda: {"cpp.threads"})
    FakeTorch(monkeypatch)
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    with refused(CompileError, "torch 2.13.0+cpu may compile sums over edges wrongly", "install a newer torch"):
        tp.compile(total)(pair(4))
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert tp.compile(total)(pair(4)) == 8


@pytest.mark.parametrize(
    ("version", "fusion"), [("2.11.0", 1), ("2.13.0+cpu", 1), ("2.14.0a0+git12", None), ("2.99.1", None)]
)
def test_fusion_is_switched_off_where_torch_is_wrong(
    version: str, fusion: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    assert torch_private.our_options("cpu").get("max_fusion_size") == fusion
    assert "max_fusion_size" not in torch_private.our_options("cuda")


def test_an_unknown_version_and_an_option_that_is_gone_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch_private._log_once.cache_clear()
    monkeypatch.setattr(torch, "__version__", "2.99.0+cpu")
    monkeypatch.setattr(torch_private, "known_options", lambda: {"joint_custom_pre_pass"})
    for _ in range(2):
        torch_private.our_options("cpu")
    gone = "torch 2.99.0+cpu has no compiler option 'cpp.threads'; compiled code is slower without it"
    assert caplog.messages == [f"torch 2.99.0+cpu is {remark_on(torch.__version__)}", gone]
    assert "not one of the versions" in caplog.messages[0]
    torch_private._log_once.cache_clear()


def test_a_torch_that_is_too_old_is_refused_when_compile_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.1.0")
    oldest = ".".join(map(str, OLDEST))
    with refused(CompileError, f"torch 2.1.0 is too old for tp.compile, which needs torch {oldest} or newer"):
        tp.compile(total)
    assert tp.compile(total, disable=True) is total


def test_the_version_that_a_message_recommends_has_no_known_bugs() -> None:
    message = str(missing("torch", ModuleNotFoundError(name="torch")))
    recommended = message.partition('pip install "torch>=')[2].partition('"')[0]
    assert is_tried(recommended)
    assert not bug_of(recommended)


def test_a_function_on_which_the_compiler_fails_stays_uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    def fail(*args: Any) -> Any:
        raise BackendCompilerFailed("inductor", RuntimeError("no lowering of this"), None)

    FakeTorch(monkeypatch, lambda function: fail)
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

    FakeTorch(monkeypatch, lambda function: lambda x: Fails.apply(function(x)))
    x = torch.ones(3, requires_grad=True)
    step = tp.compile(lambda x: x.sin())
    with pytest.warns(UserWarning, match="leaves <lambda> uncompiled.*add_self_loops=False"):
        step(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_every_error_of_the_compiler_is_known_to_this_torch() -> None:
    """A class that torch renames would be missed silently."""
    from torch._dynamo import exc
    from torch._inductor import exc as of_inductor

    failures = [exc.BackendCompilerFailed, of_inductor.InductorError, of_inductor.CppCompileError]
    for names, kinds in {
        torch_private.GRAPH_BREAK: [exc.Unsupported, exc.UserError],
        torch_private.TOO_OFTEN: [exc.FailOnRecompileLimitHit],
        torch_private.FAILURE: failures,
    }.items():
        assert all(torch_private.is_one_of(kind.__new__(kind), names) for kind in kinds)
        assert not torch_private.is_one_of(ValueError(), names)
    assert torch_private.is_error_of_function(exc.TorchRuntimeError.__new__(exc.TorchRuntimeError))
