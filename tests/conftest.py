"""Profiles of hypothesis, and what must be set before torch and DGL are imported."""

from __future__ import annotations

import gc
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from tests.needs import HAS_DGL, needs_dgl

# Without a choice DGL prints a notice and writes a file into the home directory.
os.environ.setdefault("DGLBACKEND", "pytorch")
# Test processes run side by side, one to a core; threads of their own would only fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Numba does not see a change in a function of another file that a kernel calls.
ROOT = Path(__file__).resolve().parents[1]
SOURCES = b"".join(path.read_bytes() for path in sorted((ROOT / "dgl_tuplepack" / "_core" / "kernels").glob("*.py")))
KERNELS = ROOT / ".pytest_cache" / f"kernels-{hashlib.sha256(SOURCES).hexdigest()[:16]}"
os.environ.setdefault("NUMBA_CACHE_DIR", str(KERNELS))

pytest_plugins = ["tests.support.command"]

# No time is checked: the first call of a kernel may compile, and this machine may be busy.
PATIENT: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=50, derandomize=True, **PATIENT)
settings.register_profile("few", max_examples=25, derandomize=True, **PATIENT)
settings.register_profile("thorough", max_examples=1000, **PATIENT)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
settings.load_profile(PROFILE)
# In these folders, most examples make batches or write a store.
SLOW_EXAMPLES = ("batches", "graphs", "loading", "storage")


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Choose the number of examples of a file before it is imported."""
    few = PROFILE == "quick" and collector.path.parent.name in SLOW_EXAMPLES
    settings.load_profile("few" if few else PROFILE)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out, where DGL is not installed, the files that import it."""
    return True if not HAS_DGL and collection_path.suffix == ".py" and needs_dgl(collection_path) else None


def pytest_configure(config: pytest.Config) -> None:
    # A machine with one core makes torch remark on two workers.
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create:UserWarning")
    # The tests' few graphs seldom fill batches of the number that is asked for; examples in the docs must (test_docs).
    config.addinivalue_line("filterwarnings", "ignore:graphs_per_batch is .* on average:UserWarning")
    config.addinivalue_line("markers", "slow: takes long; leave it out while you work, by -m 'not slow'.")
    config.addinivalue_line("markers", "compile: compiles with torch.compile; needs g++.")
    config.addinivalue_line("markers", "processes: starts processes.")
    config.addinivalue_line("markers", "dgl: needs DGL, although the file does not import it.")
    config.addinivalue_line("markers", "without_dgl: tells nothing more where DGL is installed.")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, where DGL is not installed, the marked tests; where it is, skip those for which it must not be."""
    left_out = [item for item in items if not HAS_DGL and item.get_closest_marker("dgl")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
    if "PYTEST_XDIST_WORKER" in os.environ:
        # What takes long begins first, so that no process is left alone with it.
        items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    named = {Path(argument.partition("::")[0]).absolute() for argument in config.args}
    for item in items:
        if HAS_DGL and item.path not in named and item.get_closest_marker("without_dgl"):
            reason = f"DGL is installed; name {item.path.name} on the command line, or use run.py --without-dgl"
            item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish() -> None:
    """Let the garbage collector leave out what imports have made; many tests collect, and each pass would visit it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def forget() -> Iterator[None]:
    """Forget what is compiled, before and after a test, and where torch's cache on disk is."""
    import torch

    torch.compiler.reset()
    with patch.dict(os.environ):
        yield
    torch.compiler.reset()


SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Development data that lies beside the checkout; a user has none."""
    if not SHARED.is_dir():
        pytest.skip(f"development data is absent: {SHARED}")
    return SHARED
