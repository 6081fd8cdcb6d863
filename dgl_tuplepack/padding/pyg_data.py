"""Graphs that stores and batches give back to PyG, which joins them as it joined those that they were made from."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data

from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import NODE_TYPE, GraphType
from dgl_tuplepack.graphs.pyg_layout import Column
from dgl_tuplepack.padding.pyg_names import Names


class Joining(NamedTuple):
    """How PyG joins attributes: their axes, and the attributes that count what their rows are shifted by.

    None stands for `num_nodes`.
    """

    axes: dict[str, int | None]
    counted: dict[str, tuple[str | None, ...]]


class StoredData(Data):  # type: ignore[misc]
    """A `Data` whose class is not at hand any more: it keeps what `__inc__` and `__cat_dim__` of that class said."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        joining: Joining | None = self.__dict__.get("_joining")
        if joining is None or key not in joining.counted:
            return super().__inc__(key, value, *args, **kwargs)
        numbers = [self._number(counted) for counted in joining.counted[key]]
        return torch.tensor(numbers).view(-1, 1) if len(set(joining.counted[key])) > 1 else sum(numbers[:1])

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        joining: Joining | None = self.__dict__.get("_joining")
        if joining is None or key not in joining.axes:
            return super().__cat_dim__(key, value, *args, **kwargs)
        return joining.axes[key]

    def stores_as(self, data: Any) -> Any:
        """Take over how attributes are joined, too."""
        if "_joining" in data.__dict__:
            self.__dict__["_joining"] = data.__dict__["_joining"]
        return super().stores_as(data)

    @classmethod
    def from_dict(cls, mapping: Any) -> Any:
        """Refuse a dict, which lacks how attributes are joined; `InMemoryDataset.load` calls this."""
        raise InputError(
            "a dict of a graph that came out of a store does not say how PyG joins its attributes; use your own class, "
            "MyData.from_dict(graph.to_dict()), also before such graphs are collated and saved."
        )

    def _number(self, counted: str | None) -> int:
        if counted is None:
            return int(self.num_nodes)
        value = self[counted]
        return int(value.shape[self.__cat_dim__(counted, value)])


def joining_of(names: Names, indices: Mapping[Column, GraphType]) -> Joining | None:
    """Return how PyG joined the graphs of a flat batch; None if it does so with any `Data`."""
    if not names.is_flat or not (names.layout.ends or names.layout.dims or indices):
        return None
    keys: dict[GraphType, str | None] = {t: None if t == NODE_TYPE else t for t in names.node_types}
    keys |= {e: place.ends for e, place in zip(names.edge_types, names.edge_places, strict=True)}
    axes: dict[str, int | None] = {key: names.layout.dim(column) for column, _, key in names.columns}
    targets = {key: indices.get(column) for column, _, key in names.columns}
    counted = {key: () if target is None else (keys[target],) for key, target in targets.items()}
    for e, place in zip(names.edge_types, names.edge_places, strict=True):
        axes[place.ends], counted[place.ends] = -1, (keys[e[0]], keys[e[2]])  # type: ignore[assignment]
    is_plain = all((axes[key], {*counted[key]}) == _joined_by_any(key) for key in axes)
    return None if is_plain else Joining(axes, counted)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _joined_by_any(key: str) -> tuple[int | None, set[None]]:
    """Return the axis of an attribute of any `Data`, and what counts the numbers in it."""
    plain: Any = Data(num_nodes=1)
    one = torch.ones(1, dtype=torch.long)
    return plain.__cat_dim__(key, one), {None} if plain.__inc__(key, one) else set()
