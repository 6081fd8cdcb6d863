"""Files of a source on any file system: listing and copying them; names in a listing are not trusted."""

from __future__ import annotations

import contextlib
import posixpath
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dgl_tuplepack._files import open_file
from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import FormatError

# A drive letter of Windows.
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True)
class Member:
    """One file of a source: its name on the file system, and what that tells of it."""

    name: str
    info: dict[str, Any]


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it."""
    fsspec = load("fsspec")
    within, _, archive = url.rpartition("::")
    protocol, _, path = archive.rpartition("://")
    if within and protocol in ("", "file", "local"):
        # The archive is opened at once, and a pipe would wait for a writer.
        open_file(path).close()
    with failures_of(url):
        # Names of files are asked for again each time: sources may change.
        files, path = fsspec.core.url_to_fs(url, use_listings_cache=False)
        return files, str(path)


def is_local(files: Any) -> bool:
    """Whether a file system is that of this machine."""
    protocols = (files.protocol,) if isinstance(files.protocol, str) else files.protocol
    return "file" in protocols


def members(files: Any, path: str, url: str) -> dict[str, Member]:
    """Return each file of a source by its path below the source (empty for the source itself).

    FormatError if the source cannot be listed completely; or it lies elsewhere, and a file is not a plain one or would
    not lie below the folder that it is copied to.
    """
    listed = _listed(files, path, url)
    if is_local(files):
        # Nothing is copied.
        return {posixpath.relpath(name, path) if name != path else "": Member(name, info) for name, info in listed}
    irregular = _irregular(files)
    below: dict[str, Member] = {}
    for name, info in listed:
        relative = _below(name, path, files.root_marker)
        wrong = _unsafe(relative)
        if not wrong and (name in irregular or not _is_plain(info)):
            wrong = "is a link, a device or something else, but not a plain file"
        if not wrong and relative in below:
            wrong = f"has the same path as {below[relative].name!r:.200}"
        if wrong or relative is None:
            raise FormatError(
                f"{url:.300} holds {name!r:.200}, which {wrong}; do not trust it, or make it again from plain files."
            )
        below[relative] = Member(name, info)
    return below


def _listed(files: Any, path: str, url: str) -> list[tuple[str, dict[str, Any]]]:
    """Names of the files at a path, and what the file system tells of each; none if there is nothing."""
    kind, general = type(files), load("fsspec").AbstractFileSystem
    general_async = load("fsspec.asyn").AsyncFileSystem
    walks = kind.find is general.find and getattr(kind, "_find", general_async._find) is general_async._find
    with failures_of(url):
        try:
            info = files.info(path)
        except FileNotFoundError:
            # Some file systems have files below a path, but know of no folder there.
            info = None
        if info is not None and info["type"] == "file":
            listed: Iterable[tuple[str, Any]] = [(path, info)]
        elif walks:
            listed = [] if info is None else _walked(files, path)
        else:
            listed = files.find(path, detail=True).items()
        return sorted((str(name), dict(info)) for name, info in listed)


def _walked(files: Any, folder: str) -> Iterator[tuple[str, Any]]:
    """Files below a folder. The `find` of fsspec itself leaves out folders that it fails to read; here they raise."""
    for info in files.ls(folder, detail=True):
        if info["type"] != "directory":
            yield info["name"], info
        elif info["name"].rstrip("/") != folder.rstrip("/"):
            yield from _walked(files, info["name"])


def copy_members(files: Any, found: dict[str, Member], target: Path, url: str) -> None:
    """Copy all files of a source below `target`; FormatError if one fails, or would replace another."""
    with failures_of(url, target):
        for relative, member in found.items():
            place = target.joinpath(*relative.split("/")) if relative else target
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.exists():
                raise FileExistsError(f"two files have the name {relative!r:.200}")
            files.get_file(member.name, str(place))


def target_name(path: str, url: str) -> str:
    """Return the last part of a path, as the name of a copy; FormatError if it is not a plain name."""
    name = posixpath.basename(path.rstrip("/"))
    if name and _unsafe(name):
        raise FormatError(f"{url:.300} leads to {path!r:.200}, whose last part is not a plain name; give another path.")
    # The root of an archive has no name.
    return name or "source"


@contextlib.contextmanager
def failures_of(url: str, target: Path | None = None) -> Iterator[None]:
    """Turn what a file system raises, of any class, on reading `url` or copying it to `target`, into a FormatError."""
    try:
        yield
    except Exception as error:
        task = f"read {url}" if target is None else f"copy {url} to {target}"
        raise FormatError(f"cannot {task}: {type(error).__name__}: {error!s:.300}; check the place.") from error


def _below(name: str, path: str, root: str) -> str | None:
    """`name` below `path`, as text alone; None if it does not lie there."""
    if name == path:
        return ""
    folder = path.rstrip("/") + "/" if path.rstrip("/") else root
    # Archives of a whole folder begin their names with "./".
    below = name.removeprefix(folder).removeprefix("./") if name.startswith(folder) else ""
    return below or None


def _unsafe(relative: str | None) -> str | None:
    """Why a file of this path might be copied to another place than below its folder; None if it cannot."""
    if relative is None or relative.startswith("/"):
        return "lies outside of it"
    if not relative:
        return None
    if any(part in ("", ".", "..") for part in relative.split("/")):
        return "is not a plain path below it"
    if "\\" in relative or "\0" in relative or _DRIVE.match(relative):
        return "may mean a place outside of it"
    return None


def _is_plain(info: dict[str, Any]) -> bool:
    """Whether a file system tells of a plain file."""
    if info.get("type", "file") != "file" or info.get("islink") or info.get("linkname"):
        return False
    # Of a member of a zip file, which is called a file also where it is a link.
    return stat.S_IFMT((info.get("external_attr") or 0) >> 16) in (0, stat.S_IFREG)


def _irregular(files: Any) -> set[str]:
    """Names of the members of a tar file that are neither files nor folders, all of which fsspec calls files."""
    archive = getattr(files, "tar", None)
    if not isinstance(archive, tarfile.TarFile):
        return set()
    return {re.sub("/+", "/", entry.name) for entry in archive.getmembers() if not (entry.isreg() or entry.isdir())}
