"""Find functions and classes of higher rooms that lower rooms need, by role; import them at first use.

The package registers them when it is imported, so the code of a lower room does not name a higher room.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_WHERE: dict[str, str] = {}


def register(role: str, where: str) -> None:
    """Register the object that plays a role, as "package.module:name"."""
    _WHERE[role] = where


def is_loaded(role: str) -> bool:
    """Return whether the room of the object that plays a role is imported."""
    return _WHERE[role].rpartition(".")[0] in sys.modules


def find(role: str) -> Any:
    """Import and return the object that plays a role."""
    module, _, name = _WHERE[role].partition(":")
    return getattr(importlib.import_module(module), name)
