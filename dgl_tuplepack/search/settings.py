"""Settings of the ways to search limits: each is an argument of `search_limits`, checked by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dgl_tuplepack._checks import real_number, whole_number
from dgl_tuplepack.errors import SearchError
from dgl_tuplepack.limits import matching_name

# The number of packs of a batch that the search chooses.
AUTO = "auto"


def in_order(name: str, values: Mapping[str, float], components: Sequence[str]) -> dict[str, float]:
    """Return the setting `name` under the names, and in the order, of `components`.

    Edge types may go by their relation names. A SearchError if other components are named, or a cost is missing.
    """
    names = {component: matching_name(component, values) for component in components}
    unknown = [given for given in values if given not in names.values()]
    missing = [component for component, given in names.items() if given is None]
    wrong = ""
    if unknown:
        wrong = f"there is no {' and no '.join(map(repr, unknown)):.200}"
    elif missing and name == "cost":
        wrong = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"
    if wrong:
        raise SearchError(
            f"{name}s are given for each component by its name, but {wrong}; the components are {', '.join(names)}."
        )
    return {component: values[given] for component, given in names.items() if given is not None}


def _by_component(name: str, given: object, check: Callable[[str, object], float]) -> dict[str, float]:
    """Return numbers that are given by component, each checked."""
    if not isinstance(given, Mapping) or not given:
        raise SearchError(
            f"{name}s are given for each component by its name, but they are {given!r:.200}; write {{'nodes': ...}}, "
            "with the names of all components."
        )
    return {str(component): check(f"the {name} of {component}", value) for component, value in given.items()}


def _target(target: object) -> float | dict[str, float]:
    def fraction(what: str, value: object) -> float:
        return real_number(what, value, above=0, most=1, hint="write 0.95 for 95 %.", error=SearchError)

    return _by_component("target", target, fraction) if isinstance(target, Mapping) else fraction("the target", target)


def _cost(costs: object) -> dict[str, float]:
    def cost(what: str, value: object) -> float:
        return real_number(what, value, least=0, hint="give the bytes of one slot, say.", error=SearchError)

    each = _by_component("cost", costs, cost)
    if not any(each.values()):
        raise SearchError("at least one cost must be above 0, but all are 0, so everything fits in one pack.")
    return each


def _budget(value: object) -> float:
    hint = "give slots, or bytes together with costs (cost=, --cost)."
    return real_number("the budget", value, above=0, hint=hint, error=SearchError)


def _packs_per_batch(value: Any) -> int | str:
    if isinstance(value, str):
        if value != AUTO:
            raise SearchError(f"packs_per_batch must be a whole number or {AUTO!r}, but is {value!r:.100}.")
        return value
    return whole_number("packs_per_batch", value, 1, 2**31, error=SearchError)


# Setting -> function that returns it as plain data, and refuses a wrong value with a SearchError.
CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "target": _target,
    "graphs_per_batch": lambda value: whole_number("graphs_per_batch", value, 1, error=SearchError),
    "packs_per_batch": _packs_per_batch,
    "budget": _budget,
    "cost": _cost,
}
