"""Facts about graphs that DGL's formats of one large graph lack: schema, number of graphs, labels and splits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dgl_tuplepack._core.checks import whole_number
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType

VERSION = 1
# Characters that separate names in DGL's files.
_MARKS = (":", "/")
# The name of the graph's position among the data of nodes in chunks.
GRAPH_ID = "graph_id"


@dataclass(frozen=True)
class GraphRecord:
    """Facts about `num_graphs` graphs. `labels` and `splits` map names to paths below the folder of the record."""

    num_graphs: int
    schema: Any
    labels: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, str] = field(default_factory=dict)

    def as_document(self) -> dict[str, Any]:
        """Return the record for a JSON file; `from_document` reads it."""
        schema = self.schema
        return {
            "version": VERSION,
            "num_graphs": self.num_graphs,
            "node_types": list(schema.node_types),
            "edge_types": [list(e) for e in schema.edge_types],
            "columns": [
                [*column, str(spec.dtype).removeprefix("torch."), list(spec.shape)] for column, spec in schema.columns()
            ],
            "idtype": str(schema.idtype).removeprefix("torch."),
            "ties": dict(schema.ties),
            "indices": dict(schema.indices),
            "pyg": None if schema.pyg is None else schema.pyg.as_document(),
            "labels": dict(self.labels),
            "splits": dict(self.splits),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> GraphRecord:
        """Return the record; KeyError, TypeError or ValueError for a damaged document."""
        torch: Any = load("torch")
        # These modules need torch.
        from dgl_tuplepack.graphs.pyg_layout import PygLayout
        from dgl_tuplepack.graphs.schema import ArraySpec, Schema

        if document["version"] != VERSION:
            raise ValueError(f"its version is {document['version']!r:.100}, but this release reads version {VERSION}")
        if document["idtype"] not in ("int32", "int64"):
            raise ValueError(f"its idtype is {document['idtype']!r:.100}")
        node_types = tuple(map(str, document["node_types"]))
        edge_types: list[EdgeType] = [(str(s), str(r), str(d)) for s, r, d in document["edge_types"]]
        specs: dict[tuple[str, Any, str], Any] = {}
        for content, t, name, dtype, shape in document["columns"]:
            type_ = tuple(t) if isinstance(t, list) else t
            specs[content, type_, name] = ArraySpec(tuple(map(int, shape)), getattr(torch, dtype))

        def of(wanted: str, t: Any) -> dict[str, Any]:
            return {name: spec for (content, type_, name), spec in specs.items() if (content, type_) == (wanted, t)}

        schema = Schema(
            node_types=node_types,
            edge_types=tuple(edge_types),
            node_features={t: of("node_feature", t) for t in node_types},
            edge_features={e: of("edge_feature", e) for e in edge_types},
            labels=of("label", None),
            idtype=getattr(torch, document["idtype"]),
            has_ids=True,
            ties=document["ties"],
            indices=document["indices"],
            pyg=None if document["pyg"] is None else PygLayout.from_document(document["pyg"]),
        )
        number = whole_number("num_graphs", document["num_graphs"], 0)
        labels, splits = ({str(n): str(f) for n, f in document[key].items()} for key in ("labels", "splits"))
        if labels.keys() != schema.labels.keys():
            raise ValueError(f"its labels are {sorted(labels)}, but the schema has {sorted(schema.labels)}")
        return cls(number, schema, labels, splits)


def text_of(edge_type: EdgeType) -> str:
    """Return an edge type as DGL's files name it, "source:relation:destination"."""
    return ":".join(edge_type)


def check_names(schema: Any) -> None:
    """Raise SchemaError for graphs that DGL's files cannot hold, because of names of types or features."""
    if schema.graph_names:
        raise SchemaError(
            f"items of several named graphs {list(schema.graph_names)} have no form as one large graph; write a store "
            "or shards, or give one of the graphs of each item."
        )
    names = {name for t in (*schema.node_types, *schema.edge_types) for name in ([t] if isinstance(t, str) else t)}
    for name in sorted(names):
        if not name or any(mark in name for mark in _MARKS) or name in (".", ".."):
            raise SchemaError(
                f"the type {name!r:.200} has a name that DGL's files cannot hold; rename it: without "
                f"{' and '.join(map(repr, _MARKS))}, and not empty."
            )
    for (content, _, name), _ in schema.columns():
        if content == "node_feature" and name == GRAPH_ID:
            raise SchemaError(f"nodes have a feature {GRAPH_ID!r}, which files of graphs use themselves; rename it.")
