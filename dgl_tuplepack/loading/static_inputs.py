"""Ordinary batches of DGL and PyG as arguments of a model: their numbers of rows, and their padding to static shapes.

A component is (position of a graph among the graphs in the arguments, node type or edge type); `GRAPHS` stands for the
rows of graphs, of which all graphs in the arguments have equally many.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of
from dgl_tuplepack.loading.static_padding import Padding, is_position, padded_feature, padded_rows
from dgl_tuplepack.planning.limits import Limits

Component = tuple[int, GraphType]
GRAPHS: Component = (-1, "graphs")
# Type -> number of slots; the key "graphs" of the static shapes of a call is `GRAPHS`.
Slots = Mapping[Component, int]

# Names that PyG users give to attributes with a row for each node. Names that contain "edge" belong to edges.
_OF_NODES = frozenset({"x", "z", "pos", "batch", "atom_type", "node_attr", "node_type", "node_id", "train_mask"})


_NO_COUNTS = torch.empty(0, dtype=torch.int64)


class DglInput:
    """A batched DGLGraph in the arguments of a model; compiled code gets a `TensorGraph`."""

    def __init__(self, graph: Any, coordinates: Collection[str] = ()) -> None:
        self.value, self.num_graphs, self.device = graph, graph.batch_size, graph.device
        self.node_types, self.edge_types = graph.ntypes, graph.canonical_etypes
        self.counts: dict[GraphType, int] = {t: graph.num_nodes(t) for t in self.node_types}
        self.counts |= {e: graph.num_edges(e) for e in self.edge_types}
        self.features = {t: dict(graph.nodes[t].data) for t in self.node_types}
        self.features |= {e: dict(graph.edges[e].data) for e in self.edge_types}
        self.positions = {
            t: x for t in self.node_types for name, x in self.features[t].items() if is_position(name, x, coordinates)
        }

    def ends(self, e: EdgeType) -> Sequence[Tensor]:
        """Return source and destination of the edges of a type."""
        return self.value.edges(etype=e)  # type: ignore[no-any-return]

    @property
    def kinds(self) -> dict[str, tuple[Tensor, GraphType | None]]:
        """The tensors of the graph by name, with the type that they have a row for each of."""
        return {_name_of(t, name): (x, t) for t, of_type in self.features.items() for name, x in of_type.items()}

    undecided: Mapping[str, Tensor] = {}
    problem = ""

    def by_name(self) -> dict[str, Tensor]:
        """Return the tensors of the graph by name."""
        return {name: x for name, (x, _) in self.kinds.items()}

    def cut(self, leaf: Callable[[Tensor], Tensor]) -> DglInput:
        """Return a copy with ``leaf(x)`` in the place of each feature x."""
        other = copy.copy(self)
        other.features = {t: {n: leaf(x) for n, x in of_type.items()} for t, of_type in self.features.items()}
        return other

    def is_joined(self, name: str) -> bool:
        """Return False, since all features of a DGLGraph are of known rows."""
        return False

    def key(self, required: Collection[str]) -> Any:
        """Return, in a hashable form, what compiled code depends on beside static shapes; see `Inputs.key`."""
        features = tuple(
            (t, n, x.dtype, x.shape[1:], x.requires_grad and _name_of(t, n) not in required)
            for t, of_type in self.features.items()
            for n, x in of_type.items()
        )
        return "dgl", self.value.idtype, self.device, features

    def padded(self, padding: Padding) -> tuple[tuple[Tensor, ...], None]:
        """Return the padded tensors, in the order in which `rebuilt` expects them."""
        graph = self.value
        nodes = [x for t in self.node_types for x in padding.nodes(t, graph.batch_num_nodes(t))]
        tensors = list[Tensor]()
        for e in self.edge_types:
            src, dst = self.ends(e)
            tensors += padding.edges(e, src, dst, graph.batch_num_edges(e))
        tensors += nodes
        for t, of_type in self.features.items():
            tensors += (padded_feature(name, x, padding, t) for name, x in of_type.items())
        return tuple(tensors), None

    def layout(self) -> Callable[..., Any]:
        """Return a function that builds the `TensorGraph` of padded tensors and slots, in traced code."""
        names = {t: tuple(of_type) for t, of_type in self.features.items()}
        return functools.partial(_tensor_graph, tuple(self.node_types), tuple(self.edge_types), names)

    def copied(self, changed: Callable[[Tensor], Tensor] = lambda x: x) -> Any:
        """Return the graph with features that can be set without changing the user's graph."""
        graph = self.value.local_var()
        for t, of_type in self.features.items():
            frame = (graph.nodes if isinstance(t, str) else graph.edges)[t].data
            for name, x in _unlike({name: changed(x) for name, x in of_type.items()}):
                frame[name] = x
        return graph

    def snapshot(self, graph: Any) -> dict[Any, dict[str, Any]]:
        """Return the features of a copy of the graph by type."""
        return {t: dict((graph.nodes if isinstance(t, str) else graph.edges)[t].data) for t in self.features}

    def write(self, t: GraphType, name: str, value: Any) -> None:
        """Set a feature of the user's graph."""
        (self.value.nodes if isinstance(t, str) else self.value.edges)[t].data[name] = value

    def remove(self, t: GraphType, name: str) -> None:
        """Remove a feature of the user's graph."""
        (self.value.nodes if isinstance(t, str) else self.value.edges)[t].data.pop(name)

    def first(self, number: int, decided: Mapping[str, GraphType | None]) -> Any:
        """Return a batch of the first graphs."""
        import dgl

        nodes = {t: self.value.batch_num_nodes(t)[:number] for t in self.node_types}
        edges = {e: self.value.batch_num_edges(e)[:number] for e in self.edge_types}
        kept = {t: torch.arange(int(each.sum()), dtype=self.value.idtype) for t, each in nodes.items()}
        graph = dgl.node_subgraph(self.value, kept, store_ids=False)
        graph.set_batch_num_nodes(nodes)
        graph.set_batch_num_edges(edges)
        return graph

    def has_lonely_nodes(self) -> bool:
        """Return whether some node has no incoming edge of a type that ends in its type."""
        return any(self.counts[e[2]] and not self.value.in_degrees(etype=e).all() for e in self.edge_types)


def _unlike(features: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yield features by name, no tensor twice: a model sets a feature if its tensor is another one afterwards.

    A batch that a model saw before may have a tensor under two names, which have different tensors with padding.
    """
    seen = set[int]()
    for name, x in features.items():
        made = x.view_as(x) if id(x) in seen else x
        seen.add(id(made))
        yield name, made


def _name_of(t: GraphType, name: str) -> str:
    kind = "ndata" if isinstance(t, str) else "edata"
    of = "" if t in (NODE_TYPE, EDGE_TYPE) else f"[{(t if isinstance(t, str) else t[1])!r}]"
    return f"{kind}[{name!r}]{of}"


def _tensor_graph(
    node_types: Sequence[str], edge_types: Sequence[EdgeType], names: Mapping[GraphType, Sequence[str]],
    slots: Mapping[GraphType, int], tensors: Iterator[Tensor],
) -> Any:  # fmt: skip
    # This import loads torch's compiler, which takes two seconds.
    from dgl_tuplepack.compiling.tensor_graph import TensorGraph

    ends = {e: (next(tensors), next(tensors), next(tensors)) for e in edge_types}
    nodes = {t: (next(tensors), next(tensors)) for t in node_types}
    features = {t: {name: next(tensors) for name in of_type} for t, of_type in names.items()}

    is_flat = len(node_types) == len(edge_types) == 1

    def shaped(by_type: dict[Any, Any]) -> Any:
        return next(iter(by_type.values())) if is_flat else by_type

    return TensorGraph(
        shaped({e: each[0] for e, each in ends.items()}),
        shaped({e: each[1] for e, each in ends.items()}),
        shaped({t: slots[t] for t in node_types}),
        batch_num_nodes=shaped({t: each[0] for t, each in nodes.items()}),
        batch_num_edges=shaped({e: each[2] for e, each in ends.items()}),
        node_graph_slots=shaped({t: each[1] for t, each in nodes.items()}),
        node_features=shaped({t: features[t] for t in node_types}),
        edge_features=shaped({e: features[e] for e in edge_types}),
    )


class PygInput:
    """A PyG Batch in the arguments of a model; compiled code gets a padded Batch.

    `shapes` are the static shapes of the model. Their components say which attributes of a `Data` are lists of edges.
    `coordinates` are names of positions, besides those whose names tell.
    """

    def __init__(self, batch: Any, shapes: Sequence[Limits] = (), coordinates: Collection[str] = ()) -> None:
        self.value, self.num_graphs, self._coordinates = batch, batch.num_graphs, coordinates
        if hasattr(batch, "node_types"):
            self.node_types, self.edge_types = batch.node_types, batch.edge_types
            storages = {t: batch[t] for t in (*self.node_types, *self.edge_types)}
            self._set({**storages, None: batch.stores[0]}, {})
        else:
            own = batch.__dict__.get("static_shape")
            of_batch = own if isinstance(own, tuple) else () if own is None else (own,)
            components = next((each.components for each in (*of_batch, *shapes)), ())
            self.node_types, self.edge_types = _types_of_flat(components, batch)
            self._set({None: batch}, batch.__dict__.get("static_levels", {}))

    def _set(self, storages: Mapping[Any, Any], levels: Mapping[str, str | None]) -> None:
        """Sort the attributes of all storages; `levels` has those of a flat storage that the loader knows."""
        # Type (None: of a flat storage, or of graphs) -> attributes.
        self.attributes: dict[Any, dict[str, Any]] = {t: dict(each.items()) for t, each in storages.items()}
        self.positions = dict[GraphType, Tensor]()
        self._is_flat = [*storages] == [None]
        self.problem, self.counts = "", dict[GraphType, int]()
        # Tensors by title: with the type that they have a row for each of, or None; and those of unknown rows.
        self.kinds: dict[str, tuple[Tensor, GraphType | None]] = {}
        self.undecided: dict[str, Tensor] = {}
        self._rows: dict[tuple[Any, str], GraphType | None] = {}
        # For attributes of graphs with several rows for each graph, such as cells `[3 * graphs, 3]`: their number.
        self._times: dict[tuple[Any, str], int] = {}
        # Storage and name of the attributes that say which graph nodes belong to, where graphs begin, and edges.
        self._batches: dict[tuple[Any, str], str] = {}
        self._pointers: dict[tuple[Any, str], str] = {}
        self._ends: dict[tuple[Any, str], EdgeType] = {}
        for t in (*self.node_types, *self.edge_types):
            at = None if self._is_flat else t
            if isinstance(t, str):
                prefix = f"{t}_" if self._is_flat and t != NODE_TYPE else ""
                needed = f"{prefix}batch"
                self._batches[at, needed] = self._pointers[at, f"{prefix}ptr"] = t
            else:
                needed = _ends_of(t) if self._is_flat else "edge_index"
                self._ends[at, needed] = t
            if not isinstance(x := self.attributes[at].get(needed), Tensor):
                self.problem = f"a batch has no tensor {needed!r}"
                return
            self.counts[t] = x.shape[-1]
        self._structure = self._batches.keys() | self._pointers.keys() | self._ends.keys()
        titles = components_of(tuple(self.node_types), tuple(self.edge_types))
        self._types = dict(zip((*titles, GRAPHS[1]), (*self.counts, GRAPHS[1]), strict=True))
        self.device = next(iter(self.attributes[None if self._is_flat else self.node_types[0]].values())).device
        for t, of_type in self.attributes.items():
            for name, x in of_type.items():
                if isinstance(x, Tensor) and x.ndim and (t, name) not in self._structure:
                    self._sort(t, name, x, levels)

    def _sort(self, t: Any, name: str, x: Tensor, levels: Mapping[str, str | None]) -> None:
        """Decide which rows a tensor has: by its storage, by the loader's levels, or by its name."""
        title = _title(t, name)
        rows: Any = t
        if t is None and not self._is_flat:
            rows = GRAPHS[1]
        elif self._is_flat and name in levels:
            level, _, times = (levels[name] or "").partition("*")
            rows = self._types.get(level)
            if times:
                self._rows[t, name], self._times[t, name] = rows, int(times)
                return
            if rows is None:
                self._rows[t, name] = None
                return
        elif self._is_flat:
            rows = type_by_name(name, x, self.num_graphs, self._coordinates)
            # Among several lists of edges, the usual one has the usual attributes.
            rows = self._ends.get((None, "edge_index")) if rows == EDGE_TYPE else rows
        count = self.num_graphs if rows == GRAPHS[1] else self.counts.get(rows)
        if count is None or count != x.shape[0]:
            self.undecided[title] = x
        else:
            self._rows[t, name] = rows
            self.kinds[title] = x, rows
            if rows in self.node_types and is_position(name, x, self._coordinates):
                self.positions[rows] = x

    def by_name(self) -> dict[str, Tensor]:
        """Return the tensors of the graph by name, also those of unknown rows."""
        return {name: x for name, (x, _) in self.kinds.items()} | self.undecided

    def cut(self, leaf: Callable[[Tensor], Tensor]) -> PygInput:
        """Return a copy with ``leaf(x)`` in the place of each attribute x that is a tensor."""
        other = copy.copy(self)
        other.attributes = {
            t: {n: leaf(x) if isinstance(x, Tensor) else x for n, x in of_type.items()}
            for t, of_type in self.attributes.items()
        }
        return other

    def is_joined(self, name: str) -> bool:
        """Return whether PyG's collate joined an undecided tensor like nodes, edges or graphs, which takes long."""
        # Tensors by themselves are of no batch.
        if name not in self.undecided or not self._is_flat or self.value is None:
            return False
        return _is_joined(self.value, name, self.undecided[name])

    def ends(self, e: EdgeType) -> Sequence[Tensor]:
        """Return source and destination of the edges of a type."""
        at, name = next(place for place, each in self._ends.items() if each == e)
        return self.attributes[at][name]  # type: ignore[no-any-return]

    def key(self, required: Collection[str]) -> Any:
        """Return, in a hashable form, what compiled code depends on beside static shapes; see `Inputs.key`."""
        attributes = tuple(
            (t, *((n, self._key_of(t, n, x, required)) for n, x in each.items())) for t, each in self.attributes.items()
        )
        return type(self.value), self.device, attributes

    def _key_of(self, t: Any, name: str, x: Any, required: Collection[str]) -> Any:
        if not isinstance(x, Tensor):
            # PyG keeps a number of nodes as a number, which is replaced.
            return type(x) if name == "num_nodes" or not isinstance(x, bool | int | float | None) else (type(x), x)
        if (t, name) in self._ends:
            return x.dtype
        return x.dtype, x.shape[1:], x.requires_grad and _title(t, name) not in required

    def padded_attributes(
        self, padding: Padding, decided: Mapping[str, GraphType | None]
    ) -> Iterator[tuple[Any, str, Any]]:
        """Yield (storage, name, padded value) for each attribute that a padded batch has."""
        slots = {t: padding.nodes(t, _NO_COUNTS) for t in self.node_types}
        for t, of_type in self.attributes.items():
            for name, x in of_type.items():
                if not isinstance(x, Tensor):
                    if name == "num_nodes":
                        yield t, name, padding.slots.get(NODE_TYPE if t is None else t)
                    elif isinstance(x, bool | int | float | None):
                        yield t, name, x
                elif (t, name) in self._ends:
                    src, dst, _ = padding.edges(self._ends[t, name], x[0], x[1], _NO_COUNTS)
                    yield t, name, torch.stack([src, dst])
                elif (t, name) in self._batches:
                    yield t, name, torch.cat([x, slots[self._batches[t, name]][1].to(x)])
                elif (t, name) in self._pointers:
                    yield t, name, torch.cat([x, slots[self._pointers[t, name]][0].cumsum(0).to(x) + x[-1]])
                else:
                    rows = self._rows.get((t, name), decided.get(name))
                    slots_of_rows = padding.graphs if rows == GRAPHS[1] else padding.slots.get(rows)  # type: ignore[arg-type]
                    if slots_of_rows is None:
                        yield t, name, x
                    elif rows == GRAPHS[1]:
                        padded = padded_rows(x, slots_of_rows * self._times.get((t, name), 1))
                        padding.made[id(x)] = padded
                        yield t, name, padded
                    else:
                        yield t, name, padded_feature(name, x, padding, rows)  # type: ignore[arg-type]

    def padded(self, padding: Padding, decided: Mapping[str, GraphType | None] = {}) -> tuple[tuple[Tensor, ...], Any]:
        """Return no tensors, and a padded batch."""
        batch = copy.copy(self.value)
        _make_static(batch)
        batch.__dict__.pop("_origin", None)
        batch.__dict__["static_counts"] = *self._totals(padding.slots), padding.graphs
        storages = {t: self._storage(batch, t) for t in self.attributes}
        kept: dict[Any, set[str]] = {t: set() for t in self.attributes}
        for t, name, x in self.padded_attributes(padding, decided):
            storages[t][name] = x
            kept[t].add(name)
        for t, of_type in self.attributes.items():
            for name in of_type.keys() - kept[t]:
                del storages[t][name]
        return (), batch

    def copied(self, changed: Callable[[Tensor], Tensor] = lambda x: x) -> Any:
        """Return the batch with attributes that can be set without changing the user's batch."""
        batch = copy.copy(self.value)
        for t, of_type in self.attributes.items():
            given = {name: x for name, x in of_type.items() if isinstance(x, Tensor)}
            if len({*map(id, given.values())}) < len(given):
                for name, x in _unlike(given):
                    self._storage(batch, t)[name] = x
        return batch

    def snapshot(self, batch: Any) -> dict[Any, dict[str, Any]]:
        """Return the attributes of a copy of the batch by type."""
        return {t: dict((self._storage(batch, t)).items()) for t in self.attributes}

    def _storage(self, batch: Any, t: Any) -> Any:
        return batch[t] if t is not None else batch if self._is_flat else batch.stores[0]

    def write(self, t: Any, name: str, value: Any) -> None:
        """Set an attribute of the user's batch."""
        self._storage(self.value, t)[name] = value

    def remove(self, t: Any, name: str) -> None:
        """Remove an attribute of the user's batch."""
        del self._storage(self.value, t)[name]

    def first(self, number: int, decided: Mapping[str, GraphType | None]) -> Any:
        """Return a batch of the first graphs; `decided` has types of attributes whose names do not tell."""
        batch = copy.copy(self.value)
        numbers: dict[Any, int] = {GRAPHS[1]: number}
        for (at, name), node_type in self._batches.items():
            numbers[node_type] = int((self.attributes[at][name] < number).sum())
        for (at, name), e in self._ends.items():
            numbers[e] = int((self.attributes[at][name][0] < numbers[e[0]]).sum())
        for t, of_type in self.attributes.items():
            storage = self._storage(batch, t)
            for name, x in of_type.items():
                if (t, name) in self._ends:
                    storage[name] = x[:, : numbers[self._ends[t, name]]]
                elif (t, name) in self._batches:
                    storage[name] = x[: numbers[self._batches[t, name]]]
                elif (t, name) in self._pointers:
                    storage[name] = x[: number + 1]
                elif (rows := self._rows.get((t, name), decided.get(name))) is not None:
                    storage[name] = x[: numbers[rows] * self._times.get((t, name), 1)]
        _make_static(batch)
        batch.__dict__.pop("_origin", None)
        batch.__dict__["static_counts"] = *self._totals(numbers), number
        return batch

    def _totals(self, numbers: Mapping[Any, int]) -> tuple[int, int]:
        """Return PyG's numbers of nodes and edges; of several lists of edges of a `Data`, ``edge_index`` counts."""
        usual = self._ends.get((None, "edge_index"))
        edges = self.edge_types if usual is None else [usual]
        return sum(numbers[t] for t in self.node_types), sum(numbers[e] for e in edges)

    def has_lonely_nodes(self) -> bool:
        """PyG's layers do not refuse nodes without edges."""
        return False


class TensorInput(PygInput):
    """Tensors of a batch of PyG in the arguments of a model: ``model(x, edge_index, batch)``."""

    def __init__(self, named: Mapping[str, Tensor], coordinates: Collection[str] = ()) -> None:
        self.value, self.named, self._coordinates = None, dict(named), coordinates
        self.node_types, self.edge_types = [NODE_TYPE], [EDGE_TYPE]
        self.num_graphs = int(named["batch"].max()) + 1 if len(named["batch"]) else 0
        self._set({None: self.named}, {})

    def padded(self, padding: Padding, decided: Mapping[str, GraphType | None] = {}) -> tuple[tuple[Tensor, ...], Any]:
        """Return the padded tensors by name, as the second value."""
        return (), {name: x for _, name, x in self.padded_attributes(padding, decided)}

    def first(self, number: int, decided: Mapping[str, GraphType | None]) -> dict[str, Tensor]:
        """Return the tensors of the first graphs."""
        nodes = int((self.named["batch"] < number).sum())
        edges = int((self.named["edge_index"][0] < nodes).sum())
        numbers: dict[Any, int] = {NODE_TYPE: nodes, EDGE_TYPE: edges, GRAPHS[1]: number}
        found = {}
        for name, x in self.named.items():
            dim, rows = (1, EDGE_TYPE) if name == "edge_index" else (0, self._rows.get((None, name), decided.get(name)))
            rows = NODE_TYPE if name == "batch" else rows
            found[name] = x.narrow(dim, 0, numbers[rows]) if rows is not None else x
        return found


def _title(t: Any, name: str) -> str:
    return name if t is None else f"{name}[{(t if isinstance(t, str) else t[1])!r}]"


def _types_of_flat(components: Sequence[str], batch: Any) -> tuple[list[str], list[EdgeType]]:
    """Return the types of the nodes and edges of a `Data`: those of a static shape if the batch has all their lists."""
    parts = [each.split(":") for each in components if each.count(":") in (1, 3)]
    nodes = [part[1] for part in parts if len(part) == 2]
    edges = [(part[1], part[2], part[3]) for part in parts if len(part) == 4]
    if len(parts) == len(components) and edges and all(_ends_of(e) in batch for e in edges):
        return nodes, edges
    return [NODE_TYPE], [EDGE_TYPE]


def _ends_of(e: EdgeType) -> str:
    """Return the attribute of a `Data` that has the ends of these edges."""
    return "edge_index" if e == EDGE_TYPE else e[1]


def title_of(component: Component) -> str:
    """Return the text by which `rows` names a component."""
    kinds = {(0, NODE_TYPE): "nodes", (0, EDGE_TYPE): "edges", GRAPHS: "graphs"}
    t = component[1]
    return kinds.get(component) or ":".join(("nodes", t) if isinstance(t, str) else ("edges", *t))


def type_by_name(name: str, x: Tensor, graphs: int, coordinates: Collection[str]) -> Any:
    """Return the type that a flat attribute has a row for each of, by its name; None if the name does not tell."""
    if name in _OF_NODES or is_position(name, x, coordinates):
        return NODE_TYPE
    if name in ("graph_ids", "source_ids"):
        return GRAPHS[1]
    if "edge" in name:
        return EDGE_TYPE
    # Labels are not read by most models; those of nodes have another length.
    return (GRAPHS[1] if x.shape[0] == graphs else NODE_TYPE) if name == "y" else None


def _is_joined(batch: Any, name: str, x: Tensor) -> bool:
    """Return whether PyG's collate joined a row of each graph, or as many rows of each as it has nodes or edges."""
    if batch.__cat_dim__(name, x) != 0:
        return False
    try:
        graphs = batch.to_data_list()
    except RuntimeError:
        # Another function made the batch.
        return False
    if any(name not in graph for graph in graphs):
        # It was added to the batch.
        return False
    values = [graph[name] for graph in graphs]
    rows = [value.shape[0] if isinstance(value, Tensor) and value.ndim else 1 for value in values]
    if len({*rows}) <= 1:
        # If all graphs of the batch have 3 nodes, a matrix of 3 rows looks like rows of nodes.
        return rows[:1] == [1]
    return rows in ([graph.num_nodes for graph in graphs], [graph.num_edges for graph in graphs])


def _make_static(batch: Any) -> None:
    """Give a batch a class whose sizes are known, and whose attributes traced code can set."""
    # Setting `__class__` as usual would make it an attribute of the graph.
    cls: Any = type(batch)
    object.__setattr__(batch, "__class__", _static_class(cls))


@functools.cache
def _static_class(cls: type) -> type:
    if "_static" in vars(cls):
        # The first graphs of a batch are such a batch already.
        return cls

    def set_attribute(batch: Any, name: str, value: Any) -> None:
        batch[name] = value

    def fill(namespace: dict[str, Any]) -> None:
        namespace["_static"] = True
        namespace["num_nodes"] = property(lambda batch: batch.__dict__["static_counts"][0])
        namespace["num_edges"] = property(lambda batch: batch.__dict__["static_counts"][1])
        namespace["num_graphs"] = property(lambda batch: batch.__dict__["static_counts"][2])
        if not hasattr(cls, "node_types"):
            namespace["__setattr__"] = set_attribute

    return types.new_class(cls.__name__, (cls,), {}, fill)
