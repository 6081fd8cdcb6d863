"""Plan files: damaged, foreign, newer or altered ones are refused, with what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgl_tuplepack import Limits, PackPlan, SizeHistogram, pack
from dgl_tuplepack.errors import FormatError
from tests.support.messages import refused

HISTOGRAM = SizeHistogram.from_counts({(3, 2): 4, (2, 2): 3, (5, 6): 1})
PLAN = pack(HISTOGRAM, Limits(7, 7, 4), heuristic="sum", seed=2**64 - 1)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda d: d.update(format="dgl_tuplepack.histogram"), ("not a dgl_tuplepack.plan file", "histogram")),
        (lambda d: d.clear(), ("not a dgl_tuplepack.plan file", "None")),
        (lambda d: d.update(version=2), ("version 2", "reads version 1")),
        (lambda d: d.update(repeats=[9] * len(d["repeats"])), ("no valid plan", "graphs of size")),
        (lambda d: d.update(classes=[0.5]), ("no valid plan", "float")),
        (lambda d: d.update(lower_bound=99), ("no valid plan", "99")),
        (lambda d: d.update(seed="abc"), ("no valid plan", "abc")),
        (lambda d: d.update(method=None), ("no valid plan", "method")),
        (lambda d: d.update(versions=3), ("no valid plan", "versions")),
        (lambda d: d["limits"]["maxima"].update(nodes=4), ("no valid plan", "nodes=4")),
        (lambda d: d["limits"]["maxima"].update(nodes=8), ("no valid plan", "fingerprint", "make the plan again")),
        (lambda d: d.update(fingerprint="0" * 64), ("no valid plan", "fingerprint")),
        (lambda d: d.update(checksum="0" * 64), ("was altered", "checksum")),
    ],
)
def test_a_changed_file_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], parts: tuple[str, ...]
) -> None:
    path = tmp_path / "plan.json"
    PLAN.save(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with refused(FormatError, str(path), *parts):
        PackPlan.load(path)
