"""Check the arguments of a TensorGraph: dicts by node type or edge type for heterographs, else single values.

Public functions return dicts by type. A single value gets the type `NODE_TYPE` or `EDGE_TYPE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown, whole_number
from dgl_tuplepack.compiling.tensor_graph.groups import Relation, is_readable
from dgl_tuplepack.compiling.tensor_graph.views import check_rows
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType

_INTEGERS = (torch.int32, torch.int64)


def relations(hetero: bool, src: Any, dst: Any, numbers: Mapping[str, int]) -> dict[EdgeType, Relation]:
    """Return the edges of each type, sorted by type; `numbers`: node type -> number of nodes."""
    sources, destinations = (_by_type(name, hetero, each, EDGE_TYPE) for name, each in (("src", src), ("dst", dst)))
    for edge_type in sources:
        is_triple = isinstance(edge_type, tuple) and len(edge_type) == 3
        if not is_triple or edge_type[0] not in numbers or edge_type[2] not in numbers:
            raise SchemaError(
                f"an edge type must be (source node type, edge type, destination node type) with the node types "
                f"{sorted(numbers)} of num_nodes, but is {shown(edge_type)}."
            )
    if set(sources) != set(destinations):
        raise SchemaError(
            f"src has the edge types {sorted(sources)}, but dst has {sorted(destinations)}; give both the same types."
        )
    return {t: _relation(t, sources[t], destinations[t], numbers[t[0]], numbers[t[2]]) for t in sorted(sources)}


def _relation(t: EdgeType, src: Any, dst: Any, num_src: int, num_dst: int) -> Relation:
    """Check the end nodes of the edges of type `t`, and return these edges."""
    for name, ends in (("src", src), ("dst", dst)):
        _check_indices(name, ends, t, _INTEGERS)
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise SchemaError(
            f"src and dst of edge type {t!r} must have the same length and dtype, but have {src.shape[0]} {src.dtype} "
            f"and {dst.shape[0]} {dst.dtype}."
        )
    _check_are_nodes("src", src, num_src, t, t[0])
    _check_are_nodes("dst", dst, num_dst, t, t[2])
    return Relation(src, dst, num_src, num_dst)


def numbers_of_nodes(given: Any) -> dict[str, int]:
    """Return the number of nodes by type."""
    by_type: Mapping[str, Any] = given if isinstance(given, Mapping) else {NODE_TYPE: given}
    return {node_type: _checked_number(node_type, number) for node_type, number in by_type.items()}


def _checked_number(node_type: str, number: Any) -> int:
    # Torch's tracer may pass a symbol as a number; it stays a symbol.
    if isinstance(number, int | torch.SymInt) and not isinstance(number, bool) and number >= 0:
        return number  # type: ignore[return-value]
    return whole_number(f"num_nodes of node type {node_type!r}", number, 0, error=SchemaError)


def _by_type(name: str, hetero: bool, given: Any, only_type: GraphType) -> dict[Any, Any]:
    """Return an argument as a dict by type."""
    if hetero != isinstance(given, Mapping):
        expected = "a dict by type" if hetero else "one value"
        raise SchemaError(f"num_nodes is {expected}, but {name} is {type(given).__name__}; give {expected} for both.")
    return dict(given) if hetero else {only_type: given}


def _check_are_nodes(name: str, ends: Tensor, number: int, edge_type: EdgeType, node_type: str) -> None:
    """Check that all end nodes in `ends` are below the `number` of nodes, and not negative.

    If `ends` is not on the CPU, or if it is traced, skip the check; torch checks the nodes when it uses them.
    """
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


def _check_indices(
    name: str, values: Any, of_type: Any, dtypes: tuple[torch.dtype, ...], number: int | None = None
) -> None:
    """Check the dtype and the length (`number`; None: any) of end nodes, counts or graph slots."""
    fits = isinstance(values, Tensor) and values.dim() == 1 and values.dtype in dtypes
    if not fits or (number is not None and values.shape[0] != number):
        allowed = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        length = "" if number is None else f" of {number} entries"
        what = f"{values.dtype} {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise SchemaError(
            f"{name} of type {of_type!r} must be a tensor of {allowed} with one axis{length}, but is {what}."
        )


def frames(
    hetero: bool, given: Mapping[str, Mapping[Any, Any] | None], rows: Mapping[GraphType, int]
) -> dict[GraphType, dict[str, Tensor]]:
    """Return a dict of features for each type.

    `given`: argument name -> features, first of nodes, then of edges.
    """
    made: dict[GraphType, dict[str, Tensor]] = {each: {} for each in rows}
    for (argument, features), only_type in zip(given.items(), (NODE_TYPE, EDGE_TYPE), strict=True):
        by_type = {} if features is None else features if hetero else {only_type: features}
        for of_type, frame in by_type.items():
            if of_type not in made:
                raise SchemaError(f"{argument} has the type {of_type!r}, but the graph has {list(made)}.")
            if not isinstance(frame, Mapping):
                raise SchemaError(
                    f"{argument} of type {of_type!r} must be a dict of tensors, but is {type(frame).__name__}."
                )
            for name, value in frame.items():
                check_rows(name, value, rows[of_type], of_type)
                made[of_type][name] = value
    return made


def batch_numbers(hetero: bool, given: Mapping[str, Any], rows: Mapping[GraphType, int]) -> dict[GraphType, Tensor]:
    """Return the number of nodes or edges of each graph, by type; types without given numbers are left out."""
    counts: dict[GraphType, Tensor] = {}
    for argument, of_type, values in _of_all_types(hetero, given, rows):
        # The first type decides the number of graphs: all types must have the same number.
        num_graphs = next(iter(counts.values())).shape[0] if counts else None
        _check_indices(argument, values, of_type, _INTEGERS, num_graphs)
        counts[of_type] = values
    return counts


def graph_slots(
    hetero: bool, given: Mapping[str, Any], rows: Mapping[GraphType, int], counts: Mapping[GraphType, Tensor]
) -> dict[GraphType, Tensor]:
    """Return the index of the graph of each node or edge, by type; types without given values are left out."""
    slots: dict[GraphType, Tensor] = {}
    for argument, of_type, values in _of_all_types(hetero, given, rows):
        if of_type not in counts:
            raise SchemaError(
                f"{argument} is given without the numbers of nodes or edges in each graph; give batch_num_nodes and "
                "batch_num_edges too."
            )
        _check_indices(argument, values, of_type, (torch.int64,), rows[of_type])
        slots[of_type] = values
    return slots


def _of_all_types(
    hetero: bool, given: Mapping[str, Any], rows: Mapping[GraphType, int]
) -> list[tuple[str, GraphType, Any]]:
    """Return (argument name, type, value of that type) for all types of each argument that is not None.

    `given`: argument name -> values, first of nodes, then of edges.
    """
    listed = []
    default_types: tuple[GraphType, GraphType] = (NODE_TYPE, EDGE_TYPE)
    for (argument, values), only_type in zip(given.items(), default_types, strict=True):
        if values is None:
            continue
        # All node types, or all edge types: node types are strings, and edge types are tuples.
        types = [each for each in rows if isinstance(each, type(only_type))]
        by_type = _by_type(argument, hetero, values, only_type)
        if set(by_type) != set(types):
            raise SchemaError(
                f"{argument} has the types {sorted(by_type)}, but the graph has {types}; give the types of the graph."
            )
        listed += [(argument, each, by_type[each]) for each in types]
    return listed
