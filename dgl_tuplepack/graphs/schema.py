"""The schema of a dataset: its types, the dtypes and shapes of its features and labels."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import Array, EdgeType, GraphBlock, GraphType, components_of
from dgl_tuplepack.graphs.items import is_iterable
from dgl_tuplepack.graphs.named import (
    by_name,
    check_alike,
    check_types,
    count,
    features_of,
    graph_names,
    located_types,
    types_in,
)
from dgl_tuplepack.graphs.pyg_layout import Levels, PygLayout
from dgl_tuplepack.graphs.relations import Column, Indices, Ties, indexed_types, tied_types

Value = TypeVar("Value")

_HINT_ON_NAMES = (
    " Keep names of graphs in a list next to the dataset, and wrap the dataset, with_ids(dataset): the graph_ids of a "
    "batch are then positions in that list."
)

# For messages: where the user can change features.
BY_TRANSFORM = (
    "in the dataset or by a transform (pre_transform= of functions that write graphs, transform= of PaddedCollate and "
    "packed_loader)"
)


@dataclass(frozen=True)
class ArraySpec:
    """The dtype of a feature or label, and the shape of its entry for one node, edge or graph."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"

    def filled(self, number: int, fill: Any) -> Tensor:
        """Return `number` equal entries; `fill` is one number, or nested lists with the shape of an entry."""
        return torch.tensor(fill, dtype=self.dtype, device="cpu").expand(number, *self.shape).contiguous()


@dataclass(frozen=True)
class Schema:
    """Types, features and labels that all graphs of a dataset share.

    `features` has every type, node types first. In `labels`, a single label has the empty name. `graph_names` has the
    name of each graph of an item; it is empty if an item is one graph without a name. See `graphs.named` for the
    types of named graphs, and `graphs.relations` for `ties` and `indices`. `idtype` is the integer dtype of DGL's node
    ids. `pyg` is None for DGLGraphs. `empty` has the types without nodes (edges) in the graphs that the schema was read
    from: other graphs decide their features.
    """

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    features: dict[Any, dict[str, ArraySpec]]
    labels: dict[str, ArraySpec]
    idtype: torch.dtype
    has_ids: bool
    graph_names: tuple[str, ...] = ()
    ties: Ties = field(default_factory=dict)
    indices: Indices = field(default_factory=dict)
    pyg: PygLayout | None = None
    empty: frozenset[GraphType] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        # Reading `tied` and `index_columns` checks `ties` and `indices`. Copy them, since the caller may change them.
        for name, _ in (("ties", self.tied), ("indices", self.index_columns)):
            object.__setattr__(self, name, dict(getattr(self, name)))
        # Only the names of quantised dtypes have a "q".
        if found := [(name, spec) for (_, _, name), spec in self.columns() if "q" in str(spec.dtype)]:
            what = f"{_quoted(found[0][0])} is {found[0][1]}"
            raise SchemaError(f"{what}, but quantised values cannot be batched; use .dequantize() {BY_TRANSFORM}.")

    @property
    def components(self) -> tuple[str, ...]:
        """Names of the components of a size: node types, then edge types."""
        return components_of(self.node_types, self.edge_types, bool(self.graph_names))

    @functools.cached_property
    def types(self) -> dict[str, GraphType]:
        """Map the name of each component to its type."""
        return dict(zip(self.components, (*self.node_types, *self.edge_types), strict=True))

    @functools.cached_property
    def tied(self) -> dict[str, EdgeType]:
        """Map each tied node type to the edge type whose edges are its nodes."""
        return tied_types(self.ties, self.types)

    @functools.cached_property
    def index_columns(self) -> dict[Column, GraphType]:
        """Map each feature or label that holds indices to the type that it indexes."""
        return indexed_types(self.indices, self.columns(), self.types, bool(self.graph_names))

    @property
    def node_features(self) -> dict[str, dict[str, ArraySpec]]:
        """The features of each node type."""
        return {t: self.features[t] for t in self.node_types}

    @property
    def edge_features(self) -> dict[EdgeType, dict[str, ArraySpec]]:
        """The features of each edge type."""
        return {e: self.features[e] for e in self.edge_types}

    @property
    def shown(self) -> dict[GraphType, dict[str, ArraySpec]]:
        """The features of the types that are not `empty`."""
        return {t: specs for t, specs in self.features.items() if t not in self.empty}

    def settled(self, shown: Mapping[GraphType, dict[str, ArraySpec]]) -> Schema:
        """Return the schema, in which types that were `empty` have the features that other graphs have shown."""
        new = {t: specs for t, specs in shown.items() if t in self.empty}
        return replace(self, features=self.features | new, empty=self.empty - new.keys()) if new else self

    def with_declared(self, ties: Ties | None, indices: Indices | None) -> Schema:
        """Return the schema with these ties and indices added to its own."""
        return replace(self, ties=_added(self.ties, ties), indices=_added(self.indices, indices))

    def check_types(self, graph: Any, where: str) -> None:
        """Raise SchemaError unless a graph (or named graphs) has the node types, edge types and names of the schema."""
        expected = self.node_types, self.edge_types
        check_types(types_in(graph), expected, where, "the example", (graph_names(graph), self.graph_names))

    def columns(self) -> Iterator[tuple[Column, ArraySpec]]:
        """Yield each feature and label with its spec."""
        for t, specs in self.features.items():
            yield from ((feature_column(t, name), spec) for name, spec in specs.items())
        yield from ((("label", None, name), spec) for name, spec in self.labels.items())

    @classmethod
    def of_columns(
        cls, node_types: Sequence[str], edge_types: Sequence[Any], columns: Iterable[tuple[Column, ArraySpec]],
        **others: Any,
    ) -> Schema:  # fmt: skip
        """Return the schema with these features and labels."""
        specs: dict[Any, dict[str, ArraySpec]] = {t: {} for t in (*node_types, *edge_types, None)}
        for (_, t, name), spec in columns:
            specs[t][name] = spec
        labels = specs.pop(None)
        return cls(tuple(node_types), tuple(edge_types), specs, labels, **others)

    def spec_of(self, column: Column) -> ArraySpec:
        """Return the shape and dtype of a feature or label."""
        _, t, name = column
        return self.labels[name] if t is None else self.features[t][name]

    def arranged(self, value: Callable[[Column], Value]) -> tuple[dict[Any, dict[str, Value]], dict[str, Value]]:
        """Call `value` for each column; return the results for features by type and name, and for labels by name."""
        features = {t: {n: value(feature_column(t, n)) for n in names} for t, names in self.features.items()}
        return features, {n: value(("label", None, n)) for n in self.labels}

    def block(
        self, lengths: Mapping[Any, Any], endpoints: Mapping[EdgeType, Any], column: Callable[[Column], Any],
        **others: Any,
    ) -> GraphBlock:  # fmt: skip
        """Return a block of graphs, in which `column` returns the values of each feature and label."""
        return GraphBlock({t: lengths[t] for t in self.features}, endpoints, *self.arranged(column), **others)

    def with_columns(self, specs: Mapping[Column, ArraySpec]) -> Schema:
        """Return a copy of the schema in which the features and labels have the given specs."""
        features, labels = self.arranged(specs.__getitem__)
        return replace(self, features=features, labels=labels)

    def check_graph(self, graphs: Any, where: str) -> None:
        """Raise SchemaError unless `graphs` is a single graph (or named graphs) that matches the schema."""
        self.check_types(graphs, where)
        check_alike(graphs, where)
        graph = next(iter(by_name(graphs).values()))
        if graph.batch_size != 1:
            raise SchemaError(
                f"{where} is a batch of {graph.batch_size} graphs, but must be a single graph; split it by dgl.unbatch."
            )
        if graph.idtype != self.idtype:
            raise SchemaError(
                f"{where} has index type {graph.idtype}, but the example has {self.idtype}; all graphs need the same "
                "index type; convert them with graph.long() or graph.int()."
            )
        for t, found in found_features(graphs).items():
            owner = "node" if isinstance(t, str) else "edge"
            if t in self.empty and found != self.features[t]:
                raise SchemaError(
                    f"{where} has the {owner} features {[*found]}, but the example has no {owner}s of the type {t!r} "
                    f"that could show them; give an example with such {owner}s."
                )
            check_specs(found, self.features[t], f"{where}, {owner} features", BY_TRANSFORM)


def feature_column(t: GraphType, name: str) -> Column:
    """Return the column of a feature of the nodes (edges) of type `t`."""
    return "node_feature" if isinstance(t, str) else "edge_feature", t, name


def found_features(graphs: Any, types: Collection[GraphType] | None = None) -> dict[GraphType, dict[str, ArraySpec]]:
    """Return the features of each type that has nodes (edges) in the graphs; if `types` are given, only of these."""
    located = located_types(graphs)
    return {t: specs_of(features_of(g, own)) for t, g, own in located if (not types or t in types) and count(g, own)}


def _added(own: Mapping[str, str], declared: Any) -> Any:
    """Return the ties (indices) of `own` and `declared`; `declared` wins if both have the same key."""
    if declared is None:
        return own
    # If `declared` is not a mapping, `Schema` raises the error.
    return {**own, **declared} if isinstance(declared, Mapping) else declared


def refuse_levels(levels: Levels | None, what: str) -> None:
    """Refuse (SchemaError) the setting `levels` for graphs that are not PyG graphs."""
    if levels:
        raise SchemaError(
            f"levels are for attributes of PyG graphs, but {what} has no such attributes; leave levels out."
        )


def as_tensors(label: Any) -> dict[str, Tensor]:
    """Return a label as tensors by name; a single label has the empty name.

    Raise SchemaError for a value that is not a number or a dense tensor or array of numbers, or that mixes kinds.
    """
    if label is None:
        return {}
    values = label if isinstance(label, Mapping) else {"": label}
    tensors = {}
    for name, value in values.items():
        if len(kinds := sorted(_kinds(value))) > 1:
            raise SchemaError(
                f"{_shown(name, value)}, which mixes {' and '.join(kinds)}; one tensor could change the numbers: give "
                "each a name in the dataset, (graph, {'id': number, 'y': value}), or convert all to one dtype."
            )
        try:
            tensor = torch.as_tensor(_readable(value))
            if isinstance(value, list | tuple) and not tensor.numel():
                # numpy refuses uneven rows; torch takes [[], [1.0]] for two empty rows.
                np.asarray(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            hint = _HINT_ON_NAMES if isinstance(value, str) else ""
            raise SchemaError(
                f"{_shown(name, value)}, but must be a tensor, array or number ({error!s:.200}); convert it in the "
                f"dataset.{hint}"
            ) from error
        if tensor.layout != torch.strided or tensor.is_nested or tensor.is_meta:
            raise SchemaError(
                f"{_shown(name, value)}, but must be a dense tensor with values; convert it in the dataset, such as by "
                ".to_dense()."
            )
        tensors[str(name)] = tensor
    return tensors


def as_label(tensors: dict[str, Tensor]) -> Tensor | dict[str, Tensor] | None:
    """Return the label that consists of these tensors, None if there are none; the inverse of `as_tensors`."""
    return (tensors[""] if set(tensors) == {""} else tensors) if tensors else None


def _shown(name: Any, value: Any) -> str:
    return f"the label {f'{name!r} ' if name else ''}is {shown(value)}"


def _kinds(value: Any) -> set[str]:
    """Return the kinds of numbers in a label, also in nested lists: "bool", "int", "float" or "complex"."""
    dtype = str(getattr(value, "dtype", "object"))
    if dtype == "object" and is_iterable(value) and not isinstance(value, str):
        types = {*map(type, value)}
        plain = types <= {bool, int, float, complex}
        return {t.__name__ for t in types} if plain else set().union(*map(_kinds, value))
    return set(re.findall("bool|int|float|complex", str(np.asarray(value).dtype) if dtype == "object" else dtype))


def _readable(value: Any) -> Any:
    """Return an array as torch accepts it; raise TypeError if values are masked. Other values are unchanged."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise TypeError("some of its values are masked")
    return np.require(value, value.dtype.newbyteorder("="), ["C", "W"]) if isinstance(value, np.ndarray) else value


def specs_of(features: Mapping[str, Tensor]) -> dict[str, ArraySpec]:
    """Return the dtype, and the shape of one row, of each feature."""
    return {name: ArraySpec(tuple(value.shape[1:]), value.dtype) for name, value in features.items()}


def listed(specs: Mapping[str, ArraySpec]) -> str:
    """Return specs as text."""
    return ", ".join(f"{name} {spec}".strip() for name, spec in specs.items()) or "none"


def check_specs(found: Mapping[str, ArraySpec], expected: Mapping[str, ArraySpec], where: str, by: str) -> None:
    """Raise SchemaError if names, shapes or dtypes differ; the message ends with `by`: where to make the changes."""
    if found == expected:
        return
    steps = [f"{verb} {_quoted(n)}" for verb, n in differing_names(found, expected)]
    both = [(n, found[n], spec) for n, spec in expected.items() if n in found]
    # Integers would lose what floats have.
    dtypes = [
        (n, max(new.dtype, old.dtype, key=lambda d: d.is_floating_point))
        for n, old, new in both
        if old.dtype != new.dtype
    ]
    steps += [f"convert {_quoted(n)} to {str(dtype)[6:]}" for n, dtype in dtypes]
    steps += [f"give {_quoted(n)} the shape {list(new.shape)}" for n, old, new in both if old.shape != new.shape]
    raise SchemaError(
        f"{where}: found {listed(found)}, but the example has {listed(expected)}; every graph needs the same names, "
        f"shapes and dtypes: {' and '.join(steps)} {by}."
    )


def differing_names(found: Collection[str], expected: Collection[str]) -> list[tuple[str, str]]:
    """Return pairs ("add" or "delete", name) that turn the names found into the expected names."""
    return [("add", n) for n in expected if n not in found] + [("delete", n) for n in found if n not in expected]


def _quoted(name: str) -> str:
    return repr(name) if name else "the label"


def as_array(tensor: Tensor) -> Array:
    """Return the values of a tensor as an array that a store can hold (bfloat16 as uint16), or raise SchemaError."""
    if tensor.requires_grad:
        raise SchemaError(
            "graphs have features or labels that require gradients, which a store cannot keep; detach them "
            "(graph.ndata['x'] = graph.ndata['x'].detach()), or pad the graphs without a store (PaddedCollate, "
            "in_memory=False)."
        )
    tensor = tensor.cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    try:
        return tensor.numpy()
    except TypeError as error:
        raise SchemaError(f"a feature or label is {tensor.dtype}, which stores cannot hold; convert it.") from error


def as_tensor(stored: Array, dtype: torch.dtype, copy: bool = True) -> Tensor:
    """Return stored values as a tensor of `dtype`; without `copy`, the tensor may share the memory of `stored`."""
    values = stored.copy() if copy else stored
    if dtype == torch.bfloat16:
        return torch.from_numpy(values.view(np.int16)).view(dtype)
    return torch.from_numpy(values).to(dtype)
