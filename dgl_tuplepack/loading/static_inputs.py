"""Ordinary batches of DGL and PyG as arguments of a model: their numbers of rows, and their padding to static shapes.

A component is (position of a graph among the graphs in the arguments, node type or edge type); `GRAPHS` stands for the
rows of graphs, of which all graphs in the arguments have equally many.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._core.kernels.pad_graph import pad_edges, pad_nodes
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType, components_of
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.sizes import IntArray

Component = tuple[int, GraphType]
GRAPHS: Component = (-1, "graphs")
# Type -> number of slots; the key "graphs" of the static shapes of a call is `GRAPHS`.
Slots = Mapping[Component, int]

# Names that PyG users give to attributes with a row for each node. Names that contain "edge" belong to edges.
_OF_NODES = frozenset({"x", "z", "pos", "batch", "atom_type", "node_attr", "node_type", "node_id", "train_mask"})


def padded_rows(values: Tensor, slots: int, dim: int = 0) -> Tensor:
    """Append copies of the first rows, or zeros if there are none, so that padding holds values as real rows do."""
    rows = values.shape[dim]
    missing = slots - rows
    if missing == 0:
        return values
    if rows == 0:
        shape = list(values.shape)
        shape[dim] = missing
        return torch.cat([values, values.new_zeros(shape)], dim)
    copied = values.detach()
    if missing <= rows:
        return torch.cat([values, copied.narrow(dim, 0, missing)], dim)
    return torch.cat([values, copied.index_select(dim, torch.arange(missing, device=values.device) % rows)], dim)


# Padding gets positions of its own under these names: nodes that edges of padding join are near each other, as models
# with a cutoff need, and never at the same place, as copies of crystals with one atom would be.
_POSITIONS = frozenset({"pos", "coords", "coordinates", "R", "xyz"})
# Edges of padding stay in one cell: if a part of a name is one of these, as of `cell_offsets`, the feature is 0 there.
_SHIFTS = frozenset({"shift", "shifts", "offset", "offsets", "offshift", "image", "images"})


@functools.lru_cache(64)
def _positions(
    spread: tuple[int, ...], type_number: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return positions of graphs of padding with so many nodes each, ``[sum(spread), *shape]``.

    The nodes of a graph go along one side of a ladder, and come back along the other, so each is 1 to 1.8 away from the
    next one, and the last from the first. In three dimensions, no three consecutive nodes are collinear.
    """
    numbers = np.array(spread, np.int64)
    own = np.arange(numbers.sum()) - np.repeat(numbers.cumsum() - numbers, numbers)
    from_end = np.repeat(numbers, numbers) - 1 - own
    if shape[-1] == 1:
        values = own[:, None] + type_number
    else:
        values = np.zeros((len(own), shape[-1]), np.int64)
        values[:, 0] = np.minimum(own, from_end)
        values[:, 1] = (own > from_end) + 2 * type_number
        values[:, 2:3] = own[:, None] % 2
    # Larger numbers are not exact in a small dtype.
    made = torch.from_numpy(values % int(1 / torch.finfo(dtype).eps)).to(device, dtype)
    return made.reshape(len(own), *(1,) * (len(shape) - 1), shape[-1]).expand(len(own), *shape)


def padded_feature(name: str, values: Tensor, padding: Padding, t: GraphType) -> Tensor:
    """Append rows of padding to a feature of nodes or edges, after `Padding.nodes`."""
    missing = padding.slots[t] - values.shape[0]
    if missing and values.ndim > 1 and values.shape[-1] > 0:
        if isinstance(t, str) and name in _POSITIONS and values.is_floating_point():
            type_number = [each for each in padding.slots if isinstance(each, str)].index(t)
            spread, shape = tuple(padding.spread[t].tolist()), tuple(values.shape[1:])
            return torch.cat([values, _positions(spread, type_number, shape, values.dtype, values.device)])
        if isinstance(t, tuple) and not _SHIFTS.isdisjoint(name.split("_")) and values.shape[-1] in (2, 3):
            return torch.cat([values, values.new_zeros(missing, *values.shape[1:])])
    return padded_rows(values, padding.slots[t])


_NONE = np.empty(0, np.int64)
_NO_COUNTS = torch.empty(0, dtype=torch.int64)


@dataclass(frozen=True)
class Padding:
    """How one graph is padded: `missing` nodes and edges of each type are divided over the unused graph slots."""

    # Number of real graphs, and of graph slots.
    real: int
    graphs: int
    # Type -> number of slots, and number of real nodes (edges).
    slots: Mapping[GraphType, int]
    counts: Mapping[GraphType, int]
    # Node type -> number of nodes in each graph of padding, once `nodes` was called.
    spread: dict[str, IntArray]

    @classmethod
    def of(
        cls, counts: Mapping[GraphType, int], real: int, slots: Mapping[GraphType, int], graphs: int
    ) -> Padding | None:
        """Return the padding of a batch; None if the batch does not fit.

        A graph of padding has at least two nodes, so that its edges join different nodes, whose positions differ. With
        several node types, some graphs of padding may have no nodes of a type, as real graphs may.
        """
        if graphs <= real:
            return None
        is_flat = len(counts) == 2
        for t, number in counts.items():
            missing = slots[t] - number
            needed = 2 * (graphs - real) if is_flat and isinstance(t, str) else 0
            if missing < needed:
                return None
            if missing and isinstance(t, tuple) and not all(slots[end] > counts[end] for end in (t[0], t[2])):
                return None
        return cls(real, graphs, slots, counts, {})

    def nodes(self, t: str, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes of type `t` in each graph slot, and the graph slot of each node; `counts` are the real ones.

        If `counts` is empty, return only the parts that are padding.
        """
        on_host = counts.is_cpu and counts.dtype == torch.int64
        real = counts.numpy() if on_host else _NONE
        missing = self.slots[t] - self.counts[t]
        all_counts = np.empty(len(real) + self.graphs - self.real, np.int64)
        slots = np.empty(self.slots[t] if len(real) else missing, np.int64)
        pad_nodes(real, self.real - len(real), missing, all_counts, slots)
        self.spread[t] = all_counts[len(real) :]
        padded, of_nodes = torch.from_numpy(all_counts), torch.from_numpy(slots)
        if on_host or not len(counts):
            return padded, of_nodes
        before = torch.repeat_interleave(
            torch.arange(self.real, device=counts.device), counts, output_size=self.counts[t]
        )
        return torch.cat([counts, padded.to(counts)]), torch.cat([before, of_nodes.to(before)])

    def edges(self, e: EdgeType, src: Tensor, dst: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return source and destination of all edges of type `e`, and the edges in each graph slot, after `nodes`."""
        on_host = all(x.is_cpu and x.dtype == torch.int64 and x.is_contiguous() for x in (src, dst, counts))
        ends = (src.numpy(), dst.numpy()) if on_host else (_NONE, _NONE)
        real = counts.numpy() if on_host else _NONE
        number = self.slots[e] if on_host else self.slots[e] - self.counts[e]
        all_src, all_dst = np.empty(number, np.int64), np.empty(number, np.int64)
        all_counts = np.empty(len(real) + self.graphs - self.real, np.int64)
        first = self.counts[e[0]], self.counts[e[2]]
        spread = self.spread[e[0]], self.spread[e[2]]
        pad_edges(ends, real, e[0] == e[2], first, spread, (all_src, all_dst), all_counts)
        made = tuple(map(torch.from_numpy, (all_src, all_dst, all_counts)))
        if not on_host:
            made = tuple(torch.cat([x, each.to(x)]) for x, each in zip((src, dst, counts), made, strict=True))
        return made  # type: ignore[return-value]


class DglInput:
    """A batched DGLGraph in the arguments of a model; compiled code gets a `TensorGraph`."""

    def __init__(self, graph: Any) -> None:
        self.value, self.num_graphs, self.device = graph, graph.batch_size, graph.device
        self.node_types, self.edge_types = graph.ntypes, graph.canonical_etypes
        self.counts: dict[GraphType, int] = {t: graph.num_nodes(t) for t in self.node_types}
        self.counts |= {e: graph.num_edges(e) for e in self.edge_types}
        self.features = {t: dict(graph.nodes[t].data) for t in self.node_types}
        self.features |= {e: dict(graph.edges[e].data) for e in self.edge_types}
        self.has_positions = any(_POSITIONS & self.features[t].keys() for t in self.node_types)

    @property
    def kinds(self) -> dict[str, tuple[Tensor, GraphType | None]]:
        """The tensors of the graph by name, with the type that they have a row for each of."""
        return {_name_of(t, name): (x, t) for t, of_type in self.features.items() for name, x in of_type.items()}

    undecided: Mapping[str, Tensor] = {}
    problem = ""

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
            src, dst = graph.edges(etype=e)
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

    def write(self, t: GraphType, name: str, value: Tensor) -> None:
        """Set a feature of the user's graph."""
        (self.value.nodes if isinstance(t, str) else self.value.edges)[t].data[name] = value

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
    """

    def __init__(self, batch: Any, shapes: Sequence[Limits] = ()) -> None:
        self.value, self.num_graphs = batch, batch.num_graphs
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
        self.has_positions = any(_POSITIONS & each.keys() for each in self.attributes.values())
        self._is_flat = [*storages] == [None]
        self.problem, self.counts = "", dict[GraphType, int]()
        # Tensors by title: with the type that they have a row for each of, or None; and those of unknown rows.
        self.kinds: dict[str, tuple[Tensor, GraphType | None]] = {}
        self.undecided: dict[str, Tensor] = {}
        self._rows: dict[tuple[Any, str], GraphType | None] = {}
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
            rows = self._types.get(levels[name] or "")
            if rows is None:
                self._rows[t, name] = None
                return
        elif self._is_flat:
            rows = type_by_name(name, x, self.num_graphs)
            # Among several lists of edges, the usual one has the usual attributes.
            rows = self._ends.get((None, "edge_index")) if rows == EDGE_TYPE else rows
        count = self.num_graphs if rows == GRAPHS[1] else self.counts.get(rows)
        if count is None or count != x.shape[0]:
            self.undecided[title] = x
        else:
            self._rows[t, name] = rows
            self.kinds[title] = x, rows

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
                        yield t, name, padded_rows(x, slots_of_rows)
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

    def write(self, t: Any, name: str, value: Tensor) -> None:
        """Set an attribute of the user's batch."""
        self._storage(self.value, t)[name] = value

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
                    storage[name] = x[: numbers[rows]]
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

    def __init__(self, named: Mapping[str, Tensor]) -> None:
        self.value, self.named = None, dict(named)
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


def type_by_name(name: str, x: Tensor, graphs: int) -> Any:
    """Return the type that a flat attribute has a row for each of, by its name; None if the name does not tell."""
    if name in _OF_NODES:
        return NODE_TYPE
    if "edge" in name:
        return EDGE_TYPE
    # Labels are not read by most models; those of nodes have another length.
    return (GRAPHS[1] if x.shape[0] == graphs else NODE_TYPE) if name == "y" else None


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
