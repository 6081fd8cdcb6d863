"""`tp.compile(model, loader)`: a model that takes ordinary batches, pads them inside, and runs compiled.

How data flows: `compile_model` returns an object of a subclass of the model's class that shares the model's attributes,
parameters and submodules; only its forward pass is different: `StaticCalls`. It finds the graphs in the arguments
(`padded_call.py`), takes the shape that a batch of our loader carries, or else one of the loader's, pads
(`static_inputs.py`), and hands the call to the `StaticCall` for arguments of this kind and shape. That is a
`CompiledFunction` whose first call in each mode is compared with the plain model by `check_call`. Calls that cannot be
padded run plain.
"""

from __future__ import annotations

import copy
import functools
import math
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack.compiling.reference import is_running
from dgl_tuplepack.compiling.signatures import mapped
from dgl_tuplepack.errors import CompileError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, components_of
from dgl_tuplepack.loading.padded_call import GraphAt, Inputs, Rows, parameters_of
from dgl_tuplepack.loading.static_call import StaticCall, paddings_of, ties_of
from dgl_tuplepack.loading.static_inputs import GRAPHS, Component, Slots
from dgl_tuplepack.loading.static_loader import slots_of
from dgl_tuplepack.loading.static_padding import Padding, spacing_of
from dgl_tuplepack.nn.conversion import Masking
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler

# So many calls with a tensor whose rows are unknown give a warning.
_MANY_UNDECIDED = 20


def compile_model(model: Any, loader: Any, options: Any, settings: Any, check: Any, rows: Any, coordinates: Any) -> Any:
    """Return the model with a padded and compiled forward pass; see `tp.compile`."""
    if isinstance(model, DistributedDataParallel):
        # DDP keeps its reducer, which holds the parameters, and calls its module as usual.
        wrapped: Any = nn.Module.__new__(type(model))
        module = compile_model(model.module, loader, options, settings, check, rows, coordinates)
        attributes = model.__dict__
        wrapped.__dict__.update({**attributes, "_modules": {**attributes["_modules"], "module": module}})
        return wrapped
    if not isinstance(model, nn.Module):
        raise CompileError(
            f"compile(model, loader) needs a torch.nn.Module, but got {shown(model)}; give a model, or leave the "
            "loader out to compile a function of padded batches."
        )
    if isinstance(model, torch.jit.ScriptModule) or hasattr(type(model), "_static_calls"):
        raise CompileError(f"{type(model).__name__} is compiled already; give the model itself.")
    shapes = shapes_in(loader)
    calls = StaticCalls(model, shapes, options, settings, check, checked_rows(rows), checked_coordinates(coordinates))
    made: nn.Module = nn.Module.__new__(_static_class(type(model), calls))
    # Both objects have the same attributes, also those that are set later.
    object.__setattr__(made, "__dict__", model.__dict__)
    return made


def shapes_in(loader: Any) -> list[Limits]:
    """Return the static shapes of a loader, a sampler, a shape, or a list or mapping of them, with reserved slots."""
    if isinstance(loader, Limits):
        if loader.graphs is None:
            raise CompileError(f"the shape {loader!r} has no number of graphs; give graphs=, such as in loader.shape.")
        return [loader]
    if isinstance(loader, StaticBatchSampler):
        return [slots_of(loader.limits)]
    if isinstance(loader, Mapping):
        loader = [*loader.values()]
    if isinstance(loader, list | tuple) and loader:
        return list(dict.fromkeys(shape for each in loader for shape in shapes_in(each)))
    shape = getattr(loader, "shape", None)
    if isinstance(shape, Limits | tuple | list):
        if getattr(loader, "padded", False):
            raise CompileError(
                "the loader makes padded batches, but compile(model, loader) pads ordinary batches itself; make the "
                "loader with batch_size=, such as tp.packed_loader(dataset, batch_size=64) (a number without a name is "
                "graphs_per_batch), or compile a function of padded batches: tp.compile(function)."
            )
        return shapes_in(list(shape) if isinstance(shape, tuple) else shape)
    raise CompileError(
        "compile(model, loader) needs a loader from packed_loader, a StaticBatchSampler, Limits of its shape, or a "
        f"list of them, but got {shown(loader)}; make one with tp.packed_loader(source, batch_size=...)."
    )


def checked_rows(rows: Any) -> dict[str, Component | None]:
    """Return the components that the user names for arguments: "nodes", "edges", "graphs", "nodes:TYPE", or None."""
    if rows is None:
        return {}
    known: dict[Any, Component | None] = {
        None: None, "nodes": (0, NODE_TYPE), "edges": (0, EDGE_TYPE), "graphs": GRAPHS,
    }  # fmt: skip
    if not isinstance(rows, Mapping) or any(not isinstance(name, str) for name in rows):
        raise CompileError(
            f"rows must be a dict from names of arguments to components, but is {shown(rows)}; give one."
        )
    found: dict[str, Component | None] = {}
    for name, component in rows.items():
        if isinstance(component, str) and component.count(":") in (1, 3):
            kind, *t = component.split(":")
            found[name] = (0, t[0] if kind == "nodes" else tuple(t))  # type: ignore[assignment]
        elif component in known:
            found[name] = known[component]
        else:
            raise CompileError(
                f"rows[{name!r}] must be 'nodes', 'edges', 'graphs', 'nodes:TYPE', 'edges:SRC:TYPE:DST' or None, but "
                f"is {shown(component)}; name the rows of this argument, None if it has none."
            )
    return found


def checked_coordinates(coordinates: Any) -> frozenset[str]:
    """Return the names of positions that the user gives."""
    if isinstance(coordinates, str) or not isinstance(coordinates, Iterable):
        raise CompileError(
            f"coordinates must be names of node features, but is {shown(coordinates)}; give, for example, "
            'coordinates=["loc"].'
        )
    names = frozenset(coordinates)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise CompileError(f"coordinates must be names of node features, but one is {shown(wrong[0])}.")
    return names


def _static_class(cls: type, calls: StaticCalls) -> type:
    """Return a subclass of a model's class whose forward pass is `calls`; copies and pickles are compiled anew."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return calls(*args, **kwargs)

    def plain(self: Any) -> Any:
        model: Any = nn.Module.__new__(cls)
        object.__setattr__(model, "__dict__", dict(self.__dict__))
        return model

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        return calls.of_other(copy.deepcopy(plain(self), memo))

    def reduce(self: Any, protocol: Any) -> Any:
        return _compiled_again, (plain(self), calls.shapes, *calls.settings)

    forward.__doc__ = cls.forward.__doc__  # type: ignore[attr-defined]
    members = {"forward": forward, "__deepcopy__": deepcopy, "__reduce_ex__": reduce, "_static_calls": calls}
    return type(cls.__name__, (cls,), {**members, "__module__": cls.__module__, "__qualname__": cls.__qualname__})


def _compiled_again(model: nn.Module, shapes: Sequence[Limits], *settings: Any) -> Any:
    return compile_model(model, list(shapes), *settings)


class StaticCalls:
    """The forward pass of a model on ordinary batches; it pads those that fit a shape."""

    def __init__(
        self, model: nn.Module, shapes: Sequence[Limits], options: Any, settings: Any, check: Any, rows: Any,
        coordinates: frozenset[str],
    ) -> None:  # fmt: skip
        self.shapes, self.settings = list(shapes), (options, settings, check, rows, coordinates)
        self._coordinates = coordinates
        self._model, self._forward = model, functools.partial(type(model).forward, model)
        self._names = parameters_of(type(model).forward)
        self._rows = Rows(rows)
        self._masking: Masking | None = None
        self._calls: dict[Any, StaticCall] = {}
        # Names of arguments whose gradients the model itself requires; a batch that is used again requires them before.
        self._required: set[str] = set()
        self._said: set[str] = set()
        # Position of a graph among those of the arguments -> about the length of its shortest edge in the first call.
        self._spacings: dict[int, float] = {}
        # Numbers of calls that ran plain, and of those among them in which rows were unknown.
        self._plain = self._undecided = 0
        self._may_be_lazy = True
        self._lock = threading.RLock()

    @property
    def is_compiled(self) -> bool:
        """Whether some calls run compiled code."""
        return any(call.is_compiled for call in self._calls.values())

    def of_other(self, model: nn.Module) -> Any:
        """Return another model with the same settings."""
        return compile_model(model, self.shapes, *self.settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        if torch.compiler.is_compiling() or is_running():
            return self._forward(*args, **kwargs)
        if self._may_be_lazy:
            # Looking through all parameters takes a tenth of a small step.
            self._may_be_lazy = any(map(is_lazy, self._model.parameters()))
            if self._may_be_lazy:
                return self._forward(*args, **kwargs)
        inputs = Inputs(self._names, args, kwargs, self.shapes, self._coordinates)
        call = self._call_for(inputs)
        if call is None:
            self._plain += 1
            result = self._forward(*args, **kwargs)
            if self._has_refused_nodes(inputs):
                # The model itself adds self-loops, for example.
                self._say_plain(
                    "it has nodes without incoming edges, which a layer refuses; give allow_zero_in_degree=True to the "
                    "layer, or add self-loops to the dataset"
                )
            return result
        captured = call(inputs)
        for (i, t, name), value in captured.written.items():
            if isinstance(value, GraphAt):
                inputs.graphs[i].remove(t, name)
            else:
                inputs.graphs[i].write(t, name, value)
        return mapped(captured.output, lambda x: inputs.graphs[x.place].value if isinstance(x, GraphAt) else x)

    def _call_for(self, inputs: Inputs) -> StaticCall | None:
        """Return the call for these arguments; None if they run plain, which is said once for each reason."""
        if inputs.problem:
            self._say_plain(f"it cannot be padded, since {inputs.problem}")
            return None
        rows = self._rows.of(inputs)
        if not self._calls:
            # Later, no training may be lost, and an argument may be absent.
            self._rows.check(inputs)
        if rows is None:
            self._undecided += 1
            if self._undecided == _MANY_UNDECIDED:
                names = ", ".join(map(repr, self._rows.undecided))
                self._say_plain(
                    f"after {_MANY_UNDECIDED} batches, it is unknown whether {names} have a row for each node, edge or "
                    "graph; say so by compile(..., rows={NAME: 'nodes', 'edges', 'graphs' or None}), with several "
                    "types 'nodes:TYPE' or 'edges:SRC:TYPE:DST'"
                )
            return None
        if self._masking is None:
            self._masking = Masking(self._model)
        if self._has_refused_nodes(inputs):
            # The plain model raises the message of DGL.
            return None
        self._set_spacings(inputs)
        fitting = self._fitting(inputs, self._masking.needs_edges or _has_small_range(inputs))
        if fitting is None:
            self._say_plain(
                f"a batch with {_counted(inputs.counts)} does not fit {' or '.join(map(repr, self.shapes))}, less the "
                "slots for padding; if another loader makes such batches, give it to compile too"
            )
            return None
        slots, paddings = fitting
        key = inputs.key(self._required), tuple(slots.values()), ties_of(inputs.counts, slots)
        call = self._calls.get(key)
        if call is None:
            with self._lock:
                options, settings, check = self.settings[:3]
                if check and (self._plain > 1 or any(each.is_checked for each in self._calls.values())):
                    # After the first call, no training may be lost.
                    check = "warn"
                made = StaticCall(
                    self._model, self._forward, self._masking, inputs, slots, self._required, options, settings, check
                )
                call = self._calls.setdefault(key, made)
        inputs.paddings, inputs.rows = paddings, rows
        return call

    def _has_refused_nodes(self, inputs: Inputs) -> bool:
        """Return whether there are nodes without incoming edges, and a layer that refuses them."""
        refuses = self._masking is not None and self._masking.refuses_lonely_nodes
        return refuses and any(graph.has_lonely_nodes() for graph in inputs.graphs)

    def _set_spacings(self, inputs: Inputs) -> None:
        """Let edges of padding be as long as real ones, if graphs have positions."""
        for i, graph in enumerate(inputs.graphs):
            for e in graph.edge_types:
                if i not in self._spacings and e[0] in graph.positions and e[2] in graph.positions and graph.counts[e]:
                    self._spacings[i] = spacing_of(graph.ends(e), graph.positions[e[0]], graph.positions[e[2]])
        inputs.spacings = self._spacings

    def _say_plain(self, reason: str) -> None:
        if reason.partition(" with ")[0] not in self._said:
            self._said.add(reason.partition(" with ")[0])
            warnings.warn(
                f"{type(self._model).__name__} runs uncompiled for this batch, and others like it: {reason}.",
                stacklevel=7,
            )

    def _fitting(self, inputs: Inputs, needs_edges: bool) -> tuple[Slots, list[Padding]] | None:
        """Return the slots of the first shape that the batch fits, and the padding; None if it fits no shape."""
        carried = [graph.value.__dict__.get("static_shape") for graph in inputs.graphs if graph.value is not None]
        own = next((each for each in carried if each is not None), ())
        for shape in (*(own if isinstance(own, tuple) else (own,)), *self.shapes):
            slots = slots_by_component(inputs, shape, needs_edges)
            if slots is None:
                continue
            paddings = paddings_of(inputs, slots)
            if paddings is not None:
                return slots, paddings
        return None


def _has_small_range(inputs: Inputs) -> bool:
    """Return whether the call computes in float16."""
    device = inputs.device.type
    if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16:
        return True
    return any(x.dtype == torch.float16 for x in inputs.named().values())


def slots_by_component(inputs: Inputs, shape: Limits, needs_edges: bool = False) -> dict[Component, int] | None:
    """Return the slots of each component of the arguments; None if the shape has other components.

    With `needs_edges`, or with positions, nodes of padding have about as many edges as real ones.
    """
    slots: dict[Component, int] = {}
    maxima = shape.maxima
    for i, graph in enumerate(inputs.graphs):
        name = "" if graph.value is None else graph.value.__dict__.get("static_name", "")
        if name:
            is_flat = len(graph.node_types) == len(graph.edge_types) == 1
            types = {t: (name if is_flat else f"{name}/{t}") for t in graph.node_types}
            edge_types = [name if is_flat else (types[e[0]], e[1], types[e[2]]) for e in graph.edge_types]
            titles = components_of(tuple(types.values()), edge_types, True)
        else:
            titles = components_of(tuple(graph.node_types), tuple(graph.edge_types))
        if not set(titles) <= maxima.keys():
            return None
        slots |= {(i, t): maxima[title] for t, title in zip(graph.counts, titles, strict=True)}
    slots[GRAPHS] = shape.graphs or 0
    slots = _with_room_for_padding(slots, inputs, needs_edges)
    return _distinct(slots, inputs.counts) if len(inputs.graphs) == 1 else slots


def _with_room_for_padding(slots: dict[Component, int], inputs: Inputs, needs_edges: bool) -> dict[Component, int]:
    """Return the slots, or more of them, so that nodes of padding have about as many edges as real ones if need be.

    They need be if a layer refuses nodes without edges, or with positions, from which a model may compute forces: the
    sum of vectors to no neighbours is 0, and its length has no second derivative. Sums over many times as many
    neighbours as nodes really have grow from layer to layer, to infinity, in float16 within a few layers. Both make
    gradients NaN. The first enlargement nearly always is enough; another one is another static shape.
    """
    slots, grown = dict(slots), dict[Component, int]()

    def grow(component: Component, more: int) -> None:
        # Edges and the nodes of their line graph keep equal slots.
        same = slots[component], inputs.counts[component]
        for c in [c for c, number in slots.items() if (number, inputs.counts[c]) == same]:
            slots[c] += more
            grown[c] = grown.get(c, 0) + more

    for i, graph in enumerate(inputs.graphs):
        if len(graph.counts) == 2:
            nodes = i, graph.node_types[0]
            # A source that is smaller than a batch leaves many graphs of padding, each with two nodes.
            if 2 * (slots[GRAPHS] - inputs.num_graphs) > slots[nodes] - inputs.counts[nodes] >= 0:
                grow(nodes, 2 * slots[GRAPHS])
        for e in graph.edge_types if needs_edges or graph.positions else ():
            nodes, edges = (i, e[2]), (i, e)
            degree = max(slots[edges] / max(slots[nodes], 1), 1.0)
            more = 0 if nodes in grown else max(8, slots[nodes] // 32)
            while slots[edges] - graph.counts[e] > degree * (2 * (slots[nodes] - graph.counts[e[2]]) + more):
                more = max(8, 2 * more)
            grow(nodes, more)
            missing = slots[nodes] - graph.counts[e[2]]
            more = math.ceil(degree * grown[nodes])
            while slots[edges] + more - graph.counts[e] < missing:
                more *= 2
            grow(edges, more)
    return slots


def _distinct(slots: dict[Component, int], counts: Slots) -> dict[Component, int]:
    """Return the slots, some enlarged a little, so that a number of rows tells what they are.

    Components with equal slots and equally many rows stay equal: they may be the edges of a graph and the nodes of its
    line graph, and all that depends on slots or rows is the same for both.
    """
    found: dict[Component, int] = {}
    for component, number in reversed(slots.items()):
        while any(number == other and counts[c] != counts[component] for c, other in found.items()):
            number += 1
        found[component] = number
    return dict(reversed(found.items()))


def _counted(counts: Slots) -> str:
    names = {(0, NODE_TYPE): "nodes", (0, EDGE_TYPE): "edges", GRAPHS: "graphs"}
    return ", ".join(f"{number} {names.get(component, component[1])}" for component, number in counts.items())
