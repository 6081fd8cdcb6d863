"""`tp.compile`: torch.compile with what makes training on static graphs fast, and with errors that say what to do."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from dgl_tuplepack._checks import shown, true_or_false, whole_number
from dgl_tuplepack.compiling import breaks, torch_private
from dgl_tuplepack.compiling.check import Checked, Draws, check_call
from dgl_tuplepack.compiling.module import CompiledModule
from dgl_tuplepack.compiling.progress import waiting
from dgl_tuplepack.compiling.reference import is_running
from dgl_tuplepack.compiling.settings import check_torch_arguments, checked_options, is_inductor
from dgl_tuplepack.compiling.signatures import (
    arguments_of,
    described,
    device_of,
    differences,
    is_number,
    signature_of,
)
from dgl_tuplepack.compiling.traces import counted, traces
from dgl_tuplepack.errors import CompileError

_DEFAULT_SHAPES = 4
# A comparison that shows nothing, as of a batch of padding alone, is made again with the next batch, this often.
_MOST_COMPARISONS = 4


def compile(
    function: Callable[..., Any],
    *,
    dynamic: bool | None = False,
    fullgraph: bool = True,
    options: Mapping[str, Any] | None = None,
    shapes: int | None = None,
    check: bool | str = True,
    **torch_arguments: Any,
) -> Any:
    """Compile a model, or a function that computes a loss, with `torch.compile` and what makes it fast on graphs.

    Masks of activations and of dropout are computed again in the backward pass instead of being kept as bools, which is
    slow on the CPU; random numbers of dropout are drawn many at a time; generated kernels run in one thread, while
    matrix products keep all of them. Results and gradients equal those of uncompiled code to rounding (random numbers
    are others for the same seed). Call ``backward()`` and the optimiser outside::

        step = tp.compile(loss_of)
        loss = step(batch.tensors, sampler.count_tensor)
        loss.backward()

    The first call takes 15 to 40 seconds for a network of five layers, a progress bar shows that on a terminal; in a
    later process 2 to 4, as torch keeps compiled code on disk. It pays after (seconds of compiling) / (seconds that a
    step takes uncompiled - seconds that it takes compiled) steps.

    Parameters
    ----------
    function
        A module, or a function of tensors; containers of tensors, such as ``batch.tensors``, may be arguments.
    dynamic
        As in torch. False: compiled for static shapes, those of the first call. True or None: shapes may change, which
        are slower.
    fullgraph
        As in torch: whether an operation that cannot be compiled is an error (True), or runs uncompiled.
    options
        As in torch; they are merged with ours, and these win. On CUDA, ``{"triton.cudagraphs": True}`` records CUDA
        graphs (not tested by this package). ``{"cpp.threads": -1}`` gives all threads to generated kernels.
    check
        Whether the first call for each signature, mode and number of threads is also run uncompiled, and outputs,
        written buffers and gradients are compared. True: a difference that rounding does not explain is an error.
        "warn": it is a warning, and the function stays uncompiled. False: nothing is compared.
    shapes
        For how many sets of shapes the function is compiled with static shapes, such as two for batches of two
        samplers; other modes (training, gradients) do not count. One more is an error, since each takes as long as the
        first. None: 4, and a warning at the second.
    **torch_arguments
        Other arguments of `torch.compile`. `mode` is another way to set options, and refused: give options.

    Returns
    -------
    Callable
        For a module, a module that holds it as ``_orig_mod``, as torch's does; else a function.

    Raises
    ------
    CompileError
        The arguments do not fit together. In a call: the function cannot be compiled in one graph, takes a DGLGraph or
        a `PaddedBatch`, is called with more sets of shapes, or numbers, than `shapes`, differs from uncompiled code, or
        writes to tensors other than buffers.

    Warns
    -----
    UserWarning
        The compiler fails, and the function stays uncompiled. Or the function cannot be compared with uncompiled code.

    Notes
    -----
    A Python number among the arguments is part of the compiled code, and another value compiles again: give a
    0-dimensional tensor instead.

    The comparison costs up to two uncompiled calls (in the precision of the model and in float64) and one compiled call
    more. It reads copies of all tensors, restores buffers, attributes of modules and random states, and leaves
    ``.grad`` alone. Allowed are 10 times the distance of uncompiled float32 from float64, for each tensor relative to
    its own norm, or to 1/1000 of the largest one. Dropout has the same masks in both. With several processes, each of
    them compares in the same call.

    Examples
    --------
    >>> @compile
    ... def loss_of(x, target):
    ...     return (x - target).square().mean()
    >>> loss_of
    <compiled loss_of>
    """
    if not callable(function) or isinstance(function, type):
        raise CompileError(f"compile() takes a module or a function, but got {shown(function)}; give a model, say.")
    if isinstance(function, CompiledFunction | CompiledModule):
        raise CompileError(f"{shown(function, 60)} is compiled already; compile the function or the model itself.")
    if inspect.isgeneratorfunction(function):
        raise CompileError(
            f"{function.__name__} is a generator, which cannot be compiled; return the values, and let a function that "
            "is not compiled yield them."
        )
    true_or_false("fullgraph", fullgraph, CompileError)
    if dynamic is not None:
        true_or_false("dynamic", dynamic, CompileError)
    if check != "warn":
        true_or_false("check", check, CompileError)
    check_torch_arguments(torch_arguments)
    if torch_arguments.get("disable"):
        return function
    settings = {"dynamic": dynamic, "fullgraph": fullgraph, **torch_arguments}
    most = _DEFAULT_SHAPES if shapes is None else whole_number("shapes", shapes, 1, 10_000, CompileError)
    ours = checked_options(options, torch_arguments)
    compiled = CompiledFunction(function, ours, settings, most, shapes is None, check)
    return CompiledModule(function, compiled) if isinstance(function, nn.Module) else compiled


class CompiledFunction:
    """A function that is compiled when it is called for the first time, and for each new set of shapes."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: dict[str, Any],
        settings: dict[str, Any],
        most: int,
        warns: bool,
        check: bool | str,
    ) -> None:
        if not isinstance(function, nn.Module):
            functools.update_wrapper(self, function)
        self._arguments = function, options, settings, most, warns, check
        self._function, self._options, self._settings = function, options, settings
        self._most, self._warns, self._check = most, warns, check
        self._has_recurrent_layers = self._has_failed = False
        # Whether each has been shown.
        self._warnings: dict[str, bool] = {}
        self._inductor_options: dict[str, Any] = {}
        self._name = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
        self._seen: list[dict[str, str]] = []
        self._signatures: set[Any] = set()
        # Comparisons that may still be needed to show that the code that was compiled last is right.
        self._comparisons = _MOST_COMPARISONS if check else 0
        self._compiled: Callable[..., Any] | None = None
        # Threads that call it at the same time compile it once.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy compiles for itself."""
        return CompiledFunction, self._arguments

    def __repr__(self) -> str:
        return f"<compiled {self._name}>"

    @property
    def is_compiled(self) -> bool:
        """Whether calls run compiled code: not before the first one, nor where torch's compiler has failed."""
        return self._compiled is not None and self._compiled is not self._function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind to an instance, where a method is compiled by a decorator."""
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        if torch.compiler.is_compiling() or is_running():
            # A larger compiled function traces this one, or a comparison runs it uncompiled.
            return self._function(*args, **kwargs)
        signature = signature_of((args, kwargs))
        if signature not in self._signatures:
            self._prepare(signature, args, kwargs)
        elif self._comparisons:
            self._compare_once(args, kwargs)
        before = traces.number
        result = self._run(args, kwargs)
        if traces.number != before and self._check:
            # Torch has compiled again: for another mode, number of threads, attribute, model ...
            self._comparisons = _MOST_COMPARISONS
            self._compare_once(args, kwargs)
        for text in [text for text, is_shown in self._warnings.items() if not is_shown]:
            self._warnings[text] = True
            warnings.warn(text, stacklevel=2)
        return result

    def _prepare(self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compile for a new signature, and compare with the uncompiled function before anything is written."""
        with self._lock:
            leaves = arguments_of(self._function, args, kwargs)
            self._check_arguments(leaves)
            if self._compiled is None:
                self._device = device_of(leaves.values())
                self._compiled = self._by_torch(self._device)
            shapes = {path: described(value) for path, value in leaves.items()}
            if shapes not in self._seen:
                if self._settings["dynamic"] is False:
                    self._check_number(leaves, shapes)
                    self._comparisons = _MOST_COMPARISONS if self._check else 0
                self._seen.append(shapes)
            with waiting(f"compiling {self._name} (15 to 40 s; 2 to 4 s from torch's cache on disk)"):
                self._compare_once(args, kwargs)
            self._signatures.add(signature)

    def _compare_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compare, unless another thread has shown meanwhile that the code is right."""
        with self._lock:
            if not self._comparisons or not self.is_compiled:
                return
            found = self._compare(args, kwargs)
            self._comparisons = 0 if found.is_conclusive else self._comparisons - 1
            if found.skipped and self.is_compiled:
                self._warnings.setdefault(
                    f"{self._name} is not compared with uncompiled code ({found.skipped}); compare some losses "
                    "yourself. check=False hides this warning.",
                    False,
                )
            if found.not_finite:
                self._warnings.setdefault(
                    f"the result of {self._name} is finite, but the gradient of {found.not_finite} is not, also "
                    "uncompiled; for missing labels use tp.nn.masked_loss, for distances of padding coordinates=.",
                    False,
                )

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checked:
        """Compare a call with the uncompiled function; CompileError if it differs, or cannot be repeated."""
        leaves = arguments_of(self._function, args, kwargs)
        try:
            found = check_call(self._function, lambda *a, **k: self._run(a, k), args, kwargs, leaves, self._draws())
        except Exception as error:
            # Code for gradients is generated in the backward pass.
            if not torch_private.is_compiler_failure(error):
                raise
            self._compiled = self._after_failure(error)
            return self._compare(args, kwargs) if self.is_compiled else Checked()
        if found.writes:
            raise CompileError(
                f"{self._name} writes to {found.writes}, so it cannot be called twice to compare compiled with "
                "uncompiled results; return a new tensor, make it a buffer of a module, or give check=False."
            )
        if found.difference:
            self._report(found.difference)
        return found

    def _draws(self) -> Draws:
        """Return how compiled code draws random numbers."""
        if self._settings.get("backend") in ("eager", "aot_eager") or self._inductor_options.get("fallback_random"):
            return Draws.AS_UNCOMPILED
        return Draws.UNIFORM if torch_private.PASS_OPTION in self._inductor_options else Draws.OTHERWISE

    def _report(self, difference: str) -> None:
        """Raise, or warn and stay uncompiled, if compiled and uncompiled results differ."""
        text = f"torch {torch.__version__} compiles {self._name} wrongly: {difference}"
        if self._check != "warn":
            raise CompileError(
                f"{text}; call the function itself, as check='warn' does, try another version of torch, or simplify "
                "the function until both agree."
            )
        warnings.warn(f"{text}; it stays uncompiled.", stacklevel=6)
        self._compiled = self._function

    def _by_torch(self, device: str) -> Callable[..., Any]:
        """Return the function with torch's compiler behind it, which works at the first call."""
        ours: Mapping[str, Any] = {}
        if is_inductor(self._settings):
            if (problem := torch_private.problem_at_start()) is not None:
                return self._uncompiled(problem)
            ours = torch_private.our_options(device)
        self._inductor_options = {**ours, **self._options}
        own_limit = {"isolate_recompiles": True, "recompile_limit": max(8, 4 * self._most)}
        settings = {**torch_private.supported_arguments(own_limit), **self._settings}
        # Else functions that are compiled would share what torch keeps of a counted one.
        function = counted(self._function) if "isolate_recompiles" in settings else self._function
        compiled: Callable[..., Any] = torch.compile(function, options=self._inductor_options or None, **settings)
        return compiled

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        compiled = self._compiled
        assert compiled is not None
        try:
            with torch_private.recurrent_layers_traced(self._has_recurrent_layers):
                return compiled(*args, **kwargs)
        except Exception as error:
            if torch_private.is_about_recurrent_layers(error) and not self._has_recurrent_layers:
                self._has_recurrent_layers = True
                return self._run(args, kwargs)
            fails = torch_private.is_compiler_failure(error) and is_inductor(self._settings)
            if fails and compiled is not self._function:
                with self._lock:
                    # Another thread may have reacted meanwhile.
                    if self._compiled is compiled:
                        self._compiled = self._after_failure(error)
                return self._run(args, kwargs)
            self._explain(error, args, kwargs)
            raise

    def _after_failure(self, error: Exception) -> Callable[..., Any]:
        """Compile once more where no damaged file can be the cause, or leave the function uncompiled."""
        if not self._has_failed and torch_private.use_another_cache():
            self._has_failed = True
            return self._by_torch(self._device)
        return self._uncompiled(f"torch's compiler fails ({breaks.with_remedy(torch_private.reason_of(error))})")

    def _uncompiled(self, problem: str) -> Callable[..., Any]:
        warnings.warn(f"tp.compile leaves {self._name} uncompiled, which is slower: {problem}.", stacklevel=5)
        return self._function

    def _explain(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise a clearer error in place of one of torch's tracer; return if it is another one."""
        if torch_private.is_recompile_limit(error):
            raise CompileError(
                f"{self._name} has been compiled too often, for what differs between its calls "
                f"({torch_private.reason_of(error)}); keep modes, attributes and global variables that "
                "it reads as they are, or make numbers tensors."
            ) from error
        if torch_private.is_error_of_function(error):
            # The function's own error, which it raises uncompiled, is clearer than what the tracer makes of it.
            try:
                self._function(*args, **kwargs)
            except Exception as own:
                raise own from None
        if torch_private.is_graph_break(error) or torch_private.is_error_of_function(error):
            raise CompileError(breaks.explanation(self._name, error)) from error

    def _check_arguments(self, leaves: Mapping[str, Any]) -> None:
        """Refuse graphs where tensors are needed."""
        for path, value in leaves.items():
            kind = type(value)
            if any(each.__module__.partition(".")[0] == "dgl" for each in kind.__mro__) and hasattr(value, "num_nodes"):
                raise CompileError(
                    f"{path} of {self._name} is a {kind.__name__}, which cannot be compiled; give batch.tensors, "
                    f"whose .graph takes its place in the layers of DGL (or tp.TensorGraph from its endpoints)."
                )
            if hasattr(kind, "row_masks") and hasattr(kind, "tensors"):
                raise CompileError(
                    f"{path} of {self._name} is a {kind.__name__}, whose counts differ between batches, so that each "
                    f"would be compiled again; give {path}.tensors, which holds tensors alone and a .graph of them."
                )

    def _check_number(self, leaves: Mapping[str, Any], now: Mapping[str, str]) -> None:
        """Warn or raise if the function has been compiled for other shapes."""
        if not self._seen:
            return
        changed = min((differences(before, now) for before in self._seen), key=len)
        text = ", ".join(f"{path} is {new} (expected {old})" for path, old, new in changed[:4])
        text += f", and {len(changed) - 4} others" if len(changed) > 4 else ""
        if all(is_number(leaves.get(path)) for path, *_ in changed):
            remedy = "a Python number is part of compiled code: give a 0-dimensional tensor, torch.tensor(value)"
        else:
            remedy = (
                "give batches of one shape, as PaddedCollate and GraphStore.padded do, or allow several with shapes=, "
                "or changing ones with dynamic=True"
            )
        if len(self._seen) >= self._most:
            raise CompileError(
                f"{self._name} is compiled for {self._most} shapes at most (shapes={self._most}), and this call needs "
                f"another one: {text}; {remedy}."
            )
        if self._warns and len(self._seen) == 1:
            warnings.warn(f"{self._name} is compiled again, since {text}; {remedy}.", stacklevel=4)
