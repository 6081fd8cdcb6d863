"""Import optional packages, and objects of higher rooms (subpackages), at first use.

The error for a missing package names the extra that installs it. A room must not import a higher one, so
``dgl_tuplepack/__init__.py`` registers objects of higher rooms under a role.
"""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType
from typing import Any

from dgl_tuplepack.errors import MissingDependencyError

KNOWN_GOOD = "dgl 1.1.3 (with packaging), torch 2.13.0 and numpy 2.4 on Python 3.11"
# Package -> arguments of pip install, if they are not only the name of the package. Torch 2.14 is the first version
# without known bugs in compiled code (`compiling/torch_versions.py`).
_PINNED = {"torch": '"torch>=2.14"', "dgl": 'dgl==1.1.3 packaging torch==2.13.0 "numpy==2.4.*"'}
# Package -> extra of setup.cfg that installs it. Every package in `needs` in graphs/readers/kinds.py must be a key.
EXTRAS = {
    "torch": "torch", "dgl": "dgl", "ogb": "ogb", "pandas": "ogb", "matplotlib": "plots", "jinja2": "report",
    "fsspec": "torch", "distributed": "dask", "torch_geometric": "pyg", "pyarrow": "parquet", "scipy": "dgl",
    "ase": "ase",
}  # fmt: skip
# Role -> "package.module:name".
_ROLES: dict[str, str] = {}


def load(name: str) -> ModuleType:
    """Import an optional package, or a module inside it; raise MissingDependencyError if that fails."""
    package = name.partition(".")[0]
    if package == "dgl":
        # If no backend is set, DGL prints a notice and writes a file into the home directory.
        os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        return importlib.import_module(name)
    except (ImportError, OSError, RuntimeError) as error:
        raise missing(package, error) from error


def missing(package: str, error: Exception) -> MissingDependencyError:
    """Return the error for an optional package that could not be imported."""
    absent = isinstance(error, ModuleNotFoundError) and error.name == package
    state = "is not installed" if absent else f"is installed but cannot be loaded ({error})"
    together = wheels = ""
    if package == "dgl":
        together = f" Known to work together: {KNOWN_GOOD}."
        wheels = " DGL 1.1.3 has wheels for Python 3.8 to 3.11 only." if sys.version_info >= (3, 12) else ""
    return MissingDependencyError(
        f"{package} {state}; it is needed here (extra: dgl_tuplepack[{EXTRAS[package]}]).{wheels} Install it "
        f"with pip install {_PINNED.get(package, package)}.{together} The repository's scripts/constraints.txt pins "
        "the whole tested set."
    )


def register(role: str, where: str) -> None:
    """Register the object for a role; `where` is "package.module:name"."""
    _ROLES[role] = where


def is_loaded(role: str) -> bool:
    """Return whether the room of the object for a role is imported."""
    return _ROLES[role].rpartition(".")[0] in sys.modules


def registered(role: str) -> Any:
    """Import and return the object for a role."""
    module, _, name = _ROLES[role].partition(":")
    return getattr(importlib.import_module(module), name)
