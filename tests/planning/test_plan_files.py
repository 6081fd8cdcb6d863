"""Whatever happens to a file: it loads as what was saved, or is refused with a `FormatError`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_tuplepack import Limits, PackPlan, SizeHistogram, pack
from dgl_tuplepack.errors import FormatError
from tests.support.messages import refused
from tests.support.strategies import Problem, heuristics, methods, problems

Loaded = TypeVar("Loaded", PackPlan, SizeHistogram)

PLAN = pack(SizeHistogram.from_counts({(3, 2): 4, (2, 2): 3, (5, 6): 1}), Limits(7, 7, 4), seed=2**64 - 1)
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 9), st.sampled_from([2**63 - 1, 2**63, 2**64, 10**30]),
        st.floats(), st.text(max_size=3),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@given(problem=problems(), data=st.data())
def test_plans_and_histograms_survive_a_round_trip(folder: Path, problem: Problem, data: st.DataObject) -> None:
    rule = data.draw(heuristics(of=problem))
    plan = pack(problem.histogram, problem.limits, data.draw(methods(of=problem)), heuristic=rule.given)
    plan.save(folder / "plan.json")
    loaded = PackPlan.load(folder / "plan.json")
    assert loaded.fingerprint == plan.fingerprint
    assert repr(loaded) == repr(plan)
    for name in ("h.json", "h.csv"):
        problem.histogram.save(folder / name)
        assert SizeHistogram.load(folder / name) == problem.histogram


def places(document: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a JSON document."""
    items = document.items() if isinstance(document, dict) else enumerate(document)
    found = []
    for key, value in list(items):
        found.append((document, key))
        if isinstance(value, dict | list):
            found += places(value)
    return found


def changed(document: Any, data: st.DataObject) -> str:
    """The text of a document after a change or a loss, at its top level as often as anywhere below."""
    document = json.loads(json.dumps(document))
    everywhere = places(document)
    top = [place for place in everywhere if place[0] is document]
    container, key = data.draw(st.one_of(st.sampled_from(top), st.sampled_from(everywhere)))
    if isinstance(container, dict) and data.draw(st.booleans()):
        del container[key]
    else:
        container[key] = data.draw(JSON)
    return json.dumps(document)


def loaded_or_refused(kind: type[Loaded], path: Path) -> Loaded | None:
    """What a file holds; None where it is refused by name."""
    try:
        return kind.load(path)
    except FormatError as error:
        assert str(path) in str(error)  # noqa: PT017
    return None


@settings(max_examples=25)
@given(data=st.data())
def test_no_change_of_a_plan_file_goes_unnoticed_or_breaks_the_reader(folder: Path, data: st.DataObject) -> None:
    path = folder / "plan.json"
    PLAN.save(path)
    path.write_text(changed(json.loads(path.read_text()), data))
    loaded = loaded_or_refused(PackPlan, path)
    if loaded is not None:
        # Only a change that changes nothing is let in.
        loaded.save(folder / "again.json")
        PLAN.save(path)
        assert json.loads((folder / "again.json").read_text()) == json.loads(path.read_text())


@given(text=st.text(), header=st.sampled_from(["", "nodes,edges,count\n", "count\n", "a,count\n1,1\n"]))
def test_no_text_breaks_the_reader_of_tables(folder: Path, text: str, header: str) -> None:
    path = folder / "h.csv"
    path.write_bytes((header + text).encode("utf-8", "replace"))
    loaded = loaded_or_refused(SizeHistogram, path)
    assert loaded is None or loaded.num_graphs >= 1


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda d: d.update(format="dgl_tuplepack.histogram"), ("not a dgl_tuplepack.plan file", "histogram")),
        (lambda d: d.clear(), ("not a dgl_tuplepack.plan file", "None")),
        (lambda d: d.update(version=2), ("version 2", "reads version 1", "release that wrote it")),
        (lambda d: d.update(repeats=[9] * len(d["repeats"])), ("no valid plan", "graphs of size")),
        (lambda d: d.update(classes=[0.5]), ("no valid plan", "float")),
        (lambda d: d.update(seed="abc"), ("no valid plan", "abc")),
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
