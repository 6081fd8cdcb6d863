"""Join PyG graphs by their own `__inc__` and `__cat_dim__`, and refuse graphs that differ or that cannot be joined.

A shift is what `__inc__` returns for an attribute of a graph: PyG adds it to the attribute in all later graphs of a
batch. For storages, see `graphs.pyg_layout`.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData

from dgl_tuplepack._core.checks import shown, whole_number
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType, GraphType
from dgl_tuplepack.graphs.named import check_types, is_pyg
from dgl_tuplepack.graphs.pyg_layout import (
    EDGE,
    ENDPOINTS,
    NUMBER,
    RESERVED,
    Attribute,
    Levels,
    Types,
    attribute_title,
    or_left_out,
    refuse_unknown,
    refuse_without_ends,
    title_of,
)
from dgl_tuplepack.graphs.relations import INDEX_TYPES
from dgl_tuplepack.graphs.schema import BY_TRANSFORM, ArraySpec, check_specs, differing_names
from dgl_tuplepack.planning.sizes import IntArray


@dataclass
class Joined:
    """An attribute of B graphs, joined."""

    # Axis of the rows in a graph; None if PyG adds an axis.
    dim: int | None
    # Describes a row.
    spec: ArraySpec
    # Number of rows of each graph, [B].
    rows: IntArray
    # Shift of each graph: [B], or [B, 2] if `is_ends`, with a column for each end.
    shifts: IntArray
    # The rows of all graphs, along the first axis, without shifts, and in the dtype that PyG's batch has.
    value: Tensor

    @property
    def is_ends(self) -> bool:
        """Whether the attribute has the shape, dtype and axis of an `edge_index`."""
        return has_form_of_ends(self.dim, self.spec)

    @property
    def is_shifted(self) -> bool:
        """Whether PyG shifts the attribute in any graph."""
        return bool(self.shifts.any())


@dataclass
class JoinedData:
    """A group of PyG graphs, joined."""

    node_types: list[str]
    edge_types: list[EdgeType]
    attributes: dict[Attribute, Joined]
    # Key of each storage that has nodes -> number of nodes of each graph, [B]; None if PyG would guess a number.
    nodes: dict[GraphType | None, IntArray | None]
    # Keys of the storages that have `num_nodes`.
    numbered: set[GraphType | None]
    # Whether the classes of all graphs have PyG's own `__inc__` and `__cat_dim__`.
    follows_pyg: bool
    # Names of attributes that are left out: by `levels`, or because they are text.
    left_out: set[str]
    # Display name of each graph.
    where: Sequence[str]
    # Keys of the storages that have no nodes (edges) in these and earlier graphs: later graphs decide their attributes.
    bare: set[GraphType | None]

    @property
    def is_flat(self) -> bool:
        """Whether the graphs are `Data`."""
        return None in self.nodes

    def counts(self, types: Types) -> dict[GraphType, IntArray]:
        """Return the number of nodes (edges) of each graph, ``[B]``, by type; raise SchemaError if one is unknown."""
        found: dict[GraphType, IntArray] = {}
        for t in types.all:
            storage, key = attribute = types.attribute_of(t)
            if key == NUMBER:
                known = self.nodes[storage]
            elif attribute in self.attributes:
                known = self.attributes[attribute].rows
            else:
                what = "counts the nodes" if isinstance(t, str) else "holds the endpoints of edges"
                raise SchemaError(
                    f"{title_of(self.where[0], storage)} has no attribute {key!r}, which {what} in earlier graphs; "
                    "set it."
                )
            if known is None:
                refuse_unknown(title_of(self.where[0], storage))
            found[t] = known
        return found

    @property
    def specs(self) -> dict[Attribute, ArraySpec]:
        """The spec of a row of each attribute; later graphs decide attributes that no graph with rows has shown."""
        open_ones = {p for p in self.attributes if p[0] in self.bare and _is_optional(p)}
        return {p: a.spec for p, a in self.attributes.items() if p not in open_ones or a.rows.any()}

    def without_values(self) -> JoinedData:
        """Return the group without the values of attributes."""
        return replace(self, attributes={p: replace(a, value=a.value[:0]) for p, a in self.attributes.items()})

    def completed(self, expected: Mapping[Attribute, Joined]) -> JoinedData:
        """Return the group with the expected attributes that it lacks, or has without rows and with another spec."""
        found = {p: self.attributes.get(p, a) for p, a in expected.items()}
        for p, a in expected.items():
            if p[1] == ENDPOINTS or (p in self.attributes and found[p].spec == a.spec):
                continue
            ends = found.get((p[0], ENDPOINTS))
            shifts = np.zeros((len(self.where), *a.shifts.shape[1:]), np.int64)
            if a.is_shifted and ends is not None:
                # PyG shifts other indices of edges as their endpoints.
                shifts = ends.shifts if a.is_ends else ends.shifts[:, 0]
            found[p] = replace(a, rows=np.zeros(len(self.where), np.int64), shifts=shifts, value=a.value[:0])
        return replace(self, attributes=found)


def merged(groups: Sequence[JoinedData]) -> JoinedData:
    """Join groups that have no values; each must fit the one before it, see `join_graphs`."""
    # Groups with rows decide the spec of an attribute; `sorted` puts them last.
    shown = [item for group in groups for item in group.attributes.items()]
    found = dict(sorted(shown, key=lambda item: item[1].rows.any()))
    order = [None, *groups[0].node_types, *groups[0].edge_types]
    expected = {p: found[p] for p in sorted(found, key=lambda p: (order.index(p[0]), p[1]))}
    completed = [group.completed(expected).attributes for group in groups]
    attributes = {
        p: replace(
            completed[0][p],
            rows=np.concatenate([each[p].rows for each in completed]),
            shifts=np.concatenate([each[p].shifts for each in completed]),
            # As in PyG, indices become int64 if only some groups have int32.
            value=torch.cat([each[p].value for each in completed]),
        )
        for p in expected
    }

    def merged_nodes(t: GraphType | None) -> IntArray | None:
        known = [n for group in groups if (n := group.nodes[t]) is not None]
        return np.concatenate(known) if len(known) == len(groups) else None

    return replace(
        groups[0],
        attributes=attributes,
        nodes={t: merged_nodes(t) for t in groups[0].nodes},
        where=[name for group in groups for name in group.where],
        follows_pyg=all(group.follows_pyg for group in groups),
        left_out=set().union(*(group.left_out for group in groups)),
    )


class Expected(NamedTuple):
    """What graphs must have, since a schema or earlier graphs have it."""

    node_types: list[str]
    edge_types: list[EdgeType]
    # Spec of a row of each attribute; None for endpoints, which may have 32 or 64 bits.
    specs: Mapping[Attribute, ArraySpec | None]
    # See `JoinedData.bare`.
    bare: Collection[GraphType | None] = ()


def join_graphs(
    graphs: Sequence[Any], where: Sequence[str], levels: Levels, expected: Expected | JoinedData | None = None
) -> JoinedData:
    """Join graphs as PyG does; raise SchemaError if they differ from each other, or from what is expected.

    `where` has the display names of the graphs. Attributes with the level None in `levels` are left out; other levels
    are not used here.
    """
    types = types_in(graphs[0]) if expected is None else (expected.node_types, expected.edge_types)
    for data, item_name in zip(graphs, where, strict=True):
        check_library(data, item_name)
        check_types(types_in(data), types, item_name, "the example")
    left_out, texts = {key for key, level in levels.items() if level is None}, set[str]()
    storages = [dict(storages_of(data)) for data in graphs]
    shown = [
        {(t, key) for t, s in each.items() for key in _keys(s, left_out, texts, item_name)}
        for each, item_name in zip(storages, where, strict=True)
    ]
    # For each graph, the keys of storages without nodes (edges), which may lack `_is_optional` attributes.
    without = [{t for t, storage in each.items() if _is_bare(storage)} for each in storages]
    # Storages whose attributes the first graph, or earlier graphs, could not show.
    bare = without[0] if expected is None else expected.bare
    specs: Mapping[Attribute, ArraySpec | None] = {} if expected is None else expected.specs
    right = {p for each in shown for p in each if p[0] in bare and _is_optional(p)}
    right |= shown[0] if expected is None else specs.keys()
    for i, found in enumerate(shown):
        found |= {p for p in right if p[0] in without[i] and _is_optional(p)}
        if found != right:
            _refuse_names(where[i], where[0], found, right)
    follows = all(map(follows_pyg, {type(data) for data in graphs}))
    with_nodes: list[GraphType | None] = [*types[0]] if isinstance(graphs[0], HeteroData) else [None]
    # Only a Data whose class overrides `__inc__` or `__cat_dim__` may have an unknown number of nodes.
    nodes = dict[GraphType | None, IntArray | None]()
    for t in with_nodes:
        numbers = [known_nodes(each[t], title_of(name, t)) for each, name in zip(storages, where, strict=True)]
        if None in numbers and (follows or t is not None):
            refuse_unknown(title_of(where[numbers.index(None)], t))
        nodes[t] = None if None in numbers else np.array(numbers, np.int64)
    order, attributes = [*storages[0]], dict[Attribute, Joined]()
    with warnings.catch_warnings():
        # PyG's `__inc__` warns when it guesses the number of nodes of bipartite graphs.
        warnings.simplefilter("ignore")
        for p in sorted(right, key=lambda p: (order.index(p[0]), p[1])):
            may_lack = {i for i, own in enumerate(without) if p[0] in own} if _is_optional(p) else set[int]()
            attributes[p] = _joined(p, graphs, storages, where, may_lack, specs.get(p))
    numbered = {t for t, storage in storages[0].items() if NUMBER in storage}
    bare = {t for t in bare if all(t in own for own in without)}
    return JoinedData(*types, attributes, nodes, numbered, follows, left_out | texts, list(where), bare)


def _is_optional(attribute: Attribute) -> bool:
    """Return whether graphs may lack an attribute if its type has no nodes (edges) there."""
    t, key = attribute
    return key not in (ENDPOINTS, NUMBER) and (t is not None or EDGE in key)


def _is_bare(storage: Any) -> bool:
    """Return whether a storage may be without nodes (edges)."""
    return storage.get(NUMBER) == 0 or any(map(_is_empty, storage.values()))


def _is_empty(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.numel()


def _keys(storage: Any, left_out: Collection[str], texts: set[str], where: str) -> Iterator[str]:
    """Yield the names of the attributes to read from a storage; add the names of text attributes to `texts`."""
    for key, value in storage.items():
        # Only storages of nodes, and the storage of a Data, may have `num_nodes`.
        is_number = key == NUMBER and hasattr(type(storage), "can_infer_num_nodes")
        if is_number or key in left_out:
            continue
        if _is_text(value):
            texts.add(key)
        elif not key:
            raise SchemaError(f"{where} has an attribute without a name; give it one.")
        elif key in (*RESERVED, NUMBER):
            raise SchemaError(
                f"{where} has the attribute {key!r}, a name that batches use themselves; rename it, or leave it out: "
                f'levels={{"{key}": None}}.'
            )
        else:
            yield key


def _is_text(value: Any) -> bool:
    """Return whether a value is text, or a non-empty list or tuple of only text."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_text, value))
    return isinstance(value, str)


def _refuse_names(where: str, first: str, found: Collection[Attribute], expected: Collection[Attribute]) -> NoReturn:
    """Raise the error for a graph whose attributes `found` differ from the attributes `expected`."""
    differ = {*found} ^ {*expected}
    # Missing endpoints, of this graph or of the first one, have an error of their own.
    for t, key in differ:
        if key == ENDPOINTS:
            refuse_without_ends(title_of(where if (t, key) in expected else first, t))
    # Attributes of edge types come last.
    names, right = (
        [_name(p) for p in sorted(attributes, key=lambda p: (isinstance(p[0], tuple), str(p))) if p[1] != ENDPOINTS]
        for attributes in (found, expected)
    )
    # Such as "add x and delete z".
    steps = " and ".join(map(" ".join, differing_names(names, right)))
    levels = ", ".join(sorted({f"{key!r}: None" for _, key in differ}))
    raise SchemaError(
        f"{where} has the attributes {', '.join(names) or '(none)'}, but the first graph has "
        f"{', '.join(right) or 'none'}; every graph needs the same attributes: {steps} {BY_TRANSFORM}, or leave them "
        f"out of all graphs by levels={{{levels}}}."
    )


def _name(attribute: Attribute) -> str:
    """Return the display name of an attribute, without the name of a graph."""
    t, key = attribute
    return key if t is None else f"{key} of {t}"


def _joined(
    attribute: Attribute,
    graphs: Sequence[Any],
    storages: Sequence[Any],
    where: Sequence[str],
    may_lack: Collection[int],
    spec: ArraySpec | None,
) -> Joined:
    """Join an attribute of all graphs, as PyG's `collate` does; raise SchemaError if graphs differ.

    `spec` is what all graphs must have; None means the spec of the first graph. The graphs with the indices `may_lack`
    have no nodes (edges) of its type: there, the attribute may be missing, or be empty with another spec.
    """
    t, key = attribute
    whats = [attribute_title(key, item_name, t) for item_name in where]
    if spec is None:
        i = min((i for i, each in enumerate(storages) if key in each[t]), key=lambda i: (i in may_lack, i))
        _, spec = described(storages[i][t][key], key, graphs[i], storages[i][t], whats[i])
    dims, values, shifts = list[int | None](), list[Tensor](), list[Any]()
    for i, (data, each, what) in enumerate(zip(graphs, storages, whats, strict=True)):
        storage, value = each[t], each[t].get(key)
        dim, found = (0, None) if value is None else described(value, key, data, storage, what)
        if i in may_lack and found != spec and (value is None or _is_empty(value)):
            value, found = spec.filled(0, 0), spec
            dim, _ = described(value, key, data, storage, what)
            value = value.movedim(0, dim or 0)
        # PyG joins endpoints of 32 and 64 bits to 64 bits, so their specs may differ.
        if found is not None and found != spec and key != ENDPOINTS:
            name = _name(attribute)
            check_specs({name: found}, {name: spec}, f"{where[i]}, rows of attributes", BY_TRANSFORM)
        tensor = value if isinstance(value, Tensor) else torch.tensor(value)
        dims.append(dim)
        values.append(tensor.unsqueeze(0) if dim is None or not tensor.ndim else tensor)
        shifts.append(_result_of("__inc__", data, key, value, storage, what))
    axis = dims[0] or 0
    rows = np.array([value.shape[axis] for value in values], np.int64)
    try:
        joined = torch.cat(values, dim=axis).movedim(axis, 0)
    except RuntimeError as error:
        raise SchemaError(
            f"{whats[0]} and of the graphs after it cannot be joined: {error!s:.200}; move all graphs to one device."
        ) from error
    is_ends = has_form_of_ends(dims[0], spec)
    try:
        # [B, ...]
        every = torch.stack(shifts).cpu() if isinstance(shifts[0], Tensor) else torch.tensor(shifts)
        shape = tuple(every.shape[1:])
        is_number = every[0].numel() == 1 and len(shape) <= joined.ndim
        good = (every == every.long()).all() and (is_number or (is_ends and shape == (2, 1)))
    except (TypeError, ValueError, RuntimeError):
        good = False
    if not good:
        raise SchemaError(
            f"{whats[0]} is shifted by {shown(shifts[0])}, which __inc__ returns, but it must return a whole number, "
            "or, for an attribute of shape [2, K], a row for each end: [[number of source nodes], [number of "
            "destination nodes]]; correct __inc__."
        )
    # PyG adds the shifts, which may widen the dtype.
    dtype = torch.result_type(joined, every[0]) if shape or every.any() else joined.dtype
    numbers = every.long().reshape(len(rows), -1).numpy()
    numbers = numbers.repeat(2 // numbers.shape[1], axis=1) if is_ends else numbers[:, 0]
    return Joined(dims[0], spec, rows, numbers, joined.to(dtype))


def _result_of(method: str, data: Any, key: str, value: Any, storage: Any, what: str) -> Any:
    """Call `__inc__` or `__cat_dim__` of a graph; raise SchemaError if it fails."""
    try:
        return getattr(data, method)(key, value, storage)
    except Exception as error:
        # The method of a user's class may raise any exception.
        raise SchemaError(
            f"{what} cannot be joined, since {method} of {type(data).__name__} fails: {type(error).__name__}: "
            f"{error!s:.200}; correct {method} or set num_nodes{or_left_out(key)}."
        ) from error


def has_form_of_ends(dim: int | None, spec: ArraySpec) -> bool:
    """Return whether an attribute has the shape, dtype and axis of an `edge_index`."""
    return spec.shape == (2,) and spec.dtype in INDEX_TYPES and dim in (-1, 1)


def described(value: Any, key: str, data: Any, storage: Any, what: str) -> tuple[int | None, ArraySpec]:
    """Return the axis of the rows of an attribute (None if PyG adds an axis), and the spec of a row.

    Raise SchemaError if the attribute cannot be batched. `what` is its display name.
    """
    is_number = isinstance(value, bool | int | float) and (not isinstance(value, int) or -(2**63) <= value < 2**63)
    plain = type(value) in (Tensor, nn.Parameter) and value.layout == torch.strided
    if not is_number and (not plain or value.is_nested):
        raise SchemaError(
            f"{what} is {shown(value)}{f' ({type(value).__name__})' if isinstance(value, Tensor) else ''}, but must be "
            "a dense tensor or a number of 64 bits; convert it (an EdgeIndex or Index by .as_tensor(), a sparse adj_t "
            "by edge_index = torch.stack(adj_t.coo()[:2][::-1]), an array by torch.from_numpy), or leave it out by "
            "levels={name: None}."
        )
    tensor = torch.tensor(value) if is_number else value
    dim = _result_of("__cat_dim__", data, key, value, storage, what)
    shape = tuple(tensor.shape)
    if dim is not None and (type(dim) is not int or (shape and not -len(shape) <= dim < len(shape))):
        raise SchemaError(
            f"__cat_dim__ returns {shown(dim)} for {what}, which has the shape {list(shape)}; it must return one of "
            "its axes, or None; correct it."
        )
    if key == ENDPOINTS and (len(shape) != 2 or shape[0] != 2 or tensor.dtype not in INDEX_TYPES):
        raise SchemaError(
            f"{what} is {str(tensor.dtype).removeprefix('torch.')} {list(shape)}, but must be int64 or int32 [2, E]; "
            "convert it."
        )
    if key == ENDPOINTS and dim not in (-1, 1):
        raise SchemaError(f"{what} is joined along {dim} by __cat_dim__, but edges need the last axis; correct it.")
    # A number, or a value for which PyG adds an axis, is one row as a whole.
    if not shape or dim is None:
        return dim if dim is None else 0, ArraySpec(shape, tensor.dtype)
    axis = dim % len(shape)
    # The axis as __cat_dim__ returns it, such as -1, but the first axis always as 0.
    return (dim if axis else 0), ArraySpec((*shape[:axis], *shape[axis + 1 :]), tensor.dtype)


def known_nodes(storage: Any, what: str) -> int | None:
    """Return the number of nodes of a storage; None if PyG has no number, or only a guess."""
    if NUMBER in storage:
        return whole_number(f"num_nodes of {what}", storage[NUMBER], 0, error=SchemaError)
    try:
        with warnings.catch_warnings():
            # PyG warns when it guesses the number.
            warnings.simplefilter("error")
            number = storage.num_nodes
    except (UserWarning, IndexError):
        return None
    except Exception as error:
        # The methods of a user's class may raise any exception.
        raise SchemaError(
            f"the number of nodes of {what} cannot be read: {type(error).__name__}: {error!s:.200}; correct "
            "__cat_dim__, or set num_nodes."
        ) from error
    return None if number is None else int(number)


def storages_of(data: Any) -> Iterator[tuple[GraphType | None, Any]]:
    """Yield (key, storage) for each storage of a graph; the storage of the whole graph comes first."""
    yield None, data.stores[0]
    if isinstance(data, HeteroData):
        yield from sorted(data.node_items(), key=lambda item: item[0])
        yield from sorted(data.edge_items(), key=lambda item: item[0])


def types_in(data: Any) -> tuple[list[str], list[EdgeType]]:
    """Return the node types and edge types of a HeteroData, sorted; for a Data, return two empty lists."""
    return (sorted(data.node_types), sorted(data.edge_types)) if isinstance(data, HeteroData) else ([], [])


def follows_pyg(graph_class: Any) -> bool:
    """Return whether a graph class has PyG's own `__inc__` and `__cat_dim__`."""
    base: Any = HeteroData if issubclass(graph_class, HeteroData) else Data
    return graph_class.__inc__ is base.__inc__ and graph_class.__cat_dim__ is base.__cat_dim__


def check_library(data: Any, where: str, expects_pyg: bool = True) -> None:
    """Refuse (SchemaError) a graph of the wrong library, and any PyG batch."""
    if is_pyg(data) != expects_pyg:
        found, other = ("PyG", "DGL") if is_pyg(data) else ("DGL", "PyG")
        raise SchemaError(
            f"{where} is a {found} graph, but the example or earlier graphs are {other} graphs; use only one library."
        )
    if isinstance(data, Batch):
        raise SchemaError(f"{where} is a batch of graphs; give its graphs, batch.to_data_list().")
