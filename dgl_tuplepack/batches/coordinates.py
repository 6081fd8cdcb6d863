"""Positions of padding nodes, for models that divide by distances or compute angles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack._core.checks import real_number, shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.schema import ArraySpec

# Names of features; or a dict from names of features to the least distance between padding nodes.
Coordinates = Sequence[str] | Mapping[str, float]


def checked_coordinates(coordinates: Coordinates, specs_by_type: Sequence[Mapping[str, ArraySpec]]) -> dict[str, float]:
    """Return, for each feature named in `coordinates`, the least distance between padding nodes; the default is 1.

    Raise SchemaError if a name is not the name of a node feature of real floats, or if a distance is not positive and
    finite.
    """
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

    Any two positions are at least `distance` apart. In three dimensions, the positions wind around the first axis, so
    that no three consecutive positions are collinear, and no four consecutive positions are coplanar. Then every angle
    along a chain of padding edges is defined. `first` is the number of node slots of all earlier node types. Raise
    SchemaError if the dtype cannot represent that many different positions.
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
