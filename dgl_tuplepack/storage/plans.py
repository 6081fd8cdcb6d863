"""The plans of a store: kept in its data folder, so that they are replaced together with its graphs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.planning.histogram import SizeHistogram
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.storage.selection import Selection

# Longest split name in a file name: file systems allow 255 bytes, and temporary files have longer names.
_LONGEST_NAME = 200


def plan_file(data: Path, split: str) -> Path:
    """Return the path of the plan of a split in a data folder; the empty name stands for all graphs.

    Split names may contain any character, unlike file names. No two splits share a file.
    """
    name = quote(split, safe="", errors="surrogatepass")
    if len(name) > _LONGEST_NAME:
        # In a quoted name, "%" is always followed by two digits, so "%-" makes this name unique.
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
    """Return the histogram of each split that has graphs, or of all graphs under an empty name."""
    splits = {split: ids for split, ids in store.splits.items() if len(ids)}
    if not splits:
        return {"": store.histogram}
    return {split: store.subset(ids).histogram for split, ids in splits.items()}


def load_plans(store: Selection) -> dict[str, PackPlan]:
    """Load the plans of a store: one for each split, or one for all graphs.

    FormatError names the plan that is damaged or belongs to other graphs, or the missing plans.
    """
    # Only stores of one part have plans; those of shards lie in their own stores.
    histograms, data = split_histograms(store), store.parts[0].data
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
