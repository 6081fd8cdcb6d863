"""Run one call compiled and uncompiled, and compare the outputs, the gradients, and the buffers after the call.

Float32 rounds, so compiled and uncompiled code differ a little. The tolerance is measured on the call itself: it is
about ten times the distance between the uncompiled results in float32 and in float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dgl_tuplepack.compiling.reference import (
    Reference,
    buffers_of,
    gradients_of,
    modules_kept,
    modules_of,
    problem_of,
    random_states,
    run_on_copies,
)
from dgl_tuplepack.compiling.signatures import described, mapped, tensors_of
from dgl_tuplepack.errors import CompileError
from dgl_tuplepack.graphs.transform import kept_generators

# Allowed error: `_TIMES_DISTANCE` times the distance of uncompiled results from float64, plus `_TIMES_PRECISION` units
# in the last place, since some kernels sum in float64 only in uncompiled code.
_TIMES_DISTANCE, _TIMES_PRECISION = 10.0, 100.0
# Also allowed for gradients: this many units in the last place of the largest norm of a gradient. A gradient in which
# large numbers cancel, as for a bias before a batch norm, has the rounding error of these numbers.
_TIMES_LARGEST = 50.0
# dtype -> allowed distance relative to the norm, if the function cannot run in float64; `_OTHERWISE` for other dtypes.
_WITHOUT_EXACT = {torch.float16: 3e-2, torch.bfloat16: 3e-2, torch.float32: 1e-4}
_OTHERWISE = 1e-9
# An error is measured relative to the norm of the tensor, or to `_SMALLEST_SHARE` times the largest norm in its group
# (outputs, gradients or buffers), whichever is larger.
_SMALLEST_SHARE = 1e-3
# Sizes of simulated rounding errors of inputs, in units in the last place. A sum that is computed in another
# order can have an error of a few hundred units.
_PERTURBATIONS = (8, 16, 32, 64, 128, 256)

# Key of a result: ("output", its path), ("gradient", ``id`` of the tensor) or ("buffer", (index of the module, name)).
_Key = tuple[str, Any]
Values = dict[_Key, Tensor]


class Checked(NamedTuple):
    """The result of comparing one call."""

    # Description of the worst difference.
    difference: str = ""
    # Description of the worst difference between results with padding and without, both uncompiled.
    with_padding: str = ""
    # Names of up to three tensors that the function writes to, except buffers.
    writes: str = ""
    # Reason why nothing was compared.
    skipped: str = ""
    # Name of a tensor whose gradient is not finite in uncompiled code, although all outputs are finite.
    not_finite: str = ""
    # See `_is_conclusive`. Always True with several ranks, since all ranks must compare the same calls.
    is_conclusive: bool = True


def check_call(
    function: Callable[..., Any],
    compiled: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    paths: Mapping[str, Any],
    same_draws: bool,
    uniform_dropout: bool,
    padded: Callable[..., Any] | None = None,
) -> Checked:
    """Call `compiled`, call `function` on copies of the tensors, and compare the results; nothing else changes.

    `padded` is an uncompiled function that pads, and whose results must equal those of `function`; `compiled` then
    pads too. `paths` holds the values inside the arguments by path. `same_draws`: compiled code draws the same random
    numbers as uncompiled code. `uniform_dropout`: it makes the masks of dropout from uniform random numbers.
    """
    modules = modules_of(function, *args, *kwargs.values())
    if problem := problem_of(modules):
        return Checked(skipped=problem)

    def run(function: Callable[..., Any] = function, **settings: Any) -> Reference:
        own_args, own_kwargs = _copy_containers(args), _copy_containers(dict(kwargs))
        return run_on_copies(
            function, own_args, own_kwargs, modules, uniform_dropout=uniform_dropout, always_uniform=padded is not None,
            **settings,
        )  # fmt: skip

    # Random numbers, and the random states afterwards, are those of a run with padding, if there is one.
    given: dict[str, Any] = {}
    try:
        drawing = reference = run(padded or function)
        if padded is not None:
            given = {"random_numbers": reference.random_numbers}
            reference = run(**given)
    except Exception as error:
        if padded is not None and isinstance(error, CompileError):
            return Checked(with_padding=str(error))
        first_line = str(error).partition("\n")[0][:200]
        return Checked(skipped=f"on copies of its tensors, it raises {type(error).__name__}: {first_line}")
    names = _names(modules, reference, paths)
    written_ids = [id(each.original) for each in reference.copies if each.is_written()]
    buffer_ids = {id(each) for each in buffers_of(modules).values()}
    if written_names := [names[each] for each in written_ids if each not in buffer_ids]:
        return Checked(writes=", ".join(written_names[:3]))
    if padded is not None and reference.other_draws:
        functions = ", ".join(sorted(reference.other_draws))
        return Checked(skipped=f"with padding, other random numbers are drawn in {functions}")
    expected = _values(reference.outputs, reference.gradients, reference.buffers)
    if not any(group == "output" for group, _ in expected):
        return Checked(skipped="it returns no tensors")

    def rerun(**settings: Any) -> Values | None:
        """Return the results of another uncompiled run; None if it fails, or would draw other random numbers."""
        if settings.get("exact") and reference.draws:
            return None
        try:
            again = run(dropout_dtypes=reference.dropout_dtypes, **given, **settings)
            values = _values(again.outputs, again.gradients, again.buffers)
        except Exception:
            return None
        return values if values.keys() == expected.keys() else None

    if padded is not None:
        with_padding = _values(drawing.outputs, drawing.gradients, drawing.buffers)
        # One of the two may not read a tensor, whose gradient is then 0.
        unread = {key: torch.zeros_like(each) for key, each in expected.items() if key[0] == "gradient"}
        with_padding = {
            key: each for key, each in (unread | with_padding).items() if key in unread or key[0] != "gradient"
        }
        if difference := difference_of(with_padding, expected, names, rerun, ("with padding", "without")):
            return Checked(with_padding=difference)
    different = drawing.draws if not same_draws else set()
    if drawing.has_other_dropout:
        different = different | {"dropout"}
    if different:
        agree = "" if padded is None else "padding changes nothing, but "
        return Checked(skipped=f"{agree}compiled code draws different random numbers in {', '.join(sorted(different))}")
    found = _run_compiled(compiled, args, kwargs, modules, reference, drawing.random_states)
    if found is None:
        return Checked(skipped="compiled code draws different random numbers")
    return Checked(
        difference=difference_of(found, expected, names, rerun),
        not_finite=_not_finite(expected, names),
        is_conclusive=_is_conclusive(expected) or runs_on_several_ranks(),
    )


def _copy_containers(value: Any, cut: dict[int, Tensor] | None = None) -> Any:
    """Copy containers and objects in arguments, since a function may change them; do not copy tensors.

    With `cut`, a leaf takes the place of a tensor with a ``grad_fn``, whose autograd graph belongs to the caller.
    """

    def copied(each: Any) -> Any:
        if cut is not None and isinstance(each, Tensor) and each.grad_fn is not None:
            return cut.setdefault(id(each), each.detach().requires_grad_())
        if cut is not None and hasattr(each, "cut"):
            return each.cut(copied)
        if each is None or isinstance(each, Tensor | nn.Module | int | float | str | tuple):
            return each
        try:
            return copy.copy(each)
        except Exception:
            # An object that cannot be copied is itself passed to the function.
            return each

    return mapped(value, copied)


def _run_compiled(
    compiled: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    modules: list[nn.Module],
    reference: Reference,
    expected_states: list[Tensor],
) -> Values | None:
    """Call compiled code on the caller's tensors, and return the results; None if it draws other random numbers."""
    # id of a tensor with a ``grad_fn`` -> the leaf that is passed in its place, see `_copy_containers`.
    cut: dict[int, Tensor] = {}
    with kept_generators(), modules_kept(modules):
        outputs = tensors_of(compiled(*_copy_containers(args, cut), **_copy_containers(dict(kwargs), cut)), "result")
        if not all(map(torch.equal, expected_states, random_states())):
            return None
        inputs = {id(each.original): cut.get(id(each.original), each.original) for each in reference.copies}
        found = gradients_of(outputs, [*inputs.values()])
        buffers = {key: each.detach().clone() for key, each in buffers_of(modules).items()}
    # An unused tensor has a gradient of 0, as in `reference`.
    needed = {key: each for key, each in inputs.items() if each.requires_grad}
    gradients = {key: found.get(id(each), torch.zeros_like(each)) for key, each in needed.items()}
    return _values(outputs, gradients, buffers)


def _values(outputs: Mapping[str, Tensor], gradients: Mapping[int, Tensor], buffers: Mapping[Any, Tensor]) -> Values:
    """Return all results of a run in one dict, by (group, key in the group); sparse tensors become dense."""
    groups: dict[str, Mapping[Any, Tensor]] = {"output": outputs, "buffer": buffers}
    if torch.is_grad_enabled() and any(each.requires_grad for each in outputs.values()):
        groups["gradient"] = gradients
    values = {(group, key): each.detach() for group, of_group in groups.items() for key, each in of_group.items()}
    return {key: each.to_dense() if each.layout != torch.strided else each for key, each in values.items()}


def _not_finite(values: Values, names: Mapping[Any, str]) -> str:
    """Return the name of a tensor whose gradient is not finite; "" if all are finite, or an output is not finite."""
    not_finite = [key for key, each in values.items() if not each.isfinite().all()]
    if any(group == "output" for group, _ in not_finite):
        return ""
    return next((names[key] for group, key in not_finite if group == "gradient"), "")


def _names(modules: list[nn.Module], reference: Reference, paths: Mapping[str, Any]) -> dict[Any, str]:
    """Return names of the tensors that a run read, by ``id``, and of buffers, by (position of the module, name)."""
    # `setdefault` keeps the first name of a tensor: an argument may also be a parameter of a module.
    names = {id(each): f"the argument {path}" for path, each in paths.items() if isinstance(each, Tensor)}
    for module in modules:
        for named_tensors in (module.named_parameters, module.named_buffers):
            for name, each in named_tensors():
                names.setdefault(id(each), f"{type(module).__name__}.{name}")
    names |= {key: names[id(each)] for key, each in buffers_of(modules).items()}
    for original, *_ in reference.copies:
        names.setdefault(id(original), f"a tensor outside of its arguments ({described(original)})")
    return names


def difference_of(
    found: Values,
    expected: Values,
    names: Mapping[Any, str],
    rerun: Callable[..., Values | None],
    ways: tuple[str, str] = ("compiled", "uncompiled"),
) -> str:
    """Return a description of the worst difference of compiled results, `found`; empty if rounding explains all.

    `ways` says in messages how `found` and `expected` were computed.

    `rerun` runs uncompiled code again, and returns None if that fails: with ``exact=True`` in float64, with
    ``copy=function`` on copies that `function` makes of tensors.
    """
    if found.keys() != expected.keys() or _structure(found) != _structure(expected):
        return f"it returns {_structure(found)} {ways[0]}, and {_structure(expected)} {ways[1]}"
    exact = rerun(exact=True)
    # If an entry overflows in float32 but not in float64, the float32 result of uncompiled code is the target.
    target = expected if exact is None else {key: _target(each, expected[key]) for key, each in exact.items()}
    norms = {key: _norm_of_different(each, found[key]) for key, each in expected.items()}
    largest = {group: max(norm for key, norm in norms.items() if key[0] == group) for group, _ in norms}
    scales = {key: max(norm, _SMALLEST_SHARE * largest[key[0]]) for key, norm in norms.items()}
    # An infinity may be NaN after another order of sums. In outputs, such as masked logits, that would be an error.
    errors = {key: _distance(found[key], target[key], strict=key[0] == "output") for key in found}
    rounding = {key: _distance(expected[key], target[key], strict=key[0] == "output") for key in expected}

    def allowed(key: _Key) -> float:
        """Return the error that a compiled result may have, with the present `rounding` errors."""
        relative, of_largest = _tolerances(found[key].dtype, exact is not None)
        from_gradients = of_largest * largest["gradient"] if key[0] == "gradient" else 0.0
        return _TIMES_DISTANCE * rounding[key] + relative * scales[key] + from_gradients

    suspects = [key for key in found if errors[key] > allowed(key)]
    # All ranks rerun together, even ranks without suspects: the function may contain collectives.
    if suspects or runs_on_several_ranks():
        rounding |= _with_simulated_rounding({key: rounding[key] for key in suspects}, expected, rerun)
    ratios = {key: errors[key] / (allowed(key) or 1e-300) for key in suspects if errors[key] > allowed(key)}
    if not ratios:
        return ""
    worst = max(ratios, key=lambda key: ratios[key])
    if not expected[worst].is_floating_point() and not expected[worst].is_complex():
        other = int((found[worst] != expected[worst]).sum())
        entries = f"{other} of {found[worst].numel()} entries of {_title(worst, names)}"
        return f"{entries} are others {ways[0]} than {ways[1]}"
    size = scales[worst] or 1
    return (
        f"{_title(worst, names)} is {_shown(found[worst])} {ways[0]} and {_shown(expected[worst])} {ways[1]}, a "
        f"difference of {_distance(found[worst], expected[worst]) / size:.2g} of its size, of which rounding explains "
        f"{rounding[worst] / size:.2g}"
    )


def _with_simulated_rounding(
    rounding: Mapping[_Key, float], expected: Values, rerun: Callable[..., Values | None]
) -> dict[_Key, float]:
    """Return the `rounding` errors, replaced by the errors of reruns with simulated rounding where these are larger.

    A rounding error can change a result a lot, for example the argmax of nearly equal numbers.
    """
    largest = dict(rounding)
    for units in _PERTURBATIONS:
        perturbed = rerun(copy=_perturbation(units))
        if perturbed is not None:
            largest = {key: max(each, _distance(perturbed[key], expected[key])) for key, each in largest.items()}
    return largest


def _structure(run: Values) -> str:
    """Describe the results of a run: dtypes and shapes of outputs, and the number of gradients."""
    # str(dtype) begins with "torch.".
    outputs = [f"{name} {str(each.dtype)[6:]} {list(each.shape)}" for (g, name), each in run.items() if g == "output"]
    return f"{', '.join(outputs)} with {sum(group == 'gradient' for group, _ in run)} gradients"


def _target(exact: Tensor, expected: Tensor) -> Tensor:
    """Return the float64 result `exact`, with entries of `expected` where only one of the two entries is finite."""
    return torch.where(exact.isfinite() == expected.isfinite(), exact, expected.to(exact.dtype))


def _tolerances(dtype: torch.dtype, has_exact: bool) -> tuple[float, float]:
    """Return the allowed distance relative to the norm of a tensor, and relative to the largest norm of a gradient."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0, 0.0
    precision = torch.finfo(dtype).eps
    # The error of float64 cannot be measured against float64.
    without_exact = 0.0 if has_exact and precision > 1e-12 else _WITHOUT_EXACT.get(dtype, _OTHERWISE)
    return max(_TIMES_PRECISION * precision, without_exact), _TIMES_LARGEST * precision


def runs_on_several_ranks() -> bool:
    """Return whether torch.distributed runs with more than one rank."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _distance(one: Tensor, other: Tensor, strict: bool = True) -> float:
    """Return the norm of the difference of all entries that are finite in both; infinity if other entries differ.

    Unless `strict`, NaN and infinity are equal.
    """
    a, b = _wide(one), _wide(other)
    finite = a.isfinite() & b.isfinite()
    equal = (a == b) | (a.isnan() & b.isnan())
    if not strict:
        equal |= (a.isnan() & ~b.isfinite()) | (b.isnan() & ~a.isfinite())
    if not (finite | equal).all():
        return math.inf
    return float((a - b)[finite].norm())


def _norm_of_different(value: Tensor, found: Tensor) -> float:
    """Return the norm of the finite entries that differ from `found`; 0 for integers and bools.

    Equal entries, such as the -1e9 of an attention mask, do not count, since they would hide errors of small entries.
    """
    if not (value.is_floating_point() or value.is_complex()):
        return 0.0
    a = _wide(value)
    return float(a[a.isfinite() & (a != _wide(found))].norm())


def _norm(value: Tensor) -> float:
    a = _wide(value)
    return float(a[a.isfinite()].norm())


def _wide(value: Tensor) -> Tensor:
    """Return a tensor as float64; complex numbers become pairs of real and imaginary part."""
    return torch.view_as_real(value.to(torch.complex128)) if value.is_complex() else value.to(torch.float64)


def _perturbation(units: int) -> Callable[[Tensor], Tensor]:
    """Return a function that copies a tensor with random errors of up to `units` units in the last place."""
    generator = torch.Generator().manual_seed(units)

    def perturbed(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value.clone()
        noise = torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.device)
        rounded = value.double() * (1 + units * torch.finfo(value.dtype).eps * (2 * noise - 1))
        return torch.empty_like(value).copy_(rounded)

    return perturbed


def _is_conclusive(values: Values) -> bool:
    """Return whether any entry of a gradient, or of an output if there are no gradients, is finite and not 0."""
    groups = {group for group, _ in values}
    group = "gradient" if "gradient" in groups else "output"
    return any(_norm(each) > 0 for key, each in values.items() if key[0] == group)


def _title(key: _Key, names: Mapping[Any, str]) -> str:
    group, name = key
    if group == "output":
        return f"the output {name}"
    return names[name] if group == "buffer" else f"the gradient of {names[name]}"


def _shown(value: Tensor) -> str:
    """Return the only number of a tensor, or else its norm, as text."""
    if value.numel() == 1:
        return f"{value.item():.6g}"
    others = value.numel() - int(value.isfinite().sum())
    return f"of norm {_norm(value):.6g}" + (f" besides {others} entries of NaN or infinity" if others else "")
