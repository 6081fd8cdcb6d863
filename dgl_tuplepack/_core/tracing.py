"""Whether torch.compile is tracing the calling code."""

from __future__ import annotations

from collections.abc import Callable

import torch

# Torch before 2.3 does not have `is_compiling`.
is_traced: Callable[[], bool] = getattr(torch.compiler, "is_compiling", lambda: False)
