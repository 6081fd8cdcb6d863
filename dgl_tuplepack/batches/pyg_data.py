"""Make the PyG graphs that stores and batches return. PyG joins these graphs by the rules of their original class.

A storage is one of PyG's dicts of attributes. Its key is a node or edge type, or None for the whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data, HeteroData

from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import GraphType
from dgl_tuplepack.graphs.pyg.storages import storages_of
from dgl_tuplepack.graphs.pyg_layout import NUMBER, Attribute, Column, Names


class Joining(NamedTuple):
    """The rules by which PyG joins graphs to a batch: the results of `__cat_dim__` and `__inc__` for each attribute.

    An attribute is a pair (key of its storage, name).
    """

    # Attribute -> the axis along which PyG joins its values; None if PyG adds an axis.
    axes: dict[Attribute, int | None]
    # Attribute -> the attributes whose sizes PyG adds to this attribute's values in later graphs; empty if the values
    # are not indices. Endpoints have two such attributes: one for the source nodes, one for the destination nodes.
    shifted_by: dict[Attribute, tuple[Attribute, ...]]


class _Stored:
    """A mixin for graphs that have the joining rules of another class in ``_joining``."""

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        joining, attribute = self._joining_and_attribute(key, args)
        if joining is None or attribute not in joining.shifted_by:
            return super().__inc__(key, value, *args, **kwargs)  # type: ignore[misc]
        shifted_by = joining.shifted_by[attribute]
        shifts = [self._size_of(*each) for each in shifted_by]
        if len(set(shifted_by)) > 1:
            # Source nodes and destination nodes are of two types, with different shifts.
            return torch.tensor(shifts).view(-1, 1)
        return shifts[0] if shifts else 0

    def __cat_dim__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        joining, attribute = self._joining_and_attribute(key, args)
        if joining is None or attribute not in joining.axes:
            return super().__cat_dim__(key, value, *args, **kwargs)  # type: ignore[misc]
        return joining.axes[attribute]

    def stores_as(self, data: Any) -> Any:
        """Call PyG's `stores_as`, and copy the joining rules of `data`."""
        if "_joining" in data.__dict__:
            self.__dict__["_joining"] = data.__dict__["_joining"]
        return super().stores_as(data)  # type: ignore[misc]

    @classmethod
    def from_dict(cls, mapping: Any) -> Any:
        """Raise InputError, since a dict lacks the joining rules; `InMemoryDataset.load` calls this method."""
        raise InputError(
            "the dict of a graph from a store lacks the rules by which PyG joins its attributes; convert such graphs "
            "to your own class, MyData.from_dict(graph.to_dict()), before you collate or save them."
        )

    def _joining_and_attribute(self, key: str, given: tuple[Any, ...]) -> tuple[Joining | None, Attribute]:
        """Return the joining rules, None if there are none, and the attribute as (key of its storage, name).

        ``given[0]``, if passed, is the storage that has the attribute; otherwise the key of the storage is None.
        """
        found = (t for t, storage in storages_of(self) if given and storage is given[0])
        return self.__dict__.get("_joining"), (next(found, None), key)

    def _size_of(self, t: GraphType | None, key: str) -> int:
        """Return the size of an attribute: PyG adds this number to the indices of later graphs."""
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
    """Return an empty `Data` (if the types are flat) or `HeteroData`, with `joining` unless it is None."""
    if joining is None:
        return Data() if names.types.is_flat else HeteroData()
    graph = StoredData() if names.types.is_flat else StoredHeteroData()
    graph.__dict__["_joining"] = joining
    return graph


def joining_of(names: Names, indices: Mapping[Column, GraphType]) -> Joining | None:
    """Return the joining rules of the graphs in a batch; None if they are the default rules of PyG.

    `indices` maps each feature or label with indices to the node or edge type that it indexes.
    """
    types = names.types
    axes: dict[Attribute, int | None] = {(t, key): names.layout.dim(column) for column, t, key in names.columns}
    shifted_by: dict[Attribute, tuple[Attribute, ...]] = {
        (t, key): (types.attribute_of(indices[column]),) if column in indices else ()
        for column, t, key in names.columns
    }
    for e, attribute in types.edges.items():
        axes[attribute], shifted_by[attribute] = -1, (types.attribute_of(e[0]), types.attribute_of(e[2]))
    is_usual = all(_is_usual(attribute, axes[attribute], shifted_by[attribute], types.is_flat) for attribute in axes)
    return None if is_usual else Joining(axes, shifted_by)


def _is_usual(attribute: Attribute, axis: int | None, shifted_by: tuple[Attribute, ...], is_flat: bool) -> bool:
    """Return whether these rules are PyG's default for an attribute; the default depends on the attribute's name."""
    t, key = attribute
    if "batch" in key:
        # By default, PyG shifts the attribute by its own maximum plus 1.
        return False
    is_index = "index" in key or (is_flat and key == "face")
    # By default, only storages of edges have indices in a HeteroData.
    if not is_index or not (is_flat or isinstance(t, tuple)):
        return axis == 0 and not shifted_by
    ends: list[Attribute] = [(t[0], NUMBER), (t[2], NUMBER)] if isinstance(t, tuple) else [(None, NUMBER)]
    # If both ends have the same attribute, `shifted_by` may have this attribute once or twice.
    return axis == -1 and ({*shifted_by} == {*ends} if len({*ends}) == 1 else shifted_by == tuple(ends))
