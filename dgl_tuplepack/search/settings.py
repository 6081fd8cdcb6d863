"""Settings of the ways to search limits: each is an argument of `search_limits`, checked by its name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dgl_tuplepack._checks import real_number, whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.limits import matching_name

Ranges = Mapping[str, Iterable[int]]

# The number of packs of a batch that the search chooses.
AUTO = "auto"

MOST_COMBINATIONS = 1_000_000

Value = TypeVar("Value")


def in_order(name: str, values: Mapping[str, Value], components: Sequence[str]) -> dict[str, Value]:
    """Return the setting `name` under the names, and in the order, of `components`.

    Edge types may go by their relation names. A SearchError if other components are named, or one is missing (a target
    may leave some out).
    """
    names = {component: matching_name(component, values) for component in components}
    unknown = [given for given in values if given not in names.values()]
    missing = [component for component, given in names.items() if given is None]
    wrong = ""
    if unknown:
        wrong = f"there is no {' and no '.join(map(repr, unknown)):.200}"
    elif missing and name != "target":
        wrong = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
    if wrong:
        raise SearchError(
            f"{_PLURALS[name]} are given for each component by its name, but {wrong}; the components are "
            f"{', '.join(names)}."
        )
    return {component: values[given] for component, given in names.items() if given is not None}


def _by_component(name: str, given: object, check: Callable[[str, Any], Value]) -> dict[str, Value]:
    """Return values that are given by component, each checked."""
    plural = _PLURALS[name]
    if not isinstance(given, Mapping) or not given:
        raise SearchError(
            f"{plural} are given for each component by its name, but they are {given!r:.200}; write {{'nodes': ...}}, "
            "with the names of all components."
        )
    return {str(component): check(str(component), value) for component, value in given.items()}


def _objective(objective: Any) -> Any:
    if not callable(objective):
        raise SearchError(
            f"the objective must be a function of a Candidate, but is {objective!r:.100}; write "
            "objective=lambda candidate: -candidate.packs, say."
        )
    return objective


def _values(component: str, values: object) -> list[int]:
    what = f"the range of {component}"
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SearchError(f"{what} must be whole numbers, but is {values!r:.100}; try range(20, 60).")
    # A range of 2**60 numbers is refused before it is written out.
    first = list(itertools.islice(values, MOST_COMBINATIONS + 1))
    if not first:
        raise SearchError(f"{what} is empty ({values!r}); give it at least one value.")
    if len(first) > MOST_COMBINATIONS:
        raise SearchError(f"{what} has over {MOST_COMBINATIONS} values; take larger steps.")
    return [whole_number(f"a value in {what}", value, 1, error=SearchError) for value in first]


def _target(target: object) -> float | dict[str, float]:
    if isinstance(target, Mapping):
        return _by_component("target", target, lambda component, value: _fraction(f"the target of {component}", value))
    return _fraction("the target", target)


def _fraction(what: str, value: object) -> float:
    return real_number(what, value, above=0, most=1, hint="write 0.95 for 95 %.", error=SearchError)


def _costs(costs: object) -> dict[str, float]:
    def cost(component: str, value: object) -> float:
        hint = "give the bytes of one slot, say."
        return real_number(f"the cost of {component}", value, least=0, hint=hint, error=SearchError)

    each = _by_component("cost", costs, cost)
    if not any(each.values()):
        raise SearchError("at least one cost must be above 0, but all are 0, so everything fits in one pack.")
    return each


def _number(what: str, hint: str, **bounds: float) -> Callable[[object], float]:
    return lambda value: real_number(what, value, hint=hint, error=SearchError, **bounds)


def _packs_per_batch(value: Any) -> int | str:
    if isinstance(value, str):
        if value != AUTO:
            raise SearchError(f"packs_per_batch must be a whole number or {AUTO!r}, but is {value!r:.100}.")
        return value
    return whole_number("packs_per_batch", value, 1, 2**31, error=SearchError)


_PLURALS = {"ranges": "ranges", "target": "targets", "cost": "costs"}
# Setting -> function that returns it as plain data, and refuses a wrong value with a SearchError.
CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "objective": _objective,
    "tolerance": _number("tolerance", "0.005 accepts scores within 0.5 % of the highest.", least=0, below=1),
    "ranges": lambda ranges: _by_component("ranges", ranges, _values),
    "target": _target,
    "graphs_per_batch": lambda value: whole_number("graphs_per_batch", value, 1, error=SearchError),
    "packs_per_batch": _packs_per_batch,
    "budget": _number("the budget", "give slots, or bytes together with costs (cost=, --cost).", above=0),
    "cost": _costs,
    "reach": _number("reach", "3 is the default.", least=1),
    "plans": lambda value: whole_number("plans", value, 1, 1_000_000, SearchError),
}
