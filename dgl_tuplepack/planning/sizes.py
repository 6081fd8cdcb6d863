"""Sizes of graphs: one row of k integers for each graph, (nodes, edges) for homogeneous graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dgl_tuplepack._core.checks import INT64_MAX, as_array, as_ids, as_integer, shown
from dgl_tuplepack.errors import SizesError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

HOMOGENEOUS = ("nodes", "edges")


def node_component(node_type: str) -> str:
    """Return the name of the component that counts the nodes of one type of a heterograph."""
    return f"nodes:{node_type}"


def edge_component(edge_type: str | tuple[str, str, str]) -> str:
    """Return the name of the component that counts the edges of one type (canonical type or relation name)."""
    return f"edges:{edge_type}" if isinstance(edge_type, str) else "edges:" + ":".join(edge_type)


def as_int64(values: Any, what: str) -> IntArray:
    """Return `values` as a new int64 array; raise SizesError unless all values are integers in 0..2**63-1."""
    array = as_array(values, what)
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        others = np.array([as_integer(value) is None for value in array.flat]).reshape(array.shape)
        if others.any():
            raise SizesError(
                f"{what} must be integers, but the value at index {_first(others)} is {shown(array[others][0])} (dtype "
                f"{np.asarray(values).dtype}); convert them first, for instance with .astype(numpy.int64)."
            )
    bad = (array < 0) | (array > INT64_MAX)
    if bad.any():
        raise SizesError(
            f"{what} must lie in 0..2**63-1, but the value at index {_first(bad)} is {shown(array[bad][0])}; "
            "correct or remove it."
        )
    return array.astype(np.int64)


def _first(bad: BoolArray) -> int | tuple[int, ...]:
    """Return the index of the first True: an int for a 1-D array, else a tuple."""
    index = tuple(np.argwhere(bad)[0].tolist())
    return index if len(index) != 1 else index[0]


@dataclass(frozen=True, eq=False)
class GraphSizes:
    """Sizes of N graphs, with k components each.

    Parameters
    ----------
    array
        Integers ``[N, k]``, each >= 0 (a 1-D array has k = 1); stored as read-only int64.
    components
        k distinct names. Default: ``("nodes", "edges")`` for k = 2, ``("nodes",)`` for k = 1.

    Raises
    ------
    SizesError
        An argument is not as described.

    Examples
    --------
    >>> GraphSizes([[3, 4], [2, 2]]).totals()
    {'nodes': 5, 'edges': 6}
    """

    array: IntArray
    components: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        array = as_int64(self.array, "graph sizes")
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] == 0:
            raise SizesError(
                f"graph sizes must have shape [graphs, components], but have shape {array.shape}; "
                "give one row for each graph."
            )
        array.setflags(write=False)
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "components", component_names(self.components, array.shape[1]))

    def __len__(self) -> int:
        return len(self.array)

    @property
    def num_nodes(self) -> IntArray:
        """Number of nodes of each graph, summed over all node types, int64 ``[N]``."""
        return self.array[:, components_of_kind(self.components, "nodes")].sum(axis=1)  # type: ignore[no-any-return]

    @property
    def num_edges(self) -> IntArray:
        """Number of edges of each graph, summed over all edge types, int64 ``[N]``."""
        return self.array[:, components_of_kind(self.components, "edges")].sum(axis=1)  # type: ignore[no-any-return]

    def totals(self) -> dict[str, int]:
        """Return the exact sum of each component over all graphs, as a Python integer of any magnitude."""
        return {name: exact_sum(self.array[:, column]) for column, name in enumerate(self.components)}

    def take(self, ids: Sequence[int] | IntArray) -> GraphSizes:
        """Return the sizes of the graphs `ids`, in this order; raise SizesError unless they are integers in 0..N-1."""
        return GraphSizes(self.array[as_ids(ids, len(self))], self.components)


def component_names(names: Sequence[str], k: int) -> tuple[str, ...]:
    """Return k distinct names as a tuple, by default those of homogeneous graphs; else raise SizesError."""
    texts = as_names(names)
    if texts == () and k <= 2:
        return HOMOGENEOUS[:k]
    if texts is None or len(texts) != k or len(set(texts)) != k:
        raise SizesError(
            f"sizes with {k} components need {k} distinct component names, but got {shown(names)}; "
            "pass components=(...), for example ('nodes', 'edges', 'triplets')."
        )
    return texts


def as_names(names: Any) -> tuple[str, ...] | None:
    """Return names as a tuple; return None if they are not a sequence of non-empty strings."""
    ordered = isinstance(names, Sequence) or (isinstance(names, np.ndarray) and names.ndim == 1)
    if not ordered or isinstance(names, str | bytes) or not all(isinstance(name, str) and name for name in names):
        return None
    return tuple(map(str, names))


def components_of_kind(components: Sequence[str], kind: str) -> list[int]:
    """Return the indices of the components that count nodes (or edges), if `kind` is "nodes" (or "edges")."""
    return [i for i, name in enumerate(components) if name == kind or name.startswith(kind + ":")]


def exact_sum(values: IntArray, weights: IntArray | None = None) -> int:
    """Return the exact sum of int64 `values` >= 0, each times its weight (default: 1), as a Python integer."""
    if not values.size:
        return 0
    if weights is None:
        # Sum the lower and the upper 32 bits separately, so that neither sum overflows int64.
        return int((values & 0xFFFFFFFF).sum()) + (int((values >> 32).sum()) << 32)
    if int(values.max()) * exact_sum(weights) <= INT64_MAX:
        return int(values @ weights)
    return sum(v * w for v, w in zip(values.tolist(), weights.tolist(), strict=True))
