"""All code that uses private parts of torch, under the names that they have in torch 2.13.

Most functions return None or False if torch lacks a private part; their callers then work without it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.compiling.torch_versions import FUSION, TRIED, bugs_of, release_of, remark_on
from dgl_tuplepack.errors import CompileError

# Names of options of torch's compiler: the function that changes the joint graph (the forward and backward pass in one
# graph), the number of threads of a generated kernel, and the largest number of operations in one fused kernel.
PASS_OPTION = "joint_custom_pre_pass"
THREADS_OPTION = "cpp.threads"
FUSION_OPTION = "max_fusion_size"
_SECOND_CACHE = "after-a-failure"
_log = logging.getLogger(__name__)


def our_options(device: str) -> dict[str, Any]:
    """Return the options that `tp.compile` adds for a device type, such as "cpu".

    Generated kernels get one thread. With several threads, sums over edges need atomic operations, which cost more time
    than the threads save. Matrix products use torch's own kernels, which keep all threads.

    Raises
    ------
    CompileError
        The device is the CPU, and this version of torch may generate wrong code, since it lacks `FUSION_OPTION`.

    Notes
    -----
    With the bug `FUSION`, the CPU scheduler may recompute the loops of an operation when it fuses operations. The
    operation then loses its dependency on an earlier in-place operation, such as a scatter. So a later fusion may move
    the operation before the scatter. If `FUSION_OPTION` is 1, nothing is fused, so no loops are recomputed until the
    order of the operations is final. Torch 2.14 keeps the dependencies: it renames them after it recomputes loops
    (`SchedulerNode.recompute_size_and_body`).
    """
    known = known_options() or frozenset()
    options: dict[str, Any] = {THREADS_OPTION: 1, PASS_OPTION: _joint_pass()}
    if release_of(torch.__version__) not in TRIED:
        _log_once(f"torch {torch.__version__} is {remark_on(torch.__version__)}")
    for name in [name for name, value in options.items() if name not in known or value is None]:
        del options[name]
        _log_once(f"torch {torch.__version__} has no compiler option {name!r}; compiled code is slower without it")
    if device == "cpu" and FUSION in bugs_of(torch.__version__):
        if FUSION_OPTION not in known:
            raise CompileError(
                f"torch {torch.__version__} may compile sums over edges wrongly, and has no option {FUSION_OPTION!r} "
                "to prevent that; install a newer torch, or do not compile."
            )
        options[FUSION_OPTION] = 1
    return options


@functools.cache
def _log_once(text: str) -> None:
    _log.warning(text)


@functools.cache
def problem_at_start() -> str | None:
    """Return a message if torch's compiler does not start, for example because no folder is writable; else None."""
    try:
        importlib.import_module("torch._inductor")
    except OSError as error:
        return f"torch's compiler does not start ({error}); set TORCHINDUCTOR_CACHE_DIR to a writable folder"
    except ImportError:
        # Torch lacks a module. `known_options`, `options_of_mode` and `_joint_pass` then return None.
        return None
    return None


def use_another_cache() -> bool:
    """Make torch store compiled code in a subfolder of its cache; return False if torch already uses the subfolder.

    If a process is killed while it writes a file of the cache, torch does not notice that the file is incomplete. From
    then on, compiling fails until the file is deleted.
    """
    inductor: Any = importlib.import_module("torch._inductor.codecache")
    folder = Path(inductor.cache_dir())
    if folder.name == _SECOND_CACHE:
        return False
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / _SECOND_CACHE)
    # Torch 2.14 keeps the path of the incomplete file in memory.
    importlib.import_module("torch._inductor.utils").clear_inductor_caches()
    return True


def known_options() -> frozenset[str] | None:
    """Return the names that ``options=`` of ``torch.compile`` accepts; None if torch cannot list them."""
    options = _listed_by_torch("list_options")
    return None if options is None else frozenset(options)


def options_of_mode(mode: str) -> dict[str, Any] | None:
    """Return the options that a mode of ``torch.compile`` stands for; None if torch cannot list them."""
    options = _listed_by_torch("list_mode_options", mode)
    return None if options is None else dict(options)


def _listed_by_torch(function: str, *arguments: str) -> Any:
    """Return the result of a function of torch's compiler; None if the compiler lacks it, or it fails."""
    if problem_at_start() is not None:
        return None
    try:
        return getattr(importlib.import_module("torch._inductor"), function)(*arguments)
    except (ImportError, AttributeError, RuntimeError, KeyError):
        return None


def number_of_graphs() -> int:
    """Return how many graphs torch has compiled in this process; always 0 if torch does not count them."""
    try:
        from torch._dynamo.utils import counters
    except ImportError:
        return 0
    return counters["stats"]["unique_graphs"]


def _joint_pass() -> Any:
    """Return `keep_no_bools` as an object that torch's disk cache can identify; None without `CustomGraphPass`."""
    try:
        from torch._inductor.custom_graph_pass import CustomGraphPass
    except ImportError:
        return None

    from dgl_tuplepack.compiling import joint_pass

    # With a plain function as the option, torch would cache nothing on disk.
    source = Path(joint_pass.__file__).read_bytes()

    class KeepNoBools(CustomGraphPass):
        def __call__(self, graph: torch.fx.Graph) -> None:
            joint_pass.keep_no_bools(graph)

        def uuid(self) -> bytes:
            return hashlib.sha256(source).digest()

    return KeepNoBools()


def is_inductor(arguments: Mapping[str, Any]) -> bool:
    """Return whether `arguments` of ``torch.compile`` choose Inductor."""
    return arguments.get("backend") in (None, "inductor")


def supported_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `arguments` that this version of ``torch.compile`` accepts."""
    known = inspect.signature(torch.compile).parameters
    return {name: value for name, value in arguments.items() if name in known}


def is_graph_break(error: BaseException) -> bool:
    """Return whether the error means that torch could not trace a function as one graph."""
    return _is_one_of(error, "torch._dynamo.exc", ("Unsupported", "UserError", "UncapturedHigherOrderOpError"))


def is_error_of_function(error: BaseException) -> bool:
    """Return whether the error comes from the function itself."""
    start = str(error)[:60]
    is_of_python = any(
        each in start for each in ("Observed exception", "failed to find name", "failed to bind arguments")
    )
    return is_of_python or _is_one_of(error, "torch._dynamo.exc", ("TorchRuntimeError",))


def is_about_recurrent_layers(error: BaseException) -> bool:
    """Return whether the error means that torch refuses to trace an LSTM, GRU or RNN."""
    return is_graph_break(error) and "allow_rnn" in str(error)


@contextmanager
def torch_settings(*, traces_recurrent_layers: bool, recompile_limit: int | None) -> Iterator[None]:
    """Inside this context, let torch trace recurrent layers (LSTM, GRU, RNN), and change its limit of recompilations.

    If recurrent layers are traced, the context also switches off oneDNN, so that torch splits these layers into matrix
    products. With oneDNN, each layer is a single operation, for which torch 2.13 generates code that fails.
    """
    changes: dict[str, Any] = {"allow_rnn": True} if traces_recurrent_layers else {}
    changes |= {"recompile_limit": recompile_limit} if recompile_limit is not None else {}
    if not changes:
        yield
        return
    from torch._dynamo import config

    one_dnn: Any = torch.backends.mkldnn
    before = one_dnn.enabled
    one_dnn.enabled = before and not traces_recurrent_layers
    try:
        with config.patch(changes):
            yield
    finally:
        one_dnn.enabled = before


def is_recompile_limit(error: BaseException) -> bool:
    """Return whether the error means that torch has compiled a function too often."""
    return _is_one_of(error, "torch._dynamo.exc", ("FailOnRecompileLimitHit", "RecompileError"))


def is_compiler_failure(error: BaseException) -> bool:
    """Return whether the error means that compiling failed after tracing, for example without a C++ compiler."""
    return _is_one_of(error, "torch._dynamo.exc", ("BackendCompilerFailed", "InternalTorchDynamoError")) or _is_one_of(
        error,
        "torch._inductor.exc",
        ("InductorError", "BackendCompilerFailed", "CppCompileError", "InvalidCxxCompiler", "TritonMissing"),
    )


def reason_of(error: BaseException) -> str:
    """Return, on one line, the class and message of the innermost error that `error` wraps."""
    while isinstance(inner := getattr(error, "inner_exception", None), BaseException):
        error = inner
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def _is_one_of(error: BaseException, module: str, names: Iterable[str]) -> bool:
    """Return whether an error is of one of the classes `names` in `module`. Torch may lack some of these classes."""
    return any(each.__module__ == module and each.__name__ in names for each in type(error).__mro__)


def lines_of(error: BaseException) -> list[tuple[str, int, str]]:
    """Return the Python lines that led to a tracing error, outermost first, as (file, line number, line)."""
    stack = getattr(error, "real_stack", None) or ()
    return [(frame.filename, frame.lineno or 0, frame.line or "") for frame in stack]


def version_of(tensor: Tensor) -> int:
    """Return how many times a tensor was changed in place."""
    return tensor._version


def hooks_of(tensor: Tensor) -> list[Callable[[Tensor], Any]]:
    """Return the hooks of a tensor that may change its gradient."""
    return [*(tensor._backward_hooks or {}).values()]
