"""Stores for a dataset that is there: written beside it, and put in their places once all are known to fit."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from dgl_tuplepack.sharding.tasks import NEW, SOURCE
from dgl_tuplepack.store.folder import is_begun, move_store, writing_to


def put_in_place(out: Path, name: str) -> None:
    """Make the new store of a shard that of the dataset, and take away the plans of the old one.

    Interrupted, it leaves a shard that the next run finds unfinished.

    Raises
    ------
    FormatError
        Another process writes to the place, or it cannot be written.
    """
    folder, new = out / name, out / NEW / name
    move_store(new, folder)
    with writing_to(folder):
        os.replace(new / SOURCE, folder / SOURCE)


def remove_new(out: Path) -> None:
    """Take away what is left of new stores, also those of earlier runs that nobody needs any more."""
    with contextlib.suppress(OSError):
        for folder in (out / NEW).iterdir():
            if is_begun(folder, besides=[SOURCE]):
                shutil.rmtree(folder)
        (out / NEW).rmdir()
