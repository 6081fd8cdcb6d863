"""The plans of a store. They are in its data folder, so that they are replaced together with its graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.storage.selection import Selection

# File systems allow 255 bytes, and a file first gets a temporary name, which is longer than its final name.
_LONGEST_NAME = 200


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
