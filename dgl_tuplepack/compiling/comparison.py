"""Compare the results of a compiled and an uncompiled run, apart from rounding, and describe the worst difference.

Float32 rounds, so compiled and uncompiled code differ a little. The tolerance is measured on the call itself: it is
about ten times the distance between the uncompiled results in float32 and in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

# Allowed error: `_TIMES_DISTANCE` times the distance of uncompiled results from float64, plus `_TIMES_PRECISION` units
# in the last place. Some kernels need these units: they sum in float64 in uncompiled code, but in float32 in compiled
# code.
_TIMES_DISTANCE, _TIMES_PRECISION = 10.0, 100.0
# Also allowed for gradients: this many units in the last place of the largest norm of a gradient. If large numbers
# cancel in a gradient, as for a bias before a batch norm, the gradient has the rounding error of these numbers.
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
# Number of entries of a tensor that are compared at once.
_CHUNK = 2**20

# Key of a result: ("output", its path), ("gradient", ``id`` of the tensor) or ("buffer", (index of the module, name)).
_Key = tuple[str, Any]
Values = dict[_Key, Tensor]


def difference_of(
    found: Values, expected: Values, names: Mapping[Any, str], rerun: Callable[..., Values | None]
) -> str:
    """Return a description of the worst difference; empty if rounding explains all differences.

    `found` has the results of compiled code, `expected` the results of uncompiled code. `rerun` runs uncompiled code
    again and returns the results, or None if the run fails: ``rerun(exact=True)`` runs in float64;
    ``rerun(copy=function)`` runs on copies that `function` makes of tensors.
    """
    if (structures := _structures(found, expected))[0] != structures[1]:
        return f"compiled code returns {structures[0]}, and uncompiled code {structures[1]}"
    exact = rerun(exact=True)
    # If an entry overflows in float32 but not in float64, the float32 result of uncompiled code is the target.
    target = expected if exact is None else {key: _target(each, expected[key]) for key, each in exact.items()}
    scales, largest = _scales(expected, found)
    errors = {key: _distance(found[key], target[key]) for key in found}
    rounding = {key: _distance(expected[key], target[key]) for key in expected}

    def times_allowed(key: _Key, rounding_error: float) -> float:
        """Return the error of a compiled result, divided by the error that a `rounding_error` of this size allows."""
        relative, of_largest = _tolerances(found[key].dtype, exact is not None)
        allowed = _TIMES_DISTANCE * rounding_error + relative * scales[key]
        allowed += of_largest * largest if key[0] == "gradient" else 0.0
        if errors[key] == 0:
            return 0.0
        return errors[key] / allowed if allowed > 0 else math.inf

    suspects = [key for key in found if times_allowed(key, rounding[key]) > 1]
    # All ranks rerun together, even ranks without suspects: the function may contain collectives.
    if suspects or runs_on_several_ranks():
        rounding = _with_simulated_rounding({key: rounding[key] for key in suspects}, expected, rerun)
    ratios = {key: times_allowed(key, rounding[key]) for key in suspects}
    worst = max(ratios, key=lambda key: ratios[key], default=None)
    if worst is None or ratios[worst] <= 1:
        return ""
    size = scales[worst] or 1
    return (
        f"{_title(worst, names)} is {_shown(found[worst])} compiled and {_shown(expected[worst])} uncompiled, a "
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


def _structures(found: Values, expected: Values) -> list[str]:
    """Describe the results of both runs: dtypes and shapes of outputs, and the number of gradients."""
    texts = []
    for run in (found, expected):
        # str(dtype) begins with "torch.".
        outputs = [
            f"{key[1]} {str(each.dtype)[6:]} {list(each.shape)}" for key, each in run.items() if key[0] == "output"
        ]
        number = sum(key[0] == "gradient" for key in run)
        texts.append(", ".join(outputs) + f" with {number} gradients")
    return texts


def _target(exact: Tensor, expected: Tensor) -> Tensor:
    """Return the float64 result `exact`, with entries of `expected` where only one of the two entries is finite."""
    if exact.layout != torch.strided or exact.is_complex():
        return exact
    return torch.where(exact.isfinite() == expected.isfinite(), exact, expected.to(exact.dtype))


def _scales(values: Values, found: Values) -> tuple[dict[_Key, float], float]:
    """Return the norm that the error of each tensor is relative to, and the largest norm of a gradient."""
    norms = {key: _norm_of_different(each, found[key]) for key, each in values.items()}
    largest = {group: max(norm for key, norm in norms.items() if key[0] == group) for group, _ in norms}
    scales = {key: max(norm, _SMALLEST_SHARE * largest[key[0]]) for key, norm in norms.items()}
    return scales, largest.get("gradient", 0.0)


def _tolerances(dtype: torch.dtype, has_exact: bool) -> tuple[float, float]:
    """Return the allowed distance relative to the norm of a tensor, and relative to the largest norm of a gradient."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0, 0.0
    precision = torch.finfo(dtype).eps
    # The error of float64 cannot be measured against float64.
    without_exact = 0.0 if has_exact and precision > 1e-12 else _WITHOUT_EXACT.get(dtype, _OTHERWISE)
    return max(_TIMES_PRECISION * precision, without_exact), _TIMES_LARGEST * precision


def runs_on_several_ranks() -> bool:
    """Return whether several ranks run this code."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _distance(one: Tensor, other: Tensor) -> float:
    """Return the norm of the difference of all entries that are finite in both; infinity if other entries differ."""
    total = 0.0
    for a, b in _chunks(one, other):
        finite = a.isfinite()
        # Give NaN, inf and -inf three different numbers, since NaN does not equal itself.
        if not torch.equal(finite, b.isfinite()) or not torch.equal(
            a.masked_fill(finite, 0).nan_to_num(1.5, 2.5, 3.5), b.masked_fill(finite, 0).nan_to_num(1.5, 2.5, 3.5)
        ):
            return math.inf
        total += float((a - b).masked_fill(~finite, 0).square().sum())
    return math.sqrt(total)


def _norm_of_different(value: Tensor, found: Tensor) -> float:
    """Return the norm of the finite entries that differ from `found`; 0 for integers and bools.

    Equal entries, such as the -1e9 of an attention mask, do not count, since they would hide errors of small entries.
    """
    if not (value.is_floating_point() or value.is_complex()):
        return 0.0
    return math.sqrt(
        sum(float(a.masked_fill(~a.isfinite() | (a == b), 0).square().sum()) for a, b in _chunks(value, found))
    )


def _norm(value: Tensor) -> float:
    return math.sqrt(sum(float(a.masked_fill(~a.isfinite(), 0).square().sum()) for a, _ in _chunks(value, value)))


def is_finite(value: Tensor) -> bool:
    """Return whether all entries are finite."""
    return all(bool(a.isfinite().all()) for a, _ in _chunks(value, value))


def _chunks(one: Tensor, other: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pairs of chunks of the two tensors as float64, so that large tensors need little memory."""
    flat = [(each.to_dense() if each.layout != torch.strided else each).reshape(-1) for each in (one, other)]
    for a, b in zip(*(torch.split(each, _CHUNK) for each in flat), strict=True):
        yield _wide(a), _wide(b)


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


def is_conclusive(values: Values) -> bool:
    """Return whether any entry of a gradient, or of an output if there are no gradients, is finite and not 0."""
    groups = {group for group, _ in values}
    group = "gradient" if "gradient" in groups else "output"
    return any(_norm(each) > 0 for key, each in values.items() if key[0] == group)


def _title(key: tuple[str, Any], names: Mapping[Any, str]) -> str:
    group, name = key
    if group == "buffer":
        return names[name]
    return f"the output {name}" if group == "output" else f"the gradient of {names[name]}"


def _shown(value: Tensor) -> str:
    """Return the only number of a tensor, or else its norm, as text."""
    return f"{value.item():.6g}" if value.numel() == 1 else f"of norm {_norm(value):.6g}"
