"""From any source to a store with plans beside it: everything that happens once, before training."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.histogram import SizeHistogram
from dgl_tuplepack.limits import Limits
from dgl_tuplepack.packing import pack
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.search import search_limits
from dgl_tuplepack.sizes import GraphSizes
from dgl_tuplepack.store import GraphStore


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
        Folder of the store. The plans are ``plan-train.json`` and so on in it, or ``plan.json`` without a split.
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
        sizes at once, as an `OgbFolder` does; otherwise the store stays, without plans.
    """
    out, seconds = Path(out), dict[str, float]()
    known = getattr(source, "sizes", None)
    if limits is not None and isinstance(known, GraphSizes):
        limits.aligned(known.components).check(known)
    with timed(seconds, "write"):
        store = GraphStore.write(out, source, compact=compact, overwrite=overwrite)
        _remove_plans(out)
    with timed(seconds, "limits"):
        chosen = limits or search_limits(store.histogram, multiple_of=multiple_of).best.limits
    with timed(seconds, "plan"):
        plans = write_plans(store, chosen, seed)
    with timed(seconds, "verify"):
        verify(out)
    return Preprocessed(store, chosen, plans, seconds)


def verify(path: str | os.PathLike[str]) -> GraphStore:
    """Check every byte of a store, and that the plans beside it are for its graphs.

    Raises
    ------
    FormatError
        Names the file that is not as it was written, or the plan that belongs to other graphs.
    """
    store = GraphStore(path)
    store.verify()
    histograms = part_histograms(store)
    for file in plan_files(store.path):
        part = file.stem.removeprefix("plan").removeprefix("-")
        if PackPlan.load(file).histogram != histograms.get(part):
            raise FormatError(f"{file} is not for the graphs of {store.path}; make it anew.")
    return store


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
    _remove_plans(store.path)
    for part, plan in plans.items():
        plan.save(plan_file(store.path, part))
    return plans


def _remove_plans(folder: Path) -> None:
    """Take away plans of what was there before."""
    for path in plan_files(folder):
        path.unlink()


def plan_files(folder: Path) -> list[Path]:
    """Plans beside a store."""
    return sorted([*folder.glob("plan.json"), *folder.glob("plan-*.json")])


def plan_file(folder: Path, part: str) -> Path:
    """Where the plan of a part lies."""
    # Names of splits are free, names of files are not.
    plain = "".join(c if c.isalnum() or c in "_." else "_" for c in part)
    return folder / (f"plan-{plain}.json" if part else "plan.json")


@contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Note how long a step takes."""
    begin = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - begin
