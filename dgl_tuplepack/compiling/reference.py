"""Run a function uncompiled, on copies of every tensor that it reads, also from modules, closures and globals.

A `TorchFunctionMode` passes the copies to torch's functions, so that the caller's tensors are never written to.
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from dgl_tuplepack.compiling.signatures import mapped, tensors_of
from dgl_tuplepack.compiling.torch_private import hooks_of, version_of
from dgl_tuplepack.graphs.transform import kept_generators

# dtype -> its dtype in an exact run, which computes in float64.
_EXACT = dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64) | {
    torch.complex64: torch.complex128
}
# Casts to less than float64; an exact run casts to float64 instead.
_CASTS = (Tensor.float, Tensor.half, Tensor.bfloat16)
_DROPOUT = torch.nn.functional.dropout
# Functions that draw each entry alike, so that the numbers of a run without padding may be the first of one with it.
_BY_ENTRY = frozenset(
    f"{name}{ending}" for name in ("rand", "randn", "randint", "bernoulli", "normal", "uniform", "exponential")
    for ending in ("", "_", "_like")
)  # fmt: skip

_running = threading.local()


class Copied(NamedTuple):
    """A tensor that existed before the run, its copy, and the copy's version (number of writes) when it was made."""

    original: Tensor
    copy: Tensor
    version: int

    def is_written(self) -> bool:
        """Return whether the run wrote to the copy, or set its gradient; valid only if `torch.clone` made the copy."""
        # Torch warns about reading the gradient of a tensor that is no leaf.
        is_leaf = self.copy.is_leaf and self.original.is_leaf
        sets_gradient = is_leaf and (self.copy.grad is None) != (self.original.grad is None)
        if sets_gradient or version_of(self.copy) != self.version:
            return True
        # Writing through ``.data`` does not change the version, so compare the values too, unless they are sparse.
        one, other = self.copy.detach(), self.original.detach()
        return one.layout == torch.strided and not torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


class Reference(NamedTuple):
    """Results of an uncompiled run."""

    # Tensors that the function returned, by their paths, such as ``result[0]``.
    outputs: dict[str, Tensor]
    # Of all `copies` that require gradients, by the ``id`` of the original; zeros for an unused tensor.
    gradients: dict[int, Tensor]
    # Values of the buffers after the run, by (position of the module, name of the buffer).
    buffers: dict[tuple[int, str], Tensor]
    # The tensors that existed before the run and that the function read.
    copies: list[Copied]
    # Names of the functions that drew random numbers, except dropout that drew them as compiled code does.
    draws: set[str]
    # Those of them that could not use the random numbers that were given.
    other_draws: set[str]
    # States of torch's random generators after the call.
    random_states: list[Tensor]
    # dtype of the random numbers of each call of dropout, in the order of the calls.
    dropout_dtypes: list[torch.dtype]
    # The random numbers that were drawn by entry: by dropout as in compiled code, and by the functions `_BY_ENTRY`.
    random_numbers: list[Tensor]
    # Whether some call of dropout drew them, but compiled code does not.
    has_other_dropout: bool
    # Whether the function computed gradients and freed their graph, so that no gradients of `outputs` exist.
    frees_graph: bool


def is_running() -> bool:
    """Return whether this thread is in `run_on_copies`, where compiled functions run uncompiled."""
    return getattr(_running, "value", False)


def run_on_copies(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    modules: Sequence[nn.Module],
    *,
    copy: Callable[[Tensor], Tensor] = torch.clone,
    exact: bool = False,
    uniform_dropout: bool = False,
    dropout_dtypes: Sequence[torch.dtype] = (),
    random_numbers: Sequence[Tensor] | None = None,
    always_uniform: bool = False,
) -> Reference:
    """Run `function` on copies made by `copy`, in float64 if `exact`; random generators and `modules` stay unchanged.

    With `uniform_dropout`, dropout draws as our pass makes compiled code draw; if `exact`, in the `dropout_dtypes` of
    an earlier run, so that both have the same masks. `random_numbers` are those of a run with padding, whose first
    rows are then used. With `always_uniform`, dropout draws so even where compiled code does not.
    """
    argument_ids = {id(value) for value in tensors_of((args, kwargs), "").values()}
    mode = _Copies(argument_ids, copy, exact, uniform_dropout, dropout_dtypes, random_numbers, always_uniform)
    _running.value = True
    try:
        with kept_generators(), modules_kept(modules):
            with mode:
                result = function(*args, **kwargs)
            states_after = random_states()
            buffers = {key: mode.copied(each).detach().clone() for key, each in buffers_of(modules).items()}
            outputs = {path: mode.copied(value) for path, value in tensors_of(result, "result").items()}
            if mode.frees_graph:
                outputs = {path: each.detach() for path, each in outputs.items()}
            copies = [*mode.copies.values()]
            gradients = _gradients_by_original(outputs, copies)
    finally:
        _running.value = False
    return Reference(
        outputs,
        gradients,
        buffers,
        copies,
        mode.draws,
        mode.other_draws,
        states_after,
        mode.dropout_dtypes,
        mode.random_numbers,
        mode.has_other_dropout,
        mode.frees_graph,
    )


def _gradients_by_original(outputs: Mapping[str, Tensor], copies: Sequence[Copied]) -> dict[int, Tensor]:
    """Return the gradients of all copies that require gradients, by the ``id`` of the original."""
    found = gradients_of(outputs, [tensor for each in copies for tensor in (each.original, each.copy)])
    gradients = {}
    for original, copy, _ in copies:
        if copy.requires_grad:
            # User-defined autograd functions get the original, and torch's functions the copy: add both gradients.
            terms = [found[id(each)] for each in (original, copy) if id(each) in found]
            gradients[id(original)] = sum(terms[1:], terms[0]) if terms else torch.zeros_like(copy)
    return gradients


def gradients_of(outputs: Mapping[str, Tensor], inputs: list[Tensor]) -> dict[int, Tensor]:
    """Return the gradients of the `inputs` that `outputs` depend on, by ``id``; do not change ``.grad``."""
    roots = [each for each in outputs.values() if each.requires_grad]
    leaves = [each for each in inputs if each.requires_grad]
    if not roots or not leaves or not torch.is_grad_enabled():
        return {}
    found = torch.autograd.grad(roots, leaves, [_gradient_of_output(each) for each in roots], allow_unused=True)
    return {id(leaf): each for leaf, each in zip(leaves, found, strict=True) if each is not None}


def _gradient_of_output(output: Tensor) -> Tensor:
    if output.numel() == 1:
        return torch.ones_like(output)
    # The numbers differ between entries, so that errors in different entries do not cancel.
    numbers = torch.arange(output.numel(), dtype=torch.float64, device=output.device)
    return (1.7 * numbers + 1).cos().reshape(output.shape).to(output.dtype)


def random_states() -> list[Tensor]:
    """Return the states of torch's generators, on the host and on CUDA devices."""
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    return [torch.get_rng_state(), *on_devices]


class _Copies(TorchFunctionMode):
    """Pass copies to torch's functions in place of all tensors that existed before the run."""

    def __init__(
        self, arguments: set[int], copy: Callable[[Tensor], Tensor], exact: bool, uniform_dropout: bool,
        dropout_dtypes: Sequence[torch.dtype], random_numbers: Sequence[Tensor] | None, always_uniform: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        # `arguments`: ids of the tensors in the arguments of the call. `copies`: id of the original -> `Copied`.
        self.copies: dict[int, Copied] = {}
        self.draws, self.other_draws = set[str](), set[str]()
        self._arguments, self._copy, self._exact = arguments, copy, exact
        self._uniform_dropout, self._always_uniform = uniform_dropout, always_uniform
        self.has_other_dropout = self.frees_graph = False
        self.dropout_dtypes: list[torch.dtype] = []
        self._earlier_dtypes = iter(dropout_dtypes)
        self.random_numbers: list[Tensor] = []
        self._given_numbers = None if random_numbers is None else iter(random_numbers)
        # Copies, and tensors that the run itself made, by ``id``; none of them is copied again.
        self._made: dict[int, weakref.ref[Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = self.copied(args), self.copied(kwargs or {})
        if self._exact and func in _CASTS:
            func = Tensor.double
        if func is torch.autograd.grad:
            given = inspect.signature(func).bind(*args, **kwargs).arguments
            retains = given.get("retain_graph")
            self.frees_graph |= not (given.get("create_graph", False) if retains is None else retains)
        before = random_states()
        result = self._dropout(*args, **kwargs) if func is _DROPOUT else None
        if result is None:
            result = func(*args, **kwargs)
            if not all(map(torch.equal, before, random_states())):
                result = self._drawn(getattr(func, "__name__", str(func)), result)
        # Constants that the function makes become float64 too.
        if self._exact and isinstance(result, Tensor) and result.dtype in _EXACT and result.grad_fn is None:
            result = result.to(_EXACT[result.dtype])
        for each in tensors_of(result, "").values():
            self._made[id(each)] = weakref.ref(each)
        return result

    def copied(self, value: Any) -> Any:
        """Return `value` with copies in place of tensors that existed before the run."""

        def copied_value(each: Any) -> Any:
            if isinstance(each, torch.dtype) and self._exact:
                return _EXACT.get(each, each)
            return self._copied_tensor(each) if isinstance(each, Tensor) else each

        return mapped(value, copied_value)

    def _copied_tensor(self, tensor: Tensor) -> Tensor:
        """Return the copy of a tensor that existed before the run; return any other tensor itself."""
        made = self._made.get(id(tensor))
        if made is not None and made() is tensor:
            return tensor
        known = self.copies.get(id(tensor))
        if known is not None:
            return known.copy
        # Results of user-defined autograd functions do not pass through this mode, so they are not in `_made`.
        is_result = tensor.grad_fn is not None and id(tensor) not in self._arguments
        if is_result or is_lazy(tensor):
            return tensor
        # Make the copy outside of inference mode, since tensors made in inference mode have no version.
        with torch.inference_mode(False), torch.no_grad():
            plain = tensor.detach()
            copy = plain.to(_EXACT[plain.dtype]) if self._exact and plain.dtype in _EXACT else self._copy(plain)
        copy.requires_grad_(tensor.requires_grad)
        self.copies[id(tensor)] = Copied(tensor, copy, version_of(copy))
        # The copy also needs the hooks, which may change gradients, and the gradient, which the function may read; a
        # parameter that was frozen after a backward pass still has one.
        if tensor.is_leaf and tensor.requires_grad:
            for hook in hooks_of(tensor):
                copy.register_hook(hook)  # type: ignore[no-untyped-call]
        if tensor.is_leaf and tensor.grad is not None:
            copy.grad = self._copied_tensor(tensor.grad)
        self._made[id(copy)] = weakref.ref(copy)
        return copy

    def _dropout(self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor | None:
        """Return dropout with a mask drawn by `torch.rand`, as in compiled code; None if torch's dropout must run."""
        # In an exact run, the input is float64, but the random numbers must equal the numbers of the earlier run.
        dtype = next(self._earlier_dtypes, input.dtype) if self._exact else input.dtype
        self.dropout_dtypes.append(dtype)
        # Our pass makes compiled code draw in this way only for such tensors.
        drawn_alike = input.is_contiguous() and dtype in (torch.float32, torch.float64) and input.device.type == "cpu"
        is_uniform = self._uniform_dropout and drawn_alike
        if not (training and 0 < p < 1 and not inplace and (is_uniform or self._always_uniform)):
            return None
        self.has_other_dropout |= not is_uniform
        if self._given_numbers is None:
            drawn: Tensor | None = torch.rand(input.shape, dtype=dtype, device=input.device)
        else:
            drawn = self._next_numbers(input)
        if drawn is None:
            return None
        self.random_numbers.append(drawn)
        kept = drawn > p
        return kept * input * (1.0 / (1.0 - p))

    def _drawn(self, name: str, drawn: Any) -> Any:
        """Note a function that drew random numbers; return the given ones in their place, if there are any."""
        self.draws.add(name)
        if name in _BY_ENTRY and isinstance(drawn, Tensor):
            if self._given_numbers is None:
                self.random_numbers.append(drawn.detach().clone())
                return drawn
            given = self._next_numbers(drawn)
            if given is not None:
                return drawn.copy_(given) if name.endswith("_") else given.to(drawn.dtype)
        self.other_draws.add(name)
        return drawn

    def _next_numbers(self, wanted: Tensor) -> Tensor | None:
        """Return the next numbers that were given, cut to the shape of `wanted`; None if they do not cover it."""
        assert self._given_numbers is not None
        drawn = next(self._given_numbers, None)
        if (
            drawn is None
            or drawn.ndim != wanted.ndim
            or any(a < b for a, b in zip(drawn.shape, wanted.shape, strict=True))
        ):
            return None
        return drawn[tuple(slice(number) for number in wanted.shape)]


# The search goes this deep into nested objects, and skips containers with more elements than this: an object that
# holds a model, such as a trainer, may hold a whole dataset too.
_MAX_DEPTH, _MAX_LENGTH = 3, 1000


def modules_of(*values: Any) -> list[nn.Module]:
    """Return the modules in `values`; for functions, also the modules in their closures, globals and ``self``."""
    found: dict[nn.Module, None] = {}

    def add(value: Any, seen: set[int], depth: int) -> None:
        if isinstance(value, Tensor | str | bytes | int | float | type | types.ModuleType) or id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, nn.Module):
            found.update(dict.fromkeys(value.modules()))
        depth += not isinstance(value, types.FunctionType | types.MethodType | functools.partial)
        for each in _held_by(value) if depth <= _MAX_DEPTH else ():
            add(each, seen, depth)

    for value in values:
        add(value, set(), 0)
    return [*found]


def _held_by(value: Any) -> Iterable[Any]:
    """Return the objects that a value refers to directly; for functions, also the globals that their code uses."""
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, types.MethodType):
        return value.__self__, value.__func__
    if isinstance(value, types.FunctionType):
        # A cell of a closure is empty until its variable is assigned.
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
        names = {name for code in _codes(value.__code__) for name in code.co_names}
        used = [value.__globals__[name] for name in sorted(names) if name in value.__globals__]
        # Torch modules that are attributes of a Python module, as in ``package.model(x)``.
        inner = [vars(each).get(name) for each in used if isinstance(each, types.ModuleType) for name in names]
        used += [each for each in inner if isinstance(each, nn.Module)]
        return [*cells, *used, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, dict | list | tuple | set):
        if len(value) > _MAX_LENGTH:
            return ()
        return value.values() if isinstance(value, dict) else value
    attributes = vars(value).values() if hasattr(value, "__dict__") else ()
    if isinstance(value, nn.Module):
        # `modules_of` has added the submodules, except submodules in plain lists and tuples.
        return [each for each in attributes if isinstance(each, list | tuple)]
    return attributes


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield the code object of a function, and the code objects of the functions that it defines."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)


def problem_of(modules: Iterable[nn.Module]) -> str:
    """Return why a function with these modules cannot be called twice, or an empty string if it can."""
    for module in modules:
        if isinstance(module, DistributedDataParallel):
            return "DistributedDataParallel expects one backward pass per call: wrap the compiled module in it"
        if any(map(is_lazy, module.parameters(recurse=False))):
            return f"{type(module).__name__} has no parameters yet: call the model once first"
    return ""


@contextmanager
def modules_kept(modules: Iterable[nn.Module]) -> Iterator[None]:
    """On exit, restore the attributes and buffers of modules, such as running statistics, counters and caches."""
    before = [
        (module, dict(vars(module)), {n: (b, b.detach().clone()) for n, b in _written_of(module)}) for module in modules
    ]
    try:
        yield
    finally:
        for module, attributes, buffers in before:
            for name in vars(module).keys() - attributes.keys():
                del vars(module)[name]
            vars(module).update(attributes)
            for name, (buffer, values) in buffers.items():
                if not torch.equal(buffer, values):
                    with torch.no_grad():
                        buffer.copy_(values)
                # The call may have put another tensor in the place of the buffer.
                if getattr(module, name) is not buffer:
                    setattr(module, name, buffer)


def buffers_of(modules: Iterable[nn.Module]) -> dict[tuple[int, str], Tensor]:
    """Return the buffers of modules, keyed by the position of the module and the name of the buffer.

    Parameters without gradients are among them: a forward pass may write to them, as to a moving average of others.
    """
    return {(i, name): each for i, module in enumerate(modules) for name, each in _written_of(module)}


def _written_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_buffers(recurse=False)
    yield from ((name, each) for name, each in module.named_parameters(recurse=False) if not each.requires_grad)
