"""Compiled code of one test is never seen by another one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def forget() -> Iterator[None]:
    """Forget what is compiled, before and after a test, and where torch's cache on disk is."""
    torch.compiler.reset()
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    yield
    torch.compiler.reset()
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
    if before is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
