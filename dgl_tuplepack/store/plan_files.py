"""The files of the plans of a store: beside it, or in its data folder until they have moved there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.plan import is_plan_file
from dgl_tuplepack.store.format import StoreMetadata

# Longest split name in the name of a plan: file systems take 255 bytes, and the name grows while the file is written.
_LONGEST_NAME = 200


def plan_file(folder: Path, split: str) -> Path:
    """Return the path of the plan of a split; the empty name stands for all graphs.

    Names of splits are free, names of files are not. No two splits share a file.
    """
    name = quote(split, safe="", errors="surrogatepass")
    if len(name) > _LONGEST_NAME:
        # A quoted name holds "%" before two digits alone.
        name = f"{name[:100]}%-{hashlib.sha256(name.encode()).hexdigest()}"
    return folder / (f"plan-{name}.json" if split else "plan.json")


def plan_files(folder: Path, new: StoreMetadata | None = None) -> list[Path]:
    """Return the plans of a store: beside it, for all of it or named after one of its splits, and in its data folder.

    `new` is the metadata of the store to be written there: plans named after its splits are included. If the metadata
    of the present store cannot be read, its splits are unknown: all plans in the folder are included.
    """
    known = [] if new is None else [new]
    files: set[Path] = set()
    try:
        current = StoreMetadata.load(folder)
        known.append(current)
        files.update(staged_plans(folder / current.data))
    except FormatError:
        if new is None:
            return []
        named = (file for file in folder.glob("plan*.json") if file.stem == "plan" or file.stem.startswith("plan-"))
        files.update(file for file in named if is_plan_file(file))
    splits = {"", *(str(entry.name) for metadata in known for entry in metadata.of_content("split"))}
    files.update(file for split in splits if (file := plan_file(folder, split)).exists())
    return sorted(files)


def staged_plans(data: Path) -> list[Path]:
    """Return the plans in a data folder: they become visible with the store, and then move beside it.

    After a kill in between they take precedence over files beside the store, which are for the one before.
    """
    return sorted(data.glob("plan*.json"))
