"""Join PyG graphs by PyG's own `collate`, and refuse graphs that differ or that cannot be joined.

A shift is what `__inc__` returns for an attribute of a graph: PyG adds it to the attribute in all later graphs of a
batch. A storage is one of PyG's dicts of attributes. A `Data` has one storage; its key is None. A `HeteroData` has a
storage for each type, with the type as its key, and a storage for the whole graph, with the key None.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.collate import collate

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
    named,
    named_attribute,
    or_left_out,
    refuse_unknown,
    refuse_without_ends,
)
from dgl_tuplepack.graphs.relations import INDEX_TYPES
from dgl_tuplepack.graphs.schema import BY_TRANSFORM, ArraySpec, check_specs, differing_names
from dgl_tuplepack.planning.sizes import IntArray


def join_graphs(
    graphs: Sequence[Any],
    where: Sequence[str],
    levels: Levels,
    like: JoinedData | Mapping[Attribute, ArraySpec] | None = None,
) -> JoinedData:
    """Join graphs by PyG's `collate`; raise SchemaError if they differ from each other or from `like`.

    `like` is the group before this one, or the expected spec of a row of each attribute. `where` has the display names
    of the graphs. Attributes with the level None in `levels` are left out; other levels are not used here.
    """
    for data, item_name in zip(graphs, where, strict=True):
        check_library(data, item_name)
    node_types, edge_types = types_in(graphs[0])
    left_out = {key for key, level in levels.items() if level is None}
    if isinstance(like, JoinedData):
        node_types, edge_types = like.node_types, like.edge_types
    for data, item_name in zip(graphs, where, strict=True):
        check_types(types_in(data), (node_types, edge_types), item_name, "the example")
    graphs, specs, bare = _completed(graphs, where, like, left_out)
    storages = [dict(storages_of(data)) for data in graphs]
    attributes, texts = _common_attributes(storages, where, left_out, specs)
    left_out |= texts
    axes_and_specs = {p: _checked(p, graphs, storages, where, (specs or {}).get(p)) for p in attributes}
    follows = all(map(follows_pyg, {type(data) for data in graphs}))
    with_nodes: list[GraphType | None] = [*node_types] if isinstance(graphs[0], HeteroData) else [None]
    # Only a Data whose class overrides `__inc__` or `__cat_dim__` may have an unknown number of nodes.
    nodes = {t: _nodes(t, storages, where, is_needed=follows or t is not None) for t in with_nodes}
    numbered = {t for t, storage in storages[0].items() if NUMBER in storage}
    batch, slices, sums = _collated(graphs, where, left_out)
    of_batch = dict(storages_of(batch))
    joined = {}
    for (t, key), (dim, spec) in axes_and_specs.items():
        # For a type, PyG nests the slices and sums in a dict.
        own_slices, own_sums = (slices, sums) if t is None else (slices[t], sums[t])
        what = named_attribute(key, where[0], t)
        joined[t, key] = _joined(what, dim, spec, of_batch[t][key], own_slices[key], own_sums[key])
    return JoinedData(list(node_types), list(edge_types), joined, nodes, numbered, follows, left_out, list(where), bare)


def _completed(
    graphs: Sequence[Any], where: Sequence[str], like: Any, left_out: Collection[str]
) -> tuple[Sequence[Any], Any, set[GraphType | None]]:
    """Return the graphs, in which types without nodes (edges) have the attributes of other graphs, without rows.

    In the storage of a Data, these are the attributes whose names say that they belong to edges. If other attributes
    get no rows here, they are refused later. Also return the specs that the graphs must have, and the keys of the
    storages without nodes (edges) in all graphs so far.
    """
    storages = [(i, t, storage) for i, data in enumerate(graphs) for t, storage in storages_of(data)]
    without = {(i, t) for i, t, s in storages if s.get(NUMBER) == 0 or any(map(_is_empty, s.values()))}
    bare = {t for _, t, _ in storages} - {t for i, t, _ in storages if (i, t) not in without}
    specs, late = like, dict[Attribute, ArraySpec]()
    if isinstance(like, JoinedData):
        bare &= like.bare
        specs = {p: a.spec for p, a in like.attributes.items()}
        # What no graph has shown yet, this group may decide.
        empty = [p for p, a in like.attributes.items() if p[0] in like.bare and _is_optional(p) and not a.rows.any()]
        late = {p: specs.pop(p) for p in empty}
    known = {p: spec for p, spec in (specs or {}).items() if spec is not None}
    for i, t, storage in sorted(storages, key=lambda each: each[:2] in without):
        for key, value in storage.items():
            if (t, key) not in known and key not in left_out and isinstance(value, Tensor) and _is_optional((t, key)):
                known[t, key] = described(value, key, graphs[i], storage, named_attribute(key, where[i], t))[1]
    known = {**late, **known}
    if isinstance(like, JoinedData):
        specs |= {p: spec for p, spec in known.items() if p[0] in like.bare}
    made = [copy.copy(data) for data in graphs] if without else graphs
    for i, t in without:
        storage = dict(storages_of(made[i]))[t]
        for key in [p[1] for p in known if p[0] == t and _is_optional(p)]:
            own, spec = storage.get(key), known[t, key]
            # Features without columns are empty, but have rows.
            if own is None or (_is_empty(own) and described(own, key, made[i], storage, where[i])[1] != spec):
                value = spec.filled(0, 0)
                storage[key] = value.movedim(0, made[i].__cat_dim__(key, value, storage) or 0)
    return made, specs, bare


def _is_optional(attribute: Attribute) -> bool:
    """Return whether graphs may lack an attribute if its type has no nodes (edges) there."""
    t, key = attribute
    return key not in (ENDPOINTS, NUMBER) and (t is not None or EDGE in key)


def _is_empty(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.numel()


def _common_attributes(
    storages: Sequence[Any], where: Sequence[str], left_out: Collection[str], expected: Collection[Attribute] | None
) -> tuple[list[Attribute], set[str]]:
    """Return the attributes that every graph has, and the names of text attributes, which are not among them.

    Raise SchemaError if a graph has other attributes than `expected`; None means the attributes of the first graph.
    """
    texts = set[str]()
    attributes = [
        [(t, key) for t, storage in each.items() for key in _keys(storage, left_out, texts, item_name)]
        for each, item_name in zip(storages, where, strict=True)
    ]
    right = attributes[0] if expected is None else [*expected]
    for found, item_name in zip(attributes, where, strict=True):
        # Missing endpoints, of this graph or of the first one, have an error of their own.
        for t, key in {*right} ^ {*found}:
            if key == ENDPOINTS:
                refuse_without_ends(named(item_name if (t, key) in right else where[0], t))
        if {*found} != {*right}:
            _refuse_names(item_name, found, right)
    if both := texts & {key for _, key in attributes[0]}:
        raise SchemaError(
            f"the attributes {sorted(both)} are text in some storages of {where[0]}, but not in others; rename them, "
            f"or leave them out: levels={dict.fromkeys(sorted(both))}."
        )
    return attributes[0], texts


def _keys(storage: Any, left_out: Collection[str], texts: set[str], where: str) -> list[str]:
    """Return the sorted names of the attributes to read from a storage; add the names of text attributes to `texts`."""
    found = []
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
            found.append(key)
    return sorted(found)


def _is_text(value: Any) -> bool:
    """Return whether a value is text, or a non-empty list or tuple of only text."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_is_text, value))
    return isinstance(value, str)


def _refuse_names(where: str, found: Sequence[Attribute], expected: Sequence[Attribute]) -> NoReturn:
    """Raise the error for a graph whose attributes `found` differ from the attributes `expected`."""
    # Attributes of edge types come last.
    names, right = (
        [_name(p) for p in sorted(attributes, key=lambda p: (isinstance(p[0], tuple), str(p))) if p[1] != ENDPOINTS]
        for attributes in (found, expected)
    )
    # Such as "add x and delete z".
    steps = " and ".join(map(" ".join, differing_names(names, right)))
    levels = ", ".join(sorted({f"{key!r}: None" for _, key in {*found} ^ {*expected}}))
    raise SchemaError(
        f"{where} has the attributes {', '.join(names) or '(none)'}, but the first graph has "
        f"{', '.join(right) or 'none'}; every graph needs the same attributes: {steps} {BY_TRANSFORM}, or leave them "
        f"out of all graphs by levels={{{levels}}}."
    )


def _name(attribute: Attribute) -> str:
    """Return the display name of an attribute, without the name of a graph."""
    t, key = attribute
    return key if t is None else f"{key} of {t}"


def _checked(
    attribute: Attribute,
    graphs: Sequence[Any],
    storages: Sequence[Any],
    where: Sequence[str],
    expected: ArraySpec | None,
) -> tuple[int | None, ArraySpec]:
    """Return the axis of the rows of an attribute, and the spec of a row; raise SchemaError if graphs differ.

    `expected` is the spec that all graphs must have; None means the spec of the first graph.
    """
    # `first`: the axis in the first graph, and the spec that all graphs must have.
    (t, key), first = attribute, None
    for data, each, item_name in zip(graphs, storages, where, strict=True):
        what = named_attribute(key, item_name, t)
        dim, spec = described(each[t][key], key, data, each[t], what)
        first = first or (dim, expected or spec)
        if (dim is None) != (first[0] is None):
            raise SchemaError(
                f"{what} is joined along {dim}, but along {first[0]} in earlier graphs; correct __cat_dim__."
            )
        # PyG joins endpoints of 32 and 64 bits to 64 bits, so their specs may differ.
        if spec != first[1] and key != ENDPOINTS:
            check_specs(
                {_name(attribute): spec}, {_name(attribute): first[1]}, f"{item_name}, rows of attributes", BY_TRANSFORM
            )
    assert first is not None
    return first


def described(value: Any, key: str, data: Any, storage: Any, what: str) -> tuple[int | None, ArraySpec]:
    """Return the axis of the rows of an attribute (None if PyG adds an axis), and the spec of a row.

    Raise SchemaError if the attribute cannot be batched. `what` is its display name.
    """
    is_number = isinstance(value, bool | int | float) and (not isinstance(value, int) or -(2**63) <= value < 2**63)
    plain = type(value) in (Tensor, nn.Parameter) and value.layout == torch.strided
    if not is_number and (not plain or value.is_nested or value.is_meta):
        raise SchemaError(
            f"{what} is {shown(value)}{f' ({type(value).__name__})' if isinstance(value, Tensor) else ''}, but must be "
            "a dense tensor or a number of 64 bits; convert it (an EdgeIndex or Index by .as_tensor(), a sparse adj_t "
            "by edge_index = torch.stack(adj_t.coo()[:2][::-1]), an array by torch.from_numpy), or leave it out by "
            "levels={name: None}."
        )
    tensor = torch.tensor(value) if is_number else value
    try:
        dim = data.__cat_dim__(key, value, storage)
    except Exception as error:
        # The method of a user's class may raise any exception.
        raise SchemaError(
            f"{what} cannot be joined, since __cat_dim__ of {type(data).__name__} fails: {type(error).__name__}: "
            f"{error!s:.200}; correct it."
        ) from error
    if dim is not None and type(dim) is not int:
        raise SchemaError(
            f"__cat_dim__ returns {shown(dim)} for {what}, but must return one axis, or None; correct it."
        )
    shape = tuple(tensor.shape)
    if key == ENDPOINTS:
        _check_endpoints(tensor, dim, what)
    # A number, or a value for which PyG adds an axis, is one row as a whole.
    if not shape or dim is None:
        return dim if dim is None else 0, ArraySpec(shape, tensor.dtype)
    if not -len(shape) <= dim < len(shape):
        raise SchemaError(f"{what} has the shape {list(shape)}, but __cat_dim__ returns {dim}; correct one of them.")
    axis = dim % len(shape)
    # The axis as __cat_dim__ returns it, such as -1, but the first axis always as 0.
    return (dim if axis else 0), ArraySpec((*shape[:axis], *shape[axis + 1 :]), tensor.dtype)


def _check_endpoints(ends: Tensor, dim: int | None, what: str) -> None:
    """Refuse (SchemaError) an `edge_index` with a wrong shape, dtype or axis."""
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype not in INDEX_TYPES:
        raise SchemaError(
            f"{what} is {str(ends.dtype).removeprefix('torch.')} {list(ends.shape)}, but must be int64 or int32 "
            "[2, E]; convert it."
        )
    if dim not in (-1, 1):
        raise SchemaError(f"{what} is joined along {dim} by __cat_dim__, but edges need the last axis; correct it.")


def _nodes(t: GraphType | None, storages: Sequence[Any], where: Sequence[str], is_needed: bool) -> IntArray | None:
    """Return the number of nodes of a storage in each graph.

    If a number is unknown, return None or, with `is_needed`, raise SchemaError.
    """
    found = [known_nodes(each[t], named(name, t)) for each, name in zip(storages, where, strict=True)]
    if is_needed and None in found:
        refuse_unknown(named(where[found.index(None)], t))
    return None if None in found else np.array(found, np.int64)


def _collated(graphs: Sequence[Any], where: Sequence[str], left_out: Collection[str]) -> Any:
    """Join the graphs, and one added graph, by PyG's `collate`; return its batch, slices and sums (see `_joined`).

    `collate` returns sums of the shifts of earlier graphs, so the last shift is known only if another graph follows.
    """
    # PyG would call the constructor of a batch of the user's class, which may need arguments.
    plain: Any = HeteroData if isinstance(graphs[0], HeteroData) else Data
    with warnings.catch_warnings():
        # PyG warns when it guesses the number of nodes of bipartite graphs.
        warnings.simplefilter("ignore")
        try:
            return collate(plain, [*graphs, graphs[0]], add_batch=False, exclude_keys=left_out)
        except Exception as error:
            # The methods of a user's class may raise any exception. Find the attribute that fails: join each graph with
            # itself, one attribute at a time.
            for data, name in zip(graphs, where, strict=True):
                for key in {*data.keys()} - {*left_out}:
                    try:
                        collate(plain, [data, data], add_batch=False, exclude_keys={*data.keys()} - {key})
                    except Exception as own:
                        raise SchemaError(
                            f"{named_attribute(key, name, None)} cannot be joined, since __inc__ of "
                            f"{type(data).__name__} fails: {type(own).__name__}: {own!s:.200}; correct __inc__ or set "
                            f"num_nodes{or_left_out(key)}."
                        ) from own
            raise SchemaError(
                f"PyG cannot join {where[0]} and the graphs after it: {type(error).__name__}: {error!s:.200}; correct "
                "__inc__ and __cat_dim__ of the class, which must return values of one type for all graphs."
            ) from error


def _joined(what: str, dim: int | None, spec: ArraySpec, value: Tensor, slices: Any, sums: Tensor) -> Joined:
    """Return an attribute of PyG's batch, without the graph that `_collated` added, and with the shifts undone.

    `value` is the attribute in the batch. `slices` has the first row of each graph, then the number of all rows.
    `sums` has, for each graph, the sum of the shifts of earlier graphs.
    """
    # The last two entries of `slices` are the first row of the added graph, and the number of all rows.
    rows = np.diff(slices.numpy())[:-1].astype(np.int64)
    dtype = value.dtype
    value = value.movedim(dim or 0, 0)[: int(slices[-2])]
    # [B + 1, ...]: the sums for the B graphs and the added graph.
    every = sums.numpy(force=True)
    if not every.any():
        return Joined(dim, spec, rows, None, dtype, value)
    # [B, ...]: the shift of each graph, which is one number, or [2, 1] if each end of edges has its own shift.
    shifts = np.diff(every, axis=0)
    is_ends = spec.shape == (2,) and dim in (-1, 1) and shifts.shape[1:] == (2, 1)
    if is_ends or shifts[0].size == 1:
        shifts = shifts.reshape(len(rows), -1)
        number = shifts.astype(np.int64)
        if (number == shifts).all():
            # For each row, the sum of shifts that PyG added to the row.
            before = torch.from_numpy(np.repeat(every[:-1].reshape(len(rows), -1), rows, axis=0)).to(value.device)
            before = before if is_ends else before.view(-1, *[1] * (value.ndim - 1))
            return Joined(dim, spec, rows, number if is_ends else number[:, 0], dtype, value - before)
    raise SchemaError(
        f"{what} is shifted by {shown(shifts[0].tolist())}, which __inc__ returns, but it must return a whole "
        "number, or, for an attribute of shape [2, K], a row for each end: [[number of source nodes], [number of "
        "destination nodes]]; correct __inc__."
    )


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
    return None if number is None else int(number)


@dataclass
class Joined:
    """An attribute of B graphs, joined.

    `dim` is the axis of the rows in a graph; None if PyG adds an axis. `spec` describes a row. `rows`, ``[B]``, has the
    number of rows of each graph. `shifts` has the shift of each graph: ``[B]``, or ``[B, 2]`` with a column for each
    end of edges, or None if all shifts are 0. `dtype` is the dtype in PyG's batch. `value` has the rows of all graphs,
    along the first axis and without shifts.
    """

    dim: int | None
    spec: ArraySpec
    rows: IntArray
    shifts: IntArray | None
    dtype: torch.dtype
    value: Tensor

    @property
    def is_ends(self) -> bool:
        """Whether the attribute has the shape, dtype and axis of an `edge_index`."""
        return self.spec.shape == (2,) and self.spec.dtype in INDEX_TYPES and self.dim in (-1, 1)


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
    where: list[str]
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
                    f"{named(self.where[0], storage)} has no attribute {key!r}, which {what} in earlier graphs; set it."
                )
            if known is None:
                refuse_unknown(named(self.where[0], storage))
            found[t] = known
        return found

    def without_values(self) -> JoinedData:
        """Return the group without the values of attributes."""
        return replace(self, attributes={p: replace(a, value=a.value[:0]) for p, a in self.attributes.items()})

    def late(self, later: JoinedData) -> dict[Attribute, Joined]:
        """Return the attributes of a later group that this group lacks, or has without rows and with another spec."""
        specs = {p: a.spec for p, a in self.attributes.items()}
        return {p: a for p, a in later.attributes.items() if p[1] != ENDPOINTS and specs.get(p) != a.spec}

    def completed(self, later: JoinedData) -> JoinedData:
        """Return the group with the `late` attributes, without rows."""
        found = {**later.attributes, **self.attributes}
        for p, a in self.late(later).items():
            # PyG shifts other indices of edges as their endpoints.
            shifts = None if a.shifts is None else getattr(found.get((p[0], ENDPOINTS)), "shifts", None)
            found[p] = replace(a, rows=np.zeros(len(self.where), np.int64), shifts=shifts, value=a.value[:0])
        return replace(self, attributes=found)


def merged(groups: Sequence[JoinedData]) -> JoinedData:
    """Join groups that have no values, see `without_values`.

    Apart from `late` attributes, groups must have the types, attributes and specs of the last group (`join_graphs`).
    """
    groups = [group.completed(groups[-1]) for group in groups]
    first = groups[0]

    def joined(arrays: list[IntArray | None]) -> IntArray | None:
        """Return the numbers of nodes of all groups, joined; None if the numbers of a group are None."""
        known = [array for array in arrays if array is not None]
        return np.concatenate(known) if len(known) == len(arrays) else None

    def merged_values(attribute: Attribute) -> Joined:
        """Return an attribute of all groups, joined."""
        each = [group.attributes[attribute] for group in groups]
        shifted = next((a.shifts for a in each if a.shifts is not None), None)
        shifts = None
        if shifted is not None:
            zeros = np.zeros((1, *shifted.shape[1:]), np.int64)
            given = [zeros.repeat(len(a.rows), 0) if a.shifts is None else a.shifts for a in each]
            widths = {a.ndim for a in given}
            shifts = np.concatenate([a if len(widths) == 1 else two_columns(a) for a in given])
        # As in PyG, indices become int64 if some groups have int32 and other groups int64.
        dtype = torch.int32 if {a.dtype for a in each} == {torch.int32} else torch.int64
        return replace(
            each[0], rows=np.concatenate([a.rows for a in each]), shifts=shifts,
            dtype=dtype if each[0].dtype in INDEX_TYPES else each[0].dtype,
        )  # fmt: skip

    nodes = {t: joined([c.nodes[t] for c in groups]) for t in first.nodes}
    where = [name for group in groups for name in group.where]
    return replace(
        first, attributes={p: merged_values(p) for p in first.attributes}, nodes=nodes, where=where,
        follows_pyg=all(group.follows_pyg for group in groups), left_out=set().union(*(c.left_out for c in groups)),
    )  # fmt: skip


def two_columns(shifts: IntArray) -> IntArray:
    """Return shifts as ``[B, 2]``, with a column for each end of edges; ``[B]`` means equal shifts for both."""
    return shifts if shifts.ndim == 2 else np.stack([shifts, shifts], axis=1)
