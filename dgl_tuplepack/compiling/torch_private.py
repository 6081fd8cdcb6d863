"""All uses of private parts of torch's compiler, by their names in torch 2.13.

If torch lacks a part, the function that needs it returns None or False, and its caller works without the part.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.errors import CompileError

# Names of options: a pass over the joint graph, the number of threads of generated kernels, and the largest number of
# operations that the scheduler may fuse.
PASS_OPTION = "joint_custom_pre_pass"
THREADS_OPTION = "cpp.threads"
FUSION_OPTION = "max_fusion_size"
_SECOND_CACHE = "after-a-failure"
# The first version of torch whose scheduler keeps the order of scatters.
_FUSES_CORRECTLY = (2, 14)


def our_options(device: str) -> dict[str, Any]:
    """Return the options that `tp.compile` adds for a device type.

    Generated kernels get one thread: with several, sums over edges need atomic operations, which cost more than the
    threads gain. Matrix products are calls to torch and keep all threads. Our pass is in `joint_pass`.

    Raises
    ------
    CompileError
        This version of torch generates wrong code for the CPU, and has no option to prevent that.

    Notes
    -----
    From torch 2.5 to 2.13, the scheduler for the CPU recomputes the loops of an operation to fuse it. The operation
    then loses its dependency on an in-place operation, such as a scatter, and a later fusion may move it before the
    scatter. With a fusion size of 1 nothing is fused, so no loops are recomputed until the order of the operations is
    final. Torch 2.14 keeps the dependencies: it renames them after it recomputes loops
    (`SchedulerNode.recompute_size_and_body`).
    """
    known = known_options() or frozenset()
    options: dict[str, Any] = {}
    if device == "cpu" and _version() < _FUSES_CORRECTLY:
        if FUSION_OPTION not in known:
            raise CompileError(
                f"torch {torch.__version__} may compile sums over edges wrongly, and has no option {FUSION_OPTION!r} "
                f"to prevent that; install torch {'.'.join(map(str, _FUSES_CORRECTLY))} or newer, or do not compile."
            )
        options[FUSION_OPTION] = 1
    if THREADS_OPTION in known:
        options[THREADS_OPTION] = 1
    if PASS_OPTION in known and (joint_pass := _joint_pass()) is not None:
        options[PASS_OPTION] = joint_pass
    return options


def _version() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))


@functools.cache
def problem_at_start() -> str | None:
    """Return why torch's compiler does not start, for example because no folder is writable; None if it starts."""
    try:
        importlib.import_module("torch._inductor")
    except OSError as error:
        return f"torch's compiler does not start ({error}); set TORCHINDUCTOR_CACHE_DIR to a writable folder"
    except ImportError:
        # Functions that need the missing part handle this.
        return None
    return None


def use_another_cache() -> bool:
    """Make torch keep compiled code in a subfolder of its cache; return False if it already does.

    Torch does not recognise files that a killed process left unfinished, so compiling fails as long as they exist.
    """
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder = Path(cache_dir())
    if folder.name == _SECOND_CACHE:
        return False
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / _SECOND_CACHE)
    return True


def known_options() -> frozenset[str] | None:
    """Return the names of the options of torch's compiler, as callers write them; None if torch does not list them."""
    if problem_at_start() is not None:
        return None
    try:
        from torch._inductor import list_options

        return frozenset(list_options())
    except (ImportError, AttributeError):
        return None


def options_of_mode(mode: str) -> dict[str, Any] | None:
    """Return the options that ``mode=`` stands for; None if torch does not list them."""
    if problem_at_start() is not None:
        return None
    try:
        from torch._inductor import list_mode_options

        return dict(list_mode_options(mode))
    except (ImportError, AttributeError, RuntimeError, KeyError):
        return None


def _joint_pass() -> Any:
    """Return our pass as an object that torch's caches on disk can identify; None if torch has no `CustomGraphPass`."""
    try:
        from torch._inductor.custom_graph_pass import CustomGraphPass
    except ImportError:
        return None

    from dgl_tuplepack.compiling import joint_pass

    # Torch's caches identify the pass by a hash of its source. With a plain function, torch would keep nothing on disk.
    source = Path(joint_pass.__file__).read_bytes()

    class KeepNoBools(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            joint_pass.keep_no_bools(graph)

        def uuid(self) -> bytes:
            return hashlib.sha256(source).digest()

    return KeepNoBools()


def is_inductor(arguments: Mapping[str, Any]) -> bool:
    """Return whether the backend is Inductor, torch's own compiler; other backends do not have its options."""
    return arguments.get("backend") in (None, "inductor")


def supported_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `arguments` that this version of ``torch.compile`` accepts."""
    known = inspect.signature(torch.compile).parameters
    return {name: value for name, value in arguments.items() if name in known}


def is_graph_break(error: BaseException) -> bool:
    """Return whether torch could not trace a function as one graph."""
    return _is_one_of(error, "torch._dynamo.exc", ("Unsupported", "UserError", "UncapturedHigherOrderOpError"))


def is_error_of_function(error: BaseException) -> bool:
    """Return whether the function itself fails, in torch or in Python code, so that it would also fail uncompiled."""
    start = str(error)[:60]
    is_of_python = any(
        each in start for each in ("Observed exception", "failed to find name", "failed to bind arguments")
    )
    return is_of_python or _is_one_of(error, "torch._dynamo.exc", ("TorchRuntimeError",))


def is_about_recurrent_layers(error: BaseException) -> bool:
    """Return whether torch refuses to trace an LSTM, GRU or RNN; torch's configuration can allow it."""
    return is_graph_break(error) and "allow_rnn" in str(error)


@contextmanager
def recurrent_layers_traced(enabled: bool) -> Iterator[None]:
    """Let torch trace recurrent layers inside this context, if `enabled`.

    The context also switches oneDNN off, so that torch splits these layers into matrix products. With oneDNN, each
    layer is a single operation, for which torch 2.13 generates code that fails.
    """
    if not enabled:
        yield
        return
    from torch._dynamo import config

    one_dnn: Any = torch.backends.mkldnn
    before, one_dnn.enabled = one_dnn.enabled, False
    try:
        with config.patch(allow_rnn=True):
            yield
    finally:
        one_dnn.enabled = before


def is_recompile_limit(error: BaseException) -> bool:
    """Return whether torch has compiled a function so often that it gives up."""
    return _is_one_of(error, "torch._dynamo.exc", ("FailOnRecompileLimitHit", "RecompileError"))


def is_compiler_failure(error: BaseException) -> bool:
    """Return whether compiling failed after tracing, for example because of a missing C++ compiler."""
    return _is_one_of(error, "torch._dynamo.exc", ("BackendCompilerFailed", "InternalTorchDynamoError")) or _is_one_of(
        error,
        "torch._inductor.exc",
        ("InductorError", "BackendCompilerFailed", "CppCompileError", "InvalidCxxCompiler", "TritonMissing"),
    )


def reason_of(error: BaseException) -> str:
    """Return the innermost error that torch's compiler wraps, on one line."""
    while isinstance(inner := getattr(error, "inner_exception", None), BaseException):
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _is_one_of(error: BaseException, module: str, names: Iterable[str]) -> bool:
    """Return whether an error is of one of the classes `names` in `module`; torch may lack some of these classes."""
    return any(each.__module__ == module and each.__name__ in names for each in type(error).__mro__)


def lines_of(error: BaseException) -> list[tuple[str, int, str]]:
    """Return the lines of Python code behind an error of the tracer, outermost first: file, line number, line."""
    stack = getattr(error, "real_stack", None) or ()
    return [(frame.filename, frame.lineno or 0, frame.line or "") for frame in stack]


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor was written to."""
    return tensor._version


def hooks_of(tensor: Tensor) -> list[Callable[[Tensor], Any]]:
    """Return the hooks that change the gradient of a leaf."""
    return [*(tensor._backward_hooks or {}).values()]
