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
import logging
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from dgl_tuplepack._core.checks import shown
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.compiling.check import Checked, check_call
from dgl_tuplepack.compiling.compile import MAX_COMPARISONS, CompiledFunction
from dgl_tuplepack.compiling.reference import is_running, modules_of, run_on_copies
from dgl_tuplepack.compiling.signatures import mapped
from dgl_tuplepack.errors import CompileError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, components_of
from dgl_tuplepack.loading.padded_call import (
    Captured,
    Cuts,
    GraphAt,
    Inputs,
    PaddedCall,
    Rows,
    parameters_of,
    plain_call,
    prepared,
    written_in,
)
from dgl_tuplepack.loading.static_inputs import GRAPHS, Component, Padding, Slots
from dgl_tuplepack.loading.static_loader import slots_of
from dgl_tuplepack.nn.conversion import Masking
from dgl_tuplepack.nn.masks import masked
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler

_log = logging.getLogger(__name__)


def compile_model(model: Any, loader: Any, options: Any, settings: Any, check: Any, rows: Any) -> Any:
    """Return the model with a padded and compiled forward pass; see `tp.compile`."""
    if isinstance(model, DistributedDataParallel):
        # DDP keeps its reducer, which holds the parameters, and calls its module as usual.
        wrapped: Any = object.__new__(type(model))
        module = compile_model(model.module, loader, options, settings, check, rows)
        wrapped.__dict__.update({**model.__dict__, "_modules": {**model._modules, "module": module}})
        return wrapped
    if not isinstance(model, nn.Module):
        raise CompileError(
            f"compile(model, loader) needs a torch.nn.Module, but got {shown(model)}; give a model, or leave the loader "
            "out to compile a function of padded batches."
        )
    if isinstance(model, torch.jit.ScriptModule) or hasattr(type(model), "_static_calls"):
        raise CompileError(f"{type(model).__name__} is compiled already; give the model itself.")
    shapes = shapes_in(loader)
    calls = StaticCalls(model, shapes, options, settings, check, checked_rows(rows))
    made: nn.Module = object.__new__(_static_class(type(model), calls))
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
                "the loader makes padded batches, but compile(model, loader) pads ordinary batches itself; give "
                "padded=False to the loader, or compile a function of padded batches: tp.compile(function)."
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


def _static_class(cls: type, calls: StaticCalls) -> type:
    """Return a subclass of a model's class whose forward pass is `calls`; copies and pickles are compiled anew."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return calls(*args, **kwargs)

    def plain(self: Any) -> Any:
        model: Any = object.__new__(cls)
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
        self, model: nn.Module, shapes: Sequence[Limits], options: Any, settings: Any, check: Any, rows: Any
    ) -> None:
        self.shapes, self.settings = list(shapes), (options, settings, check, rows)
        self._model, self._forward = model, functools.partial(type(model).forward, model)
        self._names = parameters_of(type(model).forward)
        self._rows = Rows(rows)
        self._masking: Masking | None = None
        self._calls: dict[Any, StaticCall] = {}
        self._said: set[str] = set()
        self._lock = threading.RLock()

    def of_other(self, model: nn.Module) -> Any:
        """Return another model with the same settings."""
        return compile_model(model, self.shapes, *self.settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        if torch.compiler.is_compiling() or is_running() or any(map(is_lazy, self._model.parameters())):
            return self._forward(*args, **kwargs)
        inputs = Inputs(self._names, args, kwargs)
        call = self._call_for(inputs)
        if call is None:
            return self._forward(*args, **kwargs)
        captured = call(inputs)
        for (i, t, name), value in captured.written.items():
            inputs.graphs[i].write(t, name, value)
        return mapped(captured.output, lambda x: inputs.graphs[x.place].value if isinstance(x, GraphAt) else x)

    def _call_for(self, inputs: Inputs) -> StaticCall | None:
        """Return the call for these arguments; None if they run plain, which is said once for each reason."""
        if inputs.problem:
            self._say_plain(f"it cannot be padded, since {inputs.problem}")
            return None
        rows = self._rows.of(inputs)
        if rows is None:
            names = ", ".join(self._rows.undecided)
            _log.info("not padded yet: the rows of %s are not known from one batch", names)
            return None
        fitting = self._fitting(inputs)
        if fitting is None:
            self._say_plain(
                f"a batch with {_counted(inputs.counts)} does not fit {' or '.join(map(repr, self.shapes))}, less the "
                "slots for padding"
            )
            return None
        slots, paddings = fitting
        if self._masking is None:
            self._masking = Masking(self._model)
        if self._masking.refuses_lonely_nodes and any(graph.has_lonely_nodes() for graph in inputs.graphs):
            # The plain model refuses nodes without incoming edges, with the message of DGL.
            return None
        key = inputs.key(), tuple(slots.values()), _ties(inputs.counts, slots)
        call = self._calls.get(key)
        if call is None:
            with self._lock:
                call = self._calls.setdefault(
                    key, StaticCall(self._model, self._forward, self._masking, inputs, slots, *self.settings[:3])
                )
        inputs.paddings, inputs.rows = paddings, rows
        return call

    def _say_plain(self, reason: str) -> None:
        if reason.partition(" with ")[0] not in self._said:
            self._said.add(reason.partition(" with ")[0])
            warnings.warn(f"{type(self._model).__name__} runs uncompiled for this batch: {reason}.", stacklevel=6)

    def _fitting(self, inputs: Inputs) -> tuple[Slots, list[Padding]] | None:
        """Return the slots of the first shape that the batch fits, and the padding; None if it fits no shape."""
        carried = [graph.value.__dict__.get("static_shape") for graph in inputs.graphs if graph.value is not None]
        own = next((each for each in carried if each is not None), ())
        for shape in (*(own if isinstance(own, tuple) else (own,)), *self.shapes):
            slots = slots_by_component(inputs, shape)
            if slots is None:
                continue
            paddings = paddings_of(inputs, slots)
            if paddings is not None:
                return slots, paddings
        return None


def paddings_of(inputs: Inputs, slots: Slots) -> list[Padding] | None:
    """Return the padding of each graph; None if the batch does not fit."""
    paddings = []
    for i, graph in enumerate(inputs.graphs):
        of_graph = {t: slots[i, t] for t in graph.counts}
        padding = Padding.of(graph.counts, inputs.num_graphs, of_graph, slots[GRAPHS])
        if padding is None:
            return None
        paddings.append(padding)
    return paddings


def slots_by_component(inputs: Inputs, shape: Limits) -> dict[Component, int] | None:
    """Return the slots of each component of the arguments; None if the shape has other components."""
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
    return _distinct(slots) if len(inputs.graphs) == 1 else slots


def _distinct(slots: dict[Component, int]) -> dict[Component, int]:
    """Return the slots, some enlarged a little, so that no two are equal and a number of rows tells what they are."""
    found: dict[Component, int] = {}
    for component, number in reversed(slots.items()):
        while number in found.values():
            number += 1
        found[component] = number
    return dict(reversed(found.items()))


def _ties(counts: Slots, slots: Slots) -> tuple[bool, ...]:
    """Return, for each component, whether an earlier one has as many slots and as many rows."""
    seen: set[tuple[int, int]] = set()
    ties = []
    for component, number in slots.items():
        ties.append((number, counts[component]) in seen)
        seen.add((number, counts[component]))
    return tuple(ties)


def _counted(counts: Slots) -> str:
    names = {(0, NODE_TYPE): "nodes", (0, EDGE_TYPE): "edges", GRAPHS: "graphs"}
    return ", ".join(f"{number} {names.get(component, component[1])}" for component, number in counts.items())


class StaticCall(CompiledFunction):
    """The padded and compiled calls of a model on arguments of one kind, within one static shape."""

    def __init__(
        self, model: nn.Module, forward: Callable[..., Any], masking: Masking, inputs: Inputs, slots: Slots,
        options: dict[str, Any], settings: dict[str, Any], check: bool | str,
    ) -> None:  # fmt: skip
        self._slots, self._masking, self._model = slots, masking, model

        def plain(inputs: Inputs) -> Captured:
            with masked(None):
                return plain_call(forward, inputs, _passed_on if is_running() else _itself)

        plain.__qualname__ = type(model).__name__
        super().__init__(plain, options, settings, 1, False, check)
        self._traced = PaddedCall(forward, inputs, slots)
        self._device = inputs.device.type
        # Mode -> which dimensions of its results have padding.
        self._cuts: dict[Any, Cuts] = {}

    def __call__(self, inputs: Inputs) -> Captured:
        """Return what the model returns and sets, without rows of padding."""
        if self._compiled is None:
            self._compiled = self._wrapped_by_torch(self._device)
        mode = self._mode()
        if (mode not in self._cuts or self._comparisons_left) and self.is_compiled:
            with self._lock, notice(f"compiling {self._name} (15 to 40 s; 2 to 4 s from torch's cache on disk)"):
                if mode not in self._cuts:
                    self._cuts[mode] = self._found_cuts(inputs)
                    self._comparisons_left = MAX_COMPARISONS if self._check else 0
                self._compare_if_unchecked((inputs,), {})
        graphs_before = torch_private.number_of_graphs()
        result: Captured = self._run(inputs)
        if torch_private.number_of_graphs() != graphs_before and self._check:
            self._comparisons_left = 1
            self._compare_if_unchecked((inputs,), {})
        self._show_warnings()
        return result

    def _mode(self) -> Any:
        # For other changes, torch compiles again, which `__call__` notices.
        device = self._device
        autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        return self._model.training, torch.is_grad_enabled(), autocast, torch.get_num_threads()

    def _wrapped_by_torch(self, device: str) -> Callable[..., Any]:
        compiled = super()._wrapped_by_torch(device)
        return compiled if compiled is self._function else functools.partial(self._padded, compiled)

    def _padded(self, call: Callable[..., Captured], inputs: Inputs) -> Captured:
        """Pad the arguments, call the model by `call`, and cut the results to real rows."""
        return self._cuts[self._mode()].applied(self._uncut(call, inputs), inputs.counts)

    def _uncut(self, call: Callable[..., Captured], inputs: Inputs) -> Captured:
        made = prepared(inputs, inputs.paddings, self._slots, inputs.rows)
        before = [
            None if batch is None else graph.snapshot(batch)
            for graph, batch in zip(inputs.graphs, made.batches, strict=True)
        ]
        with self._masking:
            captured = call(made.counts, made.tensors, made.batches, made.extra)
        for i, (graph, batch, known) in enumerate(zip(inputs.graphs, made.batches, before, strict=True)):
            if known is not None:
                captured.written.update(written_in(i, graph.snapshot(batch), known))
        return captured

    def _found_cuts(self, inputs: Inputs) -> Cuts:
        """Call the model on copies, plain and padded, and find out which dimensions of the results are padded."""
        found: list[Captured] = []

        def kept(function: Callable[[Inputs], Captured], inputs: Inputs) -> None:
            found.append(function(inputs))

        modules = modules_of(self._function)
        run_on_copies(functools.partial(kept, self._function), (inputs,), {}, modules)
        try:
            run_on_copies(functools.partial(kept, functools.partial(self._uncut, self._traced)), (inputs,), {}, modules)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            raise CompileError(
                f"{self._name} cannot be padded: it raises {text:.500}; {self._remedy_of_padding()}"
            ) from error
        try:
            return Cuts(found[0], found[1], self._slots, inputs.counts)
        except CompileError as error:
            raise CompileError(f"{self._name} cannot be padded: {error}; {self._remedy_of_padding()}") from None

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checked:
        """Compare the batch, and its first half, so that more slots are unused."""
        found = super()._compare(args, kwargs)
        half = self._half(args[0])
        if half is None or not self.is_compiled:
            return found
        return found if found.with_padding or found.difference else super()._compare((half,), kwargs)

    def _half(self, inputs: Inputs) -> Inputs | None:
        """Return the first half of a batch; None if it has one graph, or does not fit the same padded call."""
        if inputs.num_graphs < 2:
            return None
        half = inputs.first(inputs.num_graphs // 2, inputs.rows)
        paddings = paddings_of(half, self._slots)
        if paddings is None or _ties(half.counts, self._slots) != _ties(inputs.counts, self._slots):
            return None
        half.paddings, half.rows = paddings, inputs.rows
        return half

    def _checked(
        self, args: Any, kwargs: Any, leaves: Mapping[str, Any], same_draws: bool, uniform_dropout: bool
    ) -> Checked:
        padded = functools.partial(self._padded, self._traced)
        named = args[0].named()
        return check_call(self._function, self._run, args, kwargs, named, same_draws, uniform_dropout, padded)

    def _remedy_of_padding(self) -> str:
        return (
            "a sum, mean, softmax or norm over all rows must leave padding out: reduce over the rows of each graph, as "
            "readouts and pools do, and return values by graph, node or edge; or call the model without compile"
        )


def _itself(x: Tensor) -> Tensor:
    return x


def _passed_on(x: Tensor) -> Tensor:
    # A run on copies replaces the arguments of torch's functions, but not those of DGL's.
    return x.view_as(x)
