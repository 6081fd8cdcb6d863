"""Where the plans of a store lie: beside it, and only as long as it is the one that they are for."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.store.format import StoreMetadata

# Of the part in the name of a plan: file systems take 255 bytes, and the name grows while the file is written.
_LONGEST_NAME = 200


def plan_file(folder: Path, part: str) -> Path:
    """Where the plan of a part lies: names of splits are free, those of files are not; no two parts share one."""
    name = quote(part, safe="", errors="surrogatepass")
    if len(name) > _LONGEST_NAME:
        # A quoted name holds "%" before two digits alone.
        name = f"{name[:100]}%-{hashlib.sha256(name.encode()).hexdigest()}"
    return folder / (f"plan-{name}.json" if part else "plan.json")


def plan_files(folder: Path, new: StoreMetadata | None = None) -> list[Path]:
    """Plans beside a store: for all of it, or named after a part of it. What else is called a plan is not ours.

    Parameters
    ----------
    folder
        Of the store.
    new
        Of a store that is to be there; plans named after parts of it are given, too.
    """
    known = [new] if new is not None else []
    try:
        known.append(StoreMetadata.load(folder))
    except FormatError:
        if not known:
            return []
    parts = {"", *(str(entry.name) for metadata in known for entry in metadata.of_content("split"))}
    return sorted(file for part in parts if (file := plan_file(folder, part)).exists())
