"""The store and the plan of a `PackedDataset`, which a later start finds in its folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from dgl_tuplepack._files import is_there
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.blocks import Array, GraphBlock
from dgl_tuplepack.graphs.graph_blocks import graph_blocks
from dgl_tuplepack.graphs.items import as_item, parts_of
from dgl_tuplepack.graphs.schema import Schema
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.sources import Source
from dgl_tuplepack.store.folder import writing_to
from dgl_tuplepack.store.format import METADATA, other_transform
from dgl_tuplepack.store.graph_store import GraphStore, StoredGraphs
from dgl_tuplepack.store.kind import Stored, chosen_block
from dgl_tuplepack.store.sources import blocks_of

_STORE, _PLAN = "store", "plan.json"
_SCHEMA = ("graph_names", "node_types", "edge_types", "idtype", "node_features", "edge_features", "labels")
_REMEDY = "choose another save_dir or name, or replace the cache with force_reload=True."


class Cache:
    """A folder with the graphs of a source, ``store/``, and a plan for some limits, ``plan.json``.

    Graphs of a source that is a store are not copied; its `folder` may be None.
    """

    def __init__(self, folder: Path | None, source: Source, limits: Limits) -> None:
        self._folder, self._source, self._limits = folder, source, limits
        self._given = source.by_position() if isinstance(source, Stored) else None

    def release(self) -> None:
        """Forget the source, which may be large, or tied to this process."""
        del self._source

    def is_there(self) -> bool:
        """Whether nothing has to be written."""
        if self._folder is None:
            return True
        return is_there(self._folder / (_PLAN if self._given is not None else f"{_STORE}/{METADATA}"))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Wait until no other process writes the cache."""
        if self._folder is None:
            yield
            return
        parent = self._folder.parent
        with writing_to(parent):
            parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(parent / f".{self._folder.name}.lock")
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def opened(self) -> StoredGraphs:
        """Open the graphs of the cache; FormatError if it is damaged, or of other graphs or limits."""
        if self._folder is None:
            return self._own()
        try:
            store = self._own() if self._given is not None else GraphStore(self._folder / _STORE)
            plan = self._plan()
        except FormatError as error:
            raise FormatError(f"{error} To replace the cache in {self._folder}, give force_reload=True.") from error
        if self._given is None and store.pre_transform != self._source.pre_transform:
            raise FormatError(
                other_transform(self._folder / _STORE, store.pre_transform, self._source.pre_transform, _REMEDY)
            )
        if self._given is None and (difference := difference_of(store, self._source)):
            raise FormatError(
                f"{self._folder} caches other graphs than those given: {difference}; {_REMEDY} A dataset whose items "
                "change from one reading to the next cannot be cached."
            )
        if plan is not None:
            limits = self._limits.filled(plan.histogram.components, plan.histogram.totals())
            if plan.made_for != limits:
                raise FormatError(
                    f"{self._folder} caches packs for {plan.made_for!r}, but is given {limits!r}; {_REMEDY}"
                )
        return store

    def write(self, replace: bool) -> StoredGraphs:
        """Write the graphs, in place of those of an earlier cache if that is wanted, and open them."""
        if self._folder is None:
            return self._own()
        with writing_to(self._folder):
            (self._folder / _PLAN).unlink(missing_ok=True)
        if self._given is not None:
            return self._given
        return GraphStore.write(self._folder / _STORE, self._source, splits={}, compact=True, overwrite=replace)

    def plan_of(self, histogram: SizeHistogram, seed: int) -> PackPlan | None:
        """Return the plan of the cache; None if there is none, or one of another seed.

        FormatError if it is for other sizes.
        """
        plan = self._plan()
        if plan is not None and plan.histogram != histogram:
            raise FormatError(
                f"{self._folder} caches packs of {plan.histogram.num_graphs} graphs of other sizes than the "
                f"{histogram.num_graphs} graphs that are packed; {_REMEDY}"
            )
        return plan if plan is not None and plan.seed == seed else None

    def save_plan(self, plan: PackPlan) -> None:
        """Save a plan, if there is a folder without one."""
        if self._folder is None or is_there(self._folder / _PLAN):
            return
        with writing_to(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        plan.save(self._folder / _PLAN)

    def _own(self) -> StoredGraphs:
        assert self._given is not None
        return self._given

    def _plan(self) -> PackPlan | None:
        there = self._folder is not None and is_there(self._folder / _PLAN)
        return PackPlan.load(self._folder / _PLAN) if there and self._folder is not None else None


def difference_of(store: StoredGraphs, source: Source) -> str | None:
    """Say in what the graphs of a source differ from those of a store; None if nothing differs.

    The number of graphs, the schema and, if the source knows them, all sizes are compared; graphs only in a sample.
    """
    number = source.num_graphs()
    if number is not None and number != len(store):
        return f"{number} graphs are given, and {len(store)} are there"
    if source.knows_sizes and (sizes := source.sizes()).components == store.sizes.components:
        others = np.flatnonzero((sizes.array != store.sizes.array).any(axis=1))
        if len(others):
            item, size = int(others[0]), tuple(sizes.array[others[0]].tolist())
            return f"graph {item} has the size {size}, but {tuple(store.sizes.array[item].tolist())} there"
    ids, schema, block = _sample(source)
    if max(ids) >= len(store):
        return f"{max(ids) + 1} graphs and more are given, and {len(store)} are there"
    for what in _SCHEMA:
        given, there = getattr(schema, what), getattr(store.schema, what)
        if given != there:
            return f"the {what.replace('_', ' ')} are {given!s:.300}, but {there!s:.300} there"
    found, kept = _arrays(block), _arrays(chosen_block(store, np.array(ids)))
    # Values and shapes agree; a store may hand out other integer types for endpoints.
    for what in found:
        if found[what].shape != kept[what].shape or found[what].tobytes() != kept[what].tobytes():
            return f"{what} differ in the graphs {ids!s:.300}"
    return None


def _sample(source: Source) -> tuple[list[int], Schema, GraphBlock]:
    """Return positions of some graphs, the schema, and these graphs as a block."""
    if type(source).blocks is not Source.blocks:
        schema, blocks = blocks_of(source)
        block = next(iter(blocks))
        return list(range(len(block))), schema, block
    items = source.some_items()
    # Ids inside the items are positions in the dataset, not in the sample.
    parts = [parts_of(item, f"item {i}") for i, item in items.items()]
    schema, blocks = graph_blocks([as_item(part._replace(id=None)) for part in parts], levels=source.levels)
    return list(items), schema, next(iter(blocks))


def _arrays(block: GraphBlock) -> dict[str, Array]:
    """Return all arrays of a block by what they are called in a message."""
    arrays: dict[str, Array] = {}

    def add(what: str, by_type: Mapping[Any, Any]) -> None:
        for t, values in by_type.items():
            if isinstance(values, Mapping):
                add(f"{what} of type {t!r}", values)
            else:
                arrays[f"{what} {t!r}"] = values

    add("the numbers of nodes", block.num_nodes)
    add("the numbers of edges", block.num_edges)
    for position, end in enumerate(("sources", "destinations")):
        add(f"the {end} of edges", {t: ends[position].astype(np.int64) for t, ends in block.endpoints.items()})
    add("node features", block.node_features)
    add("edge features", block.edge_features)
    add("labels", block.labels)
    return arrays
