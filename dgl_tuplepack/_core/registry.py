"""Find functions and classes by the name of their role, and import them at first use.

Some rooms (subpackages) need objects of higher rooms, which they must not import. So the ``__init__.py`` of the package
registers these objects under roles, and the lower room looks them up.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

# Role -> "package.module:name".
_WHERE: dict[str, str] = {}


def register(role: str, where: str) -> None:
    """Register the object that plays a role, as "package.module:name"."""
    _WHERE[role] = where


def is_loaded(role: str) -> bool:
    """Return whether the room of the object that plays a role is imported."""
    # "a.b.c:name" is in the room "a.b".
    return _WHERE[role].rpartition(".")[0] in sys.modules


def find(role: str) -> Any:
    """Import and return the object that plays a role."""
    module, _, name = _WHERE[role].partition(":")
    return getattr(importlib.import_module(module), name)
