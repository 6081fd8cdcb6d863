"""Make a store with plans from any source: all work that is done once, before training."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.checks import UINT64_MAX, as_path, whole_number
from dgl_tuplepack._core.files import writing
from dgl_tuplepack._core.progress import notice
from dgl_tuplepack.errors import FormatError, InputError, SearchError
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.relations import Indices, Ties
from dgl_tuplepack.planning.buckets import Buckets, Shapes, as_shapes
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.packing import pack
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.search import search_for_batches, search_limits
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.sampling.exact_batches import shape_of
from dgl_tuplepack.storage.graph_store import (
    SHAPE,
    GraphStore,
    load_plans,
    load_static_shape,
    plan_file,
    plan_files,
    save_static_shape,
    split_histograms,
    train_sizes,
)
from dgl_tuplepack.storage.selection import Selection
from dgl_tuplepack.storage.write import WriteSettings, check_folder, locked, write_graphs


@dataclass(frozen=True)
class Preprocessed:
    """Result of `preprocess`.

    Attributes
    ----------
    store
        The opened store.
    limits, packs_per_batch
        Limits of all plans (a tuple for shape buckets), and packs per batch; 1 if limits were given.
    plans
        One plan for each split; without splits, one plan with an empty name for all graphs.
    seconds, static_shape
        Time of each step (write, limits, plan, verify); the shape that was stored for `batch_size`, or None.
    """

    store: GraphStore
    limits: Any
    packs_per_batch: int
    plans: Mapping[str, PackPlan]
    seconds: Mapping[str, float]
    static_shape: Limits | None = None


def preprocess(
    source: Any,
    out: str | os.PathLike[str],
    *,
    limits: Shapes | None = None,
    graphs_per_batch: int | None = None,
    batch_size: int | None = None,
    multiple_of: int = 1,
    compact: bool = False,
    overwrite: bool = False,
    seed: int = 0,
    pre_transform: Callable[[Any], Any] | None = None,
    transform_seed: int = 0,
    transform_name: str | None = None,
    ties: Ties | None = None,
    indices: Indices | None = None,
    levels: Levels | None = None,
) -> Preprocessed:
    """Write a store with plans, and verify both.

    Parameters
    ----------
    source, compact, overwrite, pre_transform, transform_seed, transform_name, ties, indices, levels
        As in `GraphStore.write`.
    out
        Folder of the store and its plans: one plan for each split, or one for all graphs if there are no splits.
        `GraphStore.plans` reads them.
    limits
        Limits of the packs, or a list of two to four limits; None: search for limits.
    graphs_per_batch
        Mean number of graphs (>= 1) in the batches of the split "train", or of all graphs if there is no such split.
        The search is that of `packed_loader`, but its limits hold every graph. None: 64, or fewer if there are fewer
        graphs; or, if the largest graph rules out such batches, the smallest limits with nearly the best efficiency.
    batch_size
        Also store the shape of shuffled batches of exactly this many graphs (>= 1), as `GraphStore.static_shape` tells.
    multiple_of
        With searched limits, each padded number of nodes or edges of a pack is a multiple of `multiple_of`.
    seed
        Seed of the plans.

    Returns
    -------
    Preprocessed
        The opened store, the limits and the plans.

    Raises
    ------
    FormatError, SchemaError, SizesError, LimitsError, SearchError, TransformError
        As in `GraphStore.write`, `pack` and `search_limits`. Impossible limits are refused before anything is written
        if sizes can be read without the graphs (an OGB folder, a store; no `pre_transform`), else after the store has
        been written without plans.
    """
    out, seconds = as_path(out), dict[str, float]()
    planning = Planning.of(limits, graphs_per_batch, multiple_of, seed)
    settings = WriteSettings(compact, overwrite, pre_transform, transform_seed, transform_name, ties, indices, levels)
    if batch_size is not None:
        batch_size = whole_number("batch_size", batch_size, 1, 2**31)
    opened = resolve(source).with_levels(levels)
    # The limits and the number of packs per batch; None until they are known.
    chosen: tuple[Limits | Buckets, int] | None = None
    if opened.knows_sizes and pre_transform is None:
        with writing(out):
            check_folder(out, settings.overwrite)
        # Refuse impossible limits before anything is written.
        sizes = opened.sizes()
        if planning.limits is not None:
            planning.limits.aligned(sizes.components).check(sizes)
        chosen = _limits_of(planning, sizes, opened.splits(), seconds)
    earlier = sum(seconds.values())
    plans: dict[str, PackPlan] = {}
    static_shape: Limits | None = None
    # The error that prevented the plans, if any.
    failure: InputError | None = None

    def plan(graphs: Selection, data: Path) -> None:
        """Pack the written graphs, and save the plans in their data folder."""
        nonlocal chosen, plans, static_shape, failure
        train = train_sizes(graphs.sizes, graphs.splits)
        try:
            chosen = chosen or _limits_of(planning, graphs.sizes, graphs.splits, seconds)
            with timed(seconds, "plan"):
                plans = _pack_splits(graphs, chosen[0], planning.seed)
                if batch_size is not None:
                    with notice(f"preparing batches of {len(train):,} graphs", len(train)):
                        static_shape = shape_of(train, batch_size)
        except InputError as error:
            # Keep the written graphs: the error is raised when the store is complete.
            failure = error
            return
        _save_plans(data, plans)
        if static_shape is not None:
            save_static_shape(data, static_shape, train)

    with timed(seconds, "write"):
        write_graphs(out, opened, settings, prepare=plan)
    if failure is not None:
        raise type(failure)(
            f"{failure} The store {out} was written, but without plans; correct the cause and preprocess again "
            "(overwrite=True, --overwrite)."
        ) from failure
    assert chosen is not None
    # `plan` runs during the step "write": subtract its time.
    seconds["write"] -= seconds["limits"] + seconds["plan"] - earlier
    with timed(seconds, "verify"):
        store = verify(out)
    return Preprocessed(store, *chosen, plans, seconds, static_shape)


@dataclass(frozen=True)
class Planning:
    """The settings of limits and plans."""

    limits: Limits | Buckets | None
    graphs_per_batch: int | None
    multiple_of: int
    seed: int

    @classmethod
    def of(cls, limits: Shapes | None, graphs_per_batch: int | None, multiple_of: int, seed: int) -> Planning:
        """Check the arguments of `preprocess`."""
        given = None if limits is None else as_shapes(limits)
        if graphs_per_batch is not None:
            whole_number("graphs_per_batch", graphs_per_batch, 1, error=SearchError)
            if given is not None:
                raise SearchError(
                    f"graphs_per_batch={graphs_per_batch} is for limits that are searched, but limits={given!r} are "
                    "given; leave one of them out."
                )
        multiple_of = whole_number("multiple_of", multiple_of, 1, 2**31, SearchError)
        return cls(given, graphs_per_batch, multiple_of, whole_number("seed", seed, 0, UINT64_MAX))

    def limits_for(self, leading: SizeHistogram, every: SizeHistogram) -> tuple[Limits | Buckets, int]:
        """Return limits that hold every graph of `every`, and the number of packs per batch.

        If they are searched, batches hold, on average, `graphs_per_batch` graphs of `leading`.
        """
        if self.limits is not None:
            return self.limits, 1
        settings: dict[str, Any] = {"multiple_of": self.multiple_of, "holding": every}
        if self.graphs_per_batch is None:
            search = search_for_batches(leading, **settings)
        else:
            number = min(self.graphs_per_batch, leading.num_graphs)
            search = search_limits(leading, graphs_per_batch=number, packs_per_batch="auto", **settings)
        return search.best.limits, search.packs_per_batch


def _limits_of(
    planning: Planning, sizes: GraphSizes, splits: Mapping[str, Any], seconds: dict[str, float]
) -> tuple[Limits | Buckets, int]:
    """Return limits for the split "train", or for all graphs if there is no such split, and the packs per batch."""
    with timed(seconds, "limits"):
        every = SizeHistogram.from_sizes(sizes).without_ids()
        train = train_sizes(sizes, splits)
        leading = every if train is sizes else SizeHistogram.from_sizes(train).without_ids()
        return planning.limits_for(leading, every)


def verify(path: str | os.PathLike[str]) -> GraphStore:
    """Check every byte of a store, and that its plans and its static shape, if it has them, are for its graphs."""
    store = GraphStore(path)
    store.verify()
    data, train = store.segments[0].data, store.splits.get("train", ())
    if plan_files(data):
        load_plans(store)
    if (data / SHAPE).exists() and load_static_shape(store.subset(train) if len(train) else store) is None:
        raise FormatError(f"{data / SHAPE} is for other graphs than {path} has; preprocess the store again.")
    return store


def write_plans(store: GraphStore, limits: Shapes, seed: int) -> dict[str, PackPlan]:
    """Pack each split of a store, and save the plans in its data folder; they replace older plans.

    Raise the errors of `pack`, and FormatError if another process has replaced the store or is writing to it.
    """
    plans = _pack_splits(store, limits, seed)
    # The content of the folder needs no check: the store was opened from there.
    with locked(store.path, lambda: None):
        _save_plans(store.segments[0].data, plans)
    return plans


def _pack_splits(store: Selection, limits: Shapes, seed: int) -> dict[str, PackPlan]:
    return {split: pack(histogram, limits, seed=seed) for split, histogram in split_histograms(store).items()}


def _save_plans(data: Path, plans: Mapping[str, PackPlan]) -> None:
    for split, plan in plans.items():
        plan.save(plan_file(data, split))


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Measure the seconds that the ``with`` block takes, and write them to ``seconds[step]``."""
    begin = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - begin
