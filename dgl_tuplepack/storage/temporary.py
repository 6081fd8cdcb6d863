"""A store in a temporary folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dgl_tuplepack._core.files import writing
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.storage.graph_store import GraphStore


def temporary_store(source: Source, **declared: Any) -> GraphStore:
    """Write the graphs of a source to a temporary folder, and return the store.

    The folder is removed when the store and all its subsets are deleted, or when the process exits. `declared` has
    ties, indices and levels, as in `GraphStore.write`.
    """
    if source.num_graphs() == 0:
        raise SizesError(f"{source.title} has no graphs; at least one is needed.")
    folder = _Folder()
    store = GraphStore.write(f"{folder.path}/store", source, **declared)
    # Subsets of the store share this attribute.
    store.__dict__["_folder"] = folder
    return store


class _Folder:
    """A temporary folder, with these files, that is removed together with this object. A pickled copy has the files."""

    def __init__(self, files: Mapping[Path, bytes] = MappingProxyType({})) -> None:
        with writing("a temporary folder"):
            self.path = tempfile.mkdtemp(prefix="dgl_tuplepack-")
        weakref.finalize(self, _remove, self.path, os.getpid())
        for name, content in files.items():
            (Path(self.path) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(self.path) / name).write_bytes(content)

    def __deepcopy__(self, memo: Any) -> _Folder:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        files = [path for path in Path(self.path).rglob("*") if path.is_file()]
        return _Folder, ({path.relative_to(self.path): path.read_bytes() for path in files},)


def _remove(path: str, process: int) -> None:
    # A forked worker has a copy of the `_Folder`, but only the process that made the folder may remove it.
    if os.getpid() == process:
        shutil.rmtree(path, ignore_errors=True)
