"""The benchmark on a GPU, tiny and on the CPU: all parts run, without DGL too, and what fails loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.processes import ROOT, output_of, run

pytestmark = [pytest.mark.processes, pytest.mark.slow]


@pytest.mark.compile
def test_all_parts_run(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    done = run(ROOT / "scripts" / "benchmark.py", "gpu", "--out", out, "--device", "cpu", "--small")
    assert done.returncode == 0, done.stderr
    results = json.loads(out.read_text())
    parts = results["parts"]
    rows = {name: part["rows"] for name, part in parts.items()}
    assert {name: len(each) for name, each in rows.items()} == {"check": 2, "training": 4, "pinned": 3, "programs": 1}
    assert not any("error" in each or "skipped" in each for name, part in parts.items() for each in (part, *rows[name]))
    for row in rows["check"]:
        assert row["agrees"], row
        assert row["is padded"], row
        assert {len(losses) for losses in row["losses"].values()} == {2}
    for row in rows["training"]:
        assert min(row["graphs/s"], row["times PyG"], row["first step_s"], row["busy_ms"]) > 0, row
        assert 0 <= row["idle"] <= 1, row
    assert all(row["training, pinned, graphs/s"] > 0 for row in rows["pinned"])
    assert rows["programs"][0]["agrees"]
    assert results["versions"]["torch"]
    # Torch compiled everything.
    assert not any("uncompiled" in text for each in rows.values() for row in each for text in row.get("warnings", ()))


def test_a_part_that_fails_and_too_little_time(tmp_path: Path) -> None:
    program = """
    import json, sys, time, warnings
    from pathlib import Path
    sys.path.insert(0, "scripts")
    from benchmarks.gpu import SMALL
    from benchmarks.gpu_run import Run, united

    def fails():
        raise ValueError("no")

    def warns():
        warnings.warn("odd")
        time.sleep(1)
        return {"value": 1}

    def first(run):
        yield run.attempt({"n": 0}, fails)
        yield run.attempt({"n": 1}, warns)
        yield run.attempt({"n": 2}, warns)
        fails()

    def second(run):
        rows = {"good": {}, "bad": {}}
        rates = run.rates({"good": lambda: 4, "bad": fails}, rows)
        assert [*rates] == ["good"] and rates["good"][0][0] == 4 * SMALL.steps
        yield rows["bad"]

    out = Path(sys.argv[1])
    run = Run(out, "cpu", SMALL, {"first": 0.3, "second": 1.0}, minutes=3 / 60)
    run.part("first", first)
    run.part("second", second)
    parts = json.loads(out.read_text())["parts"]
    failed, warned, late = parts["first"]["rows"]
    assert failed["error"].startswith("ValueError: no (") and "value" not in failed
    assert warned["value"] == 1 and warned["warnings"] == ["odd"] and warned["seconds"] > 0.1
    assert late == {"n": 2, "skipped": "no time is left"}
    assert parts["first"]["error"].startswith("ValueError: no (")
    assert parts["second"]["rows"][0]["error"].startswith("ValueError: no (")
    assert united([(0.0, 2.0), (1.0, 3.0), (1.5, 2.0), (5.0, 6.0)]) == 4.0
    print("good")
    """
    assert output_of(program, tmp_path / "out.json")[-1] == "good"
