"""Where shards come from and go to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.shards import write_bins


@pytest.fixture
def bins(tmp_path: Path) -> list[Path]:
    """Three files of 20 molecules each."""
    return write_bins(tmp_path, 3)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"
