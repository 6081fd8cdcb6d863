"""Find functions and classes of higher rooms (subpackages) by their role, and import them at first use.

``dgl_tuplepack/__init__.py`` registers them, since a room must not import a higher one.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

# Role -> "package.module:name".
_WHERE: dict[str, str] = {}


def register(role: str, where: str) -> None:
    """Register the object for a role; `where` is "package.module:name"."""
    _WHERE[role] = where


def is_loaded(role: str) -> bool:
    """Return whether the room of the object for a role is imported."""
    return _WHERE[role].rpartition(".")[0] in sys.modules


def find(role: str) -> Any:
    """Import and return the object for a role."""
    module, _, name = _WHERE[role].partition(":")
    return getattr(importlib.import_module(module), name)
