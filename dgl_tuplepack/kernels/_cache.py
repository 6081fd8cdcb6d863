"""Where compiled kernels are kept between runs: a folder of the user, outside the package.

numba keeps them inside the package, where they outlive an uninstall and cannot be written by everyone, and it does not
see a change in a kernel that another file's kernel calls. Its index of files has no checksums either, and two processes
that compile the same kernel for different types may give one file two meanings.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import sys
import warnings
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numba
from numba.core import caching, compiler, serialize

_DIGEST_BYTES = hashlib.sha256().digest_size
_RESULT: Any = compiler.CompileResult
_DUMPS: Any = serialize.dumps


def keep_compiled(dispatcher: Any, function: FunctionType) -> None:
    """Let a dispatcher keep what it compiles on the disk."""
    if all(hasattr(*part) for part in ((dispatcher, "_cache"), (_RESULT, "_reduce"), (_RESULT, "_rebuild"))):
        dispatcher._cache = KernelCache(function)
        return
    # A version of numba that has other inner parts keeps it in its own way.
    try:
        dispatcher.enable_caching()
    except RuntimeError as error:
        warn_uncached(error)


def cache_folder() -> Path:
    """Folder of compiled kernels: in ``NUMBA_CACHE_DIR``, or in the user's cache folder; OSError without one."""
    chosen = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    return (Path(chosen) if chosen else _caches_of_user()).absolute() / "dgl_tuplepack"


def _caches_of_user() -> Path:
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    chosen = os.environ.get(variable)
    if chosen and os.path.isabs(chosen):
        return Path(chosen)
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise OSError("the user has no home folder")
    return Path(home, "Library", "Caches") if sys.platform == "darwin" else Path(home, ".cache")


@functools.cache
def _sources() -> str:
    """Digest of the sources of all kernels: any of them may be compiled into any other."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


class KernelCache(caching.NullCache):
    """Compiled forms of one kernel on the disk: what a dispatcher of numba asks of its cache.

    There is one file for each signature. Its name holds a digest of all that the compiled form depends on, and it
    begins with a checksum. What cannot be read is compiled again; what cannot be written is not kept.
    """

    def __init__(self, function: FunctionType) -> None:
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """Read the compiled form for a signature; None if there is none that can be used."""
        target_context.refresh()
        # Whatever is wrong with a file, the kernel can be compiled.
        with contextlib.suppress(Exception):
            content = self._path(signature, target_context.codegen()).read_bytes()
            checksum, data = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
            if hashlib.sha256(data).digest() == checksum:
                return _RESULT._rebuild(target_context, *pickle.loads(data))
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Keep a compiled form; a failure is a warning, since the process can go on with what it has."""
        if compiled.lifted or compiled.library.has_dynamic_globals:
            return
        try:
            data: bytes = _DUMPS(compiled._reduce())
            _write(self._path(signature, compiled.codegen), hashlib.sha256(data).digest() + data)
        except Exception as error:
            warn_uncached(error)

    def _path(self, signature: Any, codegen: Any) -> Path:
        versions = (numba.__version__, llvmlite.__version__, sys.implementation.cache_tag)
        key = repr((versions, _sources(), signature, codegen.magic_tuple()))
        return cache_folder() / f"{self._name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.nbc"


def _write(path: Path, content: bytes) -> None:
    """Write a file and rename it into place, so that processes that write the same do not disturb each other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{os.urandom(4).hex()}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


_warned = False


def warn_uncached(error: Exception) -> None:
    """Say once that kernels will be compiled at each start, and what to do."""
    global _warned
    processes = sys.modules.get("multiprocessing.process")
    # A worker process is one of many; the process that started it has said so.
    if _warned or (processes is not None and processes.parent_process() is not None):
        return
    _warned = True
    try:
        place = f"in {cache_folder()} "
    except OSError:
        place = ""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    warnings.warn(
        f"compiled code cannot be kept {place}({reason}), so every start compiles again, which takes a minute; "
        "set NUMBA_CACHE_DIR to a folder that can be written and has space left.",
        stacklevel=2,
    )
