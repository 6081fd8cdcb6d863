"""Plans: figures and fingerprint; no damaged plan passes; a file loads as what was saved, or is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_tuplepack import Limits, PackPlan, SizeHistogram, pack
from dgl_tuplepack.errors import FormatError, LimitsError, PlanError
from dgl_tuplepack.planning.plan import harmonic_mean, summarise
from dgl_tuplepack.planning.sizes import INT64_MAX
from tests.support.messages import refused
from tests.support.strategies import Problem, heuristics, methods, problems

# Two packs of (3, 4) + 2 x (1, 2), and one pack of a single (1, 2).
FIELDS: dict[str, Any] = {
    "histogram": SizeHistogram.from_counts({(1, 2): 5, (3, 4): 2}),
    "limits": Limits(6, 10, 4),
    "offsets": [0, 2, 3],
    "classes": [1, 0, 0],
    "multiplicities": [1, 2, 1],
    "repeats": [2, 1],
    "lower_bound": 2,
    "method": "by hand",
}


def plan_with(**changes: Any) -> PackPlan:
    return PackPlan(**{**FIELDS, **changes})


def test_figures() -> None:
    plan = plan_with()
    assert (plan.num_packs, plan.num_patterns, plan.lower_bound, plan.gap, plan.max_graphs) == (3, 2, 2, 1, 3)
    assert plan.pattern_contents.tolist() == [[5, 8], [1, 2]]
    assert plan.pattern_graphs.tolist() == [3, 1]
    assert plan.efficiency == {"nodes": 11 / 18, "edges": 18 / 30}
    assert plan.effective_limits == Limits(5, 8, 3)
    assert plan.effective_efficiency == {"nodes": 11 / 15, "edges": 18 / 24}
    assert "7 graphs in 3 packs: 3 of Limits(" in repr(plan)
    assert "lower bound 2" in repr(plan)
    assert "nodes 61.11%, edges 60.00%" in repr(plan)


def test_a_plan_keeps_its_own_read_only_arrays_and_no_ids() -> None:
    plan = plan_with(histogram=SizeHistogram.from_sizes([[3, 4]] * 2 + [[1, 2]] * 5))
    assert plan.histogram.graph_classes is None
    with pytest.raises(ValueError, match="read-only"):
        plan.repeats[0] = 5


def test_limits_take_the_order_of_the_components() -> None:
    plan = plan_with(limits=Limits.from_components({"edges": 10, "nodes": 6}, 4))
    assert plan.limits == Limits(6, 10, 4)
    assert plan.fingerprint == plan_with().fingerprint
    with refused(LimitsError, "one limit for each"):
        plan_with(limits=Limits.from_components({"edges": 10}))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        *(
            (changes, ("do not fit together", "make it again"))
            for changes in (
                {"offsets": [0, 2]}, {"offsets": [0, 3, 2]}, {"offsets": [1, 2, 3]}, {"offsets": []},
                {"classes": [1, 0]}, {"multiplicities": [1, 2]}, {"repeats": [2]}, {"repeats": [[2, 1]]},
                {"offsets": [0], "classes": [], "multiplicities": [], "repeats": []},
            )
        ),
        ({"classes": [1, 0, 2]}, ("size class 2", "histogram has 2")),
        ({"multiplicities": [1, 2, 0]}, ("multiplicity or repeat of 0",)),
        ({"repeats": [2, 0]}, ("multiplicity or repeat of 0",)),
        ({"multiplicities": [1, 1, 1]}, ("packs 3 graphs of size (1, 2)", "has 5", "exactly once")),
        ({"repeats": [1, 1]}, ("graphs of size (1, 2)", "exactly once")),
        # Huge entries do not wrap around.
        ({"repeats": [INT64_MAX, INT64_MAX]}, ("graphs of size (1, 2)", "has 5")),
        ({"lower_bound": 4}, ("3 packs", "1..3, but is 4")),
        *(
            ({"limits": limits}, ("pattern 0", "{'nodes': 5, 'edges': 8} in 3 graphs", repr(limits), "again"))
            for limits in (Limits(4, 8, 3), Limits(5, 7, 3), Limits(5, 8, 2))
        ),
    ],
)  # fmt: skip
def test_a_damaged_plan_is_refused(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    with refused(PlanError, *parts):
        plan_with(**changes)


def test_equal_plans_have_equal_fingerprints_however_they_were_made() -> None:
    plain = plan_with().fingerprint
    assert len(plain) == 64
    assert int(plain, 16) >= 0
    made_otherwise = {"method": "x", "heuristic": "sum", "seed": 5, "lower_bound": 1, "versions": {}}
    assert plan_with(**made_otherwise).fingerprint == plain
    assert set(plan_with().versions) == {"dgl_tuplepack", "python", "numpy", "numba", "highspy"}


@pytest.mark.parametrize(
    "changes",
    [
        {"limits": Limits(7, 10, 4)}, {"limits": Limits(6, 10, 5)}, {"limits": Limits(6, 10)},
        {"histogram": SizeHistogram.from_counts({(1, 1): 5, (3, 4): 2})},
        {"histogram": SizeHistogram.from_counts({(1, 2): 6, (3, 4): 2}), "repeats": [2, 2]},
        {"histogram": SizeHistogram.from_counts({(1, 2): 5, (3, 4): 2}, ("nodes", "angles")),
         "limits": Limits.from_components({"nodes": 6, "angles": 10}, 4)},
        {"classes": [0, 1, 0], "multiplicities": [2, 1, 1]},
        {"offsets": [0, 1, 3], "classes": [0, 1, 0], "multiplicities": [1, 1, 2], "repeats": [1, 2]},
    ],
)  # fmt: skip
def test_the_fingerprint_depends_on_each_ingredient(changes: dict[str, Any]) -> None:
    assert plan_with(**changes).fingerprint != plan_with().fingerprint


def test_the_fingerprint_is_the_same_in_every_release() -> None:
    # Ranks and saved plans compare it; a change of this value is a change of the format.
    assert plan_with().fingerprint == "6825be193784e578b730e784e76c93d97314d265ad3e3b817aa5c74e87b95b1a"


# Three graphs of 2 nodes and 1 edge, two of which fill the 4 nodes of a pack.
PLAN = pack(SizeHistogram.from_counts({(2, 1): 3}), Limits(4, 8), method="best_fit")


def test_harmonic_mean() -> None:
    assert harmonic_mean({"nodes": 0.5, "edges": 1.0}) == pytest.approx(2 / 3)
    assert harmonic_mean({"nodes": 0.3}) == pytest.approx(0.3)
    # Graphs without edges: only nodes count.
    assert harmonic_mean({"nodes": 0.5, "edges": 0.0}) == 0.5
    assert harmonic_mean({"nodes": 0.0, "edges": 0.0}) == 0.0


def test_empty_slots_add_up_with_the_real_content() -> None:
    assert PLAN.num_packs == 3  # the paper's algorithm never joins graphs of the first size
    assert summarise(PLAN)["empty_slots"] == {"nodes": 12 - 6, "edges": 24 - 3}


def test_summary_is_plain_data_with_the_figures_of_the_plan() -> None:
    summary = json.loads(json.dumps(summarise(PLAN)))
    assert summary["graphs"] == 3
    assert (summary["packs"], summary["lower_bound"], summary["gap"]) == (3, 2, 1)
    assert summary["efficiency"] == {"nodes": 0.5, "edges": 0.125}
    assert summary["effective_efficiency"] == {"nodes": 1.0, "edges": 1.0}
    assert summary["effective_limits"] == {"maxima": {"nodes": 2, "edges": 1}, "graphs": 1}
    assert summary["harmonic_mean"] == pytest.approx(0.2)
    assert (summary["method"], summary["heuristic"], summary["max_graphs"]) == ("best_fit", "product", 1)


# --- files

Loaded = TypeVar("Loaded", PackPlan, SizeHistogram)

SAVED = pack(SizeHistogram.from_counts({(3, 2): 4, (2, 2): 3, (5, 6): 1}), Limits(7, 7, 4), seed=2**64 - 1)
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
    SAVED.save(path)
    path.write_text(changed(json.loads(path.read_text()), data))
    loaded = loaded_or_refused(PackPlan, path)
    if loaded is not None:
        # Only a change that changes nothing is let in.
        loaded.save(folder / "again.json")
        SAVED.save(path)
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
    SAVED.save(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with refused(FormatError, str(path), *parts):
        PackPlan.load(path)
