"""Arguments of a TensorGraph: one value for one type each, or dicts by type; all of them checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType
from dgl_tuplepack.tensor_graph.relation import Relation
from dgl_tuplepack.tensor_graph.types import Types
from dgl_tuplepack.tensor_graph.views import check_rows

Key = TypeVar("Key")


def relations(
    hetero: bool, src: Any, dst: Any, numbers: Mapping[str, int], row_pointers: Any
) -> dict[EdgeType, Relation]:
    """Return the edges of each type, in the order of the types."""
    for node_type, number in numbers.items():
        if not isinstance(number, int | torch.SymInt) or isinstance(number, bool) or number < 0:
            raise SchemaError(
                f"num_nodes must be whole numbers >= 0, but that of node type {node_type!r} is {shown(number)}."
            )
    sources, destinations = (_by_type(name, hetero, each, EDGE_TYPE) for name, each in (("src", src), ("dst", dst)))
    pointers = {} if row_pointers is None else _by_type("row_pointers", hetero, row_pointers, EDGE_TYPE)
    if set(sources) != set(destinations):
        raise SchemaError(f"src has the edge types {sorted(sources)}, but dst has {sorted(destinations)}.")
    made = {}
    for edge_type in sorted(sources):
        source, _, destination = _checked_edge_type(edge_type, numbers)
        ends = sources[edge_type], destinations[edge_type]
        _check_ends(edge_type, *ends)
        pointer = pointers.get(edge_type)
        if pointer is not None:
            check_rows("row_pointers", pointer, numbers[destination] + 1, "pointers", edge_type)
        made[edge_type] = Relation(*ends, numbers[source], numbers[destination], pointer)
    return made


def _by_type(name: str, hetero: bool, given: Any, only: Any) -> dict[Any, Any]:
    if not hetero:
        if isinstance(given, Mapping):
            raise SchemaError(f"{name} is a dict by type, but num_nodes is one number; give a dict by node type.")
        return {only: given}
    if not isinstance(given, Mapping):
        raise SchemaError(f"num_nodes is a dict by type, but {name} is {type(given).__name__}; give a dict by type.")
    return dict(given)


def _checked_edge_type(edge_type: Any, numbers: Mapping[str, int]) -> EdgeType:
    if not isinstance(edge_type, tuple) or len(edge_type) != 3:
        raise SchemaError(
            f"edge types must be (source node type, edge type, destination node type), but one is {shown(edge_type)}."
        )
    unknown = [each for each in (edge_type[0], edge_type[2]) if each not in numbers]
    if unknown:
        raise SchemaError(f"edge type {edge_type!r} has node types that num_nodes {sorted(numbers)} does not have.")
    return edge_type


def _check_ends(edge_type: EdgeType, src: Any, dst: Any) -> None:
    for name, ends in (("src", src), ("dst", dst)):
        if not isinstance(ends, Tensor) or ends.dim() != 1 or ends.dtype not in (torch.int32, torch.int64):
            what = f"{ends.dtype} {list(ends.shape)}" if isinstance(ends, Tensor) else type(ends).__name__
            raise SchemaError(
                f"{name} of edge type {edge_type!r} must be a tensor of int32 or int64 with one axis, but is {what}."
            )
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise SchemaError(
            f"src and dst of edge type {edge_type!r} must have one length and dtype, but have {src.shape[0]} "
            f"{src.dtype} and {dst.shape[0]} {dst.dtype}."
        )


def features(
    name: str, hetero: bool, given: Mapping[Any, Any] | None, numbers: Mapping[Key, int], only: Any
) -> dict[Key, dict[str, Tensor]]:
    """Return a dict of features for each type."""
    frames: dict[Key, dict[str, Tensor]] = {each: {} for each in numbers}
    by_type = {} if given is None else dict(given) if hetero else {only: given}
    for of_type, frame in by_type.items():
        if of_type not in frames:
            raise SchemaError(f"{name} has the type {of_type!r}, but the graph has {list(frames)}.")
        if not isinstance(frame, Mapping):
            raise SchemaError(f"{name} of type {of_type!r} must be a dict of tensors, but is {type(frame).__name__}.")
        for feature, value in frame.items():
            check_rows(feature, value, numbers[of_type], "nodes" if "node" in name else "edges", of_type)
            frames[of_type][feature] = value
    return frames


def batch_numbers(name: str, hetero: bool, given: Any, types: Mapping[Key, int], only: Any) -> dict[Key, Tensor] | None:
    """Return the numbers in each graph of a batch by type; None where all is one graph."""
    if given is None:
        return None
    by_type = _by_type(name, hetero, given, only)
    if set(by_type) != set(types):
        raise SchemaError(f"{name} has the types {sorted(by_type)}, but the graph has {list(types)}.")
    return {each: by_type[each] for each in types}


def by_node_type(name: str, hetero: bool, given: Any, types: Types) -> dict[str, Tensor] | None:
    """Return a tensor for each node type, or None."""
    return batch_numbers(name, hetero, given, dict.fromkeys(types.node_types, 0), NODE_TYPE)


def by_edge_type(name: str, hetero: bool, given: Any, types: Types) -> dict[EdgeType, Tensor] | None:
    """Return a tensor for each edge type, or None."""
    return batch_numbers(name, hetero, given, dict.fromkeys(types.edge_types, 0), EDGE_TYPE)
