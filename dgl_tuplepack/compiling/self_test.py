"""Whether compiled gradients equal eager ones here: asked once in a process for each kind of device, at first use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.compiling.torch_private import MissingHook


class Verdict(NamedTuple):
    """How functions are compiled in this process.

    Attributes
    ----------
    options
        What is added to the caller's options: ours, or nothing; None if nothing is compiled at all.
    reason
        Why it is not ours; empty if it is.
    """

    options: Mapping[str, Any] | None
    reason: str


_VERDICTS: dict[str, Verdict] = {}


def verdict_on(device: str) -> Verdict:
    """Return how to compile for a kind of device; the first call tests it, and warns if our options do not hold."""
    if device not in _VERDICTS:
        _VERDICTS[device] = _tested(device)
        if _VERDICTS[device].reason:
            warnings.warn(_VERDICTS[device].reason, stacklevel=2)
    return _VERDICTS[device]


def forget() -> None:
    """Test again at the next use."""
    _VERDICTS.clear()


def _tested(device: str) -> Verdict:
    if (problem := torch_private.problem_at_start()) is not None:
        return _uncompiled(problem)
    try:
        options = torch_private.our_options()
        problem = _problem_of(options, device)
        if problem is None:
            return Verdict(options, "")
    except MissingHook as missing:
        problem = str(missing)
    plain = _problem_of({}, device)
    if plain is None:
        return Verdict({}, f"tp.compile is plain torch.compile here, which is slower: {problem}.")
    return _uncompiled(plain)


def _uncompiled(problem: str) -> Verdict:
    return Verdict(None, f"tp.compile leaves functions uncompiled here, which is slower: {problem}.")


def _problem_of(options: Mapping[str, Any], device: str) -> str | None:
    """What is wrong with results, gradients or the effect of `options`; None if nothing is."""
    own_limit = torch_private.supported_arguments({"isolate_recompiles": True})
    compiled = torch.compile(_network, dynamic=False, fullgraph=True, options=dict(options) or None, **own_limit)
    with _as_in_training():
        inputs, cotangents = _inputs(device)
        try:
            found = _gradients(compiled, inputs, cotangents)
            kept = torch_private.kept_for_backward(compiled(*inputs)[0])
        except Exception as error:
            return f"torch's compiler fails on a small network ({torch_private.reason_of(error)})"
        for name, one, other in zip(_RESULTS, found, _gradients(_network, inputs, cotangents), strict=True):
            if not _are_equal(one, other):
                return f"compiled and uncompiled code differ on a small network ({name})"
    if options and device == "cpu" and any(each.dtype == torch.bool and each.ndim == 2 for each in kept):
        return f"the pass has no effect with torch {torch.__version__}"
    return None


@contextmanager
def _as_in_training() -> Iterator[None]:
    """Compute gradients whatever mode the first call is made in: it may be an evaluation, or a search for NaN."""
    with torch.inference_mode(False), torch.enable_grad(), torch.autograd.set_detect_anomaly(False):
        yield


_RESULTS = ("activations", "sums over edges", "gradient of the input", "gradient of the weights")


def _network(x: Tensor, weight: Tensor, src: Tensor, dst: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Activations whose gradients need masks, row by row, and a sum over edges of a network behind them."""
    rows = mask[:, None]
    acts = torch.relu(x) + torch.nn.functional.leaky_relu(x, 0.25) + torch.where((x > 1) & rows, 3 * x, x)
    hidden = torch.relu(torch.where(x.abs() < 4, x, 0.0) @ weight)
    messages = torch.relu(hidden.index_select(0, src))
    return acts, torch.zeros_like(hidden).index_add_(0, dst, messages)


def _inputs(device: str) -> tuple[tuple[Tensor, ...], tuple[Tensor, Tensor]]:
    """Arguments of `_network`, and gradients to begin with; both hold infinities, NaN, 0 and -0."""
    rows, channels = 20, 8
    # Powers of two apart from the special numbers, so that sums in any order are nearly exact.
    # Whatever the default device is.
    on_host: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}
    values = torch.linspace(-3, 3, rows * channels, **on_host).reshape(rows, channels)
    special = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, -0.0], **on_host)
    x, upstream = values.clone(), values.flip(0).clone()
    x[0, :5], x[7, 3:8], upstream[3, :5], upstream[0, :5] = special, special, special, special.flip(0)
    weight = torch.linspace(-1, 1, channels * channels, **on_host).reshape(channels, channels)
    src = torch.arange(32, device="cpu") % rows
    dst, mask = src.flip(0) // 2, torch.arange(rows, device="cpu") < 15
    on_device = [each.to(device) for each in (x, weight, src, dst, mask)]
    on_device[0].requires_grad_()
    on_device[1].requires_grad_()
    return tuple(on_device), (upstream.to(device), values.cos().to(device))


def _gradients(
    network: Callable[..., tuple[Tensor, Tensor]], inputs: tuple[Tensor, ...], cotangents: tuple[Tensor, Tensor]
) -> list[Tensor]:
    results = network(*inputs)
    gradients = torch.autograd.grad(results, inputs[:2], cotangents)
    return [each.detach() for each in (*results, *gradients)]


def _are_equal(one: Tensor, other: Tensor) -> bool:
    """Equal to rounding; bit for bit where infinities, NaN and zeros stand, but for the sign of NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    zero = (other == 0) & (one == 0)
    same_signs = torch.equal(one.signbit() & zero, other.signbit() & zero)
    return same_signs and torch.allclose(one, other, rtol=1e-12, atol=1e-13, equal_nan=True)
