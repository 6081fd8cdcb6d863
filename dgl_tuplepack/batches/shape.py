"""The static shape of padded batches, the tensors that they have, and the values of padding."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dgl_tuplepack._core.checks import INT64_MAX, as_array, real_number, shown, true_or_false, whole_number
from dgl_tuplepack.batches.batch import PaddedBatch
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError, SamplerError, SchemaError
from dgl_tuplepack.graphs.blocks import ENDS, EdgeType, GraphType
from dgl_tuplepack.graphs.relations import Column, sorting_order
from dgl_tuplepack.graphs.schema import ArraySpec, Schema, as_label
from dgl_tuplepack.planning.limits import Limits, as_limits

_MOST_INT32 = 2**31 - 1

# A number, or an array with the shape of one row.
Value = float | Sequence[Any] | NDArray[Any] | Tensor
Fill = float | Mapping[str, Value]


# Key of a tensor: its content, the type of its rows (None: graphs) and, for a feature or label, its name. Examples:
# ("mask", type), ("node_feature", type, name).
Key = tuple[Any, ...]
Spec = tuple[torch.dtype, tuple[int, ...]]
# Names of features; or a dict from names of features to the least distance between padding nodes.
Coordinates = Sequence[str] | Mapping[str, float]


class PadSettings(TypedDict, total=False):
    """How batches are padded; `PaddedCollate` describes the settings."""

    label_fill: Fill
    feature_fill: Fill
    cover_padding: bool
    idtype: torch.dtype
    coordinates: Coordinates
    sort_edges: bool


@dataclass(frozen=True)
class PaddedShape:
    """Numbers of slots of a batch of p = `packs_per_batch` packs, and the values of padding; see `PaddedCollate`.

    `slots` has the number of slots of each node type, of each edge type and, under the key None, of graphs. `most` maps
    each component, and "graphs", to the largest number that the p packs may hold. `fillings` has the padding rows of
    features and labels.
    """

    schema: Schema
    limits: Limits
    packs_per_batch: int = 1
    label_fill: Fill = 0
    feature_fill: Fill = 0
    cover_padding: bool = False
    idtype: torch.dtype = torch.int64
    coordinates: Coordinates = ()
    sort_edges: bool = False
    num_graphs: int = field(init=False)
    slots: dict[Any, int] = field(init=False)
    most: dict[str, int] = field(init=False)
    fillings: dict[Column, Tensor] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema, most_graphs = self.schema, as_limits(self.limits).graphs
        if most_graphs is None:
            raise LimitsError("padding needs a cap on graphs, but limits.graphs is None; use sampler.limits.")
        if not isinstance(self.idtype, torch.dtype) or self.idtype not in (torch.int32, torch.int64):
            raise SchemaError(f"idtype must be torch.int32 or torch.int64, but is {shown(self.idtype)}.")
        if self.limits.edges is None and schema.edge_types:
            raise LimitsError("padding needs a limit on edges, but limits.edges is None; use sampler.limits.")
        limits = self.limits.aligned(schema.components)
        packs = whole_number("packs_per_batch", self.packs_per_batch, 1, error=LimitsError)
        true_or_false("cover_padding", self.cover_padding)
        true_or_false("sort_edges", self.sort_edges)

        most_by_type: dict[Any, int] = {t: packs * n for t, n in zip(schema.types.values(), limits.values, strict=True)}
        for node_type, edge_type in schema.tied.items():
            most_tied = min(most_by_type[node_type], most_by_type[edge_type])
            most_by_type[node_type] = most_by_type[edge_type] = most_tied
        most_by_component = dict(zip(schema.components, most_by_type.values(), strict=True))
        distances = checked_coordinates(self.coordinates, list(schema.node_features.values()))
        num_nodes, num_edges = self._slots(most_by_type, reserved=2 if distances else 1)
        if self.idtype == torch.int32 and max(num_nodes.values()) > _MOST_INT32:
            raise LimitsError(
                f"{max(num_nodes.values())} node slots are too many for torch.int32 (at most {_MOST_INT32}); "
                "use idtype=torch.int64."
            )
        num_graphs = packs * most_graphs + 1
        slots: dict[Any, int] = {**num_nodes, **num_edges, None: num_graphs}
        most = {**most_by_component, "graphs": packs * most_graphs}
        fields = {"limits": limits, "packs_per_batch": packs, "num_graphs": num_graphs, "slots": slots, "most": most}
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        if self.nbytes > (memory := _memory()):
            raise LimitsError(
                f"a batch of {packs} packs of {limits!r} would need {self.nbytes} bytes, but there are {memory} "
                "bytes of memory; use smaller limits, or fewer packs_per_batch."
            )
        object.__setattr__(self, "fillings", self._fillings(distances))
        for column, target in schema.index_columns.items():
            if schema.spec_of(column).dtype == torch.int32 and slots[target] > _MOST_INT32:
                raise LimitsError(
                    f"{column[2]!r} is torch.int32, which cannot number {slots[target]} slots (at most {_MOST_INT32}); "
                    "store it as int64, or use smaller limits."
                )

    def _slots(self, most: Mapping[GraphType, int], reserved: int) -> tuple[dict[str, int], dict[EdgeType, int]]:
        """Return the number of slots of each type; a node type t has at least `reserved` more than ``most[t]``."""
        schema, num_edges = self.schema, dict[EdgeType, int]()
        num_nodes = {t: most[t] + reserved for t in schema.node_types}
        tied = {edge_type: node_type for node_type, edge_type in schema.tied.items()}
        ordered = self.cover_padding or self.sort_edges
        indexed = set(schema.index_columns.values())
        # With cover_padding, an edge type needs the slots of its destination nodes. If these are tied to another edge
        # type, that one comes first. With sort_edges alone, only the error of `sorting_order` for cyclic ties matters.
        for e in sorting_order(schema.edge_types, schema.tied) if ordered else schema.edge_types:
            # spare: number of slots for padding edges.
            spare = num_nodes[e[2]] if self.cover_padding else reserved if e in tied else int(e in indexed)
            num_edges[e] = most[e] + spare
            if e in tied:
                num_nodes[tied[e]] = num_edges[e]
        return num_nodes, {e: num_edges[e] for e in schema.edge_types}

    def _fillings(self, distances: Mapping[str, float]) -> dict[Column, Tensor]:
        """Return the padding of each feature and label without indices: one row for all slots, or one for each slot.

        `distances` maps names of features to the least distance between padding nodes.
        """
        features = [*self.schema.features.values()]
        in_features = fill_values(self.feature_fill, features, "feature_fill")
        in_labels = fill_values(self.label_fill, [self.schema.labels], "label_fill")
        for content, _, name in self.schema.index_columns:
            fill = self.label_fill if content == "label" else self.feature_fill
            if isinstance(fill, Mapping) and name in fill:
                raise SchemaError(
                    f"a fill is given for {name!r}, which holds indices; indices of padding always point to padding: "
                    "leave the fill out."
                )
        if isinstance(self.feature_fill, Mapping) and (both := sorted(distances.keys() & self.feature_fill.keys())):
            raise SchemaError(f"coordinates and feature_fill both name {both}; name each feature in only one of them.")
        fillings, node_slots = {}, [self.slots[t] for t in self.schema.node_types]
        # first_slots[t]: number of node slots of the types before t, so that different types get different positions.
        first_slots: dict[Any, int] = {t: sum(node_slots[:i]) for i, t in enumerate(self.schema.node_types)}
        for key, spec in self.schema.columns():
            content, t, name = key
            if key in self.schema.index_columns:
                continue
            if content == "node_feature" and name in distances:
                fillings[key] = padding_positions(spec, first_slots[t], self.slots[t], distances[name])
            else:
                fillings[key] = spec.filled(1, in_labels[name] if content == "label" else in_features[name])
        return fillings

    def padding_of(self, column: Column, real: Mapping[Any, int], device: torch.device) -> Tensor:
        """Return the padding rows of a feature or label; `real` has the number of real rows of each type."""
        slots, target = self.slots[column[1]], self.schema.index_columns.get(column)
        if target is not None:
            # All indices in padding point to the first padding node (edge).
            spec = self.schema.spec_of(column)
            return torch.full((slots - real[column[1]], *spec.shape), real[target], dtype=spec.dtype, device=device)
        filling = self.fillings[column].to(device)
        return filling.expand(slots, *filling.shape[1:])[real[column[1]] :]

    def on(self, device: torch.device) -> PaddedShape:
        """Return a copy of the shape, with the fillings on a device."""
        shape = copy.copy(self)
        object.__setattr__(shape, "fillings", {column: value.to(device) for column, value in self.fillings.items()})
        return shape

    def has_padding_chains(self, edge_type: EdgeType) -> bool:
        """Return whether each padding edge of a type joins a padding node to the next padding node."""
        return bool(self.coordinates) and edge_type[0] == edge_type[2]

    @property
    def nbytes(self) -> int:
        """Total size of all tensors of a batch, in bytes."""
        return sum(dtype.itemsize * math.prod(shape) for dtype, shape in self.layout.values())

    @property
    def layout(self) -> dict[Key, Spec]:
        """Dtype and shape of each tensor of a batch."""
        schema, slots, graphs = self.schema, self.slots, self.num_graphs
        layout: dict[Key, Spec] = {("graph_ids", None): (torch.int64, (graphs,))}
        layout |= {("mask", t): (torch.bool, (number,)) for t, number in slots.items()}
        layout |= {("per_graph", t): (torch.int64, (graphs,)) for t in slots if t is not None}
        layout |= {(end, e): (self.idtype, (slots[e],)) for e in schema.edge_types for end in ENDS}
        if self.sort_edges:
            layout |= {("row_pointers", e): (torch.int64, (slots[e[2]] + 1,)) for e in schema.edge_types}
            layout |= {("edge_order", e): (torch.int64, (slots[e],)) for e in schema.edge_types}
        return layout | {key: (spec.dtype, (slots[key[1]], *spec.shape)) for key, spec in schema.columns()}

    def holds(self, content: Sequence[int]) -> bool:
        """Return whether p packs may hold `content`: numbers of nodes of each type, edges of each type, and graphs."""
        return all(number <= most for number, most in zip(content, self.most.values(), strict=True))

    def check_content(self, content: Sequence[int]) -> None:
        """Raise GraphTooLargeError unless ``holds(content)``."""
        for number, (name, most) in zip(content, self.most.items(), strict=True):
            if number > most:
                raise GraphTooLargeError(
                    f"the batch holds {number} {name}, but {self.packs_per_batch} x {self.limits!r} "
                    f"hold {most}; use a PackBatchSampler with these packs_per_batch, and pad to sampler.limits."
                )


def number_of_shape(shapes: Sequence[PaddedShape], from_sampler: int | None, content: Sequence[int]) -> int:
    """Return the index of the sampler's shape; without one, of the smallest that holds the content, or the largest."""
    if len(shapes) == 1:
        return 0
    if from_sampler is not None:
        if from_sampler >= len(shapes):
            raise SamplerError(
                f"the sampler chose shape {from_sampler}, but there are only the shapes 0 to {len(shapes) - 1}; "
                "pad to sampler.limits."
            )
        return from_sampler
    return next((number for number, shape in enumerate(shapes[:-1]) if shape.holds(content)), len(shapes) - 1)


def fill_values(fill: Fill, specs_by_type: Sequence[Mapping[str, ArraySpec]], what: str) -> dict[str, Any]:
    """Return the padding value (a number or a nested list) of each feature or label, by name.

    Raise SchemaError, which calls the argument `what`, if a value does not fit its feature or label.
    """
    names = {name for specs in specs_by_type for name in specs}
    if isinstance(fill, Mapping) and not set(fill) <= names:
        raise SchemaError(
            f"{what} has the unknown names {sorted(set(fill) - names, key=str)}; the known names are "
            f"{sorted(names - {''})} (a single label has no name); correct the names or give one number. Values of "
            "nodes and edges belong in feature_fill, and values of graphs in label_fill."
        )
    values: dict[str, Any] = {}
    for name in sorted(names):
        value = fill.get(name, 0) if isinstance(fill, Mapping) else fill
        if isinstance(value, Tensor | np.ndarray | np.generic | list | tuple):
            value = as_array(value, f"{what} of {name or 'the label'}", SchemaError).tolist()
        values[name] = value
    for name, spec in ((name, spec) for specs in specs_by_type for name, spec in specs.items()):
        value = values[name]
        shape = np.shape(value) if isinstance(value, list) else ()
        if shape not in ((), spec.shape):
            raise SchemaError(
                f"{what} of {name or 'the label'} has shape {list(shape)}, but an entry has {list(spec.shape)}; "
                "give one number, or an array with the shape of an entry."
            )
        numbers = np.array(value, object).flat if isinstance(value, list) else [value]
        if not all(_representable(number, spec.dtype) for number in numbers):
            raise SchemaError(
                f"{what} is {shown(value)} for {name or 'the label'}, which {spec.dtype} cannot hold; "
                "choose a value of that dtype."
            )
    return values


def _representable(value: Any, dtype: torch.dtype) -> bool:
    # Torch refuses integers beyond 64 bits even for floating-point dtypes.
    if not isinstance(value, int | float) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        return False
    if dtype.is_floating_point or dtype.is_complex:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    if not math.isfinite(value) or value != int(value):
        return False
    if dtype == torch.bool:
        return value in (0, 1)
    info = torch.iinfo(dtype)
    return info.min <= value <= info.max


def _memory() -> int:
    """Return the bytes of this machine's memory, or INT64_MAX if the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return INT64_MAX


def batch_of(schema: Schema, tensors: Mapping[Key, Tensor], real: Sequence[int]) -> PaddedBatch:
    """Return the batch of the given tensors, whose keys are the keys of `PaddedShape.layout`.

    `real` has the number of real nodes of each type, of real edges of each type, and of real graphs.
    """
    types, edge_types = (*schema.node_types, *schema.edge_types), schema.edge_types
    totals = dict(zip((*types, None), real, strict=True))
    pointers = {e: tensors["row_pointers", e] for e in edge_types if ("row_pointers", e) in tensors} or None
    orders = {e: tensors["edge_order", e] for e in edge_types if ("edge_order", e) in tensors} or None
    features, labels = schema.arranged(tensors.__getitem__)
    return PaddedBatch(
        node_types=schema.node_types,
        edge_types=edge_types,
        labels=as_label(labels),
        graph_mask=tensors["mask", None],
        graph_ids=tensors.get(("graph_ids", None)),
        num_real_graphs=totals[None],
        num_real_by_type={t: totals[t] for t in types},
        src_by_type={e: tensors["sources", e] for e in edge_types},
        dst_by_type={e: tensors["destinations", e] for e in edge_types},
        features_by_type=features,
        per_graph_by_type={t: tensors["per_graph", t] for t in types},
        masks_by_type={t: tensors["mask", t] for t in types},
        row_pointers_by_type=pointers,
        edge_orders=orders,
        graph_names=schema.graph_names,
        ties=schema.tied,
        indices=schema.index_columns,
        pyg_layout=schema.pyg,
        idtype=schema.idtype,
    )


def checked_coordinates(coordinates: Coordinates, specs_by_type: Sequence[Mapping[str, ArraySpec]]) -> dict[str, float]:
    """Return, for each node feature named in `coordinates`, the least distance between padding nodes; default 1."""
    if isinstance(coordinates, str) or not isinstance(coordinates, Iterable):
        raise SchemaError(
            f"coordinates must be names of node features, or names with distances, but is {shown(coordinates)}; give, "
            'for example, coordinates=("pos",).'
        )
    names = sorted({name for specs in specs_by_type for name in specs})
    pairs = coordinates.items() if isinstance(coordinates, Mapping) else ((name, 1.0) for name in coordinates)
    given: dict[Any, Any] = {}
    for name, distance in pairs:
        if name not in names:
            raise SchemaError(
                f"coordinates contains {shown(name)}, but the node features are {names}; correct the name."
            )
        hint, what = "give less than half of the cutoff of the model.", f"the distance of coordinates {name!r}"
        given[name] = real_number(what, distance, above=0, hint=hint, error=SchemaError)
        for spec in (specs[name] for specs in specs_by_type if name in specs):
            if not spec.dtype.is_floating_point or 0 in spec.shape:
                raise SchemaError(
                    f"coordinates must be real floats, at least one for each node, but {name!r} is {spec}; give the "
                    "name of a feature that holds positions."
                )
    return {name: float(distance) for name, distance in given.items()}


def padding_positions(spec: ArraySpec, first: int, number: int, distance: float) -> Tensor:
    """Return positions for the slots ``first..first + number - 1``, ``[number, *spec.shape]``.

    Any two positions are at least `distance` apart. In three dimensions, the positions wind around the first axis: no
    three consecutive positions are collinear, and no four are coplanar, so that every angle along a chain of padding
    edges is defined.
    """
    if (first + number) * torch.finfo(spec.dtype).eps > 1 or (first + number) * distance > torch.finfo(spec.dtype).max:
        raise SchemaError(
            f"{spec.dtype} cannot represent {first + number} padding positions with distances of {distance:g}; store "
            "coordinates as float32, or use smaller limits."
        )
    slots = torch.arange(first, first + number)
    width = spec.shape[-1] if spec.shape else 1
    positions = torch.zeros(number, width, dtype=torch.float64)
    positions[:, 0] = slots
    for axis in range(1, min(width, 3)):
        positions[:, axis] = (slots % 3 == axis).double()
    positions = (positions * distance).to(spec.dtype)
    # [number, D] -> [number, ..., D]
    leading = (1,) * (len(spec.shape) - 1)
    return positions.reshape(number, *leading, *spec.shape[-1:]).expand(number, *spec.shape).contiguous()
