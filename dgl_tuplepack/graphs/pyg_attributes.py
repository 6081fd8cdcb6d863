"""Attributes of PyG's graphs: which ones there are, and what their values must be."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._checks import shown, whole_number
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.pyg_form import NUMBER, RESERVED, increment_of, or_left_out, told
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.relations import INDEX_TYPES
from dgl_tuplepack.graphs.schema import ArraySpec
from dgl_tuplepack.sizes import IntArray


@dataclass(frozen=True)
class Attribute:
    """An attribute of some graphs: where it stands, and the number of its rows in each of them.

    `type` is the key of its storage: None for what a `Data`, or a `HeteroData` as a whole, has. `dim` is the axis of
    the rows, None if PyG adds one; `spec` tells a row.
    """

    type: GraphType | None
    key: str
    dim: int | None
    spec: ArraySpec
    rows: IntArray

    def __str__(self) -> str:
        return f"the attribute {self.key!r}" + ("" if self.type is None else f" of {self.type!r}")


def checked_levels(levels: Any) -> Levels:
    """Return the setting `levels`; SchemaError if it is not a dict of names to texts or None."""
    good = isinstance(levels, Mapping) and all(
        isinstance(key, str) and (level is None or (isinstance(level, str) and level)) for key, level in levels.items()
    )
    if not good:
        raise SchemaError(
            'levels must be a dict of names of attributes to "node", "edge", "graph", the name of an attribute that '
            f"counts nodes or is endpoints of edges, or None to leave one out, but is {shown(levels)}; give one, such "
            'as {"w": "edge"}.'
        )
    return dict(levels)


def is_text(value: Any) -> bool:
    """Whether an attribute is text, or a list of texts."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(is_text, value))
    return isinstance(value, str)


def keys_of(storage: Any, ends: Collection[str], levels: Levels, left_out: set[str], where: str) -> Iterator[str]:
    """Yield the names of the attributes of a storage that are read, and add the others to `left_out`.

    Those in `ends`, which are endpoints, and `num_nodes` are read on their own.
    """
    for key, value in storage.items():
        is_number = key == NUMBER and hasattr(type(storage), "can_infer_num_nodes")
        if key in ends or is_number:
            continue
        if key in levels and levels[key] is None:
            left_out.add(key)
        elif is_text(value):
            if key not in left_out:
                warnings.warn(
                    f"the attribute {key!r} is text, which batches cannot hold, and is left out; name it to leave it "
                    f'out without this warning: levels={{"{key}": None}}.',
                    stacklevel=2,
                )
            left_out.add(key)
        elif not key:
            raise SchemaError(f"{where} has an attribute without a name; give it one.")
        elif key in (*RESERVED, NUMBER):
            raise SchemaError(
                f"{where} has the attribute {key!r}, a name that batches use themselves; rename it, or leave it out: "
                f'levels={{"{key}": None}}.'
            )
        else:
            yield key


def plain_tensor(value: Any, what: str) -> Tensor:
    """Return an attribute as a tensor; SchemaError if it is neither a dense tensor nor a number."""
    if isinstance(value, bool | int | float) and (not isinstance(value, int) or -(2**63) <= value < 2**63):
        return torch.tensor(value)
    if isinstance(value, Tensor) and value.layout == torch.strided and not (value.is_nested or value.is_meta):
        # PyG's own classes of tensors hold a plain one.
        return value.as_tensor() if hasattr(value, "as_tensor") else value
    raise SchemaError(
        f"{what} is {shown(value)}, but must be a dense tensor, or a number of 64 bits; convert it - a sparse adj_t by "
        "edge_index = torch.stack(adj_t.coo()[:2][::-1]), an array by torch.from_numpy -, or leave it out by "
        "levels={name: None}."
    )


def described(data: Any, storage: Any, key: str, value: Tensor, what: str) -> tuple[int | None, ArraySpec]:
    """Return the axis of the rows of an attribute, and a row of it."""
    dim = told(data, "__cat_dim__", key, storage, what)
    if dim is not None and type(dim) is not int:
        raise SchemaError(f"{what} is joined along {shown(dim)} by __cat_dim__; it must be one axis, or None.")
    shape = tuple(value.shape)
    if value.ndim == 0 or dim is None:
        return (0 if value.ndim == 0 and dim is not None else dim), ArraySpec(shape, value.dtype)
    if not -value.ndim <= dim < value.ndim:
        raise SchemaError(f"{what} has the shape {list(shape)}, but __cat_dim__ says axis {dim}; correct one of them.")
    axis = dim % value.ndim
    return (dim if axis else 0), ArraySpec((*shape[:axis], *shape[axis + 1 :]), value.dtype)


def check_endpoints(value: Any, key: str, what: str) -> Tensor:
    """Return the endpoints of edges; SchemaError if they are not ``[2, E]`` of integers."""
    if value is None:
        raise SchemaError(
            f"{what} has no {key}; set one, for no edges torch.empty(2, 0, dtype=torch.long), from a sparse adj_t "
            "torch.stack(adj_t.coo()[:2][::-1])."
        )
    ends = plain_tensor(value, f"the {key} of {what}")
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype not in INDEX_TYPES:
        raise SchemaError(
            f"the {key} of {what} is {str(ends.dtype).removeprefix('torch.')} {list(ends.shape)}, but must be int64 or "
            "int32 [2, E]; convert it."
        )
    return ends


def check_increment(data: Any, storage: Any, key: str, counts: Sequence[int], what: str) -> None:
    """Refuse a graph that shifts an attribute by something else than `counts`: one number, or one for each end."""
    found = increment_of(data, storage, key, what)
    # A row for each end: PyG would add [2] to the columns.
    expected, flat = [[number] for number in counts], found.reshape(-1).tolist()
    if {*flat} != {*counts} or (len({*counts}) > 1 and found.tolist() != expected):
        by_row = f", a row for each end: {expected}" if len({*counts}) > 1 else ""
        raise SchemaError(
            f"{what} is shifted by {shown(flat)}, which __inc__ of {type(data).__name__} returns, but it counts "
            f"{' and '.join(map(str, counts))}{by_row}; correct __inc__{or_left_out(key)}."
        )


def check_known(key: str | None, what: str) -> str:
    """Return `key`; SchemaError if there is no attribute that tells the number of nodes."""
    if key is None:
        raise SchemaError(
            f"the number of nodes of {what} is not known: it has neither num_nodes nor an attribute such as x; set "
            "num_nodes (PyG itself would count up to the last node that has an edge). Several graphs in one Data need "
            "a class whose __inc__ tells which nodes each of them counts, as in PyG's guide, or one HeteroData."
        )
    return key


class Sizes:
    """Nodes and edges of each type, int64 ``[n]`` each, of some graphs; `where` has their names, None for item i."""

    def __init__(
        self,
        nodes: Mapping[str, IntArray],
        edges: Mapping[EdgeType, IntArray],
        where: Sequence[str] | None = None,
    ) -> None:
        self.nodes, self.edges, self._where = nodes, edges, where

    def where(self, position: int) -> str:
        """Return what messages call a graph."""
        return f"item {position}" if self._where is None else self._where[position]


def whole_nodes(value: Any, what: str) -> int:
    """Return the attribute `num_nodes`."""
    return whole_number(f"num_nodes of {what}", value, 0, error=SchemaError)
