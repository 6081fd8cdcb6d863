"""Profiles of hypothesis, and what must be set before torch and DGL are imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Without a choice DGL prints a notice and writes a file into the home directory.
os.environ.setdefault("DGLBACKEND", "pytorch")
# Test processes run side by side, one to a core; threads of their own would only fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No deadlines: the first call of a kernel may compile, and this machine may be busy.
settings.register_profile("quick", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Development data that lies beside the checkout; a user has none."""
    if not SHARED.is_dir():
        pytest.skip(f"development data is absent: {SHARED}")
    return SHARED
