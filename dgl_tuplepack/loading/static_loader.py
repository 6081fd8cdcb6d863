"""Samplers of batches with exact numbers of graphs, and the shapes of the batches of any packed loader."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX, OVERSIZE, choice, shown, whole_number
from dgl_tuplepack.batches.shape import PaddedShape
from dgl_tuplepack.errors import InputError
from dgl_tuplepack.graphs.named import is_graph, is_pyg
from dgl_tuplepack.graphs.pyg_layout import attribute_names
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.loading.opened import Graphs
from dgl_tuplepack.planning.buckets import all_of, as_shapes
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.sizes import components_of_kind
from dgl_tuplepack.sampling.static_sampler import StaticBatchSampler
from dgl_tuplepack.storage.graph_store import GraphStore
from dgl_tuplepack.storage.view import BatchView

# Slots of a static shape that real nodes, edges and graphs never use: a padding graph with two nodes and two edges.
_NODES, _EDGES, _GRAPHS = 2, 2, 1


def refuse_settings_of_packs(batch_size: object, given: Mapping[str, object]) -> None:
    """Raise InputError if a setting of packs (a name, and its value or None) is given together with `batch_size`."""
    wrong = {name: value for name, value in given.items() if value is not None}
    for name, value in wrong.items():
        raise InputError(
            f"batch_size={shown(batch_size)} gives batches of exactly that many graphs, but {name}={shown(value)} is "
            "for packs, whose batches hold different numbers of graphs; leave one of them out."
        )


def static_samplers(
    splits: Mapping[str, Graphs],
    shuffled: Collection[str],
    batch_size: int,
    settings_of: Callable[[str], Mapping[str, Any]],
    *,
    limits: Any = None,
    multiple_of: int = 1,
    seed: int = 0,
    oversize: str = "error",
) -> dict[str, StaticBatchSampler]:
    """Return the sampler of each split; the shuffled splits share one shape, and the other splits share another.

    `limits` are the shape of the shuffled splits, or of all splits if none is shuffled. `settings_of` returns the other
    settings of the sampler of a split.
    """
    whole_number("batch_size", batch_size, 1, 2**31, InputError)
    whole_number("multiple_of", multiple_of, 1, 2**31, InputError)
    choice("oversize", oversize, OVERSIZE, InputError)
    limits = None if limits is None else as_limits(limits)
    if limits is not None and multiple_of != 1:
        raise InputError(
            f"multiple_of={shown(multiple_of)} is for limits that are chosen, but this call gives limits; leave one of "
            "them out."
        )
    if limits is None and oversize == "drop":
        raise InputError(
            "oversize='drop' leaves out the graphs that are larger than limits, but batch_size is given without "
            "limits; add limits=Limits(nodes=..., edges=...), which a whole batch must not exceed."
        )

    def sampler(name: str, shape: Limits | None, **settings: Any) -> StaticBatchSampler:
        items = splits[name].items
        # A store may have the shape that `preprocess` chose for its graphs.
        sizes = items if isinstance(items, GraphStore) else splits[name].sizes
        return StaticBatchSampler(
            sizes, batch_size, shuffle=name in shuffled, seed=seed, shape=shape, **settings, **settings_of(name)
        )

    found: dict[str, StaticBatchSampler] = {}
    for shuffles in (True, False):
        names = [name for name in splits if (name in shuffled) == shuffles]
        shape = limits if shuffles or not shuffled else None
        settings = {"multiple_of": multiple_of} if shape is None else {"oversize": oversize}
        made = {name: sampler(name, shape, **settings) for name in names}
        common = _largest([each.limits for each in made.values()])
        # A sampler whose limits already are the common shape is not made again.
        found |= {
            name: each if each.limits == common else sampler(name, common, **({} if shape is None else settings))
            for name, each in made.items()
        }
    return {name: found[name] for name in splits}


def _largest(limits: list[Limits]) -> Limits | None:
    """Return the smallest limits that are at least as large as each of the given limits; None if none are given."""
    if not limits:
        return None
    components = limits[0].components
    values = np.max([each.aligned(components).array for each in limits], axis=0).tolist()
    graphs = max(each.graphs or 1 for each in limits)
    return Limits.from_components(dict(zip(components, values, strict=True)), graphs)


def padding_limits(limits: Limits, coordinates: bool) -> Limits:
    """Return limits for which a `PaddedBatch` without other settings has the slots `slots_of(limits)`."""
    nodes = components_of_kind(limits.components, "nodes")
    edges = components_of_kind(limits.components, "edges")
    # A padded batch reserves one node, or two with coordinates.
    more = {**dict.fromkeys(nodes, _NODES - 1 - coordinates), **dict.fromkeys(edges, _EDGES)}
    values = [min(value + more.get(i, 0), INT64_MAX) for i, value in enumerate(limits.values)]
    return Limits.from_components(dict(zip(limits.components, values, strict=True)), limits.graphs)


def slots_of(limits: Limits, packs_per_batch: int = 1, multiple_of: int = 1) -> Limits:
    """Return the slots of a static shape for batches of some packs, with the graph slots as `graphs`.

    Two nodes and two edges of each type, and one graph, are reserved for padding. Node slots and edge slots are rounded
    up to multiples of `multiple_of`.
    """
    reserved = dict.fromkeys(components_of_kind(limits.components, "nodes"), _NODES)
    reserved |= dict.fromkeys(components_of_kind(limits.components, "edges"), _EDGES)
    slots = {}
    for i, (name, limit) in enumerate(limits.maxima.items()):
        number = packs_per_batch * limit + reserved.get(i, 0)
        slots[name] = min(-(-number // multiple_of) * multiple_of if i in reserved else number, INT64_MAX)
    graphs = None if limits.graphs is None else min(packs_per_batch * limits.graphs + _GRAPHS, INT64_MAX)
    return Limits.from_components(slots, graphs)


def slots_of_padded(shape: PaddedShape) -> Limits:
    """Return the slots of padded batches, with the graph slots as `graphs`."""
    *slots, graphs = shape.slots.values()
    return Limits.from_components(dict(zip(shape.schema.components, slots, strict=True)), graphs)


def static_shape(view: Any, sampler: Any, multiple_of: int) -> Limits | tuple[Limits, ...]:
    """Return the slots of the batches that a loader makes of a view by a sampler; a tuple for shape buckets."""
    # A view of a store has shapes, which are empty without padding; for other datasets, `PaddedCollate` has them.
    shapes: tuple[PaddedShape, ...] = getattr(getattr(view, "collate", view), "shapes", ())
    slots = tuple(map(slots_of_padded, shapes))
    if not slots:
        packs = getattr(sampler, "packs_per_batch", 1)
        slots = tuple(slots_of(each, packs, multiple_of) for each in all_of(as_shapes(sampler.limits)))
    return slots if len(slots) > 1 else slots[0]


def bytes_of(schema: Schema, shape: Limits) -> int:
    """Return the bytes of all tensors of graphs of a schema that are padded to the slots of a static shape."""
    nodes = components_of_kind(shape.components, "nodes")
    most = {name: slots - (i in nodes) for i, (name, slots) in enumerate(shape.maxima.items())}
    return PaddedShape(schema, Limits.from_components(most, (shape.graphs or 2) - 1), 1).nbytes


def levels_of(view: Any) -> dict[Any, str | None] | None:
    """Return the rows that the attributes of PyG batches of a store have, by attribute; None for other batches.

    An attribute has a row for each element of a component, such as "nodes" or "edges:a:to:b", or for each of the
    "graphs", or several ("graphs*3"); None: rows along another axis. The attributes of a `HeteroData` are pairs: the
    type (None for the whole graph), and the name.
    """
    if not isinstance(view, BatchView) or view.shapes or view.framework != "pyg":
        return None
    schema: Schema = view.store.schema
    columns = [column for column, _ in schema.columns()]
    names = attribute_names(schema.node_types, schema.edge_types, columns, schema.pyg)
    components: dict[Any, str] = dict(zip(schema.types.values(), schema.components, strict=True))
    levels: dict[Any, str | None] = {}
    for column, storage, name in names.columns:
        key = name if names.types.is_flat else (storage, name)
        level, number = components.get(column[1], "graphs"), names.layout.rows.get(column, 1)
        levels[key] = None if names.layout.dim(column) else level if number == 1 else f"{level}*{number}"
    return levels


def mark(batch: Any, shape: Limits | tuple[Limits, ...], levels: Mapping[Any, str | None] | None) -> None:
    """Attach the static shape of a loader to the graphs of a batch without padding, and to PyG batches the levels."""
    for name, graph in _graphs_of(batch):
        graph.__dict__["static_shape"], graph.__dict__["static_name"] = shape, name
        if levels is not None and is_pyg(graph):
            graph.__dict__["static_levels"] = levels


def _graphs_of(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name and the batched graph: the batch itself or an element, without a name, or named graphs."""
    for part in batch if isinstance(batch, tuple | list) else (batch,):
        for name, graph in part.items() if isinstance(part, dict) else (("", part),):
            if is_graph(graph) or is_pyg(graph):
                yield name, graph
