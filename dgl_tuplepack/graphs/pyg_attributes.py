"""Attributes of PyG's graphs: what they are, and whether they belong to nodes, edges or graphs."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from dgl_tuplepack._checks import shown, whole_number
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EDGE_TYPE, NODE_TYPE, EdgeType, GraphType
from dgl_tuplepack.graphs.pyg_layout import LABEL, Column, PygLayout
from dgl_tuplepack.graphs.pyg_layout import Levels as Levels
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.sizes import IntArray

NODE, EDGE, GRAPH = "node", "edge", "graph"
# PyG takes the number of nodes, or edges, from these attributes (torch_geometric.data.storage).
NODE_KEYS = frozenset({"x", "feat", "pos", "node_type", "n_id"})
EDGE_KEYS = frozenset({"edge_weight", "edge_attr", "edge_type", "e_id"})
# Attributes that are read on their own.
ENDPOINTS, NUMBER = "edge_index", "num_nodes"
# Attributes that batches have beside those of their graphs.
RESERVED = frozenset({"batch", "ptr", "node_mask", "edge_mask", "graph_mask", "graph_ids", "num_graphs"})
# What to do with several graphs in one Data.
SEVERAL = (
    "give several graphs, or a bipartite one, as HeteroData with a node type for each kind of nodes, such as "
    'data["s"].x, data["t"].x and data["s", "to", "t"].edge_index'
)
_CONTENTS = {NODE: "node_feature", EDGE: "edge_feature", GRAPH: "label"}


@dataclass(frozen=True)
class Attribute:
    """An attribute of some graphs: where it stands, and the number of its rows in each of them.

    `type` is None for what a `Data`, or a `HeteroData` as a whole, has. `dim` is the axis of the rows, None if PyG adds
    one; `spec` tells a row.
    """

    type: GraphType | None
    key: str
    dim: int | None
    spec: ArraySpec
    rows: IntArray

    def __str__(self) -> str:
        return f"the attribute {self.key!r}" + ("" if self.type is None else f" of {self.type!r}")


def checked_levels(levels: Any) -> Levels:
    """Return the setting `levels`; SchemaError if it is not a dict of names to levels."""
    allowed = (NODE, EDGE, GRAPH, None)
    good = isinstance(levels, Mapping) and all(
        isinstance(key, str) and (level is None or isinstance(level, str)) and level in allowed
        for key, level in levels.items()
    )
    if not good:
        raise SchemaError(
            'levels must be a dict of names of attributes to "node", "edge", "graph", or None to leave one out, but is '
            f'{shown(levels)}; give one, such as {{"w": "edge"}}.'
        )
    return dict(levels)


def is_text(value: Any) -> bool:
    """Whether an attribute is text, or a list of texts."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(is_text, value))
    return isinstance(value, str)


def keys_of(storage: Any, levels: Levels, left_out: set[str], where: str) -> Iterator[str]:
    """Yield the names of the attributes of a storage that are read, and add the others to `left_out`."""
    for key, value in storage.items():
        if key in (ENDPOINTS, NUMBER):
            continue
        if key in levels and levels[key] is None:
            left_out.add(key)
        elif is_text(value):
            if key not in left_out:
                warnings.warn(
                    f"the attribute {key!r} is text, which batches cannot hold, and is left out; name it to leave it "
                    f'out without this warning: levels={{"{key}": None}}.',
                    stacklevel=2,
                )
            left_out.add(key)
        elif not key:
            raise SchemaError(f"{where} has an attribute without a name; give it one.")
        elif key in RESERVED:
            raise SchemaError(
                f"{where} has the attribute {key!r}, a name that batches use themselves; rename it, or leave it out: "
                f'levels={{"{key}": None}}.'
            )
        else:
            yield key


def plain_tensor(value: Any, what: str) -> Tensor:
    """Return an attribute as a tensor; SchemaError if it is neither a dense tensor nor a number."""
    if isinstance(value, bool | int | float) and (not isinstance(value, int) or -(2**63) <= value < 2**63):
        return torch.tensor(value)
    if isinstance(value, Tensor) and value.layout == torch.strided and not (value.is_nested or value.is_meta):
        # PyG's own classes of tensors hold a plain one.
        return value.as_tensor() if hasattr(value, "as_tensor") else value
    raise SchemaError(
        f"{what} is {shown(value)}, but must be a dense tensor, or a number of 64 bits; convert it - a sparse adj_t by "
        "edge_index = torch.stack(adj_t.coo()[:2][::-1]), an array by torch.from_numpy -, or leave it out by "
        "levels={name: None}."
    )


def described(data: Any, storage: Any, key: str, value: Tensor, what: str) -> tuple[int | None, ArraySpec]:
    """Return the axis of the rows of an attribute, and a row of it; SchemaError for indices."""
    dim = data.__cat_dim__(key, value, storage)
    if dim is not None and not isinstance(dim, int):
        raise SchemaError(f"{what} is joined along {shown(dim)} by __cat_dim__; it must be one axis, or None.")
    increment = data.__inc__(key, value, storage)
    if np.any(np.asarray(increment) != 0):
        raise SchemaError(
            f"{what} counts nodes or other things (__inc__ is {shown(increment)}), so that batches must renumber it, "
            f'which they do for edge_index alone; leave it out by levels={{"{key}": None}}, or keep what it says as a '
            "feature of nodes or edges."
        )
    shape = tuple(value.shape)
    if value.ndim == 0 or dim is None:
        return (0 if value.ndim == 0 and dim is not None else dim), ArraySpec(shape, value.dtype)
    if not -value.ndim <= dim < value.ndim:
        raise SchemaError(f"{what} has the shape {list(shape)}, but __cat_dim__ says axis {dim}; correct one of them.")
    axis = dim % value.ndim
    return (dim if axis else 0), ArraySpec((*shape[:axis], *shape[axis + 1 :]), value.dtype)


def check_single(storage: Any, where: str) -> None:
    """Refuse a storage without `edge_index` that has other attributes like it: a pair of graphs, for instance."""
    others = [key for key, _ in storage.items() if ENDPOINTS in key and key != ENDPOINTS]
    if others and ENDPOINTS not in storage:
        raise SchemaError(f"{where} has {', '.join(map(repr, others))} instead of one edge_index; {SEVERAL}.")


def check_endpoints(value: Any, what: str) -> Tensor:
    """Return `edge_index`; SchemaError if it is not ``[2, E]`` of integers."""
    if value is None:
        raise SchemaError(
            f"{what} has no edge_index; set one, for no edges torch.empty(2, 0, dtype=torch.long), from a sparse adj_t "
            "torch.stack(adj_t.coo()[:2][::-1])."
        )
    ends = plain_tensor(value, f"the edge_index of {what}")
    if ends.ndim != 2 or len(ends) != 2 or ends.dtype not in (torch.int64, torch.int32):
        raise SchemaError(
            f"the edge_index of {what} is {str(ends.dtype).removeprefix('torch.')} {list(ends.shape)}, but must be "
            "int64 or int32 [2, E]; convert it."
        )
    return ends


def nodes_key(storage: Any) -> str | None:
    """Return the attribute that the number of nodes is taken from, as PyG does; None if there is none."""
    if NUMBER in storage:
        return NUMBER
    keys = [key for key, value in storage.items() if isinstance(value, Tensor)]
    named = [key for key in keys if key in NODE_KEYS] or [key for key in keys if "node" in key]
    return named[0] if named else None


def check_known(key: str | None, what: str) -> str:
    """Return `key`; SchemaError if there is no attribute that tells the number of nodes."""
    if key is None:
        raise SchemaError(
            f"the number of nodes of {what} is not known: it has neither num_nodes nor an attribute such as x; set "
            f"num_nodes (PyG itself would count up to the last node that has an edge), or {SEVERAL}."
        )
    return key


class Sizes:
    """Nodes and edges of each type, int64 ``[n]`` each, of some graphs; `where` has their names, None for item i."""

    def __init__(
        self,
        nodes: Mapping[str, IntArray],
        edges: Mapping[EdgeType, IntArray],
        where: Sequence[str] | None = None,
    ) -> None:
        self.nodes, self.edges, self._where = nodes, edges, where

    def where(self, position: int) -> str:
        """Return what messages call a graph."""
        return f"item {position}" if self._where is None else self._where[position]

    @property
    def is_plain(self) -> bool:
        """Whether the graphs are of the class `Data`."""
        return tuple(self.nodes) == (NODE_TYPE,) and tuple(self.edges) == (EDGE_TYPE,)


def level_of(attribute: Attribute, sizes: Sizes, levels: Levels) -> str | None:
    """Return the level of an attribute in the light of all graphs; None if several are possible."""
    rows, t, key = attribute.rows, attribute.type, attribute.key
    if t is not None:
        level = NODE if isinstance(t, str) else EDGE
        counts: IntArray = sizes.nodes[t] if isinstance(t, str) else sizes.edges[t]
        return _agreeing(attribute, level, counts, sizes, levels)
    if attribute.dim is None:
        return _chosen(attribute, GRAPH, levels)
    possible = {GRAPH: np.ones_like(rows)}
    if sizes.is_plain:
        possible = {NODE: sizes.nodes[NODE_TYPE], EDGE: sizes.edges[EDGE_TYPE], **possible}
    named = NODE if key in NODE_KEYS else EDGE if key in EDGE_KEYS else None
    named = levels.get(key) or (named if named in possible else None)
    if named == GRAPH or not sizes.is_plain:
        _check_constant(attribute, sizes)
        return _chosen(attribute, GRAPH, levels)
    if named is not None:
        return _agreeing(attribute, named, possible[named], sizes, levels)
    fitting = [level for level, counts in possible.items() if np.array_equal(rows, counts)]
    if not fitting:
        _check_constant(attribute, sizes)
        return GRAPH
    # PyG tells nodes from edges in the same way, where a graph has as many of both.
    hinted = [level for level in fitting if level in key or (level == GRAPH and key == LABEL)]
    return fitting[0] if len(fitting) == 1 else hinted[0] if len(hinted) == 1 else None


def _chosen(attribute: Attribute, level: str, levels: Levels) -> str:
    if levels.get(attribute.key, level) != level:
        raise SchemaError(
            f"levels say {levels[attribute.key]!r} of {attribute}, but it belongs to each {level}; correct levels."
        )
    return level


def _agreeing(attribute: Attribute, level: str, counts: IntArray, sizes: Sizes, levels: Levels) -> str:
    differ = np.flatnonzero(attribute.rows != counts) if attribute.dim is not None else np.arange(len(counts))
    if len(differ):
        i = int(differ[0])
        raise SchemaError(
            f"{attribute} has {attribute.rows[i]} rows in {sizes.where(i)}, which has {counts[i]} {level}s, but it "
            f"belongs to {level}s by its name, its place or levels; correct it, or move what belongs to the graph to "
            "another attribute of the graph."
        )
    return _chosen(attribute, level, levels)


def _check_constant(attribute: Attribute, sizes: Sizes) -> None:
    differ = np.flatnonzero(attribute.rows != attribute.rows[0])
    if len(differ):
        i = int(differ[0])
        raise SchemaError(
            f"{attribute} has {attribute.rows[0]} rows in {sizes.where(0)} and {attribute.rows[i]} in "
            f"{sizes.where(i)}: neither one for each node or edge, nor equally many for each graph; pad it, make it a "
            f'feature, or leave it out: levels={{"{attribute.key}": None}}.'
        )


def schema_of_attributes(
    attributes: Sequence[Attribute], sizes: Sizes, levels: Levels, idtype: torch.dtype, counted: tuple[str, ...],
    left_out: set[str], has_ids: bool,
) -> tuple[Schema, list[Attribute]]:  # fmt: skip
    """Return the schema of graphs, and the attributes whose level is not certain, which the schema lacks."""
    unknown = set(levels) - {attribute.key for attribute in attributes} - left_out
    if unknown:
        names = sorted({attribute.key for attribute in attributes} | left_out)
        raise SchemaError(f"levels name {sorted(unknown)}, but the graphs have {names}; correct the names.")
    found = [(attribute, level_of(attribute, sizes, levels)) for attribute in attributes]
    open_ones = [attribute for attribute, level in found if level is None]
    features: dict[str, dict[Any, dict[str, ArraySpec]]] = {
        NODE: {t: {} for t in sizes.nodes}, EDGE: {e: {} for e in sizes.edges}
    }  # fmt: skip
    of_graphs = [attribute.key for attribute, level in found if level == GRAPH]
    labels: dict[str, ArraySpec] = {}
    dims: dict[Column, int | None] = {}
    rows: dict[Column, int] = {}
    for attribute, level in found:
        if level is None:
            continue
        spec, name, t = attribute.spec, attribute.key, attribute.type
        if level == GRAPH:
            name, t = "" if of_graphs == [LABEL] else name, None
            number = int(attribute.rows[0])
            if number != 1:
                rows["label", None, name] = number
                spec = ArraySpec((number, *spec.shape), spec.dtype)
            labels[name] = spec
        else:
            t = t or (NODE_TYPE if level == NODE else EDGE_TYPE)
            features[level][t][name] = spec
        if attribute.dim != 0:
            dims[_CONTENTS[level], t, name] = attribute.dim
    layout = PygLayout(dims, rows, counted, tuple(sorted(left_out)))
    types = tuple(sizes.nodes), tuple(sizes.edges)
    return Schema(*types, features[NODE], features[EDGE], labels, idtype, has_ids, pyg=layout), open_ones


def refuse_open(attributes: Sequence[Attribute], number: int) -> NoReturn:
    """Raise the error for attributes whose level the `number` graphs that were read do not tell."""
    key = attributes[0].key
    raise SchemaError(
        f"{attributes[0]} may belong to nodes, edges or graphs: each fits the {number} graphs that were read; say "
        f'which, by levels={{"{key}": "node"}}, "edge" or "graph".'
    )


def whole_nodes(value: Any, what: str) -> int:
    """Return the attribute `num_nodes`."""
    return whole_number(f"num_nodes of {what}", value, 0, error=SchemaError)
