"""PyG graphs taken from stores and batches, which PyG batches by the same rules as the original graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data, HeteroData

from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import GraphType
from dgl_tuplepack.graphs.pyg.chunk import storages_of
from dgl_tuplepack.graphs.pyg_layout import NUMBER, Column, Names, Place


class Joining(NamedTuple):
    """The rules by which PyG joins attributes: their axes, and the attributes whose sizes shift their values."""

    axes: dict[Place, int | None]
    counted: dict[Place, tuple[Place, ...]]


class _Stored:
    """A graph whose original class is gone: it keeps the results of that class's `__inc__` and `__cat_dim__`."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        joining, place = self._joining_at(key, args)
        if joining is None or place not in joining.counted:
            return super().__inc__(key, value, *args, **kwargs)  # type: ignore[misc]
        counted = joining.counted[place]
        numbers = [self._number(*each) for each in counted]
        return torch.tensor(numbers).view(-1, 1) if len(set(counted)) > 1 else sum(numbers[:1])

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        joining, place = self._joining_at(key, args)
        if joining is None or place not in joining.axes:
            return super().__cat_dim__(key, value, *args, **kwargs)  # type: ignore[misc]
        return joining.axes[place]

    def stores_as(self, data: Any) -> Any:
        """Copy the joining rules too."""
        if "_joining" in data.__dict__:
            self.__dict__["_joining"] = data.__dict__["_joining"]
        return super().stores_as(data)  # type: ignore[misc]

    @classmethod
    def from_dict(cls, mapping: Any) -> Any:
        """Raise InputError: a dict lacks the joining rules; `InMemoryDataset.load` calls this."""
        raise InputError(
            "a dict of a graph from a store does not contain how PyG joins its attributes; use your own class, "
            "MyData.from_dict(graph.to_dict()), also before such graphs are collated and saved."
        )

    def _joining_at(self, key: str, given: tuple[Any, ...]) -> tuple[Joining | None, Place]:
        """Return the joining rules, and the storage and key of an attribute; PyG passes its storage."""
        found = (t for t, storage in storages_of(self) if given and storage is given[0])
        return self.__dict__.get("_joining"), (next(found, None), key)

    def _number(self, t: GraphType | None, key: str) -> int:
        storage = dict(storages_of(self))[t]
        if key == NUMBER:
            return int(storage.num_nodes)
        value = storage[key]
        return int(value.shape[self.__cat_dim__(key, value, storage)])


class StoredData(_Stored, Data):  # type: ignore[misc]
    """A `Data` with the joining rules of another class."""


class StoredHeteroData(_Stored, HeteroData):  # type: ignore[misc]
    """A `HeteroData` with the joining rules of another class."""


def new_graph(names: Names, joining: Joining | None) -> Any:
    """Return an empty graph, with joining rules if there are any."""
    if joining is None:
        return Data() if names.types.is_flat else HeteroData()
    graph = StoredData() if names.types.is_flat else StoredHeteroData()
    graph.__dict__["_joining"] = joining
    return graph


def joining_of(names: Names, indices: Mapping[Column, GraphType]) -> Joining | None:
    """Return the joining rules of the graphs of a batch; None if they are those of any `Data` or `HeteroData`."""
    types = names.types
    axes: dict[Place, int | None] = {(t, key): names.layout.dim(column) for column, t, key in names.columns}
    counted: dict[Place, tuple[Place, ...]] = {
        (t, key): (types.place_of(indices[column]),) if column in indices else () for column, t, key in names.columns
    }
    for e, place in types.edges.items():
        axes[place], counted[place] = -1, (types.place_of(e[0]), types.place_of(e[2]))
    is_usual = all(_is_usual(place, axes[place], counted[place], types.is_flat) for place in axes)
    return None if is_usual else Joining(axes, counted)


def _is_usual(place: Place, axis: int | None, counted: tuple[Place, ...], is_flat: bool) -> bool:
    """Return whether any `Data` or `HeteroData` joins an attribute like this, by PyG's documented rules."""
    t, key = place
    is_index = "index" in key or (is_flat and key == "face")
    if "batch" in key or not is_index or not (is_flat or isinstance(t, tuple)):
        return "batch" not in key and axis == 0 and not counted
    ends: list[Place] = [(t[0], NUMBER), (t[2], NUMBER)] if isinstance(t, tuple) else [(None, NUMBER)]
    return axis == -1 and (counted == tuple(ends) or ({*counted} == {*ends} and len({*ends}) == 1))
