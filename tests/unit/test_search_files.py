"""Files of searches: round trip, and that damaged, foreign, newer or altered ones are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgl_tuplepack import LimitsSearch, SizeHistogram, search_limits
from dgl_tuplepack._files import checksum
from dgl_tuplepack.errors import FormatError
from tests.messages import refused

HISTOGRAM = SizeHistogram.from_counts({(3, 4): 5, (2, 2): 4, (6, 10): 1})
RANGES = {"nodes": [6, 12], "edges": [10, 20]}
SEARCH = search_limits(HISTOGRAM, ranges=RANGES, graphs=4, heuristic=(1, 0.5), multiple_of=2, seed=2**64 - 1)


def altered(path: Path, change: Callable[[dict[str, Any]], object], *, signed: bool = False) -> Path:
    """A file after a change of its document; `signed` again, as a faulty program would."""
    SEARCH.save(path)
    document = json.loads(path.read_text())
    change(document)
    if signed:
        document["checksum"] = checksum(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ranges": RANGES},
        {"target": 0.5},
        {"target": {"edges": 0.5}, "ranges": RANGES},
        {"graphs_per_batch": 3},
        {"budget": 40, "cost": {"nodes": 1, "edges": 0.5}},
        {"objective": lambda c: -c.packs, "method": "next_fit", "seed": 3},
    ],
)
def test_round_trip(tmp_path: Path, settings: dict[str, Any]) -> None:
    search = search_limits(HISTOGRAM, **settings)
    search.save(tmp_path / "a.json")
    loaded = LimitsSearch.load(tmp_path / "a.json")
    assert list(loaded) == list(search)
    assert (loaded.best, loaded.pareto) == (search.best, search.pareto)
    assert repr(loaded) == repr(search)
    assert loaded.to_csv() == search.to_csv()
    assert (loaded.way, loaded.aim) == (search.way, search.aim)
    loaded.save(tmp_path / "b.json")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_what_was_dropped_is_remembered(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 10 graphs exceed"):
        search = search_limits(HISTOGRAM, ranges={"nodes": [5], "edges": [9]}, oversize="drop")
    search.save(tmp_path / "a.json")
    assert LimitsSearch.load(tmp_path / "a.json").dropped == 1


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search.json"
    SEARCH.save(path)
    whole = path.read_bytes().rstrip()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match="not valid JSON"):
            LimitsSearch.load(path)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (lambda d: d.update(format="dgl_tuplepack.plan"), ("not a dgl_tuplepack.limits_search file", "plan")),
        (lambda d: d.update(version=2), ("version 2", "reads version 1")),
        (lambda d: d.update(seed=5), ("was altered", "checksum")),
        (lambda d: d["aim"].update(tolerance=0.5), ("was altered", "checksum")),
        (lambda d: d["packs"].__setitem__(0, d["packs"][0] + 1), ("was altered", "checksum")),
    ],
)
def test_a_changed_file_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], parts: tuple[str, ...]
) -> None:
    with refused(FormatError, str(tmp_path / "search.json"), *parts):
        LimitsSearch.load(altered(tmp_path / "search.json", change))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda d: d["packs"].__setitem__(0, 0), "contradicts itself"),
        (lambda d: d["packs"].__setitem__(0, 11), "contradicts itself"),
        # Fewer packs than the content needs.
        (lambda d: d["packs"].__setitem__(0, 1), "contradicts itself"),
        (lambda d: d["most_graphs"].__setitem__(0, 5), "contradicts itself"),
        (lambda d: d["used"][0].__setitem__(0, 99), "contradicts itself"),
        (lambda d: d["limits"].reverse(), "out of order"),
        (lambda d: d["packs"].pop(), "do not fit together"),
        (lambda d: d.update(packs=[]), "do not fit together"),
        (lambda d: d.update(best_index=4), "best row"),
        (lambda d: d.update(way="luck"), "grid"),
        (lambda d: d.update(components=["nodes"]), "component names"),
        (lambda d: d.update(multiple_of=0), "multiple_of"),
        (lambda d: d.update(dropped=-1), "dropped"),
        (lambda d: d.update(num_graphs=0), "graphs of a search"),
        (lambda d: d["limits"].__setitem__(3, [2**62, 2**62 + 2**61]), "2**63-1"),
        (lambda d: d.update(versions=3), "no valid search"),
        (lambda d: d.update(scores=["high"] * 4), "no valid search"),
    ],
)
def test_a_search_that_cannot_be_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], part: str
) -> None:
    with refused(FormatError, str(tmp_path / "search.json"), "no valid search", part):
        LimitsSearch.load(altered(tmp_path / "search.json", change, signed=True))


@pytest.mark.parametrize("key", sorted({"components", "limits", "packs", "most_graphs", "used", "totals", "scores",
    "way", "num_graphs", "cap", "best_index", "method", "heuristic", "seed", "multiple_of", "dropped", "aim",
    "versions", "checksum"}))  # fmt: skip
def test_a_missing_part_is_named(tmp_path: Path, key: str) -> None:
    with refused(FormatError, "no valid search", key):
        LimitsSearch.load(altered(tmp_path / "search.json", lambda d: d.pop(key)))


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for write in (SEARCH.save, SEARCH.to_csv):
        with refused(FormatError, "cannot write", str(tmp_path / "none")):
            write(tmp_path / "none" / "file")
    SEARCH.to_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == SEARCH.to_csv()
