"""Graphs that stores and batches give back to PyG, which joins them as it joined those that they were made from."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data, HeteroData

from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.blocks import NODE_TYPE, GraphType
from dgl_tuplepack.graphs.pyg_layout import Column, Place
from dgl_tuplepack.padding.pyg_names import Names

# Storage and attribute that count something; None as the attribute stands for `num_nodes`.
_Counted = tuple[GraphType | None, str | None]


class Joining(NamedTuple):
    """How PyG joins attributes: their axes, and what counts the numbers that their rows are shifted by."""

    axes: dict[Place, int | None]
    counted: dict[Place, tuple[_Counted, ...]]


class _Stored:
    """A graph whose class is not at hand any more: it keeps what `__inc__` and `__cat_dim__` of that class said."""

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
        """Take over how attributes are joined, too."""
        if "_joining" in data.__dict__:
            self.__dict__["_joining"] = data.__dict__["_joining"]
        return super().stores_as(data)  # type: ignore[misc]

    @classmethod
    def from_dict(cls, mapping: Any) -> Any:
        """Refuse a dict, which lacks how attributes are joined; `InMemoryDataset.load` calls this."""
        raise InputError(
            "a dict of a graph that came out of a store does not say how PyG joins its attributes; use your own class, "
            "MyData.from_dict(graph.to_dict()), also before such graphs are collated and saved."
        )

    def _joining_at(self, key: str, given: tuple[Any, ...]) -> tuple[Joining | None, Place]:
        """Return how attributes are joined, and the place of one; PyG gives its storage."""
        return self.__dict__.get("_joining"), (getattr(given[0], "_key", None) if given else None, key)

    def _number(self, t: GraphType | None, key: str | None) -> int:
        storage: Any = self._store if t is None else self[t]  # type: ignore[attr-defined, index]
        if key is None:
            return int(storage.num_nodes)
        value = storage[key]
        return int(value.shape[self.__cat_dim__(key, value, storage)])


class StoredData(_Stored, Data):  # type: ignore[misc]
    """A `Data` of a class of its own."""


class StoredHeteroData(_Stored, HeteroData):  # type: ignore[misc]
    """A `HeteroData` of a class of its own."""


def new_graph(names: Names, joining: Joining | None) -> Any:
    """Return an empty graph."""
    if joining is None:
        return Data() if names.is_flat else HeteroData()
    graph = StoredData() if names.is_flat else StoredHeteroData()
    graph.__dict__["_joining"] = joining
    return graph


def joining_of(names: Names, indices: Mapping[Column, GraphType]) -> Joining | None:
    """Return how PyG joined the graphs of a batch; None if it does so with any `Data` or `HeteroData`."""
    if not (names.layout.ends or names.layout.dims or indices):
        return None
    counts: dict[GraphType, _Counted] = {
        t: (names.storage_of(t), None if t == NODE_TYPE or not names.is_flat else t) for t in names.node_types
    }
    ends = {e: (names.storage_of(e), p.ends) for e, p in zip(names.edge_types, names.edge_places, strict=True)}
    counts.update((e, place) for e, place in ends.items())
    axes: dict[Place, int | None] = {(t, key): names.layout.dim(column) for column, t, key in names.columns}
    counted: dict[Place, tuple[_Counted, ...]] = {
        (t, key): (counts[indices[column]],) if column in indices else () for column, t, key in names.columns
    }
    for e, place in ends.items():
        axes[place], counted[place] = -1, (counts[e[0]], counts[e[2]])
    is_usual = all((axes[place], counted[place]) in _usual(place, names.is_flat) for place in axes)
    return None if is_usual else Joining(axes, counted)


@functools.lru_cache(maxsize=256)
def _usual(place: Place, is_flat: bool) -> list[tuple[int | None, tuple[_Counted, ...]]]:
    """Return how any `Data` or `HeteroData` joins an attribute, in the ways of writing it."""
    t, key = place
    graph: Any = Data(num_nodes=7) if is_flat else HeteroData()
    sources: tuple[_Counted, ...] = ((None, None),)
    if isinstance(t, tuple):
        sources = ((t[0], None), (t[2], None))
        for number, (end, _) in enumerate(sources):
            graph[end].num_nodes = 7 + number
    storage = graph._store if is_flat else graph._global_store if t is None else graph[t]
    # Of zeros, since some increments are values.
    value = torch.zeros(1, dtype=torch.long)
    increment = torch.as_tensor(graph.__inc__(key, value, storage)).reshape(-1).tolist()
    dim = graph.__cat_dim__(key, value, storage)
    if not any(increment):
        return [(dim, ())]
    if min(increment) < 7:
        return []
    return [(dim, sources[:1]), (dim, sources[:1] * 2)] if len(set(sources)) == 1 else [(dim, sources)]
