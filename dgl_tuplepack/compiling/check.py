"""Whether compiled code computes what uncompiled code does: outputs, gradients and written buffers of one call.

Float32 rounds, so the two differ a little. How much they may differ is measured on the call itself: ten times the
distance of uncompiled float32 from uncompiled float64.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dgl_tuplepack.compiling.modules import buffers_of, modules_kept, modules_of, problem_of
from dgl_tuplepack.compiling.reference import (
    Reference,
    gradients_of,
    random_state_kept,
    run_on_copies,
    tensors_of,
)
from dgl_tuplepack.compiling.signatures import described

# Allowed: this many times the distance of uncompiled code from float64, and this many units in the last place. Some
# kernels of uncompiled code add up in float64, so that their distance says little about sums in float32.
_TIMES_DISTANCE, _TIMES_PRECISION = 10.0, 100.0
# Allowed relative to the norm where float64 cannot run.
_WITHOUT_EXACT = {torch.float16: 3e-2, torch.bfloat16: 3e-2, torch.float32: 1e-4}
_OTHERWISE = 1e-9
# A tensor that is nearly 0 next to the others is compared at this share of the largest norm.
_SMALLEST_SHARE = 1e-3
_PERTURBED_RUNS = 4

# What a run computes: "output", "gradient" or "buffer", with the path or the ``id`` of the tensor.
_Values = dict[tuple[str, Any], Tensor]


class Draws(Enum):
    """How compiled code draws random numbers: as uncompiled code, by uniform numbers for dropout, or otherwise."""

    AS_UNCOMPILED = "as uncompiled"
    UNIFORM = "uniform"
    OTHERWISE = "otherwise"


class Checked(NamedTuple):
    """What the comparison of one call found.

    Attributes
    ----------
    difference
        What differs, with both numbers; empty if nothing does.
    writes
        What the function writes to apart from buffers; empty if nothing.
    skipped
        Why nothing was compared; empty if it was.
    modules, parameters
        Modules that the function holds, and tensors that it reads and that require gradients.
    is_conclusive
        Whether any gradient, or without gradients any output, is finite and not 0.
    """

    difference: str = ""
    writes: str = ""
    skipped: str = ""
    modules: tuple[nn.Module, ...] = ()
    parameters: tuple[Tensor, ...] = ()
    is_conclusive: bool = True


def check_call(
    function: Callable[..., Any],
    compiled: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    paths: Mapping[str, Any],
    draws: Draws,
) -> Checked:
    """Call both functions and compare; tensors, generators and modules of the caller stay as they are.

    `paths` names the leaves of the arguments. Errors of `compiled` pass through; a function that fails only on copies
    is skipped.
    """
    modules = modules_of(function, *args, *kwargs.values())
    if problem := problem_of(modules):
        return Checked(skipped=problem)

    def run(**how: Any) -> Reference:
        how["uniform_dropout"] = draws is Draws.UNIFORM
        return run_on_copies(function, _fresh(args), _fresh(dict(kwargs)), modules, **how)

    try:
        reference = run()
    except Exception as error:
        return Checked(skipped=f"run on copies of its tensors, it raises {type(error).__name__}: {_first_line(error)}")
    parameters = tuple(each.original for each in reference.copies if each.original.requires_grad)
    found = Checked(modules=tuple(modules), parameters=parameters)
    names = _names(modules, reference, paths)
    written = [id(each.original) for each in reference.copies if each.is_written()]
    buffers = {id(each) for each in buffers_of(modules).values()}
    if others := [names[each] for each in written if each not in buffers]:
        return found._replace(writes=", ".join(others[:3]))
    if reference.draws and draws is not Draws.AS_UNCOMPILED:
        functions = ", ".join(sorted(reference.draws))
        return found._replace(skipped=f"{functions} draws other random numbers in compiled code")
    values = _run_compiled(compiled, args, kwargs, found)
    expected = _values(*reference[:3])

    def rerun(**how: Any) -> _Values | None:
        """Run where that works: float64 draws other numbers, and not every function mixes it with its own types."""
        if how.get("exact") and reference.draws:
            return None
        try:
            return _values(*run(**how)[:3])
        except Exception:
            return None

    return found._replace(
        difference=_difference(values, expected, names, rerun),
        is_conclusive=_is_conclusive(expected),
    )


def _fresh(value: Any) -> Any:
    """Copy containers and objects in arguments, but no tensors: a function may set their attributes."""
    if type(value) in (list, tuple):
        return type(value)(map(_fresh, value))
    if type(value) is dict:
        return {name: _fresh(each) for name, each in value.items()}
    if value is None or isinstance(value, Tensor | nn.Module | int | float | str | tuple):
        return value
    try:
        return copy.copy(value)
    except Exception:
        # An object that cannot be copied is passed as it is, as in the user's own call.
        return value


def _run_compiled(
    compiled: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], found: Checked
) -> _Values:
    """Call compiled code on the tensors themselves, and restore the buffers that it writes."""
    with random_state_kept(), modules_kept(found.modules):
        outputs = tensors_of(compiled(*_fresh(args), **_fresh(dict(kwargs))), "result")
        gradients = gradients_of(outputs, [*found.parameters])
        buffers = {key: each.detach().clone() for key, each in buffers_of(found.modules).items()}
    return _values(outputs, {id(each): torch.zeros_like(each) for each in found.parameters} | gradients, buffers)


def _values(outputs: Mapping[str, Tensor], gradients: Mapping[int, Tensor], buffers: Mapping[Any, Tensor]) -> _Values:
    has_gradients = torch.is_grad_enabled() and any(each.requires_grad for each in outputs.values())
    groups: dict[str, Mapping[Any, Tensor]] = {"output": outputs, "buffer": buffers}
    if has_gradients:
        groups["gradient"] = gradients
    return {(group, key): each.detach() for group, values in groups.items() for key, each in values.items()}


def _difference(
    found: _Values, expected: _Values, names: Mapping[Any, str], rerun: Callable[..., _Values | None]
) -> str:
    """Describe the worst difference; empty if rounding explains all of them."""
    if found.keys() != expected.keys() or any(found[key].shape != expected[key].shape for key in found):
        shapes = [
            ", ".join(f"{key[1]} {list(each.shape)}" for key, each in run.items() if key[0] == "output")
            for run in (found, expected)
        ]
        return f"compiled code returns {shapes[0]}, and uncompiled code {shapes[1]}"
    exact = rerun(exact=True)
    target = expected if exact is None else exact
    scales = _scales(expected)
    noise = {key: _distance(expected[key], target[key]) for key in expected}
    suspects = [key for key in found if _ratio(key, found, target, scales, noise, exact is not None) > 1]
    # Next to a tie or a kink, a rounding error changes much: rounding is imitated there.
    for seed in range(_PERTURBED_RUNS if suspects else 0):
        perturbed = rerun(copy=_perturbation(seed))
        if perturbed is not None:
            noise |= {key: max(noise[key], _distance(perturbed[key], expected[key])) for key in suspects}
    ratios = {key: _ratio(key, found, target, scales, noise, exact is not None) for key in suspects}
    worst = max(ratios, key=lambda key: ratios[key], default=None)
    if worst is None or ratios[worst] <= 1:
        return ""
    share, rounding = (each / (scales[worst] or 1) for each in (_distance(found[worst], expected[worst]), noise[worst]))
    return (
        f"{_title(worst, names)} is {_shown(found[worst])} compiled and {_shown(expected[worst])} uncompiled, a "
        f"difference of {share:.2g} of its size where rounding explains {rounding:.2g}"
    )


def _scales(values: _Values) -> dict[tuple[str, Any], float]:
    norms = {key: _norm(each) for key, each in values.items()}
    largest = {group: max(norm for key, norm in norms.items() if key[0] == group) for group, _ in norms}
    return {key: max(norm, _SMALLEST_SHARE * largest[key[0]]) for key, norm in norms.items()}


def _ratio(key: tuple[str, Any], found: _Values, target: _Values, scales: Any, noise: Any, has_exact: bool) -> float:
    """Return the distance of a tensor from `target` in units of what is allowed."""
    distance = _distance(found[key], target[key])
    dtype = found[key].dtype
    precision = torch.finfo(dtype).eps if dtype.is_floating_point or dtype.is_complex else 0.0
    without = 0.0 if has_exact and precision > 1e-12 else _WITHOUT_EXACT.get(dtype, _OTHERWISE)
    allowed = _TIMES_DISTANCE * noise[key] + max(_TIMES_PRECISION * precision, without) * scales[key]
    return 0.0 if distance == 0 else distance / allowed if allowed > 0 else math.inf


def _distance(one: Tensor, other: Tensor) -> float:
    """Return the norm of the difference of the finite entries; infinite where others stand at different places."""
    one, other = _wide(one), _wide(other)
    finite = one.isfinite() & other.isfinite()
    rest = torch.where(finite, torch.zeros_like(one), one), torch.where(finite, torch.zeros_like(other), other)
    if not torch.equal(torch.nan_to_num(rest[0], 1.5, 2.5, 3.5), torch.nan_to_num(rest[1], 1.5, 2.5, 3.5)):
        return math.inf
    return float(torch.where(finite, one - other, torch.zeros_like(one)).norm())


def _norm(value: Tensor) -> float:
    return float(torch.where(value.isfinite(), _wide(value), 0.0).norm())


def _wide(value: Tensor) -> Tensor:
    value = value.to_dense() if value.layout != torch.strided else value
    return torch.view_as_real(value.to(torch.complex128)) if value.is_complex() else value.to(torch.float64)


def _perturbation(seed: int) -> Callable[[Tensor], Tensor]:
    """Return what copies a tensor with another rounding error in each entry."""
    generator = torch.Generator().manual_seed(seed)

    def perturbed(value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value.clone()
        noise = torch.rand(value.shape, generator=generator, dtype=torch.float64).to(value.device)
        rounded = value.double() * (1 + 2 * torch.finfo(value.dtype).eps * (2 * noise - 1))
        return torch.empty_like(value).copy_(rounded)

    return perturbed


def _is_conclusive(values: _Values) -> bool:
    groups = {group for group, _ in values}
    group = "gradient" if "gradient" in groups else "output"
    return any(_norm(each) > 0 for key, each in values.items() if key[0] == group)


def _names(modules: list[nn.Module], reference: Reference, paths: Mapping[str, Any]) -> dict[Any, str]:
    """Name the tensors that a run read: by argument, or by module."""
    names = {id(each): f"the argument {path}" for path, each in paths.items() if isinstance(each, Tensor)}
    for module in modules:
        for kind in (module.named_parameters, module.named_buffers):
            for name, each in kind():
                names.setdefault(id(each), f"{type(module).__name__}.{name}")
    names |= {key: names[id(each)] for key, each in buffers_of(modules).items()}
    for original, *_ in reference.copies:
        names.setdefault(id(original), f"a tensor outside of its arguments ({described(original)})")
    return names


def _title(key: tuple[str, Any], names: Mapping[Any, str]) -> str:
    group, name = key
    return (
        f"the {group} {name}"
        if group == "output"
        else f"the {group} of {names[name]}"
        if group == "gradient"
        else names[name]
    )


def _shown(value: Tensor) -> str:
    return f"{value.item():.6g}" if value.numel() == 1 else f"of norm {_norm(value):.6g}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
