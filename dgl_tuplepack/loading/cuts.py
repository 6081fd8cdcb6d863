"""Results of a padded call, cut to the rows of the plain one.

`Cuts` compares a plain and a padded call to find which dimensions of results have rows of padding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_tuplepack.compiling.reference import Reference, modules_of, run_on_copies
from dgl_tuplepack.compiling.signatures import mapped
from dgl_tuplepack.errors import CompileError
from dgl_tuplepack.loading.padded_call import Captured, GraphAt
from dgl_tuplepack.loading.static_inputs import Component, Slots


class DependsOnValuesError(CompileError):
    """A result has another shape than in an earlier call of the same padded shape, so it may have rows of padding."""


class Cut(NamedTuple):
    """One dimension of a result that has rows of a component: `times` rows for each of its rows."""

    dim: int
    component: Component
    times: int


class Cuts:
    """Which dimensions of results have padding; found by comparing the shapes of a plain call and of a padded one.

    Attributes
    ----------
    required
        ``id`` of each tensor of which the plain call required gradients first, as models of forces do of positions.
    frees_graph
        Whether the plain call computed gradients, and freed the graph of its results.
    attributes
        Names of tensors that the call sets as attributes of modules, with rows of padding.
    """

    def __init__(self, plain: Captured, padded: Captured, slots: Slots, counts: Slots, reference: Reference) -> None:
        self.required = frozenset(
            id(original) for original, copied, _ in reference.copies if copied.requires_grad > original.requires_grad
        )
        self.frees_graph = reference.frees_graph
        self.attributes: list[str] = []
        before, after = ([x.shape for x in _tensors_in(each)] for each in (plain, padded))
        numbers = [_numbers_in((each.output, each.written)) for each in (plain, padded)]
        if numbers[0] != numbers[1]:
            raise CompileError(
                f"it returns or sets the numbers {numbers[1]} with padding, and {numbers[0]} without; compute them "
                "outside"
            )
        removed = [{place for place, x in each.written.items() if isinstance(x, GraphAt)} for each in (plain, padded)]
        if removed[0] != removed[1]:
            raise CompileError("with padding, it removes other features of a graph")
        if len(before) != len(after):
            raise CompileError(
                f"it returns or sets tensors of the shapes {[*map(list, before)]} without padding, and "
                f"{[*map(list, after)]} with it"
            )
        self._shapes = after
        self._cuts = [cuts_of(one, other, slots, counts) for one, other in zip(before, after, strict=True)]

    @classmethod
    def found(
        cls,
        plain: Callable[..., Captured],
        padded: Callable[..., Captured],
        args: tuple[Any, ...],
        slots: Slots,
        counts: Slots,
    ) -> Cuts:
        """Call both on copies of all tensors, and compare; CompileError if only the padded call fails."""
        results: list[Captured] = []
        modules = modules_of(plain)
        shapes: list[dict[str, torch.Size]] = []

        def kept(function: Callable[..., Captured], *args: Any) -> None:
            results.append(function(*args))
            shapes.append({
                f"{type(module).__name__}.{name}": x.shape
                for module in modules for name, x in vars(module).items() if isinstance(x, Tensor)
            })  # fmt: skip

        reference = run_on_copies(functools.partial(kept, plain), args, {}, modules_of(plain))
        try:
            run_on_copies(functools.partial(kept, padded), args, {}, modules_of(padded))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            raise CompileError(f"with padding, it raises {text:.700}") from error
        one, other = results
        found = cls(one, other, slots, counts, reference)
        found.attributes = [name for name, shape in shapes[0].items() if shapes[1].get(name, shape) != shape]
        return found

    def applied(self, captured: Captured, counts: Slots) -> Captured:
        """Return the results without rows of padding; DependsOnValuesError if their shapes are new."""
        for x, shape in itertools.zip_longest(_tensors_in(captured), self._shapes):
            if x is None or x.shape != shape:
                raise DependsOnValuesError(
                    f"with padding, it returns or sets a tensor of shape {x if x is None else list(x.shape)}, but in "
                    f"an earlier call {shape and list(shape)}, so the shape depends on values, and rows may be padding"
                )
        if not any(self._cuts):
            return captured
        remaining = iter(self._cuts)

        def cut(x: Any) -> Any:
            if isinstance(x, Tensor):
                for dim, component, times in next(remaining):
                    x = x.narrow(dim, 0, counts[component] * times)
            return x

        return Captured(*(mapped(each, cut) for each in captured))


def cuts_of(plain: torch.Size, padded: torch.Size, slots: Slots, counts: Slots) -> list[Cut]:
    """Return the dimensions of a result that have padding; CompileError if a dimension has other rows."""
    cuts = []
    for dim, (real, number) in enumerate(zip(plain, padded, strict=False)):
        if real != number:
            fitting = [c for c in slots if real * slots[c] == number * counts[c] and number % slots[c] == 0]
            if not fitting:
                break
            component = max(fitting, key=lambda c: slots[c])
            cuts.append(Cut(dim, component, number // slots[component]))
    else:
        if len(plain) == len(padded):
            return cuts
    raise CompileError(
        f"a result of shape {list(plain)} has the shape {list(padded)} with padding, whose rows are no nodes, edges "
        "or graphs"
    )


def _tensors_in(captured: Captured) -> list[Tensor]:
    """Return the tensors of nested results, in the order in which `mapped` visits them."""
    found: list[Tensor] = []
    mapped(tuple(captured), lambda x: found.append(x) if isinstance(x, Tensor) else None)
    return found


def _numbers_in(value: Any) -> list[Any]:
    """Return the whole numbers of Python in nested results, which compiled code would repeat for each batch."""
    found: list[Any] = []
    mapped(value, lambda x: found.append(x) if isinstance(x, int) else None)
    return found
