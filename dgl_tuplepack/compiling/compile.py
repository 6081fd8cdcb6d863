"""`tp.compile`: torch.compile with settings for fast training on batches of static shape; its errors name a remedy.

How data flows: `compile` returns a `CompiledFunction` or a `CompiledModule`. A call whose signature (`signatures.py`:
shapes, Python numbers, modes) differs from those of all earlier calls is compiled, with the options of
`torch_private.py`. Then `check.py` runs the same call on copies of all tensors that the function reads
(`reference.py`), uncompiled and compiled, and compares outputs, gradients and buffers; the tolerances are there too.
Other calls go straight to the compiled function. If the compiler fails, `CompiledFunction._run` tries again with
another cache, and then leaves the function uncompiled, with a warning; if the tracer cannot follow, `explanation.py`
makes the error. DGL code sees a `TensorGraph` (`tensor_graph/graph.py`), whose operations are plain operations on
tensors.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack._core.checks import shown, true_or_false, whole_number
from dgl_tuplepack._core.optional import registered
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.compiling.check import Checked, check_call
from dgl_tuplepack.compiling.explanation import explanation
from dgl_tuplepack.compiling.reference import is_running
from dgl_tuplepack.compiling.signatures import (
    arguments_of,
    described,
    device_of,
    differences,
    is_number,
    signature_of,
    tensors_of,
)
from dgl_tuplepack.compiling.torch_versions import OLDEST, bug_of, release_of, remark_on
from dgl_tuplepack.errors import CompileError
from dgl_tuplepack.graphs.named import is_graph

# If a comparison is inconclusive, for example for a batch of padding only, the next call is compared too, up to this
# many calls in total.
MAX_COMPARISONS = 4
_DEFAULT_SHAPES = 4
ROWS_OF_VALUES = (
    "the number of rows of a tensor depends on values: give the number of graphs to PyG's pools (size=), aggregations "
    "(dim_size=) and norms (batch_size=data.num_graphs), and set add_self_loops=False in layers that add self-loops, "
    "which belong to the dataset"
)


def compile(
    function: Callable[..., Any],
    loader: Any = None,
    *,
    dynamic: bool | None = False,
    fullgraph: bool | None = None,
    options: Mapping[str, Any] | None = None,
    shapes: int | None = None,
    check: bool | str = True,
    rows: Mapping[str, str | None] | None = None,
    coordinates: Iterable[str] = (),
    **torch_arguments: Any,
) -> Any:
    """Compile a model that takes ordinary batches, or a function of padded batches, with `torch.compile`.

    With `loader`, the result is a model that pads each batch inside, runs compiled, and returns the results of real
    rows, so a training loop stays as it is::

        loader = tp.packed_loader(dataset, batch_size=64)
        model = tp.compile(model, loader)

    Without it, the function gets padded batches. Results and gradients equal those of uncompiled code up to rounding,
    but with the same seed, compiled code draws other random numbers. Call ``backward()`` and the optimiser outside of
    the compiled function. In this example, ``loss_of(tensors, count)`` is your function, and `sampler` the
    `PackBatchSampler` of the batches::

        step = tp.compile(loss_of)
        loss = step(batch.tensors, sampler.count_tensor)
        loss.backward()

    The first call takes 15 to 40 seconds for a network of five layers, and 2 to 4 seconds in later processes, since
    torch keeps compiled code on disk.

    Parameters
    ----------
    function
        A module, or a function of tensors. Its arguments may also be containers of tensors, such as ``batch.tensors``.
        With `loader`, a module, whose arguments have DGLGraphs or PyG batches, or tensors named as in PyG.
    loader
        What has the static shapes of a model: a loader from `packed_loader` without padding, a `StaticBatchSampler`,
        the `Limits` of all slots (``loader.shape``), or a list of these. Batches of such loaders carry their own shape.
    dynamic
        As in torch. False: compile separately for each set of static shapes. True or None: shapes may change, which
        is slower.
    fullgraph
        As in torch: whether an operation that cannot be compiled is an error (True), or runs uncompiled (False). None:
        True; with `loader`, such an operation runs uncompiled, with a warning that names its line.
    options
        As in torch; they override the options that this function sets, such as ``"cpp.threads"``, which is 1 (-1: all
        threads). On CUDA, ``{"triton.cudagraphs": True}`` records CUDA graphs (not tested).
    check
        Whether to compare outputs, written buffers and gradients with those of the uncompiled function, in the first
        call for each set of shapes, each mode (training, gradients) and each number of threads. True: a difference that
        rounding does not explain is an error. "warn": it is a warning, and the function stays uncompiled. False:
        compare nothing.
    shapes
        Maximum number of sets of static shapes to compile for, such as 2 for batches of two samplers. The same shapes
        in another mode (training, gradients) are not counted again. A set beyond the maximum is an error, since each
        set takes as long to compile as the first. None: at most 4 sets, with a warning when the second is compiled.
    rows
        With `loader`: a dict from names of arguments (tensors outside of graphs) to the component that they have a row
        for each of: ``nodes``, ``edges``, ``graphs``, ``nodes:TYPE`` or ``edges:SRC:TYPE:DST``; None: no such rows.
    coordinates
        With `loader`: names of node features that are positions, besides those that have ``pos``, ``coord``, ``xyz`` or
        ``R`` as a part. Nodes of padding get positions of their own, as far apart along edges as real ones.
    **torch_arguments
        Other arguments of `torch.compile`. A `mode` other than "default" is refused, since it only sets options: give
        `options` instead.

    Returns
    -------
    Callable
        With `loader`, a model of the same class, which shares parameters, buffers and all attributes with the given
        model. For another module, a module that holds the given one as ``_orig_mod``, as in torch. For a function, a
        function.

    Raises
    ------
    CompileError
        An argument is invalid. In a call: the function cannot be compiled as a whole; it gets a DGLGraph or a
        `PaddedBatch`; it needs too many sets of shapes; compiled code gives other results than uncompiled code; with
        `loader`, padding changes a result; or the function writes to tensors other than buffers.

    Warns
    -----
    UserWarning
        The compiler fails, and the function stays uncompiled; results cannot be compared; or a gradient is not finite,
        although all outputs are finite. See also `check` and `shapes`.

    Notes
    -----
    A Python number among the arguments is part of the compiled code, and another value causes a recompilation: give a
    0-dimensional tensor instead.

    The comparison costs one extra compiled call and up to two extra uncompiled calls, in the precision of the model and
    in float64; if a difference is large, or if there are several processes, six more. They read copies of all tensors,
    so buffers, random states and ``.grad`` end up as after a single call. For each tensor, the tolerance is 10 times
    the distance between the uncompiled results in these two precisions, plus a small fraction of the tensor's norm.

    Examples
    --------
    >>> import torch, dgl_tuplepack as tp
    >>> tp.compile(torch.nn.Linear(3, 2))
    <compiled Linear(in_features=3, out_features=2, bias=True)>
    """
    if not callable(function) or isinstance(function, type):
        raise CompileError(f"compile() needs a module or a function, but got {shown(function)}; give one of them.")
    if isinstance(function, CompiledFunction | CompiledModule):
        raise CompileError(f"{shown(function, 60)} is compiled already; compile the function or the model itself.")
    if fullgraph is not None:
        true_or_false("fullgraph", fullgraph, CompileError)
    if dynamic is not None:
        true_or_false("dynamic", dynamic, CompileError)
    if check != "warn":
        true_or_false("check", check, CompileError)
    _check_torch_arguments(torch_arguments)
    if torch_arguments.get("disable"):
        return function
    if release_of(torch.__version__) < OLDEST:
        raise CompileError(
            f"torch {torch.__version__} is {remark_on(torch.__version__)}; install it, or call the function itself."
        )
    settings = {"dynamic": dynamic, "fullgraph": fullgraph, **torch_arguments}
    if loader is None and fullgraph is None:
        settings["fullgraph"] = True
    if loader is not None:
        if shapes is not None or dynamic is not False:
            raise CompileError(
                "shapes and dynamic do not apply to compile(model, loader), whose shapes the loader has."
            )
        compile_model = registered("compile_model")
        options = _checked_options(options, torch_arguments)
        return compile_model(function, loader, options, settings, check, rows, coordinates)
    if rows is not None or coordinates:
        raise CompileError(
            "rows and coordinates are for compile(model, loader), but no loader is given; give one, or leave them out."
        )
    max_shapes = _DEFAULT_SHAPES if shapes is None else whole_number("shapes", shapes, 1, 10_000, CompileError)
    options = _checked_options(options, torch_arguments)
    compiled = CompiledFunction(function, options, settings, max_shapes, shapes is None, check)
    return CompiledModule(function, compiled) if isinstance(function, nn.Module) else compiled


def _check_torch_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that ``torch.compile`` lacks, and ``mode``, which torch does not combine with options."""
    known = [name for name in inspect.signature(torch.compile).parameters if name != "model"]
    for name in arguments:
        if name not in known:
            raise CompileError(
                f"torch.compile of torch {torch.__version__} has no argument {name!r}; choose from {', '.join(known)}."
            )
    mode = arguments.get("mode")
    if mode not in (None, "default"):
        raise CompileError(
            f"mode={mode!r} cannot be combined with options, which compile() sets (torch accepts only one of them); "
            f"give the options of the mode, which torch._inductor.list_mode_options({mode!r}) lists."
        )


def _checked_options(options: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's options under the names that torch uses; refuse unknown options."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise CompileError(f"options must be a dict of names to values, but is {shown(options)}; give one.")
    # None if torch cannot list its options, or the backend is not torch's own compiler.
    known = torch_private.known_options() if torch_private.is_inductor(arguments) else None
    for name in options:
        # Torch accepts hyphens in place of underscores.
        if known is not None and str(name).replace("-", "_") not in known:
            close = difflib.get_close_matches(str(name), known, 3)
            hint = f"did you mean {' or '.join(close)}?" if close else "torch._inductor.list_options() lists them."
            raise CompileError(f"torch {torch.__version__} has no option {shown(name)} for its compiler; {hint}")
    return {str(name).replace("-", "_"): value for name, value in options.items()}


class CompiledFunction:
    """A function that is compiled when it is called for the first time, and for each new set of shapes."""

    _without_check, _of_earlier_calls = ", or give check=False", ""

    def __init__(
        self,
        function: Callable[..., Any],
        options: dict[str, Any],
        settings: dict[str, Any],
        max_shapes: int,
        warns_of_new_shapes: bool,
        check: bool | str,
    ) -> None:
        if not isinstance(function, nn.Module):
            functools.update_wrapper(self, function)
        # Copies and pickles keep only these arguments, so that a copy is compiled separately.
        self._arguments = function, options, settings, max_shapes, warns_of_new_shapes, check
        # `options` and `settings` are passed on to torch.compile.
        self._function, self._options, self._settings = function, options, settings
        # What torch compiles: a subclass may pad the arguments before, and cut the results afterwards.
        self._traced = function
        self._max_shapes, self._warns_of_new_shapes, self._check = max_shapes, warns_of_new_shapes, check
        self._has_changed_cache = False
        # Settings of torch's tracer that the function turned out to need.
        self._permissions: list[str] = []
        self._recompile_limit: int | None = None
        # Warnings, each of which is shown once, at the end of a call.
        self._warnings: dict[str, bool] = {}
        self._inductor_options: dict[str, Any] = {}
        self._name = getattr(function, "__qualname__", type(function).__name__).rpartition("<locals>.")[2]
        # For each set of shapes that the function was compiled for: path in the arguments -> description of the value.
        self._compiled_shapes: list[dict[str, str]] = []
        # Signatures of the calls that `_prepare` has checked.
        self._signatures: set[Any] = set()
        # How many more calls may be compared to check the latest compiled code.
        self._comparisons_left = MAX_COMPARISONS if check else 0
        # None before the first call; `self._function` if the function stays uncompiled.
        self._compiled: Callable[..., Any] | None = None
        # Threads that call the function at the same time compile it only once.
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return CompiledFunction, self._arguments

    def __repr__(self) -> str:
        return f"<compiled {self._name}>"

    @property
    def is_compiled(self) -> bool:
        """Whether calls run compiled code."""
        return self._compiled is not None and self._compiled is not self._function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind to an instance, so that `compile` can decorate methods."""
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function."""
        if torch.compiler.is_compiling() or is_running():
            # Another compiled function calls this function, and is traced, or runs uncompiled for its own comparison.
            return self._function(*args, **kwargs)
        signature = signature_of((args, kwargs))
        if signature not in self._signatures:
            self._prepare(signature, args, kwargs)
        elif self._comparisons_left:
            self._compare_if_unchecked(args, kwargs)
        graphs_before = torch_private.number_of_graphs()
        result = self._run(*args, **kwargs)
        if torch_private.number_of_graphs() != graphs_before and self._check:
            # Torch has recompiled, for example because an attribute or the number of threads has changed.
            self._comparisons_left = MAX_COMPARISONS
            self._compare_if_unchecked(args, kwargs)
        self._show_warnings()
        self._refuse_second_derivatives(result)
        return result

    def _refuse_second_derivatives(self, result: Any) -> None:
        """Let gradients of results with ``create_graph=True`` raise CompileError; torch would raise a later error."""
        if not torch.is_grad_enabled() or not self.is_compiled or self._settings.get("backend") == "eager":
            return

        def refuse(gradient: Tensor) -> None:
            # The backward pass records operations only with ``create_graph=True``.
            if torch.is_grad_enabled():
                raise CompileError(
                    f"a gradient of what {self._name} returns is computed with create_graph=True, which torch cannot "
                    "do for compiled code; call torch.autograd.grad inside of the compiled forward pass, and return "
                    "the gradient too, or call the uncompiled function."
                )

        for each in tensors_of(result, "").values():
            if each.grad_fn is not None:
                each.register_hook(refuse)  # type: ignore[no-untyped-call]

    def _show_warnings(self, stacklevel: int = 3) -> None:
        for text in [text for text, is_shown in self._warnings.items() if not is_shown]:
            self._warnings[text] = True
            warnings.warn(text, stacklevel=stacklevel)

    def _warn(self, text: str) -> None:
        self._warnings.setdefault(text, False)

    def _prepare(self, signature: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Check the arguments of a call with a new signature; compile, and compare before the caller's own call."""
        with self._lock:
            leaves = arguments_of(self._function, args, kwargs)
            self._refuse_graphs(leaves)
            if self._compiled is None:
                self._compiled = self._wrapped_by_torch(device_of(leaves.values()))
            shapes = {path: described(value) for path, value in leaves.items()}
            # Calls with different signatures can have equal descriptions.
            if shapes not in self._compiled_shapes:
                if self._settings["dynamic"] is False:
                    self._check_new_shapes(leaves, shapes)
                    self._comparisons_left = MAX_COMPARISONS if self._check else 0
                self._compiled_shapes.append(shapes)
            with notice(f"compiling {self._name} (15 to 40 s; 2 to 4 s from torch's cache on disk)"):
                self._compare_if_unchecked(args, kwargs)
            self._signatures.add(signature)

    def _compare_if_unchecked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compare a call with the uncompiled function, unless no comparison is left or the function is uncompiled."""
        with self._lock:
            # Another thread may have made the last comparison.
            if not self._comparisons_left or not self.is_compiled:
                return
            found = self._compare(args, kwargs)
            self._comparisons_left = 0 if found.is_conclusive else self._comparisons_left - 1
            if found.skipped and self.is_compiled:
                self._warn(
                    f"{self._name} is not compared with uncompiled code ({found.skipped}); compare some losses "
                    "yourself. check=False hides this warning."
                )
            if found.not_finite:
                self._warn(
                    f"the result of {self._name} is finite, but the gradient of {found.not_finite} is not, even "
                    "uncompiled; use tp.nn.masked_loss for missing labels. Distances in padding are 0 unless the "
                    "loader has coordinates=, and empty graph slots have no nodes to divide by (use clamp(min=1)), and "
                    "values of graphs that are 0 without label_fill=."
                )

    def _compared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checked:
        """Compare a call, and return what was found."""
        leaves, options = arguments_of(self._function, args, kwargs), self._inductor_options
        same_draws = self._settings.get("backend") in ("eager", "aot_eager") or bool(options.get("fallback_random"))
        # The compiler pass of this package makes dropout draw uniform numbers.
        uniform_dropout = not same_draws and torch_private.PASS_OPTION in options
        try:
            return self._checked(args, kwargs, leaves, same_draws, uniform_dropout)
        except Exception as error:
            # `_run` handles failures of torch's compiler in the forward pass. But torch generates the code of the
            # backward pass only when `check_call` computes gradients.
            if not torch_private.is_one_of(error, torch_private.FAILURE):
                raise
            self._compiled = self._after_failure(error)
            return self._compared(args, kwargs) if self.is_compiled else Checked()

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checked:
        """Compare a call; raise CompileError, or warn, if results differ."""
        found = self._compared(args, kwargs)
        if found.writes:
            raise CompileError(
                f"{self._name} writes to {found.writes}, so it cannot be called twice to compare compiled with "
                "uncompiled results; return a new tensor, make the tensor a buffer of a module, or, if an "
                "embedding has max_norm=, leave that out"
                f"{self._without_check}."
            )
        if found.with_padding:
            text = f"{self._name} gives other results with padding: {found.with_padding}"
            if self._check != "warn":
                raise CompileError(f"{text}; {self._remedy_of_padding(found.with_padding)}")
            self._warn(f"{text}; it runs without padding, uncompiled.{self._of_earlier_calls}")
            self._compiled = self._function
        elif found.difference:
            text = f"torch {torch.__version__} compiles {self._name} wrongly: {found.difference}"
            fuses = self._inductor_options.get(torch_private.FUSION_OPTION) != 1
            if fuses and (bug := bug_of(torch.__version__)):
                text += f" (known bug of this torch: {bug})"
            if self._check != "warn":
                raise CompileError(
                    f"{text}; call the function itself, as check='warn' does, try another version of torch, or "
                    "simplify the function until compiled and uncompiled results agree."
                )
            self._warn(f"{text}; it stays uncompiled.")
            self._compiled = self._function
        return found

    def _checked(
        self, args: Any, kwargs: Any, leaves: Mapping[str, Any], same_draws: bool, uniform_dropout: bool
    ) -> Checked:
        return check_call(self._function, self._run, args, kwargs, leaves, same_draws, uniform_dropout)

    def _remedy_of_padding(self, difference: str) -> str:
        return ""

    def _wrapped_by_torch(self, device: str) -> Callable[..., Any]:
        """Return the function wrapped by torch's compiler; return it uncompiled if the compiler cannot start."""
        self._device = device
        our_options: Mapping[str, Any] = {}
        if torch_private.is_inductor(self._settings):
            if (problem := torch_private.problem_at_start()) is not None:
                return self._uncompiled(problem)
            our_options = torch_private.our_options(device)
        self._inductor_options = {**our_options, **self._options}
        # With these settings, torch counts the recompilations of this function separately from other functions.
        own_limit = {"isolate_recompiles": True, "recompile_limit": max(8, 4 * self._max_shapes)}
        settings = {**torch_private.supported_arguments(own_limit), **self._settings}
        # Older releases of torch have no such argument: `_run` then sets the limit.
        self._recompile_limit = None if "recompile_limit" in settings else own_limit["recompile_limit"]
        function, options = _with_own_code(self._traced), self._inductor_options or None
        return torch.compile(function, options=options, **settings)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function; if torch's compiler fails, try again, at last with the uncompiled function."""
        compiled = self._compiled
        assert compiled is not None
        try:
            with torch_private.torch_settings(permissions=self._permissions, recompile_limit=self._recompile_limit):
                return compiled(*args, **kwargs)
        except Exception as error:
            permission = torch_private.permission_for(error)
            if permission and permission not in self._permissions:
                self._permissions.append(permission)
                return self._run(*args, **kwargs)
            fails = torch_private.is_one_of(error, torch_private.FAILURE) and compiled is not self._function
            if fails and torch_private.is_inductor(self._settings):
                with self._lock:
                    # Another thread may already have replaced the function that failed.
                    if self._compiled is compiled:
                        self._compiled = self._after_failure(error)
                return self._run(*args, **kwargs)
            self._raise_clearer_error(error, args, kwargs)
            raise

    def _after_failure(self, error: Exception) -> Callable[..., Any]:
        """Return the function to use after torch's compiler failed: with another cache, and then uncompiled."""
        if not self._has_changed_cache and torch_private.use_another_cache():
            self._has_changed_cache = True
            return self._wrapped_by_torch(self._device)
        reason = torch_private.reason_of(error)
        # Inductor writes these words if it cannot generate code for a size that depends on values.
        if "to have been codegen-ed" in reason:
            reason += f"; {ROWS_OF_VALUES}"
        return self._uncompiled(f"torch's compiler fails ({reason})")

    def _uncompiled(self, problem: str) -> Callable[..., Any]:
        """Warn about a `problem`, and return the uncompiled function."""
        self._warn(f"tp.compile leaves {self._name} uncompiled, which is slower: {problem}.")
        return self._function

    def _raise_clearer_error(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise a clearer error if the error is from torch's tracer; otherwise return."""
        if torch_private.is_one_of(error, torch_private.TOO_OFTEN):
            raise CompileError(
                f"{self._name} has been compiled too often, because its calls differ "
                f"({torch_private.reason_of(error)}); do not change the modes, attributes and "
                "global variables that the function reads, and pass numbers that change as 0-dimensional tensors."
            ) from error
        if torch_private.is_error_of_function(error):
            # The error of the uncompiled function is clearer than the tracer's error.
            try:
                self._function(*args, **kwargs)
            except Exception as own:
                raise own from None
        is_graph_break = torch_private.is_one_of(error, torch_private.GRAPH_BREAK)
        if is_graph_break or torch_private.is_error_of_function(error):
            raise CompileError(explanation(self._name, error)) from error

    def _refuse_graphs(self, leaves: Mapping[str, Any]) -> None:
        """Raise CompileError if a value in the arguments is a graph or a padded batch."""
        for path, value in leaves.items():
            cls = type(value)
            if is_graph(value):
                raise CompileError(
                    f"{path} of {self._name} is a {cls.__name__}, which cannot be compiled; pass batch.tensors, "
                    f"whose .graph takes the place of a {cls.__name__} in DGL layers, or make a tp.TensorGraph."
                )
            # The value is a `PaddedBatch`, a class that this room (subpackage) must not import.
            if hasattr(cls, "row_masks") and hasattr(cls, "tensors"):
                raise CompileError(
                    f"{path} of {self._name} is a {cls.__name__}, whose counts differ between batches, so torch would "
                    f"compile again for each batch; pass {path}.tensors, which holds only tensors and a .graph of them."
                )

    def _check_new_shapes(self, leaves: Mapping[str, Any], shapes: Mapping[str, str]) -> None:
        """Warn if the function has been compiled for other shapes; raise CompileError if it needs too many shapes."""
        if not self._compiled_shapes:
            return
        # Differences from the most similar earlier set of shapes.
        changed = min((differences(before, shapes) for before in self._compiled_shapes), key=len)
        text = ", ".join(f"{path} is {new} (expected {old})" for path, old, new in changed[:4])
        text += f", and {len(changed) - 4} more" if len(changed) > 4 else ""
        if all(is_number(leaves.get(path)) for path, *_ in changed):
            remedy = "a Python number is part of compiled code: give a 0-dimensional tensor, torch.tensor(value)"
        else:
            remedy = (
                "give batches of one shape, as PaddedCollate and GraphStore.padded do, or allow several shapes with "
                "shapes=, or changing shapes with dynamic=True"
            )
        if len(self._compiled_shapes) >= self._max_shapes:
            raise CompileError(
                f"{self._name} is compiled for {self._max_shapes} shapes at most (shapes={self._max_shapes}), and this "
                f"call needs another shape: {text}; {remedy}."
            )
        if self._warns_of_new_shapes and len(self._compiled_shapes) == 1:
            self._warn(f"{self._name} is compiled again, since {text}; {remedy}.")


class CompiledModule(nn.Module):
    """A module that calls another module in compiled form, and has the attributes, parameters and mode of the other."""

    def __init__(self, module: nn.Module, compiled: Callable[..., Any]) -> None:
        super().__init__()
        self._call_compiled = compiled
        self.training = module.training
        # After this line, `__setattr__` sets attributes on `module`.
        self._orig_mod = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled module."""
        return self._call_compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Look up attributes of the module that is compiled."""
        held = self.__dict__.get("_modules", {})
        if name == "_orig_mod" or "_orig_mod" not in held:
            return super().__getattr__(name)
        return getattr(held["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute on the module that is compiled, since its compiled code reads the attribute there."""
        if name in self.__dict__ or name == "_orig_mod" or "_orig_mod" not in self.__dict__.get("_modules", {}):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __repr__(self) -> str:
        return f"<compiled {self._orig_mod!r}>"


_numbers = itertools.count()


def _with_own_code(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `function`, and has a code object of its own."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    # Torch caches compiled code by code object, and limits its number for each of them.
    traced.__code__ = traced.__code__.replace(co_name=f"traced_{next(_numbers)}")
    return traced
