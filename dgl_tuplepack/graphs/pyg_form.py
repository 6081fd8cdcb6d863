"""Where graphs of PyG have their types: what counts the nodes of each, and which attributes are endpoints or indices.

PyG shifts attributes by `__inc__` when it joins graphs. What such an increment counts is asked of a copy of the graph
whose attributes all differ in length: so two graphs in one `Data` are told apart, also where they have equally many
nodes. Every graph that is read is compared with the answer (`PygGraph.check_increment`).
"""

from __future__ import annotations

import copy
import functools
import itertools
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._checks import as_integer, shown
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType
from dgl_tuplepack.graphs.pyg_layout import ENDPOINTS, Levels, Place, PygLayout
from dgl_tuplepack.graphs.relations import INDEX_TYPES

NODE, EDGE, GRAPH = "node", "edge", "graph"
# PyG takes the number of nodes, or edges, from these attributes (torch_geometric.data.storage).
NODE_KEYS = frozenset({"x", "feat", "pos", "node_type", "n_id"})
EDGE_KEYS = frozenset({"edge_weight", "edge_attr", "edge_type", "e_id"})
NUMBER = "num_nodes"
# Attributes that batches have beside those of their graphs.
RESERVED = frozenset({"batch", "ptr", "node_mask", "edge_mask", "graph_mask", "graph_ids", "num_graphs"})
# Lengths in a copy of a graph: 8 mod 101, so that no sum or difference of two is a third.
_FIRST, _STEP = 10_007, 101
_MOST_FORMS = 256


@dataclass(frozen=True)
class Form:
    """Where graphs of PyG have their types.

    Attributes
    ----------
    is_hetero
        Whether they are `HeteroData`, which has a storage for each type. A `Data` has one storage for all, whose key
        is None.
    nodes
        Storage and attribute that count the nodes of each type; `num_nodes` stands for what PyG takes the number from.
    edges
        Storage and attribute of the endpoints of each edge type.
    indices
        Other attributes that PyG shifts, with the type that they number.
    """

    is_hetero: bool
    nodes: Mapping[str, Place]
    edges: Mapping[EdgeType, Place]
    indices: Mapping[Place, GraphType] = field(default_factory=dict)

    @classmethod
    def of_layout(cls, node_types: tuple[str, ...], edge_types: tuple[EdgeType, ...], layout: PygLayout) -> Form:
        """Return the form of the graphs that a schema was learnt from; `indices` are those of the schema."""
        is_flat = layout.is_flat(node_types, edge_types)
        nodes: dict[str, Place] = {t: (t, NUMBER) for t in node_types}
        if is_flat:
            nodes = {t: (None, NUMBER if t == NODE_TYPE else t) for t in node_types}
        return cls(not is_flat, nodes, {e: layout.place_of(e, is_flat) for e in edge_types})

    @property
    def is_plain(self) -> bool:
        """Whether the graphs have one type of nodes and of edges, as a `Data` usually does."""
        return not self.is_hetero and tuple(self.nodes) == (NODE_TYPE,) and tuple(self.edges) == (EDGE_TYPE,)

    @property
    def ends(self) -> dict[EdgeType, Place]:
        """Edge types whose endpoints are not the `edge_index` of a storage of their own, or of a plain `Data`."""
        if self.is_plain:
            return {}
        return {e: place for e, place in self.edges.items() if not self.is_hetero or place != (e, ENDPOINTS)}

    def types_in(self, storage: GraphType | None) -> list[GraphType]:
        """Return the types whose attributes are in a storage."""
        nodes: list[GraphType] = [t for t, (inside, _) in self.nodes.items() if inside == storage]
        return nodes + [e for e, (inside, _) in self.edges.items() if inside == storage]


PLAIN = Form(False, {NODE_TYPE: (None, NUMBER)}, {EDGE_TYPE: (None, ENDPOINTS)})
_FORMS: dict[Any, Form] = {}


def nodes_key(storage: Any) -> str | None:
    """Return the attribute that the number of nodes is taken from, as PyG does; None if there is none."""
    if NUMBER in storage:
        return NUMBER
    keys = [key for key, value in storage.items() if isinstance(value, Tensor)]
    named = [key for key in keys if key in NODE_KEYS] or [key for key in keys if "node" in key]
    return named[0] if named else None


def form_of(data: Any, where: str, levels: Levels) -> Form:
    """Return the form of a graph; SchemaError if PyG shifts an attribute by something that is not a number of rows."""
    is_hetero = hasattr(type(data), "node_types")
    usual = PLAIN
    if is_hetero:
        if [*data.node_types, *data.edge_types] == [NODE_TYPE, EDGE_TYPE]:
            raise SchemaError(
                f"{where} is a HeteroData whose types are {NODE_TYPE!r} and {EDGE_TYPE}, which a Data has; give "
                "a Data, or rename the types."
            )
        nodes: dict[str, Place] = {t: (t, NUMBER) for t in sorted(data.node_types)}
        usual = Form(True, nodes, {e: (e, ENDPOINTS) for e in sorted(data.edge_types)})
    keys = tuple(itertools.chain.from_iterable(storage._mapping for storage in data.stores))
    kind: Any = type(data)
    if _is_usual(kind, keys) and not any(level not in (NODE, EDGE, GRAPH, None) for level in levels.values()):
        return usual
    signature = (kind, tuple(sorted(levels.items(), key=str)), tuple(_described(data)))
    if signature not in _FORMS:
        if len(_FORMS) >= _MOST_FORMS:
            _FORMS.clear()
        asked = _Asked(data, where, levels)
        _FORMS[signature] = asked.hetero(usual) if is_hetero else asked.flat()
    return _FORMS[signature]


def or_left_out(key: str) -> str:
    """Return the end of a remedy; edges need their endpoints."""
    return "" if key == ENDPOINTS else f', or leave it out: levels={{"{key}": None}}'


def told(data: Any, method: str, key: str, storage: Any, what: str) -> Any:
    """Return what `__inc__` or `__cat_dim__` of a graph tells of an attribute; SchemaError if the method fails."""
    try:
        return getattr(data, method)(key, storage[key], storage)
    except Exception as error:
        # The method of a user's class may raise anything.
        raise SchemaError(
            f"{what} cannot be joined, since {method} of {type(data).__name__} fails: {type(error).__name__}: "
            f"{error!s:.200}; correct {method} or set num_nodes{or_left_out(key)}."
        ) from error


def increment_of(data: Any, storage: Any, key: str, what: str) -> Any:
    """Return what PyG shifts an attribute by, as an array; SchemaError if that is not an array of numbers."""
    found = told(data, "__inc__", key, storage, what)
    try:
        return found.numpy(force=True) if isinstance(found, Tensor) else np.asarray(found)
    except ValueError as error:
        raise SchemaError(
            f"{what} is shifted by {shown(found)}, which __inc__ of {type(data).__name__} returns, but it must be a "
            f"number, or one number for each end; correct __inc__{or_left_out(key)}."
        ) from error


def storages_of(data: Any) -> Iterator[tuple[GraphType | None, Any]]:
    """Yield the storages of a graph with their keys; None is the key of what belongs to the graph as a whole."""
    for storage in data.stores:
        yield getattr(storage, "_key", None), storage


def shifts_as_pyg(kind: Any) -> bool:
    """Whether a class of graphs has the `__inc__` of PyG's `Data` or `HeteroData`."""
    base: Any = next(each for each in kind.__mro__ if each.__module__.startswith("torch_geometric.data."))
    return base.__name__ in ("Data", "HeteroData") and kind.__inc__ is base.__inc__


@functools.lru_cache(_MOST_FORMS)
def _is_usual(kind: Any, keys: tuple[str, ...]) -> bool:
    """Whether graphs of a class, with these attributes, shift `edge_index` alone, which needs no questions."""
    others = [key for key in keys if key != ENDPOINTS]
    return shifts_as_pyg(kind) and not any("index" in key or "batch" in key or key == "face" for key in others)


def _described(data: Any) -> Iterator[Any]:
    """Yield what the form of a graph depends on."""
    for t, storage in storages_of(data):
        for key, value in storage.items():
            shape = (value.ndim, value.ndim == 2 and len(value) == 2, value.dtype) if isinstance(value, Tensor) else ()
            yield t, key, type(value), shape


class _Asked:
    """Asks a graph what its increments count."""

    def __init__(self, data: Any, where: str, levels: Levels) -> None:
        self.data, self.where, self.levels = data, where, levels
        # Lengths of attributes in the copy -> where they are.
        self.places: dict[int, Place] = {}
        self.copy = copy.copy(data)
        for t, storage in storages_of(self.copy):
            for key, value in list(storage.items()):
                dim = told(data, "__cat_dim__", key, dict(storages_of(data))[t], self._named(t, key))
                storage[key] = self._resized(value, dim, (t, key))
        # Attributes that are shifted -> what the increment of each row counts.
        self.shifted: dict[Place, list[Place]] = {}
        for t, storage in storages_of(data):
            for key, value in storage.items():
                is_read = isinstance(value, Tensor | int | float) and key not in {NUMBER, *RESERVED}
                if is_read and levels.get(key, key) is not None and (counted := self._counted(t, key)):
                    self.shifted[t, key] = counted

    def _resized(self, value: Any, dim: Any, place: Place) -> Any:
        """Return an attribute with a length of its own; what has none stays."""
        number = _FIRST + _STEP * len(self.places)
        if place[1] == NUMBER or (isinstance(value, int) and not isinstance(value, bool)):
            self.places[number] = place
            return number
        if not isinstance(value, Tensor) or not isinstance(dim, int) or not -value.ndim <= dim < value.ndim:
            return value
        self.places[number] = place
        shape = list(value.shape)
        shape[dim] = number
        return torch.zeros((), dtype=value.dtype).expand(shape)

    def _counted(self, t: GraphType | None, key: str) -> list[Place]:
        """Return what an attribute is shifted by; nothing if it is not."""
        asked, given = (self._increment(data, t, key) for data in (self.copy, self.data))
        if not (np.any(asked != 0) or np.any(given != 0)):
            return []
        places = [self.places.get(as_integer(number) or 0) for number in asked.reshape(-1).tolist()]
        found = [place for place in places if place is not None]
        if not found or len(found) < len(places):
            self._refuse(t, key, f"is {given.tolist()!s:.100} here")
        for of_type, name in found:
            storage = self._of(of_type)
            if (of_type is None and hasattr(type(self.data), "node_types")) or not (
                name == NUMBER or isinstance(storage[name], Tensor)
            ):
                self._refuse(t, key, f"is the value of {name!r}")
        return found

    def _increment(self, data: Any, t: GraphType | None, key: str) -> Any:
        with warnings.catch_warnings():
            # PyG guesses the number of nodes of graphs that do not tell it.
            warnings.simplefilter("ignore")
            return increment_of(data, dict(storages_of(data))[t], key, self._named(t, key))

    def _of(self, t: GraphType | None) -> Any:
        return dict(storages_of(self.data))[t]

    def _named(self, t: GraphType | None, key: str) -> str:
        return f"the attribute {key!r} of {self.where}{'' if t is None else f', type {t!r}'}"

    def _refuse(self, t: GraphType | None, key: str, what: str) -> Any:
        raise SchemaError(
            f"{self._named(t, key)} is shifted by __inc__, which {what}, but must be the number of rows of an "
            "attribute, such as self.num_nodes or self.x_s.size(0); correct __inc__ or set num_nodes"
            f"{or_left_out(key)}."
        )

    def _is_ends(self, place: Place) -> bool:
        """Whether an attribute is like `edge_index`, and levels do not say that it is something else."""
        t, key = place
        value = self._of(t)[key]
        like = isinstance(value, Tensor) and value.ndim == 2 and len(value) == 2 and value.dtype in INDEX_TYPES
        like = like and self.data.__cat_dim__(key, value, self._of(t)) in (-1, 1)
        return like and self.levels.get(key, key) == key

    def _target(self, place: Place, counted: list[Place], type_of: Any) -> GraphType:
        """Return the one type that an attribute of indices numbers."""
        found = {type_of(each) for each in counted}
        if len(found) > 1:
            self._refuse(
                *place, f"counts {' and '.join(map(str, found))}, where one type is possible in what is not [2, K]"
            )
        target: GraphType = found.pop()
        return target

    def hetero(self, usual: Form) -> Form:
        """Return the form of a HeteroData."""
        edges = dict(usual.edges)

        def node_type(place: Place) -> GraphType:
            assert place[0] is not None
            return place[0]

        indices: dict[Place, GraphType] = {}
        for place, counted in self.shifted.items():
            t, key = place
            if key == ENDPOINTS and t in usual.edges:
                continue
            types = [node_type(each) for each in counted]
            if self._is_ends(place) and all(isinstance(each, str) for each in types):
                name = key if not isinstance(t, tuple) else f"{t[1]}/{key}"
                edge_type = (str(types[0]), name, str(types[-1]))
                if edge_type in edges:
                    self._refuse(t, key, f"makes it the edge type {edge_type}, which is another one already")
                edges[edge_type] = place
            else:
                indices[place] = self._target(place, counted, node_type)
        return Form(True, usual.nodes, {e: edges[e] for e in sorted(edges)}, indices)

    def flat(self) -> Form:
        """Return the form of a Data."""
        storage, levels = self.data._store, self.levels
        of_nodes = nodes_key(storage)
        ends = {key: counted for (_, key), counted in self.shifted.items() if self._is_ends((None, key))}
        # Endpoints are nodes. The edge_index of a line graph counts edges, so it is an index and not an edge type.
        ends = {
            key: counted for key, counted in ends.items() if not any(k in ends or k in EDGE_KEYS for _, k in counted)
        }
        nodes: dict[str, Place] = {} if of_nodes is None else {NODE_TYPE: (None, NUMBER)}
        edges: dict[EdgeType, Place] = {}

        def group(place: Place) -> str:
            key = place[1]
            if of_nodes is not None and (key in (NUMBER, of_nodes, *NODE_KEYS) or levels.get(key) == NODE):
                return NODE_TYPE
            name = levels.get(key, key)
            name = name if name in storage and name not in ends else key
            assert name is not None
            nodes[name] = (None, name)
            return name

        for key, counted in ends.items():
            edges[group(counted[0]), key, group(counted[-1])] = (None, key)
        nodes |= {
            key: (None, key) for key, level in levels.items() if level == key and key in storage and key not in ends
        }
        by_key = {key: e for e, (_, key) in edges.items()}

        def type_of(place: Place) -> GraphType:
            key = place[1]
            if key in EDGE_KEYS and ENDPOINTS in by_key:
                key = ENDPOINTS
            return by_key[key] if key in by_key else group(place)

        indices = {
            place: self._target(place, counted, type_of)
            for place, counted in self.shifted.items()
            if place[1] not in ends
        }
        if set(nodes) <= {NODE_TYPE} and set(by_key) <= {ENDPOINTS}:
            renamed = {place: EDGE_TYPE if isinstance(t, tuple) else t for place, t in indices.items()}
            return Form(False, PLAIN.nodes, PLAIN.edges, renamed)
        return Form(False, {t: nodes[t] for t in sorted(nodes)}, {e: edges[e] for e in sorted(edges)}, indices)
