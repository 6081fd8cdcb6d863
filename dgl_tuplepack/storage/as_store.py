"""Open any source as a store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.graphs.pyg_layout import Levels
from dgl_tuplepack.graphs.readers.kinds import resolve
from dgl_tuplepack.graphs.readers.large_graph import check_names
from dgl_tuplepack.storage.graph_store import GraphStore, StoredGraphs
from dgl_tuplepack.storage.reader import Stored


@contextmanager
def as_store(source: Any, folder: Path, levels: Levels | None) -> Iterator[StoredGraphs]:
    """Provide a store with the graphs of a source; `levels` are as in `GraphStore.write`.

    A source that is not a store is first written to `folder`, which is removed at the end of the ``with`` block. Raise
    SchemaError if `check_names` refuses the names in the schema, and SizesError if there are no graphs.
    """
    opened = resolve(source).with_levels(levels)
    if isinstance(opened, Stored) and isinstance(store := opened.by_position(), StoredGraphs):
        check_names(store.schema)
        yield store
        return
    if opened.num_graphs() == 0:
        raise SizesError(f"{opened.title} has no graphs; at least one is needed.")
    try:
        store = GraphStore.write(folder, opened, overwrite=True)
        check_names(store.schema)
        yield store
    finally:
        shutil.rmtree(folder, ignore_errors=True)
