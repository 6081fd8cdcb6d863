"""Files of a source on any file system that fsspec knows: listing and copying them."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError
from dgl_tuplepack.sources import paths


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    with failures_of(url):
        # Names of files are asked for again each time: sources may change.
        files, path = load("fsspec").core.url_to_fs(url, use_listings_cache=False)
        return files, str(path)


def is_local(files: Any) -> bool:
    """Whether a file system is that of this machine."""
    return "file" in ((files.protocol,) if isinstance(files.protocol, str) else files.protocol)


def listed(files: Any, path: str, url: str) -> dict[str, dict[str, Any]]:
    """Return what the file system reports of each file of a source, by its path below the source ("." for itself).

    FormatError if the source cannot be listed or has no files, or if a file lies outside of it, as the members of a
    forged archive may.
    """
    with failures_of(url):
        found = {path: files.info(path)} if files.isfile(path) else files.find(path, detail=True)
    below = {posixpath.relpath(name, path or "."): info for name, info in found.items()}
    outside = [name for name in below if name == ".." or name.startswith("../")]
    if outside:
        raise FormatError(f"{url:.300} holds {outside[0]!r:.200}, which lies outside of it; do not trust it.")
    if not below:
        raise FormatError(f"there is no {url}, or it is empty; give {paths()}.")
    return below


def copy_files(files: Any, found: Mapping[str, dict[str, Any]], target: Path, url: str) -> None:
    """Copy the files of a source, as `listed` returns them, to `target`."""
    with failures_of(url):
        for name, info in found.items():
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(info["name"], str(place))


@contextlib.contextmanager
def failures_of(url: str) -> Iterator[None]:
    """Turn what a file system raises, of any class, on reading `url`, into a FormatError."""
    try:
        yield
    except Exception as error:
        raise FormatError(
            f"cannot read {url}: {type(error).__name__}: {error!s:.300}; check the place, and the space for a copy."
        ) from error
