"""Pictures of the fill show every pack, and legends leave room for the curves."""

from __future__ import annotations

from matplotlib.figure import Figure

from dgl_tuplepack import GraphSizes, Limits, SizeHistogram, load_example, pack, search_limits
from dgl_tuplepack.tools.plots import plot_distributions, plot_fill, plot_search

HISTOGRAM = load_example("ogbg-molhiv")
LIMITS = Limits(222, 502, 256)


def test_fill_is_steps_of_each_component() -> None:
    plan = pack(HISTOGRAM, LIMITS)
    ax = plot_fill(plan)
    low = ax.get_xlim()[0]
    steps = [part.get_data() for part in ax.patches]
    assert len(steps) == 2
    for column, data in enumerate(steps):
        fill = plan.pattern_contents[:, column] / plan.limits.array[column]
        assert data.values.sum() == plan.repeats[fill >= low].sum() >= 0.99 * plan.num_packs
        # The last cell is of full packs alone.
        assert data.edges[-2] < 1 < data.edges[-1]
        assert data.values[-1] == plan.repeats[fill == 1].sum()
    assert "mean 99.97%, 99.2% of the packs full, 1 below 85%" in ax.get_legend().get_texts()[0].get_text()


def test_fill_that_is_equal_in_all_packs_is_drawn_too() -> None:
    plan = pack(SizeHistogram.from_counts({(2, 4): 100}), Limits(4, 8))
    ax = plot_fill(plan)
    ax.figure.draw_without_rendering()
    assert [part.get_data().values.sum() for part in ax.patches] == [50, 50]


def test_legends_cover_no_curve_and_stay_inside_whatever_components_are_called() -> None:
    names = ("nodes:user", "nodes:item", "edges:user:follows:user", "edges:user:likes:item")
    histogram = SizeHistogram.from_sizes(GraphSizes([[i + c for c in range(4)] for i in range(9)], names))
    search = search_limits(histogram)
    for width, height in ((6.4, 4.8), (5.2, 4.1)):
        for draw in (
            lambda ax: plot_distributions(histogram, search.best.limits, ax),
            lambda ax: plot_distributions(HISTOGRAM, LIMITS, ax),
            lambda ax: plot_search(search, ax, components=names[1:3]),
            lambda ax: plot_fill(pack(HISTOGRAM, LIMITS), ax),
        ):
            ax = draw(Figure(figsize=(width, height), layout="constrained").add_subplot())
            ax.figure.draw_without_rendering()
            legend = ax.get_legend().get_window_extent()
            assert legend.y0 >= ax.get_window_extent().y1
            assert legend.x1 <= ax.figure.bbox.x1
            # Most of the picture is left to what it shows.
            assert ax.get_window_extent().height > 0.4 * ax.figure.bbox.height
            assert ax.get_window_extent().width > 0.4 * ax.figure.bbox.width
