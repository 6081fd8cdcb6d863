"""The plans and the static shape of a store. They are in its data folder, so they are replaced with its graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dgl_tuplepack._core.checks import as_ids, whole_number
from dgl_tuplepack._core.files import JsonFormat
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.limits import Limits
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.sizes import GraphSizes
from dgl_tuplepack.storage.selection import Selection

# File systems allow 255 bytes, and a file first gets a temporary name, which is longer than its final name.
_LONGEST_NAME = 200
SHAPE = "static-shape.json"
_SHAPE_FILE = JsonFormat("dgl_tuplepack.static_shape", 1, "static shape", "preprocess the store again")


def plan_file(data: Path, split: str) -> Path:
    """Return the path, in the data folder `data`, of the plan of a split; an empty name stands for all graphs.

    No two splits share a file.
    """
    name = quote(split, safe="", errors="surrogatepass")
    if len(name) > _LONGEST_NAME:
        # In a quoted name, "%" is always followed by two hexadecimal digits, so no quoted name is equal to this one.
        name = f"{name[:100]}%-{hashlib.sha256(name.encode()).hexdigest()}"
    return data / (f"plan-{name}.json" if split else "plan.json")


def plan_files(data: Path) -> list[Path]:
    """Return the paths of the plans in a data folder."""
    return sorted(data.glob("plan*.json"))


def save_plans(data: Path, plans: Mapping[str, PackPlan]) -> None:
    """Write the plan of each split into a data folder."""
    for split, plan in plans.items():
        plan.save(plan_file(data, split))


def split_histograms(store: Selection) -> dict[str, SizeHistogram]:
    """Return the histogram of each split that has graphs.

    If no split has graphs, return only the histogram of all graphs, under an empty name.
    """
    splits = {split: ids for split, ids in store.splits.items() if len(ids)}
    if not splits:
        return {"": store.histogram}
    return {split: store.subset(ids).histogram for split, ids in splits.items()}


def load_plans(store: Selection) -> dict[str, PackPlan]:
    """Load the plans of a store: one for each split, or one for all graphs.

    Raise FormatError for missing plans, for a damaged plan, and for a plan of other graphs.
    """
    # A dataset of shards is not read here: the store of each shard has its own plans.
    histograms, data = split_histograms(store), store.segments[0].data
    missing = [file.name for split in histograms if not (file := plan_file(data, split)).exists()]
    if missing:
        raise FormatError(f"{store.path} has no {', '.join(missing)}; preprocess the store again.")
    plans = {split: PackPlan.load(plan_file(data, split)) for split in histograms}
    for split, plan in plans.items():
        if plan.histogram != histograms[split]:
            raise FormatError(
                f"{plan_file(data, split)} is for other graphs than {store.path} has; preprocess the store again."
            )
    return plans


def train_sizes(sizes: GraphSizes, splits: Mapping[str, Any]) -> GraphSizes:
    """Return the sizes of the split "train", in its order; if it has no graphs, those of all graphs."""
    train = as_ids(splits.get("train", ()), len(sizes))
    return sizes.take(train) if len(train) else sizes


def save_static_shape(data: Path, limits: Limits, sizes: GraphSizes) -> None:
    """Write limits of shuffled batches of exactly `limits.graphs` of the graphs `sizes` into a data folder."""
    _SHAPE_FILE.write(data / SHAPE, {"limits": limits.to_dict(), "sizes": _fingerprint(sizes)}, indent=1)


def load_static_shape(store: Selection, batch_size: int | None = None) -> Limits | None:
    """Return the stored limits; None if there are none for these graphs in this order, or for another `batch_size`.

    Raise FormatError for a damaged file.
    """
    path = store.segments[0].data / SHAPE
    if not path.exists():
        return None
    with _SHAPE_FILE.reading(path) as document:
        limits = Limits.from_dict(document["limits"]).aligned(store.schema.components)
        stored = whole_number("batch_size", limits.graphs, 1)
        if batch_size not in (None, stored) or document["sizes"] != _fingerprint(store.sizes):
            return None
        limits.check(store.sizes)
        return limits


def _fingerprint(sizes: GraphSizes) -> str:
    return hashlib.sha256(sizes.array.astype("<i8", order="C").data).hexdigest()
