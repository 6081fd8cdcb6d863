"""The sources of shards: their names, their files on any fsspec file system, and a hash that changes with the files."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import FormatError, InputError, SizesError
from dgl_tuplepack.graphs.readers.kinds import paths, recognised, resolve
from dgl_tuplepack.storage.format import MANIFEST, METADATA

# Names that no shard may have: MANIFEST lies next to the shards, and METADATA would mark the dataset as a store.
_RESERVED = (MANIFEST, METADATA)
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Shard:
    """The name and the source of a shard."""

    name: str
    # A path or picklable object that `GraphStore.write` accepts, or the fsspec URL of such a path.
    source: Any
    # Keywords for a source that is a path, such as those of `OgbFolder`; other sources ignore them.
    settings: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> str | None:
        """Return a SHA-256 of the settings, and of what the file system reports about the files; None without files."""
        url = _files_of(self.source)
        if url is None:
            return None
        # An object, such as an `OgbFolder`, has settings of its own.
        settings = self.settings if isinstance(self.source, str) else resolve(self.source).settings
        content = [_listed(*_file_system(url), url), dict(settings)]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """Provide the source for `GraphStore.write` in a ``with`` block; files that are not local are copied first."""
        if not isinstance(self.source, str):
            yield self.source
            return
        files, path = _file_system(self.source)
        if _is_local(files):
            yield resolve(path, self.settings)
            return
        with tempfile.TemporaryDirectory(prefix="dgl-tuplepack-") as folder:
            # Give the copy the name of the source: the name of an OGB folder identifies the dataset.
            copy = Path(folder) / (posixpath.basename(path.rstrip("/")).lstrip(".") or "source")
            found = _listed(files, path, self.source)
            with _failures_of(self.source):
                for name, info in found.items():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    files.get_file(info["name"], str(copy / name))
            try:
                yield resolve(copy, self.settings)
            except InputError as error:
                # The message must name the source, since the copy is deleted.
                raise type(error)(str(error).replace(str(copy), self.source)) from error


def as_shards(shards: Sequence[Any] | Mapping[str, Any], settings: Mapping[str, Any]) -> list[Shard]:
    """Return the shards, with distinct plain names; raise SizesError if this is impossible.

    In a list, names are the last components of paths: one or, if names repeat, two or more for all paths.
    """
    if isinstance(shards, str | bytes | os.PathLike):
        raise SizesError(f"shards must be a list or a mapping, but got the path {str(shards)!r}; put it into a list.")
    if not shards:
        raise SizesError("there are no shards; give at least one.")
    sources = [_as_source(source) for source in (shards.values() if isinstance(shards, Mapping) else shards)]
    if isinstance(shards, Mapping):
        names = [_plain(str(name)) for name in shards]
    else:
        names = [f"shard-{number:05d}" for number in range(len(sources))]
        paths_of = {number: path for number, source in enumerate(sources) if (path := _path_components(source))}
        for length in range(1, 1 + max(map(len, paths_of.values()), default=0)):
            names = [_plain("-".join(paths_of[i][-length:])) if i in paths_of else name for i, name in enumerate(names)]
            if len(set(names)) == len(names):
                break
    for name, number in Counter(names).items():
        if name.lower() in _RESERVED:
            raise SizesError(
                f"no shard can be called {name!r}, the name of a file of a dataset; give a mapping from other names to "
                "shards."
            )
        if number > 1:
            raise SizesError(
                f"two shards have the name {name!r}; give each shard once, or in Python a dict of names to shards."
            )
    return [Shard(name, source, settings) for name, source in zip(names, sources, strict=True)]


def check_apart(shards: Sequence[Shard], out: Path) -> None:
    """Raise SizesError for a source that is the folder of a shard in `out`, lies in such a folder, or contains one."""
    folders = {Path(os.path.realpath(out / shard.name)) for shard in shards}
    parents = {parent for folder in folders for parent in folder.parents}
    for shard in shards:
        path, url = None, _files_of(shard.source)
        # An error is raised again, and reported, when the source is read.
        with contextlib.suppress(FormatError, ValueError):
            files, name = _file_system(url) if url is not None else (None, "")
            path = Path(os.path.realpath(name)) if files is not None and _is_local(files) else None
        if path is not None and (path in parents or not folders.isdisjoint((path, *path.parents))):
            raise SizesError(
                f"the shard {shard.name} is read from {path}, but a shard would be written to that folder, into it or "
                "around it; choose another folder for the dataset."
            )


def _as_source(source: Any) -> Any:
    """Return a local path as text, absolute for worker processes; return URLs and other objects unchanged."""
    source = os.fspath(source) if isinstance(source, os.PathLike) else source
    return os.path.abspath(source) if isinstance(source, str) and "://" not in source else source


def _files_of(source: Any) -> str | None:
    """Return the path or URL of the files that a source is read from; None for an object without files."""
    if isinstance(source, str):
        return source
    known = recognised(source)
    return None if known is None or known.files is None else str(known.files)


def _path_components(source: Any) -> list[str]:
    url = _files_of(source) or ""
    # In a chained URL, such as "zip://part.bin::s3://bucket/archive.zip", use the first URL that has a path.
    link = next((link for link in url.split("::") if "://" in link), url)
    return [part for part in link.rpartition("://")[2].replace(os.sep, "/").split("/") if part]


def _plain(name: str) -> str:
    """Return a name without the ending .bin, and without characters that names of shards cannot have."""
    return _NOT_PLAIN.sub("_", name.removesuffix(".bin")).lstrip(".-") or "_"


def _file_system(url: str) -> tuple[Any, str]:
    with _failures_of(url):
        # Use no cached lists of files: sources may change.
        files, path = load("fsspec").core.url_to_fs(url, use_listings_cache=False)
        return files, str(path)


def _is_local(files: Any) -> bool:
    return "file" in ((files.protocol,) if isinstance(files.protocol, str) else files.protocol)


def _listed(files: Any, path: str, url: str) -> dict[str, dict[str, Any]]:
    """Return what the file system reports about each file of a source, by its path in the source ("." for one file)."""
    with _failures_of(url):
        found = {path: files.info(path)} if files.isfile(path) else files.find(path, detail=True)
    below = {posixpath.relpath(name, path or "."): info for name, info in found.items()}
    outside = [name for name in below if name == ".." or name.startswith("../")]
    if outside:
        raise FormatError(f"{url:.300} holds {outside[0]!r:.200}, which lies outside it; do not trust it.")
    if not below:
        raise FormatError(f"there is no {url}, or it is empty; give {paths()}.")
    return below


@contextlib.contextmanager
def _failures_of(url: str) -> Iterator[None]:
    """Turn any exception in the ``with`` block, in which a file system reads `url`, into a FormatError."""
    try:
        yield
    except Exception as error:
        raise FormatError(
            f"cannot read {url}: {type(error).__name__}: {error!s:.300}; check the path, and the space for a copy."
        ) from error
