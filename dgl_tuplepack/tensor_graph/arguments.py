"""Arguments of a TensorGraph: one value for one type each, or dicts by type; all of them checked."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from dgl_tuplepack._checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType
from dgl_tuplepack.tensor_graph.groups import is_readable
from dgl_tuplepack.tensor_graph.relation import Relation
from dgl_tuplepack.tensor_graph.views import check_rows

Key = TypeVar("Key")

_INTEGERS = (torch.int32, torch.int64)


def relations(hetero: bool, src: Any, dst: Any, numbers: Mapping[str, int]) -> dict[EdgeType, Relation]:
    """Return the edges of each type, in the order of the types."""
    sources, destinations = (_by_type(name, hetero, each, EDGE_TYPE) for name, each in (("src", src), ("dst", dst)))
    for edge_type in sources:
        _checked_edge_type(edge_type, numbers)
    if set(sources) != set(destinations):
        raise SchemaError(
            f"src has the edge types {sorted(sources)}, but dst has {sorted(destinations)}; give both of each type."
        )
    made = {}
    for edge_type in sorted(sources):
        source, _, destination = edge_type
        ends = sources[edge_type], destinations[edge_type]
        _check_ends(edge_type, *ends)
        _check_are_nodes("src", ends[0], numbers[source], edge_type, source)
        _check_are_nodes("dst", ends[1], numbers[destination], edge_type, destination)
        made[edge_type] = Relation(*ends, numbers[source], numbers[destination])
    return made


def numbers_of_nodes(given: Any) -> dict[str, int]:
    """Return the number of nodes by type."""
    by_type: Mapping[str, Any] = given if isinstance(given, Mapping) else {NODE_TYPE: given}
    return {node_type: _checked_number(node_type, number) for node_type, number in by_type.items()}


def _checked_number(node_type: str, number: Any) -> int:
    # A tracer has symbols for numbers, which stay what they are.
    whole: Any = number if isinstance(number, int | torch.SymInt) else None
    if whole is None and not isinstance(number, Tensor) and hasattr(number, "__index__"):
        whole = operator.index(number)
    if whole is None or isinstance(number, bool) or whole < 0:
        raise SchemaError(
            f"num_nodes must be whole numbers >= 0, but that of node type {node_type!r} is {shown(number)}; give the "
            "number of nodes, as a Python number."
        )
    checked: int = whole
    return checked


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
        if not isinstance(ends, Tensor) or ends.dim() != 1 or ends.dtype not in _INTEGERS:
            what = f"{ends.dtype} {list(ends.shape)}" if isinstance(ends, Tensor) else type(ends).__name__
            raise SchemaError(
                f"{name} of edge type {edge_type!r} must be a tensor of int32 or int64 with one axis, but is {what}."
            )
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise SchemaError(
            f"src and dst of edge type {edge_type!r} must have one length and dtype, but have {src.shape[0]} "
            f"{src.dtype} and {dst.shape[0]} {dst.dtype}."
        )


def _check_are_nodes(name: str, ends: Tensor, number: int, edge_type: EdgeType, node_type: str) -> None:
    """Check that nodes are there, where that takes no waiting for a device; torch looks again."""
    if not is_readable(ends) or not ends.numel():
        return
    least, most = torch.aminmax(ends)
    if least < 0 or most >= number:
        edge = int(torch.nonzero((ends < 0) | (ends >= number))[0])
        allowed = f"numbers 0..{number - 1}" if number else "no edges"
        raise SchemaError(
            f"{name}[{edge}] of edge type {edge_type!r} is {int(ends[edge])}, but there are {number} nodes of type "
            f"{node_type!r}; give {allowed}."
        )


def _check_indices(name: str, values: Any, number: int | None, of_type: Any, dtypes: tuple[torch.dtype, ...]) -> None:
    """Check the shape and the dtype of numbers of rows."""
    fits = isinstance(values, Tensor) and values.dim() == 1 and values.dtype in dtypes
    if not fits or (number is not None and values.shape[0] != number):
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        length = "" if number is None else f" of {number} entries"
        what = f"{values.dtype} {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise SchemaError(
            f"{name} of type {of_type!r} must be a tensor of {allowed} with one axis{length}, but is {what}."
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
    by_type = _of_all_types(name, hetero, given, types, only)
    if by_type is None:
        return None
    graphs = None
    for of_type, counts in by_type.items():
        _check_indices(name, counts, graphs, of_type, _INTEGERS)
        graphs = counts.shape[0]
    return by_type


def check_graphs(of_nodes: Mapping[str, Tensor] | None, of_edges: Mapping[EdgeType, Tensor] | None) -> None:
    """Check that numbers of nodes and of edges are those of as many graphs."""
    if not of_nodes or not of_edges:
        return
    graphs, others = (next(iter(each.values())).shape[0] for each in (of_nodes, of_edges))
    if graphs != others:
        raise SchemaError(
            f"batch_num_nodes is of {graphs} graphs, but batch_num_edges of {others}; give a number for each graph."
        )


def graph_slots(
    name: str, hetero: bool, given: Any, types: Mapping[Key, int], only: Any, counts: Any
) -> dict[Key, Tensor] | None:
    """Return the graph of each row by type, or None."""
    by_type = _of_all_types(name, hetero, given, types, only)
    if by_type is None:
        return None
    if counts is None:
        of_counts = "batch_num_nodes" if "node" in name else "batch_num_edges"
        raise SchemaError(f"{name} is given without {of_counts}, which tells the number of graphs; give both.")
    for of_type, slots in by_type.items():
        _check_indices(name, slots, types[of_type], of_type, (torch.int64,))
    return by_type


def _of_all_types(name: str, hetero: bool, given: Any, types: Mapping[Key, int], only: Any) -> dict[Key, Tensor] | None:
    if given is None:
        return None
    by_type = _by_type(name, hetero, given, only)
    if set(by_type) != set(types):
        raise SchemaError(f"{name} has the types {sorted(by_type)}, but the graph has {list(types)}; give all of them.")
    return {each: by_type[each] for each in types}
