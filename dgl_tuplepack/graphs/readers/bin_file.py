"""Files of `dgl.save_graphs` as sources, read by DGL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.files import open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.graphs.readers.items import Items
from dgl_tuplepack.graphs.readers.source import Source
from dgl_tuplepack.planning.sizes import GraphSizes


class BinFile(Source):
    """A ``.bin`` file."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.files = self._path = path

    @classmethod
    def of_path(cls, path: Path, settings: Mapping[str, Any]) -> Source | None:
        """Recognise a path by its suffix, even if the file does not exist."""
        return cls(path) if path.suffix == ".bin" else None

    def sizes(self) -> GraphSizes:
        """Return the sizes of the saved graphs."""
        return Items(self.items()).sizes()

    def by_position(self) -> Any:
        """Return all items, since the file is read as a whole."""
        return self.items()

    def items(self) -> Iterable[Any]:
        """Return a list of graphs, or of pairs (graph, label). If the file has several labels, each label is a dict."""
        dgl = load("dgl")
        # If the file is missing, opening it first gives a shorter message than DGL's.
        open_file(self._path).close()
        try:
            graphs, labels = dgl.load_graphs(str(self._path))
        except Exception as error:
            raise FormatError(
                f"{self._path} cannot be read as a file of dgl.save_graphs; it is damaged, or another kind of file; "
                "write it again."
            ) from error
        for name, values in labels.items():
            if values.shape[:1] != (len(graphs),):
                raise FormatError(
                    f"{self._path} has {len(graphs)} graphs, but labels {name!r:.200} of the shape "
                    f"{list(values.shape)}; write it again."
                )
        if len(labels) < 2:
            return list(zip(graphs, next(iter(labels.values())), strict=True)) if labels else list(graphs)
        return [(graph, {name: values[i] for name, values in labels.items()}) for i, graph in enumerate(graphs)]
