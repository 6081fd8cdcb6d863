"""The instances of the benchmarks follow their recipes, and the tables count what they say."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from dgl_tuplepack import Limits, SizeHistogram, lower_bound, pack

# The scripts are not installed.
sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
from benchmarks import literature, shapes


def graphs_of(histogram: SizeHistogram) -> np.ndarray:
    return np.repeat(histogram.sizes, histogram.counts, axis=0)


# Caprara & Toth 2001, section 7: class, smallest and largest size, and the limit, in both components.
@pytest.mark.parametrize(
    ("number", "least", "most", "limit"), [(1, 100, 400, 1000), (3, 200, 800, 1000), (6, 20, 100, 150)]
)
def test_classes_one_to_six_are_uniform_in_the_published_ranges(number, least, most, limit):
    case = literature.literature(number, 20_000, 0)
    sizes = graphs_of(case.histogram)
    assert case.limits == Limits(limit, limit)
    assert len(sizes) == 20_000
    # Both ends occur, and no part of the range more often than another; the two sizes are independent.
    assert [sizes.min(axis=0).tolist(), sizes.max(axis=0).tolist()] == [[least] * 2, [most] * 2]
    quarters = np.histogram(sizes, 4, (least - 0.5, most + 0.5))[0] / sizes.size
    assert np.abs(quarters - 0.25).max() < 0.02
    assert abs(np.corrcoef(sizes.T)[0, 1]) < 0.03


@pytest.mark.parametrize(("number", "centre"), [(7, lambda first: first), (8, lambda first: 120 - first)])
def test_classes_seven_and_eight_tie_the_second_size_to_the_first(number, centre):
    case = literature.literature(number, 20_000, 0)
    first, second = graphs_of(case.histogram).T
    assert case.limits == Limits(150, 150)
    assert (first.min(), first.max()) == (20, 100)
    assert sorted(set((second - centre(first)).tolist())) == list(range(-10, 11))


def test_small_cases_are_ten_of_each_class_and_number_of_graphs():
    for seed in (0, 1):
        cases = list(literature.small_cases(seed))
        expected = [f"class {number}, {graphs} graphs" for number in range(1, 9) for graphs in (25, 50, 100, 200)]
        assert [case.family for case in cases] == [family for family in expected for _ in range(10)]
        assert all(case.histogram.num_graphs == int(case.family.split()[2]) for case in cases)
    again = list(literature.small_cases(1))
    assert [case.histogram.to_counts() for case in cases] == [case.histogram.to_counts() for case in again]
    # No two instances of a seed, or of two seeds, are the same.
    both = [case.histogram.to_counts() for case in (*again, *literature.small_cases(0)) if "class 1" in case.family]
    assert all(one != other for one, other in itertools.combinations(both, 2))


def test_medium_cases_are_of_all_families_in_turn_and_fit_their_limits():
    cases = literature.medium_cases(28, 3)
    assert len({case.family for case in cases}) == len(literature.FAMILIES) == 14
    assert [case.family for case in cases[:14]] == [case.family for case in cases[14:]]
    for case in cases:
        assert 290 <= case.histogram.num_graphs <= 3005
        assert (case.histogram.sizes >= 0).all()
        assert (case.histogram.sizes <= np.array(case.limits.values)).all()
    (planted,) = (case for case in cases[:14] if case.family == "planted")
    assert len({planted.histogram.totals()[name] / limit for name, limit in planted.limits.maxima.items()}) == 1
    fewer = literature.medium_cases(5, 3)
    assert [case.histogram.to_counts() for case in fewer] == [case.histogram.to_counts() for case in cases[:5]]


@pytest.mark.parametrize("effort", [0, 1])
def test_the_table_counts_plans_as_proven_by_their_own_bound(effort, monkeypatch):
    def pack_with_effort(histogram, limits, seed=0):
        return pack(histogram, limits, seed=seed, effort=effort)

    monkeypatch.setattr(literature, "pack", pack_with_effort)
    cases = [literature.literature(number, 50, seed) for number in (2, 6) for seed in range(3)]
    plans = [pack_with_effort(case.histogram, case.limits, seed=4) for case in cases]
    closed = [lower_bound(case.histogram, case.limits, effort=0) for case in cases]
    proven = [plan.num_packs == plan.lower_bound for plan in plans]
    rows = literature.measured_families(cases, seed=4)
    assert [(row["instances of"], row["number"]) for row in rows] == [(cases[0].family, 3), (cases[3].family, 3)]
    assert [row["proven"] for row in rows] == [sum(proven[:3]), sum(proven[3:])]
    raised = [plan.lower_bound > bound for plan, bound in zip(plans, closed, strict=True)]
    assert [row["bound raised"] for row in rows] == [sum(raised[:3]), sum(raised[3:])]
    # Some plans are proven only by the bound that was raised, and without effort some are not proven.
    assert all(proven) if effort else not all(proven)
    assert any(raised) == bool(effort)
    gaps = [plan.num_packs / plan.lower_bound - 1 for plan in plans]
    assert [row["worst gap, lost"] for row in rows] == pytest.approx([max(gaps[:3]), max(gaps[3:])])


# Name -> size classes, graphs, and maxima of the paper.
PAPER = {
    "molpcba": (576, 350_343, (313, 636)), "code2": (2_099, 407_976, (36_123, 36_122)),
    "pcqm4mv2": (152, 3_378_606, (20, 54)), "ppa": (35_981, 78_200, (300, 36_138)),
}  # fmt: skip


@pytest.mark.parametrize("name", PAPER)
def test_shapes_have_the_graphs_and_maxima_of_the_paper(name: str) -> None:
    histogram = shapes.SHAPES[name](0)
    assert (len(histogram), histogram.num_graphs, tuple(histogram.maxima().values())) == PAPER[name]
    assert histogram == shapes.SHAPES[name](0)


def test_planted_packs_are_full_in_every_component() -> None:
    limits = (1000, 2200, 5000)
    assert len(shapes.uniform(500)) == 500
    for made in (shapes.planted(2000, limits), shapes.planted(5000, limits, classes=300), shapes.triplets(50, limits)):
        assert [total // made.packs for total in made.histogram.totals().values()] == list(limits)
        assert [total % made.packs for total in made.histogram.totals().values()] == [0] * len(limits)
        assert lower_bound(made.histogram, made.limits, effort=0) == made.packs
