"""Messages along edges, reduced at their destination nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.tensor_graph.functions import NodeBatch, check_reducer, messages_of

if TYPE_CHECKING:
    from dgl_tuplepack.tensor_graph.graph import TensorGraph

_NEUTRAL = {"max": float("-inf"), "min": float("inf")}
CROSS_REDUCERS = ("sum", "mean", "max", "min", "stack")


def propagate(
    graph: TensorGraph, edge_type: EdgeType, message: Any, reduce: Any, apply: Any = None, *, fill: float = 0.0
) -> dict[str, Tensor]:
    """Send messages along the edges of a type and return the features that their destination nodes get."""
    check_reducer(reduce)
    messages = messages_of(graph, edge_type, message)
    _check_field(reduce, messages)
    result = graph.relations[edge_type].by_dst.reduce(messages[reduce.msg_field], reduce.name, fill)
    return applied(graph, edge_type[2], apply, {reduce.out_field: result})


def _check_field(reduce: Any, messages: Collection[str]) -> None:
    if reduce.msg_field not in messages:
        raise SchemaError(
            f"the reduce function reads messages {reduce.msg_field!r}, but the message function makes "
            f"{sorted(messages)}; give both the same name."
        )


def applied(graph: TensorGraph, node_type: str, function: Any, result: dict[str, Tensor]) -> dict[str, Tensor]:
    """Apply a function of nodes to their features and the ones just computed; without a function, return the latter."""
    if function is None:
        return result
    changed = function(NodeBatch(graph, node_type, {**graph.frames[node_type], **result}))
    if not isinstance(changed, Mapping):
        raise SchemaError(
            f"an apply function must return a dict of tensors by name, but returned {type(changed).__name__}."
        )
    return dict(changed)


def propagate_each(
    graph: TensorGraph, functions: Mapping[Any, Any], cross_reducer: Any
) -> dict[str, dict[str, Tensor]]:
    """Send messages by the functions of each edge type, and reduce the results across types; features by node type."""
    if not callable(cross_reducer) and cross_reducer not in CROSS_REDUCERS:
        raise SchemaError(
            f"unknown cross reducer {shown(cross_reducer)}; choose one of {', '.join(CROSS_REDUCERS)}, or give a "
            "function of a list of tensors."
        )
    given = {graph.types.edge_type(name): each for name, each in functions.items()}
    # Stacks are in the order of edge types, other results in the order in which functions were given.
    order = sorted(given, key=graph.canonical_etypes.index) if cross_reducer == "stack" else list(given)
    arrived: dict[str, list[dict[str, Tensor]]] = {}
    partial: dict[str, list[Tensor]] = {}
    for edge_type in order:
        parts = given[edge_type]
        if not isinstance(parts, tuple) or not 2 <= len(parts) <= 3:
            raise SchemaError(
                f"the functions of edge type {edge_type!r} must be (message, reduce) or (message, reduce, apply), but "
                f"are {shown(parts)}."
            )
        # As in DGL, nodes without messages of a type take no part in a largest or smallest value.
        fill = _NEUTRAL.get(getattr(parts[1], "name", ""), 0.0)
        arrived.setdefault(edge_type[2], []).append(propagate(graph, edge_type, *parts, fill=fill))
        if fill:
            partial.setdefault(edge_type[2], []).append(graph.relations[edge_type].by_dst.counts() == 0)
    return {t: _across(results, cross_reducer, partial.get(t)) for t, results in arrived.items()}


def _across(
    results: Sequence[dict[str, Tensor]], cross_reducer: Any, partial: list[Tensor] | None
) -> dict[str, Tensor]:
    merged = {}
    for name in dict.fromkeys(name for result in results for name in result):
        value = _merge([result[name] for result in results if name in result], cross_reducer)
        if partial is not None:
            without = torch.stack(partial).any(0).view(-1, *(1,) * (value.dim() - 1))
            value = torch.where(without & torch.isinf(value), 0.0, value)
        merged[name] = value
    return merged


def _merge(values: list[Tensor], cross_reducer: str | Callable[[list[Tensor]], Tensor]) -> Tensor:
    if cross_reducer == "stack":
        return torch.stack(values, 1)
    if len(values) == 1:
        return values[0]
    if callable(cross_reducer):
        return cross_reducer(values)
    stacked = torch.stack(values)
    if cross_reducer in ("sum", "mean"):
        return stacked.sum(0) if cross_reducer == "sum" else stacked.mean(0)
    return stacked.max(0).values if cross_reducer == "max" else stacked.min(0).values
