"""`tp.compile`: torch.compile with what makes training on static graphs fast, and with errors that say what to do."""

from __future__ import annotations

import difflib
import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack._checks import shown, true_or_false, whole_number
from dgl_tuplepack.compiling import breaks, torch_private
from dgl_tuplepack.compiling.progress import waiting
from dgl_tuplepack.compiling.self_test import Verdict, verdict_on
from dgl_tuplepack.compiling.signatures import arguments_of, described, differences, is_number, signature_of
from dgl_tuplepack.errors import CompileError

_DEFAULT_SHAPES = 4


def compile(
    function: Callable[..., Any],
    *,
    dynamic: bool | None = False,
    fullgraph: bool = True,
    options: Mapping[str, Any] | None = None,
    shapes: int | None = None,
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
        a `PaddedBatch`, or is called with more sets of shapes, or numbers, than `shapes`.

    Warns
    -----
    UserWarning
        At first use a small network is compiled and compared with the uncompiled one. Where they differ, or the
        compiler lacks something, functions are compiled by torch alone, or not at all. The same holds for a function
        on which the compiler fails.

    Notes
    -----
    A Python number among the arguments is part of the compiled code, and another value compiles again: give a
    0-dimensional tensor instead.

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
    true_or_false("fullgraph", fullgraph, CompileError)
    if dynamic is not None:
        true_or_false("dynamic", dynamic, CompileError)
    _check_torch_arguments(torch_arguments)
    if torch_arguments.get("disable"):
        return function
    settings = {"dynamic": dynamic, "fullgraph": fullgraph, **torch_arguments}
    most = _DEFAULT_SHAPES if shapes is None else whole_number("shapes", shapes, 1, 10_000, CompileError)
    compiled = CompiledFunction(function, _checked_options(options, torch_arguments), settings, most, shapes is None)
    return CompiledModule(function, compiled) if isinstance(function, nn.Module) else compiled


def _check_torch_arguments(arguments: Mapping[str, Any]) -> None:
    known = [name for name in inspect.signature(torch.compile).parameters if name != "model"]
    for name in arguments:
        if name not in known:
            raise CompileError(
                f"torch.compile of torch {torch.__version__} has no argument {name!r}; choose from {', '.join(known)}."
            )
    mode = arguments.get("mode")
    if mode not in (None, "default"):
        stands_for = torch_private.options_of_mode(str(mode))
        hint = f"options={stands_for}" if stands_for else "options={...}"
        raise CompileError(
            f"mode={mode!r} cannot be combined with options, which compile() sets (torch refuses both); give {hint} "
            "instead."
        )


def _checked_options(options: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise CompileError(f"options must be a dict of names to values, but is {shown(options)}; give {{}}, say.")
    known = torch_private.known_options() if _is_inductor(arguments) else None
    for name in options:
        # Torch takes hyphens for underscores.
        if known is not None and str(name).replace("-", "_") not in known:
            close = difflib.get_close_matches(str(name), known, 3)
            hint = f"did you mean {' or '.join(close)}?" if close else "torch._inductor.list_options() lists them."
            raise CompileError(f"torch {torch.__version__} has no option {shown(name)} for its compiler; {hint}")
    return {str(name).replace("-", "_"): value for name, value in options.items()}


def _is_inductor(arguments: Mapping[str, Any]) -> bool:
    return arguments.get("backend") in (None, "inductor")


class CompiledFunction:
    """A function that is compiled when it is called for the first time, and for each new set of shapes."""

    def __init__(
        self, function: Callable[..., Any], options: dict[str, Any], settings: dict[str, Any], most: int, warns: bool
    ) -> None:
        if not isinstance(function, nn.Module):
            functools.update_wrapper(self, function)
        self._function, self._options, self._settings = function, options, settings
        self._most, self._warns = most, warns
        self._failed_with_ours = self._has_recurrent_layers = False
        self._name = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
        self._seen: dict[Any, dict[str, str]] = {}
        self._compiled: Callable[..., Any] | None = None
        # Threads that call it at the same time compile it once.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy compiles for itself."""
        return CompiledFunction, (self._function, self._options, self._settings, self._most, self._warns)

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
        if torch.compiler.is_compiling():
            # A larger compiled function traces this one.
            return self._function(*args, **kwargs)
        signature = signature_of((args, kwargs))
        if signature not in self._seen:
            with self._lock:
                if signature not in self._seen:
                    return self._first_call(signature, args, kwargs)
        return self._run(args, kwargs)

    def _first_call(self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call it with arguments of new shapes."""
        leaves = arguments_of(self._function, args, kwargs)
        self._check(leaves)
        if self._compiled is None:
            self._compile(_device_of(leaves.values()))
        if self._settings["dynamic"] is False:
            self._check_number(leaves)
        with waiting(f"compiling {self._name} (15 to 40 s; 2 to 4 s from torch's cache on disk)"):
            result = self._run(args, kwargs)
        self._seen[signature] = {path: described(value) for path, value in leaves.items()}
        return result

    def _compile(self, device: str) -> None:
        """Choose how to compile, and let torch do so at the next call."""
        verdict = Verdict({}, "")
        if _is_inductor(self._settings):
            with waiting("testing torch's compiler, once"):
                verdict = verdict_on(device)
        self._compiled = self._by_torch(verdict.options)

    def _by_torch(self, ours: Mapping[str, Any] | None) -> Callable[..., Any]:
        if ours is None:
            return self._function
        own_limit = {"isolate_recompiles": True, "recompile_limit": max(8, 4 * self._most)}
        settings = {**torch_private.supported_arguments(own_limit), **self._settings}
        compiled: Callable[..., Any] = torch.compile(
            self._function, options={**ours, **self._options} or None, **settings
        )
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
            fails = torch_private.is_compiler_failure(error) and _is_inductor(self._settings)
            if fails and compiled is not self._function:
                with self._lock:
                    # Another thread may have fallen back meanwhile.
                    if self._compiled is compiled:
                        self._fall_back(error)
                return self._run(args, kwargs)
            self._explain(error, args, kwargs)
            raise

    def _fall_back(self, error: Exception) -> None:
        """Compile without our options, or if that has failed, not at all."""
        plain, self._failed_with_ours = self._failed_with_ours, True
        ways = "stays uncompiled" if plain else "is compiled without the options of tp.compile"
        reason = torch_private.reason_of(error)
        warnings.warn(f"{self._name} {ways}, since torch's compiler fails ({reason}).", stacklevel=5)
        self._compiled = self._by_torch(None if plain else {})

    def _explain(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise a clearer error in place of one of torch's tracer; return if it is another one."""
        if torch_private.is_recompile_limit(error):
            raise CompileError(
                f"{self._name} has been compiled too often, for what differs between its calls "
                f"({torch_private.reason_of(error)}); keep modes, attributes and global variables that "
                "it reads as they are, or make numbers tensors."
            ) from error
        if torch_private.is_error_of_function(error) and not breaks.is_of_compiled_code(error):
            # The function's own error, which it raises uncompiled, is clearer than what the tracer makes of it.
            try:
                self._function(*args, **kwargs)
            except Exception as own:
                raise own from None
        if torch_private.is_graph_break(error) or torch_private.is_error_of_function(error):
            raise CompileError(breaks.explanation(self._name, error)) from error

    def _check(self, leaves: Mapping[str, Any]) -> None:
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

    def _check_number(self, leaves: Mapping[str, Any]) -> None:
        """Warn or raise where the function has been compiled for other shapes."""
        if not self._seen:
            return
        now = {path: described(value) for path, value in leaves.items()}
        changed = min((differences(before, now) for before in self._seen.values()), key=len)
        if not changed:
            return
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


class CompiledModule(nn.Module):
    """A module whose forward pass is compiled; attributes, parameters and modes are those of the module it holds."""

    def __init__(self, module: nn.Module, compiled: CompiledFunction) -> None:
        super().__init__()
        self._call_compiled = compiled
        self.training = module.training
        # From here on, other attributes are set on this one.
        self._orig_mod = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled module."""
        return self._call_compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Find attributes of the module that is compiled."""
        held = self.__dict__.get("_modules", {})
        if name == "_orig_mod" or "_orig_mod" not in held:
            return super().__getattr__(name)
        return getattr(held["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set attributes on the module that is compiled, which reads them."""
        if name in self.__dict__ or name == "_orig_mod" or "_orig_mod" not in self.__dict__.get("_modules", {}):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __repr__(self) -> str:
        return f"<compiled {self._orig_mod!r}>"


def _device_of(values: Any) -> str:
    """The kind of device of the first tensor of floats, or of any tensor; the CPU if there is none."""
    tensors = [each for each in values if isinstance(each, Tensor)]
    chosen = next((each for each in tensors if each.is_floating_point()), tensors[0] if tensors else None)
    return "cpu" if chosen is None else chosen.device.type
