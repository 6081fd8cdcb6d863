"""Find functions and classes by their role, and import them at first use.

If room (subpackage) B may import room A, then A must not import B. But sometimes A needs a function or class of B. So
the ``__init__.py`` of the package registers that object under a role (a name), and A finds the object by this role.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

# Role -> the object's module and name, "package.module:name".
_WHERE: dict[str, str] = {}


def register(role: str, where: str) -> None:
    """Register the object for a role; `where` is the object's module and name, "package.module:name"."""
    _WHERE[role] = where


def is_loaded(role: str) -> bool:
    """Return whether the room of the object for a role is imported."""
    # The object "a.b.c:name" is in the room "a.b".
    return _WHERE[role].rpartition(".")[0] in sys.modules


def find(role: str) -> Any:
    """Import and return the object for a role."""
    module, _, name = _WHERE[role].partition(":")
    return getattr(importlib.import_module(module), name)
