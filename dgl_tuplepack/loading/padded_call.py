"""One call of a model on ordinary batches: its arguments, the padded call, and results cut to real rows.

`Inputs` finds the graphs and tensors in the arguments, and `Rows` decides which rows a tensor outside of graphs has.
`plain_call` calls the model on the arguments as they are. `PaddedCall`, which torch compiles, calls it on padded ones.
Both return a `Captured`; `Cuts` (`cuts.py`) gives the padded one the shapes of the plain one.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack.compiling.signatures import mapped
from dgl_tuplepack.errors import CompileError
from dgl_tuplepack.graphs.blocks import NODE_TYPE, GraphType, components_of
from dgl_tuplepack.graphs.named import is_graph, is_pyg
from dgl_tuplepack.loading.static_inputs import (
    GRAPHS,
    Component,
    DglInput,
    PygInput,
    Slots,
    TensorInput,
    title_of,
    type_by_name,
)
from dgl_tuplepack.loading.static_padding import Padding, padded_feature, padded_rows
from dgl_tuplepack.nn.masks import RowMask, masked
from dgl_tuplepack.planning.limits import Limits


@dataclass(frozen=True)
class GraphAt:
    """Stands for a graph of the arguments."""

    place: int


# Stands for a feature that the model removed.
REMOVED = GraphAt(-1)


@dataclass(frozen=True)
class TensorAt:
    """Stands for a tensor of the arguments, outside of graphs."""

    place: int


@dataclass(frozen=True)
class CountAt:
    """Stands for a number of rows of a component, which is that of slots in a padded call."""

    component: Component


# Names that PyG's models give to arguments with these numbers of rows.
_COUNTS: Mapping[str, Component] = {"batch_size": GRAPHS, "num_graphs": GRAPHS, "num_nodes": (0, NODE_TYPE)}


class Captured(NamedTuple):
    """What a model returned, with `GraphAt` for graphs of the arguments, and the features that it set in graphs."""

    output: Any
    # (index of the graph, type, name) -> feature, or another value that PyG's batches have, or `REMOVED`.
    written: dict[tuple[int, Any, str], Any]


class Inputs:
    """The graphs and tensors in the arguments of one call; `problem` says why they cannot be padded."""

    # Set once they are known: how each graph is padded, and which rows the tensors have that no graph owns.
    paddings: Sequence[Padding]
    rows: Mapping[str, Component | None]
    # About the length of the shortest edge, by position of the graph.
    spacings: Mapping[int, float]

    def __init__(
        self, names: Sequence[str], args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Sequence[Limits] = (),
        coordinates: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.graphs: list[Any] = []
        self.spacings = {}
        self._names, self._shapes, self.coordinates = names, shapes, coordinates
        # Tensors outside of graphs by name, in the order of `TensorAt`.
        self.tensors: dict[str, Tensor] = {}
        self.problem = ""
        # The arguments, with marks in place of graphs and tensors.
        self.args = tuple(self._marked(x, names[i] if i < len(names) else f"argument {i}") for i, x in enumerate(args))
        self.kwargs = {name: self._marked(x, name) for name, x in kwargs.items()}
        # Tensors named ``edge_index`` and ``batch`` are a graph of PyG, and tensors beside them have names as in PyG.
        self.has_tensor_graph = not self.graphs and {"edge_index", "batch"} <= self.tensors.keys()
        if self.has_tensor_graph:
            self.graphs.append(TensorInput(self.tensors, coordinates))
        numbers = {graph.num_graphs for graph in self.graphs}
        self.num_graphs = max(numbers, default=0)
        if len(numbers) != 1:
            problem = (
                "its arguments have no graph, or graphs of different batches; give the batch itself, model(data), and "
                "let the model take what it needs from it, such as data.x_dict"
            )
            if "edge_index" in self.tensors:
                problem = "it gets edge_index, but no tensor named batch, which says the graph of each node"
            self.problem = self.problem or problem
        self.counts: dict[Component, int] = {GRAPHS: self.num_graphs}
        for i, graph in enumerate(self.graphs):
            self.problem = self.problem or graph.problem
            self.counts |= {(i, t): number for t, number in graph.counts.items()}
        self.args = tuple(self._counted(x, names[i] if i < len(names) else "") for i, x in enumerate(self.args))
        self.kwargs = {name: self._counted(x, name) for name, x in self.kwargs.items()}

    def _counted(self, value: Any, name: str) -> Any:
        component = _COUNTS.get(name)
        is_count = type(value) is int and component is not None and self.counts.get(component) == value
        return CountAt(component) if is_count else value  # type: ignore[arg-type]

    def _marked(self, value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            self.tensors[name] = value
            return TensorAt(len(self.tensors) - 1)
        if is_graph(value):
            if value.is_block or value.batch_size < 1:
                self.problem = "it gets a block, or a batch without graphs"
            return self._added(self._dgl, value)
        if is_pyg(value):
            if hasattr(value, "num_graphs"):
                self.problem = self.problem if value.num_graphs else "it gets a batch without graphs"
                return self._added(self._pyg, value)
            self.problem = "it gets a single graph of PyG, not a Batch"
        elif type(value) is dict:
            return {key: self._marked(each, f"{name}[{key!r}]") for key, each in value.items()}
        elif type(value) in (tuple, list):
            return type(value)(self._marked(each, f"{name}[{i}]") for i, each in enumerate(value))
        return value

    def _dgl(self, graph: Any) -> DglInput:
        return DglInput(graph, self.coordinates)

    def _pyg(self, batch: Any) -> PygInput:
        return PygInput(batch, self._shapes, self.coordinates)

    def _added(self, kind: Callable[[Any], Any], value: Any) -> GraphAt:
        for i, known in enumerate(self.graphs):
            if known.value is value:
                return GraphAt(i)
        self.graphs.append(kind(value))
        return GraphAt(len(self.graphs) - 1)

    @property
    def device(self) -> torch.device:
        """The device of the first graph."""
        device: torch.device = self.graphs[0].device
        return device

    @property
    def pattern(self) -> tuple[bool, ...]:
        """What code may branch on: whether there is a single graph, and which components are empty."""
        return self.num_graphs == 1, *(number == 0 for number in self.counts.values())

    def key(self, required: Collection[str]) -> Any:
        """Return, in a hashable form, what compiled code depends on beside modes and static shapes.

        Whether the tensors named in `required` have gradients does not matter.
        """
        others = {} if self.has_tensor_graph else self.tensors
        tensors = tuple(
            (name, x.dtype, x.shape[1:], x.device, x.requires_grad and name not in required)
            for name, x in others.items()
        )
        return tuple(graph.key(required) for graph in self.graphs), tensors, _key_of(self.args), _key_of(self.kwargs)

    def filled(self, graphs: Sequence[Any], tensors: Sequence[Tensor], counts: Slots) -> tuple[Any, Any]:
        """Return the arguments with `graphs`, `tensors` and `counts` in place of the marks."""
        return filled(self.args, graphs, tensors, counts), filled(self.kwargs, graphs, tensors, counts)

    def named(self) -> dict[str, Tensor]:
        """Return all tensors of the arguments by name, for messages."""
        of_graphs = {name: x for graph in self.graphs for name, (x, _) in graph.kinds.items()}
        return {**of_graphs, **self.tensors}

    def cut(self, leaf: Callable[[Tensor], Tensor]) -> Inputs:
        """Return a copy with ``leaf(x)`` in the place of each tensor x."""
        other = copy.copy(self)
        other.tensors = {name: leaf(x) for name, x in self.tensors.items()}
        other.graphs = [graph.cut(leaf) for graph in self.graphs]
        return other

    def first(self, number: int, rows: Mapping[str, Component | None]) -> Inputs:
        """Return the arguments of a call with the first graphs only."""
        own = own_types(rows)
        graphs = [graph.first(number, own) for graph in self.graphs]
        counts: dict[Component, int] = {GRAPHS: number}
        if self.has_tensor_graph:
            tensors = {**self.tensors, **graphs[0]}
            counts[0, NODE_TYPE] = len(tensors["batch"])
        else:
            features = dict[int, Tensor]()
            for i, (graph, whole) in enumerate(zip(graphs, self.graphs, strict=True)):
                made = self._pyg(graph) if is_pyg(graph) else self._dgl(graph)
                counts |= {(i, t): n for t, n in made.counts.items()}
                known = made.by_name()
                features |= {id(x): known[name] for name, x in whole.by_name().items() if name in known}
            tensors = {
                name: x if rows.get(name) is None else features.get(id(x), x[: counts[rows[name]]])  # type: ignore[index]
                for name, x in self.tensors.items()
            }
        first = Inputs(
            self._names, *self.filled(graphs, list(tensors.values()), counts), self._shapes, self.coordinates
        )
        first.spacings = self.spacings
        return first


def filled(value: Any, graphs: Sequence[Any], tensors: Sequence[Tensor], counts: Slots) -> Any:
    """Return nested containers with graphs, tensors and counts in place of their marks; traced code can follow it."""
    if isinstance(value, GraphAt):
        return graphs[value.place]
    if isinstance(value, TensorAt):
        return tensors[value.place]
    if isinstance(value, CountAt):
        return counts[value.component]
    if type(value) is dict:
        return {key: filled(each, graphs, tensors, counts) for key, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)([filled(each, graphs, tensors, counts) for each in value])
    return value


def _key_of(value: Any) -> Any:
    """Return marked arguments in a hashable form; two different objects are never equal."""
    if type(value) is dict:
        return tuple((name, _key_of(each)) for name, each in value.items())
    if type(value) in (tuple, list):
        return type(value), tuple(map(_key_of, value))
    if isinstance(value, bool | int | float | str | GraphAt | TensorAt | CountAt | None):
        return type(value), value
    return type(value), id(value)


class Rows:
    """Decides which rows tensors have that no graph owns, and attributes whose names do not tell.

    A number of rows that happens to be equal proves nothing. So a tensor has the rows of nodes, edges or graphs only
    if `declared` says so, if it is itself a feature of the graph, if PyG's name for it says so, or if its number of
    rows equalled one of these numbers, and no other, over at least two different batches (one, if PyG's collate joined
    it like nodes, edges or graphs).
    """

    def __init__(self, declared: Mapping[str, Any]) -> None:
        self.declared = declared
        # Name -> components that have had as many rows in each call; None among them: all calls had the same shape.
        self._possible: dict[str, set[Component | None]] = {}
        self._shapes: dict[str, torch.Size] = {}
        self.undecided: list[str] = []

    def check(self, inputs: Inputs) -> None:
        """Raise CompileError if `declared` names rows that the graphs do not have, or misses an undecided tensor."""
        for name, component in self.declared.items():
            if component is not None and component not in inputs.counts:
                raise CompileError(
                    f"rows[{name!r}] names rows that the graphs do not have; choose from "
                    f"{', '.join(repr(title_of(each)) for each in inputs.counts)}."
                )
        if not self.undecided:
            return
        given = {*inputs.tensors, *(name for graph in inputs.graphs for name in (*graph.kinds, *graph.undecided))}
        wrong = [name for name in self.declared if name not in given]
        if wrong:
            raise CompileError(
                f"rows names {wrong[0]!r}, which the model does not get, and leaves {self.undecided[0]!r} undecided; "
                "use the names of arguments or attributes."
            )

    def of(self, inputs: Inputs) -> dict[str, Component | None] | None:
        """Return the component of each tensor, None for a tensor without such rows; None as a whole if undecided."""
        found: dict[str, Component | None] = {}
        self.undecided = []
        if not inputs.tensors and not any(graph.undecided for graph in inputs.graphs):
            return found
        known: dict[Any, Component] = {}
        for i, graph in enumerate(inputs.graphs):
            known |= {
                (x.data_ptr(), x.shape): (i, t) if t != GRAPHS[1] else GRAPHS for x, t in graph.kinds.values() if t
            }
        unknown = {name: x for graph in inputs.graphs for name, x in graph.undecided.items()}
        owned = inputs.tensors.keys() if inputs.has_tensor_graph else ()
        for name, x in {**unknown, **inputs.tensors}.items():
            if name in owned and name not in unknown:
                continue
            component = self._of_one(name, x, inputs, known)
            if component is _UNDECIDED:
                self.undecided.append(name)
            else:
                found[name] = component
        return None if self.undecided else found

    def _of_one(self, name: str, x: Tensor, inputs: Inputs, known: Mapping[Any, Component]) -> Any:
        if name in self.declared:
            return self.declared[name]
        if not x.ndim:
            return None
        if (component := known.get((x.data_ptr(), x.shape))) is not None:
            return component
        if len(inputs.graphs) == 1 and (t := type_by_name(name, x, inputs.num_graphs, inputs.coordinates)) is not None:
            component = GRAPHS if t == GRAPHS[1] else (0, t)
            if inputs.counts.get(component) == x.shape[0]:
                return component
        now: set[Component | None] = {each for each, number in inputs.counts.items() if number == x.shape[0]}
        is_same = self._shapes.setdefault(name, x.shape) == x.shape
        # The first batch shows it; later, None is excluded already.
        if is_same and (name in self._possible or not any(graph.is_joined(name) for graph in inputs.graphs)):
            now.add(None)
        possible = self._possible[name] = self._possible.get(name, now) & now
        return next(iter(possible)) if len(possible) == 1 else _UNDECIDED


_UNDECIDED = object()


def plain_call(forward: Callable[..., Any], inputs: Inputs, changed: Callable[[Tensor], Tensor]) -> Captured:
    """Call a model on its arguments as they are; graphs are copies. Features of DGLGraphs pass through `changed`."""
    copies = [None if inputs.has_tensor_graph else graph.copied(changed) for graph in inputs.graphs]
    before = [None if each is None else graph.snapshot(each) for graph, each in zip(inputs.graphs, copies, strict=True)]
    features = {
        id(x)
        for graph in inputs.graphs
        if isinstance(graph, DglInput)
        for f in graph.features.values()
        for x in f.values()
    }
    tensors = [changed(x) if id(x) in features else x for x in inputs.tensors.values()]
    args, kwargs = inputs.filled(copies, tensors, inputs.counts)
    output = forward(*args, **kwargs)
    written: dict[Any, Any] = {}
    for i, (graph, each, known) in enumerate(zip(inputs.graphs, copies, before, strict=True)):
        if known is not None:
            written |= written_in(i, graph.snapshot(each), known)
    return Captured(marked(output, copies, [*map(GraphAt, range(len(copies)))]), written)


def written_in(i: int, now: Mapping[Any, Mapping[str, Any]], before: Mapping[Any, Mapping[str, Any]]) -> dict[Any, Any]:
    """Return the features of graph `i` that are not what they were, and those that are no more."""
    written = {
        (i, t, name): x
        for t, of_type in now.items()
        for name, x in of_type.items()
        if name not in before[t] or x is not before[t][name]
    }
    removed = {(i, t, name): REMOVED for t, of_type in before.items() for name in of_type if name not in now[t]}
    return {**written, **removed}


def marked(output: Any, graphs: Sequence[Any], marks: Sequence[GraphAt]) -> Any:
    """Return nested outputs with its mark in place of each of the `graphs`."""

    def replace(value: Any) -> Any:
        for i, graph in enumerate(graphs):
            if graph is not None and value is graph:
                return marks[i]
        return value

    return mapped(output, replace)


class _Masks:
    """Row masks by component name, as `masked` expects them."""

    def __init__(self, masks: dict[str, RowMask]) -> None:
        self._masks = masks

    def row_masks(self) -> dict[str, RowMask]:
        """Return the masks."""
        return self._masks


@dataclass(frozen=True)
class Prepared:
    """The padded arguments of one call."""

    # int64: the number of real rows of each component, in the order of the slots.
    counts: Tensor
    # For each graph, its padded tensors; and its padded batch, if it is of PyG.
    tensors: tuple[tuple[Tensor, ...], ...]
    batches: tuple[Any, ...]
    extra: tuple[Tensor, ...]


def own_types(rows: Mapping[str, Component | None]) -> dict[str, GraphType | None]:
    """Return the type of each component, without the graph that it belongs to."""
    return {name: None if component is None else component[1] for name, component in rows.items()}


def prepared(
    inputs: Inputs, paddings: Sequence[Padding], slots: Slots, rows: Mapping[str, Component | None]
) -> Prepared:
    """Pad the arguments of a call."""
    own = own_types(rows)
    for padding in paddings:
        # Another call with this padding made its own tensors.
        padding.made.clear()
    made = [
        graph.padded(padding) if isinstance(graph, DglInput) else graph.padded(padding, own)
        for graph, padding in zip(inputs.graphs, paddings, strict=True)
    ]
    by_name: Any = made[0][1] if inputs.has_tensor_graph else {}
    # An argument that is a feature of a graph is also one with padding, so that the model can require its gradients.
    features = {key: x for padding in paddings for key, x in padding.made.items()}
    extra = []
    for name, x in inputs.tensors.items():
        component = rows.get(name)
        padded = by_name.get(name)
        if padded is None:
            if component is None:
                padded = x
            elif id(x) in features:
                padded = features[id(x)]
            elif component == GRAPHS:
                padded = padded_rows(x, slots[component])
            else:
                padded = padded_feature(name, x, paddings[component[0]], component[1])
        extra.append(padded)
    counts = torch.tensor([inputs.counts[each] for each in slots], device=inputs.device)
    batches = tuple(None if inputs.has_tensor_graph else batch for _, batch in made)
    return Prepared(counts, tuple(tensors for tensors, _ in made), batches, tuple(extra))


class PaddedCall:
    """A call of a model on padded arguments of one kind and one static shape: the function that torch compiles."""

    def __init__(self, forward: Callable[..., Any], inputs: Inputs, slots: Slots) -> None:
        self._forward, self._args, self._kwargs, self._slots = forward, inputs.args, inputs.kwargs, dict(slots)
        self._marks = [*map(GraphAt, range(len(inputs.graphs)))]
        self._layouts = [graph.layout() if isinstance(graph, DglInput) else None for graph in inputs.graphs]
        self._slots_of = [{t: slots[i, t] for t in graph.counts} for i, graph in enumerate(inputs.graphs)]
        # Components with equal slots and equal numbers of rows have equal masks, such as bonds and their line graph.
        self._titles: list[tuple[str, int, bool]] = []
        names = {GRAPHS: "graphs"}
        for i, graph in enumerate(inputs.graphs):
            titles = components_of(tuple(graph.node_types), tuple(graph.edge_types))
            at = f"graph {i}: " if len(inputs.graphs) > 1 else ""
            names |= {(i, t): at + title for t, title in zip(graph.counts, titles, strict=True)}
        seen: set[tuple[int, int]] = set()
        for component, number in slots.items():
            each = number, inputs.counts[component]
            self._titles.append((names[component], number, each in seen))
            seen.add(each)

    def __call__(
        self, counts: Tensor, tensors: Sequence[Sequence[Tensor]], batches: Sequence[Any], extra: Sequence[Tensor],
        detached: bool,
    ) -> Captured:  # fmt: skip
        """Call the model; only for graphs of DGL, the features that it set are returned.

        With `detached`, results have no gradients, since the model frees their graph; torch cannot compile others.
        """
        masks = {
            title: RowMask(torch.arange(number, device=counts.device) < counts[i], None, is_tied)
            for i, (title, number, is_tied) in enumerate(self._titles)
        }
        graphs = []
        for layout, slots, of_graph, batch in zip(self._layouts, self._slots_of, tensors, batches, strict=True):
            graphs.append(batch if layout is None else layout(slots, iter(of_graph)))
        before = [None if layout is None else {t: dict(f) for t, f in graph.frames.items()}
                  for layout, graph in zip(self._layouts, graphs, strict=True)]  # fmt: skip
        with masked(_Masks(masks)):
            args = filled(self._args, graphs, extra, self._slots)
            kwargs = filled(self._kwargs, graphs, extra, self._slots)
            output = self._forward(*args, **kwargs)
        written: dict[Any, Any] = {}
        for i, known in enumerate(before):
            if known is not None:
                written.update(written_in(i, graphs[i].frames, known))
        captured = Captured(marked(output, graphs, self._marks), written)
        return Captured(*(mapped(each, _detached) for each in captured)) if detached else captured


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x


def parameters_of(forward: Callable[..., Any]) -> list[str]:
    """Return the names of the positional parameters of a method, without ``self``."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [name for name, each in inspect.signature(forward).parameters.items() if each.kind in kinds][1:]
