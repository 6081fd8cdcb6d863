"""Pictures show the figures of the histogram and the plan."""

from __future__ import annotations

import numpy as np
import pytest

from dgl_tuplepack import GraphSizes, Limits, SizeHistogram, load_example, pack
from dgl_tuplepack.errors import SizesError
from dgl_tuplepack.plots import plot_fill, plot_sizes, plot_sorted_fill

HISTOGRAM = load_example("ogbg-molhiv")
PLAN = pack(HISTOGRAM, Limits(222, 502, 256), "best_fit", "node")


def test_every_graph_is_in_the_histogram_and_its_marginals() -> None:
    ax = plot_sizes(HISTOGRAM, Limits(222, 502))
    cells = np.ma.filled(ax.collections[0].get_array(), 0)
    assert np.nansum(cells) == HISTOGRAM.num_graphs
    marginals = [part for other in ax.figure.axes for part in other.patches if hasattr(part, "get_data")]
    assert [part.get_data().values.sum() for part in marginals] == [HISTOGRAM.num_graphs] * 2
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("nodes per graph", "edges per graph")
    assert "222 nodes, 502 edges" in ax.get_legend().get_texts()[0].get_text()


@pytest.mark.parametrize("rows", [[[3, 4]], [[1, 0], [1, 0]], [[1, 1], [36_000, 36_000]]])
def test_odd_histograms_are_drawn_too(rows: list[list[int]]) -> None:
    ax = plot_sizes(SizeHistogram.from_sizes(GraphSizes(rows)))
    ax.figure.canvas.draw()
    assert np.nansum(np.ma.filled(ax.collections[0].get_array(), 0)) == len(rows)


def test_fill_shows_every_content_once() -> None:
    ax = plot_fill(PLAN)
    dots = ax.collections[0]
    contents = np.unique(PLAN.pattern_contents, axis=0)
    assert np.allclose(dots.get_offsets(), contents / PLAN.limits.array)
    assert dots.get_array().sum() == PLAN.num_packs
    assert "98.78%" in ax.get_legend().get_texts()[0].get_text()


def test_sorted_fill_has_one_line_for_each_plan() -> None:
    other = pack(HISTOGRAM, Limits(222, 502, 256), "next_fit")
    ax = plot_sorted_fill({"best": PLAN, "next": other}, "edges")
    for patch, plan in zip(ax.patches, (PLAN, other), strict=True):
        values, packs, _ = patch.get_data()
        assert (np.diff(values) <= 0).all()
        assert packs[-1] == plan.num_packs
        assert np.isclose((values * np.diff(packs)).sum() / plan.num_packs, plan.efficiency["edges"])


def test_pictures_of_two_components_refuse_others() -> None:
    histogram = SizeHistogram.from_counts({(3,): 2})
    with pytest.raises(SizesError, match=r"two components, but the histogram has \['nodes'\]"):
        plot_sizes(histogram)
    with pytest.raises(SizesError, match=r"two components, but the plan has \['nodes'\]"):
        plot_fill(pack(histogram, Limits(6)))


def test_an_unknown_component_is_refused() -> None:
    with pytest.raises(SizesError, match="no component 'triplets'; choose one of nodes, edges"):
        plot_sorted_fill({"best": PLAN}, "triplets")
