"""The padded and compiled calls of a model on arguments of one kind, compared with the model itself.

A `StaticCall` pads, calls what torch compiled, and cuts the results. In its first call in each mode, `check_call` runs
the same batch, and its first half, three times: plain, padded, and padded and compiled. If padding changes a result,
`culprit` names the first layer that differs although its inputs agree.
"""

from __future__ import annotations

import functools
import logging
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dgl_tuplepack._core.progress import notice
from dgl_tuplepack.compiling import torch_private
from dgl_tuplepack.compiling.check import Checked, check_call, runs_on_several_ranks
from dgl_tuplepack.compiling.compile import MAX_COMPARISONS, ROWS_OF_VALUES, CompiledFunction
from dgl_tuplepack.compiling.reference import is_running, modules_kept, modules_of, run_on_copies
from dgl_tuplepack.compiling.signatures import tensors_of
from dgl_tuplepack.errors import CompileError
from dgl_tuplepack.graphs.transform import kept_generators
from dgl_tuplepack.loading.cuts import Cuts, DependsOnValuesError, cuts_of
from dgl_tuplepack.loading.padded_call import Captured, Inputs, PaddedCall, plain_call, prepared, written_in
from dgl_tuplepack.loading.static_inputs import GRAPHS, Slots
from dgl_tuplepack.loading.static_padding import Padding
from dgl_tuplepack.nn.conversion import Masking
from dgl_tuplepack.nn.masks import masked

_log = logging.getLogger(__name__)
_REMEDY_OF_RESULTS = (
    "return values by graph, node or edge, and leave masked rows, lists and counts to code outside of the model; or "
    "call the model without compile"
)
_EARLIER_CALLS = " Earlier calls may have been wrong, too: go back to a checkpoint, or begin again, if that matters."
# The speed is compared in this call, when all is compiled and warm.
_STEPS_BEFORE_TIMING = 50
# A model is slower if it takes this many times as long; on a busy machine, less proves nothing.
_SLOWER = 1.05
# Results are compared again in these calls, in each `_RARELY`-th one, and with fewer graphs than ever before: a
# penalty, for example, may be 0 at first, and what depends on the smallest graph may differ in a small batch only.
_AGAIN, _RARELY = frozenset({4, 16, 64, 256, 1024}), 4096


class StaticCall(CompiledFunction):
    """The padded and compiled calls of a model on arguments of one kind, within one static shape."""

    # Without the check, the caller's tensors would not be written to.
    _without_check = ""

    def __init__(
        self, model: nn.Module, forward: Callable[..., Any], masking: Masking, inputs: Inputs, slots: Slots,
        required: set[str], options: dict[str, Any], settings: dict[str, Any], check: bool | str,
    ) -> None:  # fmt: skip
        self._slots, self._masking, self._model = slots, masking, model

        def plain(inputs: Inputs) -> Captured:
            with masked(None):
                return plain_call(forward, inputs, _passed_on if is_running() else _itself)

        plain.__qualname__ = type(model).__name__
        # Whether an operation that cannot be compiled may run uncompiled.
        self._may_break = settings["fullgraph"] is None
        super().__init__(plain, options, settings | {"fullgraph": settings["fullgraph"] is not False}, 1, False, check)
        self._traced = PaddedCall(forward, inputs, slots)
        self._device = inputs.device.type
        # Mode -> which dimensions of its results have padding, and which arguments get gradients before the call.
        self._cuts: dict[Any, Cuts] = {}
        self._required: dict[Any, list[str]] = {}
        # Modes in which the results cannot be padded.
        self._plain_modes: set[Any] = set()
        self._known_required = required
        self._has_gradients = any(x.requires_grad for x in inputs.named().values())
        self._number = 0
        self._calls_in: dict[Any, int] = {}
        self._fewest: dict[Any, int] = {}
        # Mode and pattern of a batch -> whether results are equal with padding; else such batches run as they are.
        self._agrees: dict[Any, bool] = {}

    def __call__(self, inputs: Inputs) -> Captured:
        """Return what the model returns and sets, without rows of padding."""
        if self._compiled is None:
            self._compiled = self._wrapped_by_torch(self._device)
        mode = self._mode()
        if mode in self._plain_modes:
            plain: Captured = self._function(inputs)
            return plain
        self._require_gradients(inputs, mode)
        if (mode not in self._cuts or self._comparisons_left) and self.is_compiled:
            with (
                self._lock,
                notice(f"compiling {self._name} (half a minute or more; less from torch's cache)"),
            ):
                if mode not in self._cuts:
                    if self.is_checked and self._check:
                        # After the first call, no training may be lost.
                        self._check = "warn"
                    try:
                        cuts = self._cuts[mode] = self._found_cuts(inputs)
                    except CompileError as error:
                        self._give_up(mode, error)
                        return self(inputs)
                    if cuts.attributes:
                        self._warn(
                            f"{self._name} sets {', '.join(cuts.attributes)} in its forward pass, with rows of "
                            "padding; return it instead, since results have only real rows."
                        )
                    self._required[mode] = self._names_of_required(inputs, cuts)
                    self._comparisons_left = MAX_COMPARISONS if self._check else 0
                self._require_gradients(inputs, mode)
                try:
                    self._compare_if_unchecked((inputs,), {})
                except CompileError as error:
                    self._give_up(mode, error)
                    return self(inputs)
        pattern = mode, inputs.pattern
        if pattern not in self._agrees:
            self._agrees[pattern] = self._is_first(mode) or self._is_equal(inputs)
        if not self._agrees[pattern]:
            plain = self._function(inputs)
            return plain
        self._number += 1
        calls = self._calls_in[mode] = self._calls_in.get(mode, 0) + 1
        is_smallest = inputs.num_graphs < self._fewest.setdefault(mode, inputs.num_graphs)
        if is_smallest:
            self._fewest[mode] = inputs.num_graphs
        try:
            result = self._compared_and_run(inputs, calls in _AGAIN or calls % _RARELY == 0 or is_smallest)
        except CompileError as error:
            if not (self._check and calls > 1):
                raise
            # After the first call, no training may be lost.
            self._check = "warn"
            self._give_up(mode, error)
            return self(inputs)
        # The user's line calls torch's module, which takes two calls until `forward`, and that `StaticCalls`.
        self._show_warnings(7)
        if self._has_gradients or self._required.get(mode):
            self._refuse_second_derivatives(result)
        return result

    def _compared_and_run(self, inputs: Inputs, again: bool) -> Captured:
        """Run a call; compare it before, if `again`, and after it, if torch compiled again."""
        if again and self._check and not self._waits_for_ranks():
            self._compare_again(inputs)
        if self._number == _STEPS_BEFORE_TIMING and self.is_compiled and torch_private.is_inductor(self._settings):
            self._say_if_slower(inputs)
        graphs_before = torch_private.number_of_graphs()
        result: Captured = self._run(inputs)
        if torch_private.number_of_graphs() != graphs_before and self._check and not self._waits_for_ranks():
            self._comparisons_left = 1
            self._compare_if_unchecked((inputs,), {})
        return result

    @property
    def is_checked(self) -> bool:
        """Whether a call was compared and went through."""
        return bool(self._agrees)

    def _is_first(self, mode: Any) -> bool:
        return not any(known == mode for known, _ in self._agrees)

    def _is_equal(self, inputs: Inputs) -> bool:
        """Return whether a batch that differs from the first one in its `pattern` has equal results with padding."""
        if not self._check or not self.is_compiled or self._waits_for_ranks():
            return True
        with self._lock:
            found = self._compared((inputs,), {})
        return not (found.with_padding or found.difference)

    def _compare_again(self, inputs: Inputs) -> None:
        """Compare a later call; if results differ, warn and leave the model uncompiled, so that no training is lost."""
        with self._lock:
            given = self._check, self._of_earlier_calls
            self._check, self._comparisons_left = "warn", 1
            self._of_earlier_calls = _EARLIER_CALLS
            try:
                self._compare_if_unchecked((inputs,), {})
            finally:
                (self._check, self._of_earlier_calls), self._comparisons_left = given, 0

    def _give_up(self, mode: Any, error: CompileError) -> None:
        """Let the calls in a mode run plain from now on; raise the error instead in the very first call."""
        if self._check != "warn":
            raise error
        self._warn(f"{str(error).rstrip('.')}; such calls run without padding, uncompiled.")
        self._show_warnings(8)
        self._plain_modes.add(mode)

    def _names_of_required(self, inputs: Inputs, cuts: Cuts) -> list[str]:
        """Return the names of arguments that the model requires gradients of, also if an earlier call already did."""
        named = inputs.named().items()
        self._known_required.update(name for name, x in named if id(x) in cuts.required)
        return [
            name for name, x in named if name in self._known_required and (id(x) in cuts.required or x.requires_grad)
        ]

    def _require_gradients(self, inputs: Inputs, mode: Any) -> None:
        """Do what the model does in its forward pass, before it, since compiled code cannot."""
        if names := self._required.get(mode):
            named = inputs.named()
            for name in names:
                named[name].requires_grad_()

    def _say_if_slower(self, inputs: Inputs) -> None:
        """Time the forward pass with and without padding and compiler; log if it is slower with them."""
        seconds: dict[Any, float] = {}
        with kept_generators(), modules_kept(modules_of(self._function)):
            for function in (self._function, self._run) * 5:
                begin = time.perf_counter()
                function(inputs)
                if self._device == "cuda":
                    torch.cuda.synchronize()
                taken = time.perf_counter() - begin
                seconds[function] = min(taken, seconds.get(function, taken))
        plain, ours = seconds.values()
        if ours > _SLOWER * plain:
            _log.warning(
                "%s takes %.1f ms a batch compiled, and %.1f ms as it is; it is too small, or its batches are, for "
                "padding to pay: leave compile out, or enlarge the batches",
                self._name, 1000 * ours, 1000 * plain,
            )  # fmt: skip

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._run(*args, **kwargs)
        except DependsOnValuesError as error:
            self._warn(
                f"{self._name} gives other results with padding: {error}; {_REMEDY_OF_RESULTS}. It runs without "
                f"padding, uncompiled, from now on.{_EARLIER_CALLS}"
            )
            self._compiled = self._function
            return self._run(*args, **kwargs)
        except CompileError as error:
            if error.__cause__ and torch_private.is_one_of(error.__cause__, torch_private.TOO_OFTEN):
                # The training goes on, with right results.
                self._warn(f"{error} Until then, it runs uncompiled.")
                self._compiled = self._function
                return self._run(*args, **kwargs)
            is_break = error.__cause__ and torch_private.is_one_of(error.__cause__, torch_private.GRAPH_BREAK)
            # Torch has no second derivatives of code that is compiled in parts.
            is_break = is_break and not torch_private.is_about_gradients(error.__cause__)  # type: ignore[arg-type]
            if not (is_break and self._may_break):
                raise
            self._warn(
                f"{error} Until then, it is compiled in parts, which is slower; fullgraph=False says that you know."
            )
        except Exception as error:
            if not self.is_compiled or torch_private.is_one_of(error, torch_private.FAILURE):
                raise
            # An error of the model itself is raised here.
            result = self._function(*args, **kwargs)
            self._compiled = self._after_error(error)
            return result
        self._may_break, self._settings = False, self._settings | {"fullgraph": False}
        self._compiled = self._wrapped_by_torch(self._device)
        return self._run(*args, **kwargs)

    def _after_error(self, error: Exception) -> Callable[..., Any]:
        reason = torch_private.reason_of(error)
        if any(word in reason for word in ("data-dependent", "unbacked", "SymInt")):
            reason += f"; {ROWS_OF_VALUES}"
        return self._uncompiled(f"its compiled code fails where the model itself does not ({reason})")

    def _compared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checked:
        try:
            return super()._compared(args, kwargs)
        except CompileError:
            raise
        except Exception as error:
            # Errors of uncompiled calls are no reason to stop a comparison, so this one is from compiled code.
            self._compiled = self._after_error(error)
            return Checked()

    def _mode(self) -> Any:
        # For other changes, torch compiles again, which `__call__` notices. A switch of the model, such as whether it
        # returns forces, may change its results.
        device = self._device
        autocast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        switches = tuple([(name, x) for name, x in vars(self._model).items() if x is True or x is False])
        return switches, torch.is_grad_enabled(), autocast, torch.get_num_threads()

    def _wrapped_by_torch(self, device: str) -> Callable[..., Any]:
        compiled = super()._wrapped_by_torch(device)
        return compiled if compiled is self._function else functools.partial(self._padded, compiled)

    def _padded(self, call: Callable[..., Captured], inputs: Inputs) -> Captured:
        """Pad the arguments, call the model by `call`, and cut the results to real rows."""
        return self._cuts[self._mode()].applied(self._uncut(call, inputs), inputs.counts)

    def _uncut(self, call: Callable[..., Captured], inputs: Inputs) -> Captured:
        # A model may compute forces inside of `torch.no_grad`, and needs gradients of what it gets.
        has_gradients = self._has_gradients or bool(self._required.get(self._mode()))
        with torch.set_grad_enabled(torch.is_grad_enabled() or has_gradients):
            made = prepared(inputs, inputs.paddings, self._slots, inputs.rows)
        before = [
            None if batch is None else graph.snapshot(batch)
            for graph, batch in zip(inputs.graphs, made.batches, strict=True)
        ]
        with self._masking:
            cuts = self._cuts.get(self._mode())
            detached = cuts is not None and cuts.frees_graph
            captured = call(made.counts, made.tensors, made.batches, made.extra, detached)
        for i, (graph, batch, known) in enumerate(zip(inputs.graphs, made.batches, before, strict=True)):
            if known is not None:
                captured.written.update(written_in(i, graph.snapshot(batch), known))
        return captured

    def _found_cuts(self, inputs: Inputs) -> Cuts:
        """Call the model on copies, plain and padded, and find out which dimensions of the results are padded."""
        padded = functools.partial(self._uncut, self._traced)
        self._inputs_compared = inputs
        try:
            return Cuts.found(self._function, padded, (inputs,), self._slots, inputs.counts)
        except CompileError as error:
            # An error of the model with padding says enough by itself.
            remedy = "" if error.__cause__ else f"; {_REMEDY_OF_RESULTS}"
            raise CompileError(f"{self._name} cannot be padded: {error}{remedy}") from error.__cause__

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Checked:
        """Compare the batch, and its first half, so that more slots are unused."""
        found = super()._compare(args, kwargs)
        half = None if self._waits_for_ranks() else self._half(args[0])
        if half is None or not self.is_compiled or found.skipped:
            return found
        self._inputs_compared = half
        return super()._compare((half,), kwargs)

    def _waits_for_ranks(self) -> bool:
        """Return whether calls wait for other ranks; all ranks must then check the same calls.

        The first call in a mode is the same on each rank. Whether torch compiles again, or half of a batch can be
        compared, depends on the batches of a rank.
        """
        return runs_on_several_ranks() and any(isinstance(each, nn.SyncBatchNorm) for each in self._model.modules())

    def _half(self, inputs: Inputs) -> Inputs | None:
        """Return the first half of a batch; None if it has another pattern, or does not fit the same padded call."""
        if inputs.num_graphs < 2:
            return None
        half = inputs.first(inputs.num_graphs // 2, inputs.rows)
        paddings = paddings_of(half, self._slots)
        if half.pattern != inputs.pattern:
            return None
        if paddings is None or ties_of(half.counts, self._slots) != ties_of(inputs.counts, self._slots):
            return None
        half.paddings, half.rows = paddings, inputs.rows
        # Under `torch.no_grad()`, parts of tensors that need gradients do not.
        self._require_gradients(half, self._mode())
        return half

    def _checked(
        self, args: Any, kwargs: Any, leaves: Mapping[str, Any], same_draws: bool, uniform_dropout: bool
    ) -> Checked:
        padded = functools.partial(self._padded, self._traced)
        named = args[0].named()
        return check_call(self._function, self._run, args, kwargs, named, same_draws, uniform_dropout, padded)

    def _compare_if_unchecked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._inputs_compared = args[0]
        super()._compare_if_unchecked(args, kwargs)

    def _remedy_of_padding(self, difference: str) -> str:
        if "depends on values" in difference:
            return _REMEDY_OF_RESULTS
        remedy = (
            "a sum, mean, softmax or norm over all rows must leave padding out: reduce over the rows of each graph, as "
            "readouts and pools do, and return values by graph, node or edge; or call the model without compile"
        )
        if "NaN or infinity with padding" in difference:
            remedy = (
                "in padding, nodes have copies of real features, unless a part of their name is pos, position, coord, "
                "coordinates, xyz or R: name other positions by compile(..., coordinates=[NAME]), so that distances in "
                "padding are those of real edges; write "
                f"(v.square().sum(-1) + 1e-8).sqrt() for the norm of a sum v that may be 0; and {remedy}"
            )
        # Gradients can be compared once padding can be cut off from the results.
        cut = self._padded if self._mode() in self._cuts else self._uncut
        padded = functools.partial(cut, self._traced)
        where = culprit(self._model, self._inputs_compared, self._function, padded, self._slots)
        return f"{where}; {remedy}"


def _itself(x: Tensor) -> Tensor:
    return x


def _passed_on(x: Tensor) -> Tensor:
    # A run on copies replaces the arguments of torch's functions, but not those of DGL's. This function returns them.
    return x.requires_grad_(x.requires_grad)


def paddings_of(inputs: Inputs, slots: Slots) -> list[Padding] | None:
    """Return the padding of each graph; None if the batch does not fit."""
    paddings = []
    for i, graph in enumerate(inputs.graphs):
        of_graph = {t: slots[i, t] for t in graph.counts}
        padding = Padding.of(
            graph.counts, inputs.num_graphs, of_graph, slots[GRAPHS], inputs.spacings.get(i, 1.0), inputs.coordinates
        )
        if padding is None:
            return None
        paddings.append(padding)
    return paddings


def ties_of(counts: Slots, slots: Slots) -> tuple[bool, ...]:
    """Return, for each component, whether an earlier one has as many slots and as many rows."""
    seen: set[tuple[int, int]] = set()
    ties = []
    for component, number in slots.items():
        ties.append((number, counts[component]) in seen)
        seen.add((number, counts[component]))
    return tuple(ties)


# Relative difference of results of a layer that rounding does not explain, by dtype.
_NOTABLE = {torch.float64: 1e-7, torch.float32: 1e-3}


def culprit(
    model: nn.Module,
    inputs: Inputs,
    plain: Callable[[Inputs], Captured],
    padded: Callable[[Inputs], Captured],
    slots: Slots,
) -> str:
    """Name the first layer whose real inputs agree with and without padding, and whose outputs differ.

    If outputs agree, name the first layer, in the order of the backward pass, whose gradients differ.
    """
    expected, found = _recorded(model, plain, inputs), _recorded(model, padded, inputs)
    counted: dict[str, int] = {}
    for (name, layer, *ours), (other, _, *theirs) in zip(expected, found, strict=False):
        if name != other:
            break
        counted[name] = counted.get(name, 0) + 1
        agree = [
            _agree(one, with_padding, slots, inputs.counts) for one, with_padding in zip(ours, theirs, strict=True)
        ]
        if agree == [True, False]:
            call = f", call {counted[name]}," if counted[name] > 1 else ""
            return f"the layer {name} ({layer}){call} has equal inputs and other outputs"
    expected, found = (_recorded(model, each, inputs, gradients=True) for each in (plain, padded))
    for (name, layer, *ours), (other, _, *theirs) in zip(expected, found, strict=False):
        if name != other:
            break
        agree = [
            _agree(one, with_padding, slots, inputs.counts) and _finite(with_padding) >= _finite(one)
            for one, with_padding in zip(ours, theirs, strict=True)
        ]
        if agree == [True, False]:
            return f"in the backward pass, the layer {name} ({layer}) makes other gradients from equal ones"
        if not all(agree):
            return (
                f"in the backward pass, the first other gradient is that of the result of the layer {name} ({layer}), "
                "so code that uses this result is to blame"
            )
    code = getattr(type(model).forward, "__code__", None)
    where = f"{code.co_filename}, line {code.co_firstlineno}" if code else type(model).__name__
    return f"no layer alone is to blame, so it is in the code of the forward pass ({where})"


def _recorded(
    model: nn.Module, function: Callable[[Inputs], Captured], inputs: Inputs, gradients: bool = False
) -> list[tuple[Any, ...]]:
    """Call the model on copies; return name, class, inputs and outputs of each call of a layer, inner calls first.

    With `gradients`, return those of outputs and of inputs instead, in the order of the backward pass.
    """
    calls: list[tuple[Any, ...]] = []

    def note(name: str, layer: nn.Module, first: Any, then: Any) -> None:
        both = (then, first) if gradients else (first, then)
        calls.append(
            (name, type(layer).__name__, *([x.detach().clone() for x in tensors_of(e, "").values()] for e in both))
        )

    modules = [(name, each) for name, each in model.named_modules() if name]
    hooks = [
        (each.register_full_backward_hook if gradients else each.register_forward_hook)(functools.partial(note, name))
        for name, each in modules
    ]
    try:
        # Torch warns about layers whose inputs have no gradient.
        with warnings.catch_warnings(action="ignore"):
            run_on_copies(function, (inputs,), {}, modules_of(model))
    except Exception:
        # The calls until the error still tell something.
        return calls
    finally:
        for hook in hooks:
            hook.remove()
    return calls


def _finite(tensors: Sequence[Tensor]) -> bool:
    return all(bool(each.isfinite().all()) for each in tensors)


def _agree(plain: Sequence[Tensor], padded: Sequence[Tensor], slots: Slots, counts: Slots) -> bool:
    """Return whether tensors are equal up to rounding, after padding is cut off."""
    if len(plain) != len(padded):
        return False
    for one, other in zip(plain, padded, strict=True):
        try:
            cuts = cuts_of(one.shape, other.shape, slots, counts)
        except CompileError:
            return False
        for dim, component, times in cuts:
            other = other.narrow(dim, 0, counts[component] * times)
        if one.dtype in _NOTABLE:
            difference, size = float((one - other).nan_to_num(1.0).norm()), float(one.norm())
            if difference > _NOTABLE[one.dtype] * size:
                return False
        elif not torch.equal(one, other):
            return False
    return True
