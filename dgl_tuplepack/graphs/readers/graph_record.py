"""Record of the small graphs in one large graph: schema, sizes, ids, labels and splits, which DGL's formats lack."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import as_ids
from dgl_tuplepack._core.files import open_file
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, SchemaError
from dgl_tuplepack.graphs.blocks import Array
from dgl_tuplepack.planning.sizes import IntArray

# GRAPH_ID: the name of the node data with the index of each node's graph.
RECORD, GRAPH_ID = "graphs.npz", "graph_id"
_VERSION = 1
# zipfile raises RuntimeError if a damaged bit marks a file as encrypted.
_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, RuntimeError)
# DGL's files separate or end names with these characters, and types are used in file names.
_MARKS, _MOST_BYTES = {"type": ":/\0", "feature": "/\0"}, 200


@dataclass(frozen=True)
class GraphRecord:
    """Facts about N small graphs, in one file of numpy arrays.

    `sizes` int64 ``[N, k]`` has a column for each node type and edge type. `ids` int64 ``[N]`` are the positions of the
    graphs in the source. `labels` maps names to arrays ``[N, ...]``. `splits` maps names to positions among
    these N graphs.
    """

    schema: Any
    sizes: IntArray
    ids: IntArray
    labels: Mapping[str, Array]
    splits: Mapping[str, IntArray]

    def save(self, file: Path) -> None:
        """Write the file. The arrays of labels and splits are numbered, since their names may have any characters."""
        names = {"labels": list(self.labels), "splits": list(self.splits)}
        document = {"version": _VERSION, **names, **document_of(self.schema)}
        arrays: dict[str, Any] = {f"label{i}": values for i, values in enumerate(self.labels.values())}
        arrays |= {f"split{i}": ids for i, ids in enumerate(self.splits.values())}
        np.savez(file, document=np.array(json.dumps(document)), sizes=self.sizes, ids=self.ids, **arrays)

    @classmethod
    def load(cls, file: Path) -> GraphRecord:
        """Read the file; FormatError if it is missing or damaged, or its arrays contradict each other."""
        load("torch")
        with open_file(file) as opened:
            try:
                with np.load(opened, allow_pickle=False) as arrays:
                    document = json.loads(arrays["document"].item())
                    if (document["version"], document["idtype"] in ("int32", "int64")) != (_VERSION, True):
                        raise ValueError(
                            f"it has version {document['version']!r:.100}; the version must be {_VERSION}, and the "
                            "idtype must be int32 or int64"
                        )
                    sizes, ids = arrays["sizes"], arrays["ids"]
                    labels = {name: arrays[f"label{i}"] for i, name in enumerate(document["labels"])}
                    splits = {name: arrays[f"split{i}"] for i, name in enumerate(document["splits"])}
                schema = _schema_of(document)
                if (
                    any(len(rows) != len(sizes) for rows in (ids, *labels.values()))
                    or labels.keys() != schema.labels.keys()
                ):
                    raise ValueError("its labels or ids do not match its graphs")
                splits = {name: as_ids(own, len(sizes)) for name, own in splits.items()}
            except (KeyError, AttributeError, TypeError, ValueError, OSError, EOFError, *_ZIP_ERRORS) as error:
                raise FormatError(f"{file} is damaged ({error!s:.200}); write its folder again.") from error
        return cls(schema, sizes, ids, labels, splits)


def document_of(schema: Any) -> dict[str, Any]:
    """Return a schema as a JSON document; each of its columns is (content, type, name, dtype, shape)."""
    return {
        "node_types": schema.node_types,
        "edge_types": schema.edge_types,
        "columns": [[*c, str(spec.dtype).removeprefix("torch."), spec.shape] for c, spec in schema.columns()],
        "idtype": str(schema.idtype).removeprefix("torch."),
        "ties": dict(schema.ties),
        "indices": dict(schema.indices),
        "pyg": schema.pyg and schema.pyg.as_document(),
    }


def _schema_of(document: Mapping[str, Any]) -> Any:
    import torch

    from dgl_tuplepack.graphs.pyg_layout import PygLayout, type_of_json
    from dgl_tuplepack.graphs.schema import ArraySpec, Schema

    columns = (
        ((content, type_of_json(t), name), ArraySpec(tuple(shape), getattr(torch, dtype)))
        for content, t, name, dtype, shape in document["columns"]
    )
    return Schema.of_columns(
        document["node_types"], [*map(tuple, document["edge_types"])], columns,
        idtype=getattr(torch, document["idtype"]), has_ids=True, ties=document["ties"], indices=document["indices"],
        pyg=document["pyg"] and PygLayout.from_document(document["pyg"]),
    )  # fmt: skip


def check_names(schema: Any) -> None:
    """Raise SchemaError if DGL's files cannot hold the graphs, because of the names of types, features or graphs."""
    if schema.graph_names:
        raise SchemaError(
            f"items of named graphs {list(schema.graph_names)} cannot be written as one large graph; write a store "
            "or shards, or give one of the graphs of each item."
        )
    types = {name for t in (*schema.node_types, *schema.edge_types) for name in ([t] if isinstance(t, str) else t)}
    features = {name for (content, _, name), _ in schema.columns() if content != "label"}
    for what, names in (("type", types), ("feature", features)):
        for name in sorted(names):
            unnamed = what == "type" and name in ("", ".", "..")
            if unnamed or len(name.encode(errors="ignore")) > _MOST_BYTES or not _is_plain(name, _MARKS[what]):
                marks = " or ".join(map(repr, _MARKS[what]))
                raise SchemaError(
                    f"the {what} {name!r:.200} has a name that DGL's files cannot hold; rename it: no {marks}, at most "
                    f"{_MOST_BYTES} bytes in UTF-8{', and not empty, one dot or two dots' if what == 'type' else ''}."
                )
    if any(GRAPH_ID in features for features in schema.node_features.values()):
        raise SchemaError(f"nodes have a feature {GRAPH_ID!r}, but the files need this name themselves; rename it.")


def _is_plain(name: str, marks: str) -> bool:
    """Return whether a name can be encoded in UTF-8, and has none of the characters `marks`."""
    return name.encode(errors="ignore").decode() == name and not any(mark in name for mark in marks)
