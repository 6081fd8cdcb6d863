"""A module whose forward pass is compiled, with the attributes and state dict of the module itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class CompiledModule(nn.Module):
    """A module whose forward pass is compiled; attributes, parameters and modes are those of the module it holds."""

    def __init__(self, module: nn.Module, compiled: Callable[..., Any]) -> None:
        super().__init__()
        self._call_compiled = compiled
        self.training = module.training
        # From here on, other attributes are set on this one.
        self._orig_mod = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled module."""
        return self._call_compiled(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Find attributes of the module that is compiled."""
        held = self.__dict__.get("_modules", {})
        if name == "_orig_mod" or "_orig_mod" not in held:
            return super().__getattr__(name)
        return getattr(held["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set attributes on the module that is compiled, which reads them."""
        if name in self.__dict__ or name == "_orig_mod" or "_orig_mod" not in self.__dict__.get("_modules", {}):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __repr__(self) -> str:
        return f"<compiled {self._orig_mod!r}>"
