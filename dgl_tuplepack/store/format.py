"""What `metadata.json` says of a store; the mirror of docs/format.md."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dgl_tuplepack._checks import whole_number
from dgl_tuplepack._files import check_header, is_there, read_json, write_text
from dgl_tuplepack._version import __version__
from dgl_tuplepack.errors import FormatError, SchemaError
from dgl_tuplepack.graphs.blocks import EdgeType
from dgl_tuplepack.graphs.schema import ArraySpec, Schema

FORMAT, VERSION = "dgl_tuplepack.store", 1
METADATA, MANIFEST = "metadata.json", "manifest.json"

# dtype of a feature (as torch calls it) -> how it is stored (as numpy calls it), unless narrowed.
DTYPES = {
    **{name: name for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")},
    **{name: name for name in ("complex64", "complex128")},
    # numpy has no such type; the 16 bits are kept.
    "bfloat16": "uint16",
}
# Integer dtypes and what they may be narrowed to, narrowest first.
NARROWED = {"int64": ("uint8", "int16", "int32", "int64"), "int32": ("uint8", "int16", "int32")}
ENDPOINTS = ("uint8", "uint16", "int32", "int64")
ENDS = ("sources", "destinations")

# What an array holds; those of the first kind have neither type nor name.
CONTENTS = (
    "size_classes",
    "node_offsets",
    "edge_offsets",
    *ENDS,
    "node_feature",
    "edge_feature",
    "label",
    "split",
)
# As many as torch, and numpy 2, can have.
_MOST_AXES = 64
# Content, type and name of an array.
Key = tuple[Any, ...]

# File systems take 255 bytes.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")


@dataclass(frozen=True)
class ArrayEntry:
    """One array file: what it holds, how it looks, and its checksums.

    `type` is a node type or a canonical edge type; `name` that of a feature, label (empty for a single one) or split.
    `dtype` is how values are handed out, `stored` how they are stored, `shape` that of the whole array.
    """

    file: str
    content: str
    type: str | EdgeType | None
    name: str | None
    dtype: str
    stored: str
    shape: tuple[int, ...]
    sample: str
    sha256: str

    @property
    def spec(self) -> ArraySpec:
        """Shape and dtype of one entry, as handed out."""
        return ArraySpec(self.shape[1:], getattr(torch, self.dtype))

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> ArrayEntry:
        """Check one entry of the list `arrays`."""
        values = {**found, "shape": tuple(whole_number("a shape", n, 0) for n in found["shape"])}
        if isinstance(found["type"], list):
            source, relation, destination = found["type"]
            values["type"] = (source, relation, destination)
        entry = cls(**values)
        if not all(isinstance(text, str) for text in (entry.file, entry.content, entry.dtype, entry.stored)):
            raise ValueError(f"an entry of the arrays is {found!r:.200}")
        if not _PLAIN_NAME.fullmatch(entry.file):
            raise ValueError(f"{entry.file!r:.100} is no plain file name")
        if not 1 <= len(entry.shape) <= _MOST_AXES:
            raise ValueError(f"{entry.file} has {len(entry.shape)} axes, but 1..{_MOST_AXES} are possible")
        if entry.content not in CONTENTS or entry.stored not in allowed_storage(entry.content, entry.dtype):
            raise ValueError(f"{entry.file} holds {entry.content!r} of {entry.dtype!r}, stored as {entry.stored!r}")
        return entry


def allowed_storage(content: str, dtype: str) -> tuple[str, ...]:
    """How values of `dtype` may be stored, narrowest first."""
    if content in ENDS:
        return ENDPOINTS if dtype == "int64" else ()
    if content in ("size_classes", "node_offsets", "edge_offsets", "split"):
        return ("int64",) if dtype == "int64" else ()
    return NARROWED.get(dtype, (DTYPES[dtype],) if dtype in DTYPES else ())


def dtype_name(spec: ArraySpec, what: str) -> str:
    """Name of the dtype of a feature or label.

    Raises
    ------
    SchemaError
        A store cannot hold the dtype.
    """
    name = str(spec.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise SchemaError(f"{what} is {spec}, but a store holds {', '.join(DTYPES)}; convert it to one of them.")
    return name


@dataclass(frozen=True)
class StoreMetadata:
    """Content of `metadata.json`: the types, the index type, and a list of the arrays in the folder `data`."""

    data: str
    num_graphs: int
    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    idtype: str
    arrays: tuple[ArrayEntry, ...]
    written_by: str = __version__

    def of_content(self, content: str) -> Iterator[ArrayEntry]:
        """Arrays that hold `content`."""
        return (entry for entry in self.arrays if entry.content == content)

    @property
    def schema(self) -> Schema:
        """Types, features and labels of the graphs."""
        features: dict[str, dict[Any, dict[str, ArraySpec]]] = {
            "node_feature": {t: {} for t in self.node_types},
            "edge_feature": {t: {} for t in self.edge_types},
        }
        for content, by_type in features.items():
            for entry in self.of_content(content):
                by_type[entry.type][str(entry.name)] = entry.spec
        return Schema(
            node_types=self.node_types,
            edge_types=self.edge_types,
            node_features=features["node_feature"],
            edge_features=features["edge_feature"],
            labels={str(entry.name): entry.spec for entry in self.of_content("label")},
            idtype=getattr(torch, self.idtype),
            has_ids=True,
        )

    @property
    def checksum(self) -> str:
        """SHA-256 of all that the file says; it identifies the content of the store."""
        return hashlib.sha256(json.dumps(self._document(), sort_keys=True).encode()).hexdigest()

    def _document(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **asdict(self)}

    def save(self, folder: Path) -> None:
        """Write `metadata.json`; with that the store exists."""
        write_text(folder / METADATA, json.dumps({**self._document(), "checksum": self.checksum}, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> StoreMetadata:
        """Read `metadata.json` and check that it is whole and consistent.

        Raises
        ------
        FormatError
            It is missing, foreign, newer or altered.
        """
        path = folder / METADATA
        if not is_there(path):
            if is_there(folder / MANIFEST):
                raise FormatError(f"{folder} is a dataset of shards, not a single store; open it with MultiStore.")
            raise FormatError(f"{folder} is no store: it has no {METADATA}; give a folder that holds a finished store.")
        document = read_json(path)
        check_header(document, path, FORMAT, VERSION)
        try:
            values = {key: value for key, value in document.items() if key not in ("format", "version", "checksum")}
            values["node_types"] = tuple(map(str, values["node_types"]))
            values["edge_types"] = tuple((str(s), str(r), str(d)) for s, r, d in values["edge_types"])
            values["arrays"] = tuple(map(ArrayEntry.from_dict, values["arrays"]))
            metadata = cls(**values)
            metadata._check()
            intact = metadata.checksum == document["checksum"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{path} describes no valid store: {error!s:.500}; write the store again.") from error
        if not intact:
            raise FormatError(f"{path} was altered: its content does not match its checksum; write the store again.")
        return metadata

    def num_rows(self, features: str, of_type: str | EdgeType) -> int | None:
        """Nodes (or edges) of a type in the arrays of the store; None where there is no array."""
        contents = (*ENDS, features) if features == "edge_feature" else (features,)
        lengths = {entry.shape[0] for entry in self.arrays if entry.content in contents and entry.type == of_type}
        if len(lengths) > 1:
            raise ValueError(f"the arrays of {of_type} differ in length: {sorted(lengths)}")
        return lengths.pop() if lengths else None

    def _check(self) -> None:
        """Every array that there must be is there once, with the right length."""
        whole_number("num_graphs", self.num_graphs, 1)
        if self.idtype not in ("int32", "int64") or not _PLAIN_NAME.fullmatch(self.data):
            raise ValueError(f"idtype is {self.idtype!r} and data is {self.data!r}")
        strange = {t for source, _, destination in self.edge_types for t in (source, destination)} - {*self.node_types}
        if strange:
            raise ValueError(f"edges lead to nodes of the types {sorted(strange)}, but there are {self.node_types}")
        found: dict[Key, tuple[int, ...]] = {
            (entry.content, entry.type, entry.name): entry.shape for entry in self.arrays
        }
        if len(found) != len(self.arrays) or len({entry.file for entry in self.arrays}) != len(self.arrays):
            raise ValueError("an array is listed twice")
        one_each: dict[Key, tuple[int, ...]] = {
            ("node_offsets", t, None): (self.num_graphs + 1,) for t in self.node_types
        }
        one_each |= {("edge_offsets", t, None): (self.num_graphs + 1,) for t in self.edge_types}
        one_each |= {(end, t, None): found[end, t, None][:1] for t in self.edge_types for end in ENDS}
        columns = len(self.node_types) + len(self.edge_types) + 1
        one_each["size_classes", None, None] = (*found["size_classes", None, None][:1], columns)
        if any(found[key] != shape for key, shape in one_each.items()):
            raise ValueError("offsets, endpoints or size classes do not have the shape that they must have")
        types: dict[str, tuple[Any, ...]] = {"node_feature": self.node_types, "edge_feature": self.edge_types}
        for content, type_, name in found.keys() - one_each.keys():
            known = type_ in types.get(content, (None,)) and content in (*types, "label", "split")
            if not known or not isinstance(name, str):
                raise ValueError(f"there is a {content} array of the type {type_!r} and the name {name!r}")
        for content, of_types in types.items():
            for t in of_types:
                self.num_rows(content, t)
        if any(entry.shape[:1] != (self.num_graphs,) for entry in self.of_content("label")):
            raise ValueError("there is not one label for each graph")
        if any(len(entry.shape) != 1 for entry in self.of_content("split")):
            raise ValueError("a split is no list of ids")
