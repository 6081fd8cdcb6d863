"""`tp.compile`: torch.compile with settings for fast training on batches of static shape; its errors name a remedy."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from dgl_tuplepack._core.checks import shown, true_or_false, whole_number
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.compiling.compiled import CompiledFunction, CompiledModule
from dgl_tuplepack.compiling.torch_versions import OLDEST, release_of, remark_on
from dgl_tuplepack.errors import CompileError

_DEFAULT_SHAPES = 4


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
    """Compile a model, or a function that computes a loss, with `torch.compile` and settings that are fast on graphs.

    On the CPU, the backward pass recomputes the bool masks of activations and of dropout, since storing them is slow.
    Random numbers of dropout are drawn many at a time. Generated kernels run in one thread; matrix products use all
    threads. Results and gradients equal those of uncompiled code up to rounding. With the same seed, compiled code
    draws other random numbers. Call ``backward()`` and the optimiser outside of the compiled function. In
    this example, ``loss_of(tensors, count)`` is your function, and `sampler` the `PackBatchSampler` of the batches::

        step = tp.compile(loss_of)
        loss = step(batch.tensors, sampler.count_tensor)
        loss.backward()

    The first call takes 15 to 40 seconds for a network of five layers, and 2 to 4 seconds in later processes, since
    torch keeps compiled code on disk. While torch compiles, the terminal shows a progress line. Compiling pays off
    after (seconds of compiling) / (seconds of an uncompiled step - seconds of a compiled step) steps.

    Parameters
    ----------
    function
        A module, or a function of tensors. Its arguments may also be containers of tensors, such as ``batch.tensors``.
    dynamic
        As in torch. False: compile separately for each set of static shapes. True or None: shapes may change, which
        is slower.
    fullgraph
        As in torch: whether an operation that cannot be compiled is an error (True), or runs uncompiled (False).
    options
        As in torch; they override the options that this function sets. On CUDA, ``{"triton.cudagraphs": True}`` records
        CUDA graphs (not tested by this package). ``{"cpp.threads": -1}`` gives all threads to generated kernels.
    check
        Whether to compare the compiled function with the uncompiled one: outputs, written buffers and gradients. They
        are compared in the first call for each set of shapes, each mode (training, gradients) and each number of
        threads. True: a difference that rounding does not explain is an error. "warn": such a difference gives a
        warning, and the function stays uncompiled. False: nothing is compared.
    shapes
        Maximum number of sets of static shapes to compile for, such as 2 for batches of two samplers. The same shapes
        in another mode (training, gradients) are not counted again. A set beyond the maximum is an error, since each
        set takes as long to compile as the first. None: at most 4 sets, with a warning when the second is compiled.
    **torch_arguments
        Other arguments of `torch.compile`. A `mode` other than "default" is refused, since it only sets options: give
        `options` instead.

    Returns
    -------
    Callable
        For a module, a module that holds the given module as ``_orig_mod``, as in torch. For a function, a function.

    Raises
    ------
    CompileError
        An argument is invalid. In a call: the function cannot be compiled as a whole; it gets a DGLGraph or a
        `PaddedBatch`; it has been called with more combinations of shapes and Python numbers than `shapes` allows;
        compiled code gives other results than uncompiled code; or the function writes to tensors other than buffers.

    Warns
    -----
    UserWarning
        The compiler fails, and the function stays uncompiled. Or compiled and uncompiled code cannot be compared. Or a
        gradient is not finite, although all outputs are finite. For two more warnings see `check` and `shapes`.

    Notes
    -----
    A Python number among the arguments is part of the compiled code, and another value causes a recompilation: give a
    0-dimensional tensor instead.

    The comparison costs one extra compiled call and up to two extra uncompiled calls, in the precision of the model and
    in float64. If a difference is large, or if there are several processes, up to six more uncompiled calls simulate
    rounding errors. Uncompiled calls read copies of all tensors. The comparison restores buffers, attributes of modules
    and random states, and does not change ``.grad``. For each tensor, the tolerance is 10 times the distance between
    the uncompiled results in these two precisions, plus a small fraction of the norm of the tensor. Dropout has the
    same masks in all calls that are compared. If there are several processes, all of them compare in the same calls.

    Examples
    --------
    >>> import dgl_tuplepack as tp
    >>> @tp.compile
    ... def squared_error(x, target):
    ...     return (x - target).square().mean()
    >>> squared_error
    <compiled squared_error>
    """
    if not callable(function) or isinstance(function, type):
        raise CompileError(f"compile() needs a module or a function, but got {shown(function)}; give one of them.")
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
    _check_torch_arguments(torch_arguments)
    if torch_arguments.get("disable"):
        return function
    if release_of(torch.__version__) < OLDEST:
        raise CompileError(
            f"torch {torch.__version__} is {remark_on(torch.__version__)}; install it, or call the function itself."
        )
    settings = {"dynamic": dynamic, "fullgraph": fullgraph, **torch_arguments}
    max_shapes = _DEFAULT_SHAPES if shapes is None else whole_number("shapes", shapes, 1, 10_000, CompileError)
    checked_options = _checked_options(options, torch_arguments)
    compiled = CompiledFunction(function, checked_options, settings, max_shapes, shapes is None, check)
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
        options_of_mode = torch_private.options_of_mode(str(mode))
        hint = f"options={options_of_mode}" if options_of_mode else "options={...}"
        raise CompileError(
            f"mode={mode!r} cannot be combined with options, which compile() sets (torch accepts only one of them); "
            f"give {hint} instead."
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
