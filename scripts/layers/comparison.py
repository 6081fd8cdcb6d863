"""Compare a layer on a DGLGraph and on a TensorGraph, eager and compiled as one graph."""

from __future__ import annotations

import copy
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import dgl_tuplepack as tp
from layers.cases import Case

TOLERANCE = 1e-10
# Fragment of an error message -> the reason in short.
REASONS = {
    "mailbox": "its reduce function is user-defined",
    "remove_self_loop": "it changes the structure of the graph",
    "only some of them are given": "it computes on some of the edges",
    "Data-dependent branching": "it looks at values on the host",
    "data-dependent expression": "it looks at values on the host",
    "any node has no edges": "it looks at values on the host",
    "storage": "it frees the memory of its inputs",
    "returned non-Tensor": "it frees the memory of its inputs",
}

Run = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """The result of comparing a layer."""

    case: Case
    equal: bool
    compiled: bool
    reason: str


@dataclass(frozen=True)
class Trial:
    """One batch for a layer: the arguments of a TensorGraph, the inputs, and DGL's results."""

    graph_arguments: dict[str, Any]
    inputs: dict[str, Tensor]
    expected: list[Tensor]


def compare(case: Case, backend: str) -> Row:
    """Run a layer on a DGLGraph and on a TensorGraph, then compiled on two batches of equal sizes."""
    torch.manual_seed(0)
    layer = case.layer()
    trials = [_trial(case, layer, number) for number in (0, 1)]
    try:
        found = [_results(copy.deepcopy(layer), _on_tensors(case, each), each.inputs) for each in trials]
    except Exception as error:  # any failure of a layer goes on the page
        return Row(case, False, False, _reason(error))
    worst = max(_difference(one, each.expected) for one, each in zip(found, trials, strict=True))
    if worst > TOLERANCE:
        return Row(case, False, False, f"differs by {worst:.0e}")
    return _compiled(case, layer, trials, backend)


def _trial(case: Case, layer: nn.Module, number: int) -> Trial:
    content = case.content(number)
    inputs = case.tensors(content)
    with warnings.catch_warnings():
        # DGL warns about deprecated interfaces that it uses itself.
        warnings.simplefilter("ignore")
        expected = _results(copy.deepcopy(layer), functools.partial(_call, case, content.graph), inputs)
    return Trial(_graph_arguments(content.graph), inputs, expected)


def _compiled(case: Case, layer: nn.Module, trials: list[Trial], backend: str) -> Row:
    compilations = 0

    def counting(module: Any, examples: Any) -> Any:
        nonlocal compilations
        compilations += 1
        return torch._dynamo.lookup_backend(backend)(module, examples)

    def run(layer: nn.Module, graph: dict[str, Any], given: tuple[Tensor, ...], named: dict[str, Tensor]) -> Any:
        return case.call(layer, tp.TensorGraph(**graph), *given, **named)

    torch.compiler.reset()
    step = tp.compile(run, backend=counting)
    traced = copy.deepcopy(layer)
    try:
        for each in trials:
            # Reset running statistics, if any, to their values before the expected results were computed.
            traced.load_state_dict(layer.state_dict())
            found = _results(
                traced,
                lambda layer, *given, graph=each.graph_arguments, **named: step(layer, graph, given, named),
                each.inputs,
            )
            if (worst := _difference(found, each.expected)) > TOLERANCE:
                return Row(case, True, False, f"compiled, it differs by {worst:.0e}")
    except Exception as error:  # any failure of a compilation goes on the page
        return Row(case, True, False, _reason(error))
    if compilations != 1:
        return Row(case, True, False, f"{compilations} compilations for two batches")
    return Row(case, True, True, "")


def _call(case: Case, graph: Any, layer: nn.Module, *given: Tensor, **named: Tensor) -> Any:
    return case.call(layer, graph, *given, **named)


def _on_tensors(case: Case, trial: Trial) -> Run:
    return functools.partial(_call, case, tp.TensorGraph(**trial.graph_arguments))


def _graph_arguments(graph: Any) -> dict[str, Any]:
    """Return the arguments of a TensorGraph that equals a DGLGraph."""
    if graph.is_homogeneous:
        src, dst = graph.edges()
        return {
            "src": src,
            "dst": dst,
            "num_nodes": graph.num_nodes(),
            "batch_num_nodes": graph.batch_num_nodes(),
            "batch_num_edges": graph.batch_num_edges(),
        }
    ends = {each: graph.edges(etype=each) for each in graph.canonical_etypes}
    return {
        "src": {each: src for each, (src, _) in ends.items()},
        "dst": {each: dst for each, (_, dst) in ends.items()},
        "num_nodes": {each: graph.num_nodes(each) for each in graph.ntypes},
        "batch_num_nodes": {each: graph.batch_num_nodes(each) for each in graph.ntypes},
        "batch_num_edges": {each: graph.batch_num_edges(each) for each in graph.canonical_etypes},
    }


def _results(layer: nn.Module, run: Run, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Return the outputs, and the gradients of their weighted sum with respect to all inputs and parameters."""
    inputs = {name: value.detach().clone().requires_grad_(value.requires_grad) for name, value in inputs.items()}
    leaves = [each for each in (*inputs.values(), *layer.parameters()) if each.requires_grad]
    for leaf in leaves:
        leaf.grad = None
    given = [value for name, value in inputs.items() if name.isdigit()]
    outputs = list(_flat(run(layer, *given, **{name: v for name, v in inputs.items() if not name.isdigit()})))
    # GroupRevRes frees its outputs in the backward pass.
    values = [each.detach().clone() for each in outputs]
    weights = torch.Generator().manual_seed(0)
    total = sum((each * torch.randn(each.shape, generator=weights, dtype=each.dtype)).sum() for each in outputs)
    if isinstance(total, Tensor) and total.requires_grad:
        total.backward()
    gradients = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.clone() for leaf in leaves]
    return [*values, *gradients]


def _flat(outputs: Any) -> Iterator[Tensor]:
    if isinstance(outputs, Tensor):
        yield outputs
    else:
        for each in outputs.values() if isinstance(outputs, dict) else outputs:
            yield from _flat(each)


def _difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference, relative for values above 1; infinity if shapes, dtypes or NaN differ."""
    if len(found) != len(expected):
        return float("inf")
    worst = 0.0
    for one, other in zip(found, expected, strict=True):
        if one.shape != other.shape or one.dtype != other.dtype or bool((one.isnan() != other.isnan()).any()):
            return float("inf")
        scaled = ((one - other).abs() / other.abs().clamp(min=1)).nan_to_num(0.0)
        worst = max(worst, float(scaled.max()) if scaled.numel() else 0.0)
    return worst


def _reason(error: Exception) -> str:
    message = str(error)
    for fragment, reason in REASONS.items():
        if fragment in message:
            return reason
    # Remove addresses, which differ between runs.
    return re.sub(r" at 0x[0-9a-f]+", "", message.strip().partition("\n")[0]) or type(error).__name__
