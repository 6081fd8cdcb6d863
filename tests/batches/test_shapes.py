from __future__ import annotations

import pytest

from dgl_tuplepack import lower_bound
from scripts.benchmarks import shapes


@pytest.mark.parametrize(
    ("name", "classes", "graphs", "maxima"),
    [
        ("molpcba", 576, 350_343, (313, 636)),
        ("code2", 2_099, 407_976, (36_123, 36_122)),
        ("pcqm4mv2", 152, 3_378_606, (20, 54)),
        ("ppa", 35_981, 78_200, (300, 36_138)),
    ],
)
def test_shapes_have_the_graphs_and_maxima_of_the_paper(
    name: str, classes: int, graphs: int, maxima: tuple[int, int]
) -> None:
    histogram = shapes.SHAPES[name](0)
    assert len(histogram) == classes
    assert histogram.num_graphs == graphs
    assert tuple(histogram.maxima().values()) == maxima
    assert histogram == shapes.SHAPES[name](0)


@pytest.mark.parametrize("limits", [(1000,), (1000, 2200), (1000, 2200, 5000)])
def test_planted_packs_are_full_in_every_component(limits: tuple[int, ...]) -> None:
    for made in (shapes.planted(2000, limits), shapes.planted(5000, limits, classes=300), shapes.triplets(50, limits)):
        assert [total // made.packs for total in made.histogram.totals().values()] == list(limits)
        assert [total % made.packs for total in made.histogram.totals().values()] == [0] * len(limits)
        assert lower_bound(made.histogram, made.limits, effort=0) == made.packs


def test_uniform_sizes_are_distinct_and_depend_on_the_seed() -> None:
    histogram = shapes.uniform(500)
    assert len(histogram) == 500
    assert histogram != shapes.uniform(500, seed=1)
