"""From any source to a store with plans beside it: everything that happens once, before training."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._checks import UINT64_MAX, whole_number
from dgl_tuplepack.errors import FormatError, InputError, SearchError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits, as_limits
from dgl_tuplepack.packing import pack
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.search import search_limits
from dgl_tuplepack.sources import resolve
from dgl_tuplepack.store import GraphStore
from dgl_tuplepack.store.folder import remove_partial, writing_to
from dgl_tuplepack.store.plan_files import plan_file as plan_file
from dgl_tuplepack.store.plan_files import plan_files as plan_files


@dataclass(frozen=True)
class Preprocessed:
    """What `preprocess` made.

    Attributes
    ----------
    store
        The store, opened.
    limits
        Of all plans.
    plans
        One for each part of the split, or one with an empty name for all graphs.
    seconds
        What each step took: write, limits, plan, verify.
    """

    store: GraphStore
    limits: Limits
    plans: Mapping[str, PackPlan]
    seconds: Mapping[str, float]


def preprocess(
    source: Any,
    out: str | os.PathLike[str],
    *,
    limits: Limits | None = None,
    multiple_of: int = 1,
    compact: bool = False,
    overwrite: bool = False,
    seed: int = 0,
) -> Preprocessed:
    """Write a store, plans for it beside it, and check all that was written.

    Parameters
    ----------
    source, compact, overwrite
        As in `GraphStore.write`.
    out
        Folder of the store. The plans are ``plan-train.json`` and so on in it (see `plan_file`), or ``plan.json``
        without a split.
    limits
        Of the packs; None: those that `search_limits` advises for all graphs.
    multiple_of
        With searched limits, the padded shape is a multiple of this.
    seed
        Of the plans.

    Raises
    ------
    FormatError, SchemaError, SizesError, LimitsError
        As in `GraphStore.write` and `pack`. Where a graph exceeds the limits nothing is written if the source tells
        sizes at once, as an OGB folder and a store do; otherwise the store stays, without plans.
    """
    out, seconds = Path(out), dict[str, float]()
    # What is wrong with the settings is said before anything is written.
    limits = None if limits is None else as_limits(limits)
    multiple_of = whole_number("multiple_of", multiple_of, 1, 2**31, SearchError)
    seed = whole_number("seed", seed, 0, UINT64_MAX, InputError)
    if limits is not None:
        source = resolve(source)
        if source.knows_sizes:
            sizes = source.sizes()
            limits.aligned(sizes.components).check(sizes)
    with timed(seconds, "write"):
        # The plans of what was there go with it.
        store = GraphStore.write(out, source, compact=compact, overwrite=overwrite)
    try:
        with timed(seconds, "limits"):
            chosen = limits or search_limits(store.histogram, multiple_of=multiple_of).best.limits
        with timed(seconds, "plan"):
            plans = write_plans(store, chosen, seed)
    except InputError as error:
        raise type(error)(
            f"{error} Meanwhile the store {out} is written, but has no plans; correct the cause and write it again "
            "(overwrite=True, --overwrite)."
        ) from error
    with timed(seconds, "verify"):
        verify(out)
    return Preprocessed(store, chosen, plans, seconds)


def verify(path: str | os.PathLike[str]) -> GraphStore:
    """Check every byte of a store, and that the plans beside it, if any, are for its graphs, one for each part.

    Raises
    ------
    FormatError
        Names the file that is not as it was written, the plan that belongs to other graphs, or those that are missing.
    """
    store = GraphStore(path)
    store.verify()
    if plan_files(store.path):
        verify_plans(store)
    return store


def verify_plans(store: GraphStore) -> None:
    """Check that each part of a store has a plan for its graphs, and that nothing else is in the place of one.

    Raises
    ------
    FormatError
        Names the plan that belongs to other graphs, or those that are missing.
    """
    needed = {plan_file(store.path, part): histogram for part, histogram in part_histograms(store).items()}
    found = plan_files(store.path)
    for file in found:
        if PackPlan.load(file).histogram != needed.get(file):
            raise FormatError(f"{file} is not for the graphs of {store.path}; make it anew.")
    missing = [file.name for file in needed if file not in found]
    if missing:
        raise FormatError(f"plans are missing beside {store.path}: {', '.join(missing)}; preprocess it again.")


def part_histograms(store: GraphStore) -> dict[str, SizeHistogram]:
    """Histogram of each part of the split that has graphs, or that of all graphs under an empty name."""
    parts = {part: ids for part, ids in store.splits.items() if len(ids)}
    if not parts:
        return {"": store.histogram}
    return {part: store.subset(ids).histogram for part, ids in parts.items()}


def write_plans(store: GraphStore, limits: Limits, seed: int) -> dict[str, PackPlan]:
    """Pack each part of a store and save the plans beside it, in the place of older ones.

    Raises
    ------
    GraphTooLargeError, LimitsError
        As in `pack`.
    """
    plans = {part: pack(histogram, limits, seed=seed) for part, histogram in part_histograms(store).items()}
    with writing_to(store.path):
        remove_partial(store.path)
        for file in plan_files(store.path):
            file.unlink()
    for part, plan in plans.items():
        plan.save(plan_file(store.path, part))
    return plans


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Note how long a step takes."""
    begin = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - begin
