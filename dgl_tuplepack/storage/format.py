"""The content of `metadata.json` and of manifests of shards, as docs/reference/format.md specifies it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from dgl_tuplepack._core.checks import UINT64_MAX, whole_number
from dgl_tuplepack._core.files import JsonFormat, is_there
from dgl_tuplepack._version import __version__
from dgl_tuplepack.errors import FormatError, SchemaError
from dgl_tuplepack.graphs.blocks import ENDS, EdgeType, GraphType
from dgl_tuplepack.graphs.pyg_layout import PygLayout
from dgl_tuplepack.graphs.schema import ArraySpec, Schema
from dgl_tuplepack.graphs.transform import identity_of
from dgl_tuplepack.planning.buckets import Buckets, shapes_from_dict
from dgl_tuplepack.planning.limits import Limits

STORE_FILE = JsonFormat("dgl_tuplepack.store", 1, "store", "write the store again")
# Keys of `metadata.json` that are omitted if their values are empty.
_OMITTED = ("pre_transform", "pyg", "graph_names", "ties", "indices")
METADATA, MANIFEST = "metadata.json", "manifest.json"

# torch dtype of a feature or label -> numpy dtype of its file, unless its values are narrowed (see `NARROWED`).
DTYPES = {
    **{name: name for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")},
    **{name: name for name in ("complex64", "complex128")},
    # numpy has no bfloat16; the bits are stored as integers.
    "bfloat16": "uint16",
}
# Integer dtype -> dtypes that it may be narrowed to, narrowest first.
NARROWED = {"int64": ("uint8", "int16", "int32", "int64"), "int32": ("uint8", "int16", "int32")}
# Dtypes that a file of endpoints may have, narrowest first.
ENDPOINTS = ("uint8", "uint16", "int32", "int64")

# Values of `ArrayEntry.content` for arrays whose `dtype` and `stored` are both int64.
_POSITIONS = ("size_classes", "node_offsets", "edge_offsets", "split")
CONTENTS = (*_POSITIONS, *ENDS, "node_feature", "edge_feature", "label")
# Identifies an array: its content, type and name.
Key = tuple[Any, ...]

# Allowed names of files and folders; file systems allow 255 bytes.
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")


def offsets_key(t: GraphType) -> Key:
    """Return the key of the array with the offsets of a type."""
    return "node_offsets" if isinstance(t, str) else "edge_offsets", t, None


@dataclass(frozen=True)
class ArrayEntry:
    """One array file; docs/reference/format.md describes the keys.

    `type` and `name` are None for contents without them. `dtype` is the torch dtype of the values, `stored` the numpy
    dtype of the file; `sample` is the checksum of a few pieces of the data, `sha256` of all data.
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
        """Shape of one row, and torch dtype of the values."""
        return ArraySpec(self.shape[1:], getattr(torch, self.dtype))

    @classmethod
    def without_rows(cls, key: Key, spec: ArraySpec) -> ArrayEntry:
        """Return the entry of an array without rows, which has no file."""
        (content, t, name), dtype = key, dtype_name(spec, str(key))
        return cls("", content, t, name, dtype, allowed_storage(content, dtype)[0], (0, *spec.shape), "", "")

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ArrayEntry:
        """Check one entry of the list `arrays` and return it."""
        values = {**document, "shape": tuple(whole_number("a shape", n, 0) for n in document["shape"])}
        if isinstance(document["type"], list):
            values["type"] = tuple(document["type"])
        entry = cls(**values)
        is_allowed = entry.content in CONTENTS and entry.stored in allowed_storage(entry.content, entry.dtype)
        if not (is_allowed and PLAIN_NAME.fullmatch(entry.file) and entry.shape):
            raise ValueError(f"the array {document!r:.300} cannot be")
        return entry


def allowed_storage(content: str, dtype: str) -> tuple[str, ...]:
    """Return the dtypes that a file for values of `dtype` may have, narrowest first; () if none is allowed."""
    if content in (*ENDS, *_POSITIONS):
        return () if dtype != "int64" else ENDPOINTS if content in ENDS else ("int64",)
    return NARROWED.get(dtype, (DTYPES[dtype],) if dtype in DTYPES else ())


def dtype_name(spec: ArraySpec, what: str) -> str:
    """Return the name of the dtype of `what`, a feature or label; raise SchemaError if a store cannot hold it."""
    name = str(spec.dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise SchemaError(f"{what} is {spec}, but a store holds {', '.join(DTYPES)}; convert it to one of them.")
    return name


@dataclass(frozen=True)
class PreTransform:
    """The transform that was applied before graphs were written: the text that identifies it, and its seed."""

    transform: str
    seed: int

    @classmethod
    def after(cls, earlier: PreTransform | None, transform: Any, seed: int, name: str | None) -> PreTransform:
        """Return the record of `transform`, applied after `earlier`."""
        text = identity_of(transform, name)
        return cls(text if earlier is None else f"{earlier}, then {text}", seed)

    def __str__(self) -> str:
        return f"{self.transform} (seed {self.seed})"

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> PreTransform:
        """Check the JSON object `pre_transform`, and return the record that it holds."""
        if not isinstance(document["transform"], str):
            raise ValueError(f"the pre_transform is {document!r:.200}")
        whole_number("seed", document["seed"], 0, UINT64_MAX)
        return cls(**document)


@dataclass(frozen=True)
class StoreMetadata:
    """Content of `metadata.json`: types, index type, and a list of the arrays; `data` is the name of their folder."""

    data: str
    num_graphs: int
    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]
    idtype: str
    arrays: tuple[ArrayEntry, ...]
    written_by: str = __version__
    pre_transform: PreTransform | None = None
    graph_names: tuple[str, ...] = ()
    ties: Mapping[str, str] = field(default_factory=dict)
    indices: Mapping[str, str] = field(default_factory=dict)
    pyg: PygLayout | None = None

    def of_content(self, content: str) -> Iterator[ArrayEntry]:
        """Return the entries of arrays that hold `content`."""
        return (entry for entry in self.arrays if entry.content == content)

    @property
    def schema(self) -> Schema:
        """Types, features and labels of the graphs."""
        entries = (each for content in ("node_feature", "edge_feature", "label") for each in self.of_content(content))
        columns = (((entry.content, entry.type, str(entry.name)), entry.spec) for entry in entries)
        return Schema.of_columns(
            self.node_types, self.edge_types, columns, idtype=getattr(torch, self.idtype), has_ids=True,
            graph_names=self.graph_names, ties=self.ties, indices=self.indices, pyg=self.pyg,
        )  # fmt: skip

    @property
    def checksum(self) -> str:
        """SHA-256 of `metadata.json` without its key `checksum`. It identifies the content of the store."""
        return str(STORE_FILE.document(self._content())["checksum"])

    def _content(self) -> dict[str, Any]:
        """Return the content of `metadata.json`, without the keys `format`, `version` and `checksum`."""
        content = asdict(self)
        content["pyg"] = None if self.pyg is None else self.pyg.as_document()
        return {key: value for key, value in content.items() if value or key not in _OMITTED}

    def save(self, folder: Path) -> None:
        """Write `metadata.json`, which completes the store."""
        STORE_FILE.write(folder / METADATA, self._content(), indent=1)

    @classmethod
    def load(cls, folder: Path) -> StoreMetadata:
        """Read `metadata.json`; raise FormatError if it is missing, of another format or version, or damaged."""
        path = folder / METADATA
        if not is_there(path):
            if is_there(folder / MANIFEST):
                raise FormatError(f"{folder} is a dataset of shards, not a single store; open it with MultiStore.")
            raise FormatError(f"{folder} is not a store: it has no {METADATA}; give the folder of a finished store.")
        with STORE_FILE.reading(path) as document:
            values = {key: value for key, value in document.items() if key not in ("format", "version", "checksum")}
            values["node_types"] = tuple(map(str, values["node_types"]))
            values["edge_types"] = tuple((str(s), str(r), str(d)) for s, r, d in values["edge_types"])
            values["arrays"] = tuple(map(ArrayEntry.from_dict, values["arrays"]))
            values["written_by"] = str(values["written_by"])
            if "pre_transform" in values:
                values["pre_transform"] = PreTransform.from_dict(values["pre_transform"])
            if "pyg" in values:
                values["pyg"] = PygLayout.from_document(values["pyg"])
            values["graph_names"] = tuple(values.get("graph_names", ()))
            metadata = cls(**values)
            metadata._check()
        return metadata

    def num_rows(self, of_type: str | EdgeType) -> int | None:
        """Return the length of the features and endpoints of a type; None without any. ValueError if they differ."""
        contents = ("node_feature", "edge_feature", *ENDS)
        lengths = {entry.shape[0] for entry in self.arrays if entry.content in contents and entry.type == of_type}
        if len(lengths) > 1:
            raise ValueError(f"the arrays of {of_type} differ in length: {sorted(lengths)}")
        return lengths.pop() if lengths else None

    def _check(self) -> None:
        """Raise an error if values contradict each other: compiled code might then read outside the arrays."""
        whole_number("num_graphs", self.num_graphs, 1)
        if self.idtype not in ("int32", "int64") or not PLAIN_NAME.fullmatch(self.data):
            raise ValueError(f"idtype is {self.idtype!r} and data is {self.data!r}")
        shapes = {(entry.content, entry.type, entry.name): entry.shape for entry in self.arrays}
        # The array of size classes has one column for each type, then one column for the number of graphs.
        columns = len(self.node_types) + len(self.edge_types) + 1
        endpoints: list[Key] = [(end, t, None) for t in self.edge_types for end in ENDS]
        types: tuple[GraphType, ...] = (*self.node_types, *self.edge_types)
        if (
            any(shapes[offsets_key(t)] != (self.num_graphs + 1,) for t in types)
            or any(len(shapes[key]) != 1 for key in endpoints)
            or any(entry.shape[0] != self.num_graphs for entry in self.of_content("label"))
            or shapes["size_classes", None, None][1:] != (columns,)
        ):
            raise ValueError("offsets, endpoints, labels or size classes have the wrong shape")
        for t in types:
            # Raises ValueError if the arrays of a type differ in length.
            self.num_rows(t)
        if self.pyg is not None and not {*self.pyg.dims, *self.pyg.rows} <= shapes.keys():
            raise ValueError("the PyG layout names arrays that the store does not have")
        # Making the schema raises an error if ties or indices contradict the types and features.
        _ = self.schema


_FILE = JsonFormat("dgl_tuplepack.manifest", 1, "dataset of shards", "preprocess the shards again")


@dataclass(frozen=True)
class ShardEntry:
    """One shard: the name of its folder, its number of graphs, and `store`, the checksum of its store."""

    name: str
    num_graphs: int
    store: str

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ShardEntry:
        """Check one entry of the list `shards` and return it."""
        whole_number("num_graphs of a shard", document["num_graphs"], 1)
        if not PLAIN_NAME.fullmatch(document["name"]):
            raise ValueError(f"a shard has a name that is not a plain file name: {document!r:.200}")
        return cls(**document)


@dataclass(frozen=True)
class Manifest:
    """Content of `manifest.json`: the shards in order, and the limits and the seed of their plans."""

    num_graphs: int
    limits: Limits | Buckets
    seed: int
    shards: tuple[ShardEntry, ...]
    written_by: str = __version__

    def save(self, folder: Path) -> None:
        """Write `manifest.json`, which completes the dataset."""
        shards = [asdict(shard) for shard in self.shards]
        _FILE.write(folder / MANIFEST, {**vars(self), "limits": self.limits.to_dict(), "shards": shards}, indent=1)

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read `manifest.json`; raise FormatError if it is missing, of another format or version, or damaged."""
        path = folder / MANIFEST
        if not is_there(path):
            if is_there(folder / METADATA):
                raise FormatError(f"{folder} is a single store, not a dataset of shards; open it with GraphStore.")
            raise FormatError(
                f"{folder} is not a dataset of shards: it has no {MANIFEST}; give a folder in which preprocess_shards "
                "has finished, or run it there again."
            )
        with _FILE.reading(path) as document:
            shards = tuple(map(ShardEntry.from_dict, document["shards"]))
            number = whole_number("num_graphs", document["num_graphs"], 1)
            if number != sum(shard.num_graphs for shard in shards) or len({s.name for s in shards}) != len(shards):
                raise ValueError("num_graphs is not the sum over the shards, or a shard is listed twice")
            seed, written_by = whole_number("seed", document["seed"], 0), str(document["written_by"])
            return cls(number, shapes_from_dict(document["limits"]), seed, shards, written_by)


def check_unchanged(checksum: str, folder: Path, shard: ShardEntry) -> None:
    """Raise FormatError if the checksum of a store differs from its checksum in the manifest."""
    if checksum != shard.store:
        raise FormatError(
            f"{folder / shard.name} was written again after {folder / MANIFEST}; preprocess the shards again."
        )
