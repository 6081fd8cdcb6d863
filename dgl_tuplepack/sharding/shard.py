"""A shard: the source of its graphs, its name, and how a change of its source is noticed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgl_tuplepack._files import cannot
from dgl_tuplepack.errors import FormatError, InputError, SizesError
from dgl_tuplepack.sharding.members import (
    Member,
    copy_members,
    failures_of,
    file_system,
    is_local,
    members,
    target_name,
)
from dgl_tuplepack.sources import derived_folders, paths, recognised, resolve
from dgl_tuplepack.store.format import MANIFEST, METADATA

# Keys by which file systems tell the version of a file.
_VERSION_KEYS = (
    "ETag", "etag", "md5Hash", "Content-MD5", "Digest", "content_hash", "sha", "CRC", "mtime", "LastModified",
    "Last-Modified", "last_modified", "modify", "modificationTime", "date_time", "created",
)  # fmt: skip
# Names of files that lie beside shards, or by which folders are recognised.
_RESERVED = (MANIFEST, METADATA)
# Bytes read at once.
_CHUNK = 2**20
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Shard:
    """One shard of a dataset; small, so that it can be sent to a worker.

    Attributes
    ----------
    name
        Name of its folder.
    source
        A path that `GraphStore.write` takes, the fsspec URL of such a place, or an object that `GraphStore.write` takes
        and that can be pickled.
    settings
        Keywords for a source that is a path, such as those of `OgbFolder`; other kinds of sources ignore them.
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
        """Whether the source is read from known files."""
        return _files_of(self.source) is not None

    def local_path(self) -> Path | None:
        """Return the path of the source, links resolved; None if it is an object, or not on a local file system."""
        try:
            url = _files_of(self.source)
            if url is None:
                return None
            files, path = file_system(url)
            return Path(path).resolve() if is_local(files) else None
        except (FormatError, OSError, RuntimeError, ValueError):
            # A loop of links, for instance. It is reported when it is read, with the failures of other shards.
            return None

    def identity(self) -> str | None:
        """Return a SHA-256 of names, sizes and times of the files of the source; None if it is an object without files.

        Files are read if their file system tells neither time nor tag nor checksum. FormatError if the source cannot be
        reached.
        """
        url = _files_of(self.source)
        if url is None:
            return None
        settings = self.settings if self.is_path else resolve(self.source).settings
        return hashlib.sha256(json.dumps([_listing(url), dict(settings)], sort_keys=True).encode()).hexdigest()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Give the source as `GraphStore.write` takes it; files on another machine are copied first."""
        if not self.is_path:
            yield self.source
            return
        files, path = file_system(self.source)
        if is_local(files):
            yield resolve(path, self.settings)
            return
        with tempfile.TemporaryDirectory(prefix="dgl-tuplepack-") as folder:
            # Under its own name, by which OGB datasets are known.
            copy = Path(folder) / target_name(path, self.source)
            files, found = _found(self.source)
            copy_members(files, found, copy, self.source)
            try:
                yield resolve(copy, self.settings)
            except InputError as error:
                # The copy is gone when the message is read.
                raise type(error)(str(error).replace(str(copy), self.source)) from error


def as_shards(shards: Sequence[Any] | Mapping[str, Any], settings: Mapping[str, Any]) -> list[Shard]:
    """Name all shards; names are plain folder names, and distinct (SizesError if they cannot be).

    A path is named by its last component, or by as many of the last components as distinguish it from the others.
    """
    if isinstance(shards, str | bytes | os.PathLike):
        raise SizesError(f"shards must be a list or a mapping, but are the path {str(shards)!r}; put it into a list.")
    if not shards:
        raise SizesError("there are no shards; give at least one.")
    sources = [_as_source(source) for source in (shards.values() if isinstance(shards, Mapping) else shards)]
    if isinstance(shards, Mapping):
        names = [_plain(str(name)) for name in shards]
    else:
        names = [f"shard-{number:05d}" for number in range(len(sources))]
        places = {number: place for number, source in enumerate(sources) if (place := _place_of(source))}
        for length in range(1, 1 + max(map(len, places.values()), default=0)):
            names = [_plain("-".join(places[i][-length:])) if i in places else name for i, name in enumerate(names)]
            if len(set(names)) == len(names):
                break
    reserved = [name for name in names if name.lower() in _RESERVED]
    if reserved:
        raise SizesError(
            f"no shard can be called {reserved[0]!r}, which is the name of a file of a dataset; give a mapping from "
            "other names to shards."
        )
    repeated = [name for name, number in Counter(names).items() if number > 1]
    if repeated:
        raise SizesError(
            f"two shards are called {repeated[0]!r}; give each shard once, or in Python a mapping of names to shards."
        )
    return [Shard(name, source, settings) for name, source in zip(names, sources, strict=True)]


def check_apart(shards: Sequence[Shard], out: Path) -> None:
    """Refuse (SizesError) a source that is the folder of a shard in `out`, lies in such a folder, or holds one."""
    try:
        folders = {(out / shard.name).resolve(): shard.name for shard in shards}
    except (OSError, RuntimeError, ValueError) as error:
        # A loop of links, for instance.
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
    """Return the path or URL of the files that a source is read from; None for an object without files."""
    if isinstance(source, str):
        return source
    known = recognised(source)
    return None if known is None or known.files is None else str(known.files)


def _place_of(source: Any) -> list[str]:
    """Return the components of the path of a source; none if it has no path."""
    url = _files_of(source)
    if url is None:
        return []
    # The first link with a path, in a URL of several links such as "zip://part.bin::s3://bucket/archive.zip".
    link = next((link for link in url.split("::") if "://" in link), url)
    return [part for part in link.rpartition("://")[2].replace(os.sep, "/").split("/") if part]


def _plain(name: str) -> str:
    plain = _NOT_PLAIN.sub("_", name.removesuffix(".bin")).lstrip(".-")
    return plain or "_"


def _found(url: str) -> tuple[Any, dict[str, Member]]:
    """Return the file system of a source, and its files by their paths below it; without derived folders."""
    files, path = file_system(url)
    found = members(files, path, url)
    derived = derived_folders(found)
    found = {relative: member for relative, member in found.items() if not relative.startswith(derived)}
    if not found:
        raise FormatError(f"there is no {url}, or it is empty; give {paths()}.")
    return files, found


def _listing(url: str) -> dict[str, list[str]]:
    """Return size, and version or checksum, of each file of a source, by its path below it."""
    files, found = _found(url)
    listing = {}
    for relative, member in found.items():
        version = [str(member.info[key]) for key in _VERSION_KEYS if member.info.get(key) is not None]
        if not version:
            with failures_of(url), files.open(member.name) as file:
                digest = hashlib.sha256()
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
            version = [digest.hexdigest()]
        listing[relative] = [str(member.info.get("size")), *version]
    return listing
