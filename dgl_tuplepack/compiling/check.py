"""Run one call compiled and uncompiled, and compare the outputs, the gradients, and the buffers after the call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dgl_tuplepack.compiling.comparison import Values, difference_of, is_conclusive, runs_on_several_ranks
from dgl_tuplepack.compiling.reference import (
    Reference,
    buffers_of,
    gradients_of,
    modules_kept,
    modules_of,
    problem_of,
    random_states,
    run_on_copies,
)
from dgl_tuplepack.compiling.signatures import described, mapped, tensors_of
from dgl_tuplepack.graphs.transform import kept_generators


class Checked(NamedTuple):
    """The result of comparing one call."""

    # Description of the worst difference.
    difference: str = ""
    # Names of up to three tensors that the function writes to, except buffers.
    writes: str = ""
    # Reason why nothing was compared.
    skipped: str = ""
    # Name of a tensor whose gradient is not finite in uncompiled code, although all outputs are finite.
    not_finite: str = ""
    # See `comparison.is_conclusive`. Always True with several ranks, since all ranks must compare the same calls.
    is_conclusive: bool = True


def check_call(
    function: Callable[..., Any],
    compiled: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    paths: Mapping[str, Any],
    same_draws: bool,
    uniform_dropout: bool,
) -> Checked:
    """Call `compiled`, call `function` on copies of the tensors, and compare the results; nothing else changes.

    `paths` holds the values inside the arguments by path. `same_draws`: compiled code draws the same random numbers as
    uncompiled code. `uniform_dropout`: it makes the masks of dropout from uniform random numbers.
    """
    modules = modules_of(function, *args, *kwargs.values())
    if problem := problem_of(modules):
        return Checked(skipped=problem)

    def run(**settings: Any) -> Reference:
        own_args, own_kwargs = _copy_containers(args), _copy_containers(dict(kwargs))
        return run_on_copies(function, own_args, own_kwargs, modules, uniform_dropout=uniform_dropout, **settings)

    try:
        reference = run()
    except Exception as error:
        first_line = str(error).partition("\n")[0][:200]
        return Checked(skipped=f"on copies of its tensors, it raises {type(error).__name__}: {first_line}")
    names = _names(modules, reference, paths)
    written_ids = [id(each.original) for each in reference.copies if each.is_written()]
    buffer_ids = {id(each) for each in buffers_of(modules).values()}
    if written_names := [names[each] for each in written_ids if each not in buffer_ids]:
        return Checked(writes=", ".join(written_names[:3]))
    if reference.draws and not same_draws:
        functions = ", ".join(sorted(reference.draws))
        return Checked(skipped=f"compiled code draws different random numbers in {functions}")
    found = _run_compiled(compiled, args, kwargs, modules, reference)
    if found is None:
        return Checked(skipped="compiled code draws different random numbers")
    expected = _values(reference.outputs, reference.gradients, reference.buffers)
    if not any(group == "output" for group, _ in expected):
        return Checked(skipped="it returns no tensors")

    def rerun(**settings: Any) -> Values | None:
        """Return the results of another uncompiled run; None if it fails, or would draw other random numbers."""
        if settings.get("exact") and reference.draws:
            return None
        try:
            again = run(dropout_dtypes=reference.dropout_dtypes, **settings)
            values = _values(again.outputs, again.gradients, again.buffers)
        except Exception:
            return None
        return values if values.keys() == expected.keys() else None

    return Checked(
        difference=difference_of(found, expected, names, rerun),
        not_finite=_not_finite(expected, names),
        is_conclusive=is_conclusive(expected) or runs_on_several_ranks(),
    )


def _copy_containers(value: Any, cut: dict[int, Tensor] | None = None) -> Any:
    """Copy containers and objects in arguments, since a function may change them; do not copy tensors.

    With `cut`, a leaf takes the place of a tensor with a ``grad_fn``, whose autograd graph belongs to the caller.
    """

    def copied(each: Any) -> Any:
        if isinstance(each, Tensor) and each.grad_fn is not None and cut is not None:
            return cut.setdefault(id(each), each.detach().requires_grad_())
        if each is None or isinstance(each, Tensor | nn.Module | int | float | str | tuple):
            return each
        try:
            return copy.copy(each)
        except Exception:
            # An object that cannot be copied is itself passed to the function.
            return each

    return mapped(value, copied)


def _run_compiled(
    compiled: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    modules: list[nn.Module],
    reference: Reference,
) -> Values | None:
    """Call compiled code on the caller's tensors, and return the results; None if it draws other random numbers."""
    # id of a tensor with a ``grad_fn`` -> the leaf that is passed in its place, see `_copy_containers`.
    cut: dict[int, Tensor] = {}
    with kept_generators(), modules_kept(modules):
        outputs = tensors_of(compiled(*_copy_containers(args, cut), **_copy_containers(dict(kwargs), cut)), "result")
        if not all(map(torch.equal, reference.random_states, random_states())):
            return None
        inputs = {id(each.original): cut.get(id(each.original), each.original) for each in reference.copies}
        found = gradients_of(outputs, [*inputs.values()])
        buffers = {key: each.detach().clone() for key, each in buffers_of(modules).items()}
    # An unused tensor has a gradient of 0, as in `reference`.
    needed = {key: each for key, each in inputs.items() if each.requires_grad}
    gradients = {key: found.get(id(each), torch.zeros_like(each)) for key, each in needed.items()}
    return _values(outputs, gradients, buffers)


def _values(outputs: Mapping[str, Tensor], gradients: Mapping[int, Tensor], buffers: Mapping[Any, Tensor]) -> Values:
    """Return all results of a run in one dict, by (group, key in the group); sparse tensors become dense."""
    groups: dict[str, Mapping[Any, Tensor]] = {"output": outputs, "buffer": buffers}
    if torch.is_grad_enabled() and any(each.requires_grad for each in outputs.values()):
        groups["gradient"] = gradients
    values = {(group, key): each.detach() for group, of_group in groups.items() for key, each in of_group.items()}
    return {key: each.to_dense() if each.layout != torch.strided else each for key, each in values.items()}


def _not_finite(values: Values, names: Mapping[Any, str]) -> str:
    """Return the name of a tensor whose gradient is not finite; "" if all are finite, or an output is not finite."""
    not_finite = [key for key, each in values.items() if not each.isfinite().all()]
    if any(group == "output" for group, _ in not_finite):
        return ""
    return next((names[key] for group, key in not_finite if group == "gradient"), "")


def _names(modules: list[nn.Module], reference: Reference, paths: Mapping[str, Any]) -> dict[Any, str]:
    """Return names of the tensors that a run read, by ``id``, and of buffers, by (position of the module, name)."""
    # `setdefault` keeps the first name of a tensor: an argument may also be a parameter of a module.
    names = {id(each): f"the argument {path}" for path, each in paths.items() if isinstance(each, Tensor)}
    for module in modules:
        for named_tensors in (module.named_parameters, module.named_buffers):
            for name, each in named_tensors():
                names.setdefault(id(each), f"{type(module).__name__}.{name}")
    names |= {key: names[id(each)] for key, each in buffers_of(modules).items()}
    for original, *_ in reference.copies:
        names.setdefault(id(original), f"a tensor outside of its arguments ({described(original)})")
    return names
