"""Whether torch.compile traces the code that asks."""

from __future__ import annotations

from collections.abc import Callable

import torch


def _never() -> bool:
    return False


# Torch before 2.3 does not have it.
is_traced: Callable[[], bool] = getattr(torch.compiler, "is_compiling", _never)
