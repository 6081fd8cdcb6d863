"""Limits of one pack: inclusive maxima of its real nodes, edges and graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, shown, true_or_false, whole_number
from dgl_tuplepack.errors import GraphTooLargeError, LimitsError
from dgl_tuplepack.planning.sizes import (
    BoolArray,
    GraphSizes,
    IntArray,
    as_names,
    components_of_kind,
    edge_component,
    exact_sum,
    node_component,
)

NodeLimits = int | Mapping[str, int]
EdgeLimits = int | Mapping[str | tuple[str, str, str], int]

_NAMED_GRAPHS = 10


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Limits:
    """Inclusive maxima of the real content of one pack, padding excluded.

    Parameters
    ----------
    nodes
        Most nodes in a pack, >= 1. For heterographs: a dict keyed by node type. If each item is a dict of graphs: a
        dict keyed by the names of the graphs (``"mol/C"`` for the node type "C" of the heterograph "mol").
    edges
        Most edges in a pack, >= 1. For heterographs: a dict keyed by canonical edge type, or by relation name if that
        is unambiguous. None: no limit on edges of any type; a sampler then uses the most edges in any pack of its plan.
    graphs
        Most graphs in a pack, >= 1 (the cap); a batch has this many graph slots for each pack, and one for padding.
        None: no cap; a sampler then uses the most graphs in any pack of its plan.

    Raises
    ------
    LimitsError
        A limit is not an integer in 1..2**63 - 1.

    Examples
    --------
    >>> limits = Limits(nodes=222, edges=502, graphs=256)
    >>> limits.fits([[222, 502], [223, 10]]).tolist()
    [True, False]
    """

    components: tuple[str, ...]
    values: tuple[int, ...]
    graphs: int | None

    def __init__(self, nodes: NodeLimits, edges: EdgeLimits | None = None, graphs: int | None = None) -> None:
        maxima: dict[str, int] = {}
        if isinstance(nodes, Mapping):
            maxima.update({node_component(_checked_type(key, "node")): value for key, value in nodes.items()})
        else:
            maxima["nodes"] = nodes
        if isinstance(edges, Mapping):
            maxima.update({edge_component(_checked_type(key, "edge")): value for key, value in edges.items()})
        elif edges is not None:
            maxima["edges"] = edges
        self._set(maxima, graphs)

    @classmethod
    def from_components(cls, maxima: Mapping[str, int], graphs: int | None = None) -> Limits:
        """Make limits for any named components, in the given order.

        >>> Limits.from_components({"nodes": 100, "edges": 220, "triplets": 700}, graphs=32)
        Limits.from_components({'nodes': 100, 'edges': 220, 'triplets': 700}, graphs=32)
        """
        limits = cls.__new__(cls)
        limits._set(maxima, graphs)
        return limits

    @classmethod
    def from_padded_shape(cls, nodes: int, edges: int, graphs: int, *, coordinates: bool = False) -> Limits:
        """Make limits that give a padded batch of one pack exactly `nodes`, `edges` and `graphs` slots.

        One node and one graph slot are reserved for padding; two nodes if the batch is padded with `coordinates`.

        >>> Limits.from_padded_shape(nodes=256, edges=512, graphs=64)
        Limits(nodes=255, edges=512, graphs=63)
        """
        padded = {"nodes": nodes, "edges": edges, "graphs": graphs}
        slots = {name: _as_limit(name, value) for name, value in padded.items()}
        reserved = {"nodes": 1 + true_or_false("coordinates", coordinates, LimitsError), "graphs": 1}
        for name, number in reserved.items():
            if slots[name] <= number:
                raise LimitsError(
                    f"a padded shape needs at least {number + 1} {name} ({number} reserved for padding), but got "
                    f"{slots[name]}; pass {name}={number + 1} or more."
                )
        return cls(slots["nodes"] - reserved["nodes"], slots["edges"], slots["graphs"] - 1)

    def _set(self, maxima: Mapping[str, int], graphs: int | None) -> None:
        """Check and store the attributes."""
        if not isinstance(maxima, Mapping):
            raise LimitsError(f"limits must be a mapping of components to numbers, but are {shown(maxima)}.")
        if not maxima:
            raise LimitsError("limits need at least one component, but none was given; set nodes=...")
        names = as_names(list(maxima))
        if names is None:
            raise LimitsError(f"components of limits must be names, but are {shown(list(maxima))}; give strings.")
        object.__setattr__(self, "components", names)
        object.__setattr__(self, "values", tuple(_as_limit(name, value) for name, value in maxima.items()))
        object.__setattr__(self, "graphs", None if graphs is None else _as_limit("graphs", graphs))

    @property
    def maxima(self) -> dict[str, int]:
        """Component name -> inclusive maximum."""
        return dict(zip(self.components, self.values, strict=True))

    @property
    def array(self) -> IntArray:
        """The maxima as int64 ``[k]``."""
        return np.array(self.values, dtype=np.int64)

    @property
    def nodes(self) -> Any:
        """Most nodes; a dict keyed by node type for heterographs."""
        return self._of_kind("nodes")

    @property
    def edges(self) -> Any:
        """Most edges, None for no limit; a dict keyed by canonical edge type for heterographs."""
        return self._of_kind("edges") or None

    def _of_kind(self, kind: str) -> Any:
        """Return the limit of "nodes" or "edges": a number, or for heterographs a dict keyed by type."""
        if kind in self.components:
            return self.maxima[kind]
        return {_type_of(self.components[i]): self.values[i] for i in components_of_kind(self.components, kind)}

    def replace_graphs(self, graphs: int | None) -> Limits:
        """Return the same limits with another cap on graphs."""
        return Limits.from_components(self.maxima, graphs)

    def aligned(self, components: Sequence[str]) -> Limits:
        """Return the same limits in the order of `components`, under these names; raise LimitsError if any differ."""
        maxima = self.maxima
        if as_names(components) is None:
            raise LimitsError(f"components must be names, but are {shown(components)}; give a list of strings.")
        names = [matching_name(component, maxima) for component in components]
        missing = [component for component, name in zip(components, names, strict=True) if name is None]
        unknown = [name for name in maxima if name not in names]
        if missing or unknown or len(set(names)) != len(components):
            wrong = [f"components without a limit: {', '.join(missing)}"] if missing else []
            wrong += [f"limits without a component: {', '.join(unknown)}"] if unknown else []
            if not wrong:
                wrong = ["two components have the same relation: use their full names"]
            raise LimitsError(
                f"the limits are for {list(self.components)}, but the sizes have {list(components)} "
                f"({'; '.join(wrong)}); give exactly one limit for each component of the sizes."
            )
        values = [maxima[name] for name in names if name is not None]
        return Limits.from_components(dict(zip(components, values, strict=True)), self.graphs)

    def filled(self, components: Sequence[str], fill: Mapping[str, int]) -> Limits:
        """Return `aligned` limits; if no edge type has a limit, each gets its number in `fill`, at least 1."""
        # If the components are not names, `aligned` raises the error.
        if as_names(components) is None or self.edges is not None:
            return self.aligned(components)
        names = [components[i] for i in components_of_kind(components, "edges")]
        edges = {name: max(1, fill[name]) for name in names}
        return Limits.from_components({**self.maxima, **edges}, self.graphs).aligned(components)

    def fits(self, sizes: GraphSizes | Any) -> BoolArray:
        """Return for each graph whether it alone is within the limits, bool ``[N]``."""
        sizes = sizes if isinstance(sizes, GraphSizes) else GraphSizes(sizes, self.components)
        limits = self.filled(sizes.components, dict.fromkeys(sizes.components, INT64_MAX))
        return np.asarray((sizes.array <= limits.array).all(axis=1), dtype=np.bool_)

    def check(self, sizes: GraphSizes | Any, counts: IntArray | None = None) -> None:
        """Raise GraphTooLargeError if any graph alone exceeds the limits.

        `sizes` has a row for each graph or, with their numbers `counts` ``[C]``, for each size class. The message names
        up to ten graphs or sizes, and the smallest limits that would hold every graph.
        """
        sizes = sizes if isinstance(sizes, GraphSizes) else GraphSizes(sizes, self.components)
        too_large = np.flatnonzero(~self.fits(sizes))
        if len(too_large):
            raise GraphTooLargeError(self._describe(sizes, too_large, counts))

    def _describe(self, sizes: GraphSizes, too_large: IntArray, counts: IntArray | None) -> str:
        """Return the message of `check`; `too_large` has the indices of the rows of `sizes` that do not fit."""

        def text(size: IntArray) -> str:
            """Return a size as text, such as "3 nodes, 4 edges"."""
            return ", ".join(f"{value} {name}" for value, name in zip(size.tolist(), sizes.components, strict=True))

        named = [(i, text(sizes.array[i])) for i in too_large[:_NAMED_GRAPHS].tolist()]
        if counts is None:
            examples, number, total = [f"graph {i} ({size})" for i, size in named], len(too_large), len(sizes)
        else:
            examples = [f"{counts[i]} with {size}" for i, size in named]
            number, total = exact_sum(counts[too_large]), exact_sum(counts)
        hidden = len(too_large) - _NAMED_GRAPHS
        more = f"; and {hidden} more{'' if counts is None else ' sizes'}" if hidden > 0 else ""
        largest = sizes.array.max(axis=0)
        fill = dict(zip(sizes.components, largest.tolist(), strict=True))
        needed = text(np.maximum(largest, self.filled(sizes.components, fill).array))
        return (
            f"{number} of {total} graphs exceed {self!r} on their own: {'; '.join(examples)}{more}. "
            f"Raise the limits (the smallest that hold every graph: {needed}), or leave these graphs out of the "
            "dataset, as oversize='drop' does in PackBatchSampler, StaticBatchSampler, StreamPacker and search_limits."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"maxima": self.maxima, "graphs": self.graphs}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Limits:
        """Make limits from the result of `to_dict`; raise LimitsError for anything else."""
        if not isinstance(document, Mapping) or not {"maxima", "graphs"} <= document.keys():
            raise LimitsError(f"limits as plain data need the keys 'maxima' and 'graphs', but are {shown(document)}.")
        return cls.from_components(document["maxima"], document["graphs"])

    def __repr__(self) -> str:
        if set(self.components) <= {"nodes", "edges"} and self.components[0] == "nodes":
            edges = f", edges={self.edges}" if "edges" in self.components else ""
            return f"Limits(nodes={self.nodes}{edges}, graphs={self.graphs})"
        return f"Limits.from_components({self.maxima}, graphs={self.graphs})"


def as_limits(limits: object) -> Limits:
    """Return `limits`; raise LimitsError for anything but `Limits`, such as a tuple of numbers."""
    if isinstance(limits, Limits):
        return limits
    if isinstance(limits, list | tuple) and len(limits) > 1 and all(isinstance(each, Limits) for each in limits):
        raise LimitsError(
            f"one shape is needed here, but got limits of {len(limits)} shapes: {shown(limits, 200)}; give one of them."
        )
    raise LimitsError(f"limits must be Limits, but are {shown(limits)}; write Limits(nodes=..., edges=...).")


def _type_of(component: str) -> Any:
    """Return the node type, canonical edge type, or relation name that a component counts."""
    words = component.split(":")[1:]
    return tuple(words) if len(words) == 3 else ":".join(words)


def _as_limit(name: str, value: Any) -> int:
    return whole_number(f"the limit of {name}", value, 1, error=LimitsError)


def _checked_type(key: Any, kind: str) -> Any:
    """Return a node type or edge type; raise LimitsError for other keys."""
    if isinstance(key, str) or (kind == "edge" and isinstance(key, tuple) and len(key) == 3 and as_names(key)):
        return key
    allowed = "text" if kind == "node" else "a relation name, or (node type, relation, node type)"
    raise LimitsError(f"the {kind} type must be {allowed}, but is {shown(key)}; give limits of {kind}s by {kind} type.")


def matching_name(component: str, maxima: Mapping[str, Any]) -> str | None:
    """Return the key in `maxima` for `component`: its full name, or "edges:follows" for "edges:user:follows:user"."""
    words = component.split(":")
    relation = f"edges:{words[2]}" if words[0] == "edges" and len(words) == 4 else component
    return next((name for name in (component, relation) if name in maxima), None)
