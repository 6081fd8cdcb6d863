"""A shard: where its graphs come from, what it is called, and how a change of its source is noticed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from dgl_tuplepack._files import cannot
from dgl_tuplepack.errors import FormatError, SizesError
from dgl_tuplepack.sharding.members import (
    Member,
    copy_members,
    failures_of,
    file_system,
    is_local,
    members,
    target_name,
)
from dgl_tuplepack.sources import paths, recognised, resolve
from dgl_tuplepack.store.format import MANIFEST, METADATA

# Folders of an OGB dataset that are made from the others.
_DERIVED = ("processed", "mapping")
# What file systems tell of the version of a file, under different names.
_VERSION_KEYS = (
    "ETag", "etag", "md5Hash", "Content-MD5", "Digest", "content_hash", "sha", "CRC", "mtime", "LastModified",
    "Last-Modified", "last_modified", "modify", "modificationTime", "date_time", "created",
)  # fmt: skip
# Names of files that lie beside shards, or tell what a folder is.
_RESERVED = (MANIFEST, METADATA)
# Bytes read at once.
_CHUNK = 2**20
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Shard:
    """One part of a dataset; small, so that it can be sent to a worker.

    Attributes
    ----------
    name
        Name of its folder.
    source
        A path that `GraphStore.write` takes, or the fsspec URL of such a place; or an object that it takes and pickle
        knows.
    settings
        Keywords for kinds of sources that heed them, such as those of `OgbFolder`, where the source is a path.
    """

    name: str
    source: Any
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_path(self) -> bool:
        """Whether the source is a path or a URL."""
        return isinstance(self.source, str)

    @property
    def has_files(self) -> bool:
        """Whether the source is read from files that are known; else it is an object."""
        return _files_of(self.source) is not None

    def local_path(self) -> Path | None:
        """Where the source lies, without links; None if it is an object, or on no local file system."""
        try:
            url = _files_of(self.source)
            if url is None:
                return None
            files, path = file_system(url)
            return Path(path).resolve() if is_local(files) else None
        except (FormatError, OSError, RuntimeError, ValueError):
            # A loop of links, say. Told when it is read, with those of other shards.
            return None

    def identity(self) -> str:
        """SHA-256 that differs once the source does: of names, sizes and times of its files, or of its pickle.

        Files of which the file system tells no time, tag or checksum are read for it.
        An object whose pickles differ from time to time is taken for changed.

        Raises
        ------
        FormatError
            There is no such source, or it cannot be reached.
        """
        url = _files_of(self.source)
        if url is None:
            return hashlib.sha256(pickle.dumps(self.source)).hexdigest()
        settings = self.settings if self.is_path else resolve(self.source).settings
        return hashlib.sha256(json.dumps([_listing(url), dict(settings)], sort_keys=True).encode()).hexdigest()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Give what `GraphStore.write` takes; copied to this machine first, if it lies elsewhere.

        Raises
        ------
        FormatError
            There is no such source, it cannot be reached, or is nothing that can be read.
        """
        if not self.is_path:
            yield self.source
            return
        files, path = file_system(self.source)
        if is_local(files):
            yield resolve(path, self.settings)
            return
        with tempfile.TemporaryDirectory(prefix="dgl-tuplepack-") as folder:
            # Under its own name, which says what an OGB dataset is.
            copy = Path(folder) / target_name(path, self.source)
            files, found = _found(self.source)
            copy_members(files, found, copy, self.source)
            yield resolve(copy, self.settings)


def as_shards(shards: Sequence[Any] | Mapping[str, Any], settings: Mapping[str, Any]) -> list[Shard]:
    """Name all shards; each name is a plain folder name, and stands once.

    A path gives its last part as a name, or as many as it takes to tell it from others.

    Raises
    ------
    SizesError
        There is no shard, a path stands in the place of several, the same one stands twice, or a name is reserved.
    """
    if isinstance(shards, str | bytes | os.PathLike):
        raise SizesError(f"shards are several, but one path {str(shards)!r} was given; put it into a list.")
    if not shards:
        raise SizesError("there are no shards; give at least one.")
    sources = [_as_source(source) for source in (shards.values() if isinstance(shards, Mapping) else shards)]
    if isinstance(shards, Mapping):
        names = [_plain(str(name)) for name in shards]
    else:
        names = [f"shard-{number:05d}" for number in range(len(sources))]
        paths = {number: place for number, source in enumerate(sources) if (place := _place_of(source))}
        for length in range(1, 1 + max((len(parts) for parts in paths.values()), default=0)):
            names = [_plain("-".join(paths[i][-length:])) if i in paths else name for i, name in enumerate(names)]
            if len(set(names)) == len(names):
                break
    reserved = [name for name in names if name.lower() in _RESERVED]
    if reserved:
        raise SizesError(
            f"no shard can be called {reserved[0]!r}, which is the name of a file of ours; give a mapping from other "
            "names to shards."
        )
    repeated = [name for name, number in Counter(names).items() if number > 1]
    if repeated:
        raise SizesError(
            f"two shards are called {repeated[0]!r}; give each one once, or in Python a mapping of names to shards."
        )
    return [Shard(name, source, settings) for name, source in zip(names, sources, strict=True)]


def check_apart(shards: Sequence[Shard], out: Path) -> None:
    """Refuse a source that would be written over while it is read, or is changed by what is written.

    Raises
    ------
    SizesError
        A source is the folder of a shard in `out`, lies in one, or holds it.
    FormatError
        There can be no such folder.
    """
    try:
        folders = {(out / shard.name).resolve(): shard.name for shard in shards}
    except (OSError, RuntimeError, ValueError) as error:
        # A loop of links, say.
        raise FormatError(cannot("write", out, error)) from error
    around = {parent for folder in folders for parent in folder.parents}
    for shard in shards:
        place = shard.local_path()
        inside = None if place is None else next((p for p in (place, *place.parents) if p in folders), None)
        if inside is not None or place in around:
            raise SizesError(
                f"the shard {shard.name} is read from {place}, but {inside or out} is to be written; choose another "
                "folder for the dataset."
            )


def _as_source(source: Any) -> Any:
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    # Workers may have another working folder.
    return os.path.abspath(source) if isinstance(source, str) and "://" not in source else source


def _files_of(source: Any) -> str | None:
    """Path or URL of the files that a source is read from; None for an object without."""
    if isinstance(source, str):
        return source
    known = recognised(source)
    return None if known is None or known.files is None else str(known.files)


def _place_of(source: Any) -> list[str]:
    """Parts of the path of a source; none where it has no path."""
    url = _files_of(source)
    if url is None:
        return []
    # Of an URL of several links, "zip://part.bin::s3://bucket/archive.zip", the first that holds a path.
    link = next((link for link in url.split("::") if "://" in link), url)
    return [part for part in link.rpartition("://")[2].replace(os.sep, "/").split("/") if part]


def _plain(name: str) -> str:
    plain = _NOT_PLAIN.sub("_", name.removesuffix(".bin")).lstrip(".-")
    return plain or "_"


def _found(url: str) -> tuple[Any, dict[str, Member]]:
    """The file system of a source, and its files by their paths below it, without those that are made from others."""
    files, path = file_system(url)
    found = {
        relative: member
        for relative, member in members(files, path, url).items()
        if not any(part in _DERIVED for part in relative.split("/")[:-1])
    }
    if not found:
        raise FormatError(f"there is no {url}, or it is empty; give {paths()}.")
    return files, found


def _listing(url: str) -> dict[str, list[str]]:
    """Path of each file of a source, below it (empty for the source itself) -> its size, and version or checksum."""
    files, found = _found(url)
    listing = {}
    for relative, member in found.items():
        version = [str(member.info[key]) for key in _VERSION_KEYS if member.info.get(key) is not None]
        if not version:
            with failures_of(url), files.open(member.name) as file:
                version = [_digest(file)]
        listing[relative] = [str(member.info.get("size")), *version]
    return listing


def _digest(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
