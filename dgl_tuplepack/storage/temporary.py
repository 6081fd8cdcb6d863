"""A store in a temporary folder, which is removed when nothing refers to the store any longer."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from typing import Any

from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.storage.graph_store import GraphStore


def temporary_store(source: Source, **declared: Any) -> GraphStore:
    """Write the graphs of a source; the folder is removed with the store and its last subset, or at exit.

    `declared` are ties, indices and levels, as in `GraphStore.write`.
    """
    if source.num_graphs() == 0:
        raise SizesError(f"{source.title} has no graphs; at least one is needed.")
    folder = _Folder()
    store = GraphStore.write(f"{folder.path}/store", source, **declared)
    # Subsets share this attribute, which keeps the folder.
    store.__dict__["_folder"] = folder
    return store


class _Folder:
    def __init__(self) -> None:
        self.path = tempfile.mkdtemp(prefix="dgl_tuplepack-")
        weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: str, process: int) -> None:
    # A forked worker has the object too, but the folder belongs to its parent.
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
