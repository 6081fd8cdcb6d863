"""Pictures show the figures of the histogram and the plan."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from dgl_tuplepack import GraphSizes, Limits, SizeHistogram, load_example, pack, search_limits
from dgl_tuplepack.errors import InputError, LimitsError, PlanError, SearchError, SizesError
from dgl_tuplepack.tools.drawing import count_colours, line_style, whole_cells
from dgl_tuplepack.tools.plots import plot_distributions, plot_fill, plot_methods, plot_search, plot_sizes
from scripts.benchmarks.shapes import SHAPES
from tests.support.messages import refused

HISTOGRAM = load_example("ogbg-molhiv")
LIMITS = Limits(222, 502, 256)
PLAN = pack(HISTOGRAM, LIMITS, "best_fit", heuristic="node")
SEARCH = search_limits(HISTOGRAM)
THREE = SizeHistogram.from_counts({(3, 4, 9): 5, (2, 2, 1): 7, (9, 1, 1): 1}, ("nodes", "edges", "triplets"))


def cells_of(ax: Any) -> Any:
    """Numbers of the central picture, ``[across, up]``."""
    mesh = ax.collections[0]
    return np.ma.filled(mesh.get_array(), 0).reshape([n - 1 for n in mesh.get_coordinates().shape[:2]]).T


def marginals_of(ax: Any) -> list[Any]:
    # An Axes without a grid has them inside.
    every = [*ax.figure.axes, *ax.child_axes]
    return [part for other in every for part in other.patches if hasattr(part, "get_data")]


def entries_of(ax: Any) -> dict[str, str]:
    """Texts of the legend of a picture of sizes, each with the style of its line."""
    legend = marginals_of(ax)[0].axes.get_legend()
    lines = [] if legend is None else zip(legend.get_texts(), legend.get_lines(), strict=True)
    return {text.get_text(): line.get_linestyle() for text, line in lines}


def luminance(colour: Any) -> float:
    return float(np.dot(to_rgb(colour), (0.299, 0.587, 0.114)))


# --- sizes


def test_every_graph_is_in_the_histogram_and_its_marginals() -> None:
    ax = plot_sizes(HISTOGRAM, Limits(222, 502))
    cells = np.nan_to_num(cells_of(ax))
    assert cells.sum() == HISTOGRAM.num_graphs
    top, right = (part.get_data() for part in marginals_of(ax))
    assert np.array_equal(top.values, cells.sum(axis=1))
    assert np.array_equal(right.values, cells.sum(axis=0))
    for column, data in enumerate((top, right)):
        expected = np.histogram(HISTOGRAM.sizes[:, column], bins=data.edges, weights=HISTOGRAM.counts)[0]
        assert np.array_equal(data.values, expected)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("nodes per graph", "edges per graph")


def test_limits_are_lines_in_all_three_parts_unless_they_are_far_beyond_the_sizes() -> None:
    ax = plot_sizes(HISTOGRAM, Limits(300, 700))
    top, right = (part.axes for part in marginals_of(ax))
    vertical, horizontal = ax.lines[:2]
    assert list(vertical.get_xdata()) == list(top.lines[0].get_xdata()) == [300, 300]
    assert list(horizontal.get_ydata()) == list(right.lines[0].get_ydata()) == [700, 700]
    # They are inside the picture though no graph is so large.
    assert (ax.get_xlim()[1] >= 300, ax.get_ylim()[1] >= 700) == (True, True)
    ax = plot_sizes(SHAPES["ppa"](0), Limits(5922, 40_000))
    assert ax.get_xlim()[1] < 310
    assert entries_of(ax) == {"limit: 5,922 nodes (beyond the picture)": "None", "limit: 40,000 edges": "--"}
    assert entries_of(plot_sizes(HISTOGRAM)) == {}


@pytest.mark.parametrize("maxima", [(222, 502), (222, 9000), (9000, 8000)])
@pytest.mark.parametrize("is_inset", [False, True])
def test_the_legend_has_the_lines_that_are_drawn_and_covers_nothing(maxima: tuple[int, int], is_inset: bool) -> None:
    given = Figure().add_axes((0.1, 0.1, 0.5, 0.5)) if is_inset else None
    ax = plot_sizes(HISTOGRAM, Limits(*maxima), given)
    ax.figure.draw_without_rendering()
    dashed = [line for line in ax.lines if line.get_linestyle() == "--"]
    drawn = {min(*line.get_xdata(), *line.get_ydata(), key=lambda value: value in (0, 1)) for line in dashed}
    entries = entries_of(ax)
    assert len(entries) == 2
    for (text, style), value in zip(entries.items(), maxima, strict=True):
        assert f"limit: {value:,} " in text
        assert (style == "--") == (value in drawn) == ("beyond" not in text)
    top, right = (part.axes for part in marginals_of(ax))
    legend = top.get_legend().get_window_extent()
    assert not any(legend.overlaps(part.get_window_extent()) for part in (ax, top, right))


@pytest.mark.parametrize("rows", [[[3, 4]], [[1, 0], [1, 0]], [[0, 0], [5, 36_000]]])
@pytest.mark.parametrize("scale", ["auto", "linear", "log"])
def test_odd_histograms_are_drawn_too(rows: list[list[int]], scale: str) -> None:
    ax = plot_sizes(SizeHistogram.from_sizes(GraphSizes(rows)), scale=scale)
    ax.figure.draw_without_rendering()
    assert np.nansum(cells_of(ax)) == len(rows)


@pytest.mark.parametrize(
    ("name", "scales"), [("code2", ("log", "log")), ("ppa", ("linear", "log")), ("pcqm4mv2", ("linear", "linear"))]
)
def test_long_tails_get_logarithmic_scales(name: str, scales: tuple[str, str]) -> None:
    histogram = SHAPES[name](0)
    ax = plot_sizes(histogram)
    assert (ax.get_xscale(), ax.get_yscale()) == scales
    assert np.nansum(cells_of(ax)) == histogram.num_graphs


@pytest.mark.parametrize("log", [False, True])
@given(values=st.lists(st.integers(0, 5000), min_size=1, max_size=40), step=st.sampled_from([1, 1, 2, 6]))
def test_cells_cover_the_values_and_nothing_else(values: list[int], step: int, log: bool) -> None:
    numbers = step * np.array(values)
    edges = whole_cells(numbers, log)
    assert edges[0] == numbers.min() - 0.5
    assert edges[-2] < numbers.max() < edges[-1]
    # A hundredth of the axis, but for the steps that whole numbers in twos, or sixes, make.
    widest = np.diff(edges).max()
    assert widest <= (0.06 if log else 0.01) * np.ptp(numbers) + max(1, np.ptp(numbers) / 24)
    assert (edges % 1 == 0.5).all()


def test_a_search_of_one_size_has_no_tick_twice_and_no_impossible_mean() -> None:
    search = search_limits(SizeHistogram.from_counts({(8, 4): 4}))
    ax = plot_search(search)
    ax.figure.draw_without_rendering()
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        texts = [tick.label1.get_text() for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        assert len(texts) == len(set(texts)) > 0
    highest = max(candidate.harmonic_mean for candidate in search)
    assert ax.collections[0].colorbar.ax.get_ylim()[1] == ax.collections[0].norm.vmax == highest


def test_two_of_three_components_can_be_shown() -> None:
    limits = Limits.from_components({"nodes": 9, "edges": 8, "triplets": 20})
    ax = plot_sizes(THREE, limits, components=["triplets", "nodes"])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("triplets per graph", "nodes per graph")
    assert np.nansum(cells_of(ax)) == 13
    assert list(ax.lines[0].get_xdata()) == [20, 20]


def test_a_given_axes_keeps_its_place_in_a_figure() -> None:
    figure = Figure(layout="constrained")
    left, right = figure.subplots(1, 2)
    assert plot_sizes(HISTOGRAM, ax=left) is left
    plot_fill(PLAN, right)
    figure.draw_without_rendering()
    assert left.get_position().x1 < right.get_position().x0


def test_distributions_are_the_shares_of_graphs_up_to_each_size() -> None:
    ax = plot_distributions(HISTOGRAM, LIMITS)
    curves = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    for column, curve in enumerate(curves):
        sizes, shares = curve.get_data()
        for size, share in list(zip(sizes, shares, strict=True))[1::7]:
            graphs = HISTOGRAM.counts[HISTOGRAM.sizes[:, column] <= size].sum()
            assert share == pytest.approx(graphs / HISTOGRAM.num_graphs)
        assert shares[0] == 0
        assert shares[-1] == pytest.approx(1)
    assert [line.get_xdata()[0] for line in ax.lines if line not in curves] == [222, 502]
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[0] == "nodes: mean 25.3, largest 222, limit 222"


def test_distributions_of_nine_components() -> None:
    names = [f"part {c}" for c in range(9)]
    histogram = SizeHistogram.from_sizes(GraphSizes([[i + c for c in range(9)] for i in range(5)], names))
    lines = plot_distributions(histogram).lines
    assert len(lines) == len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}) == 9
    assert len(plot_distributions(histogram, components=["part 0"]).lines) == 1


# --- plans


def test_methods_are_shown_by_their_distance_to_the_bound() -> None:
    plans = {"plain": pack(HISTOGRAM, LIMITS, "none"), "best fit": PLAN, "auto": pack(HISTOGRAM, LIMITS)}
    ax = plot_methods(plans)
    dots = ax.collections[1].get_offsets()
    assert dots[:, 0].tolist() == pytest.approx([100 * (plan.num_packs / 3744 - 1) for plan in plans.values()])
    assert dots[:, 1].tolist() == [0, 1, 2]
    assert [label.get_text() for label in ax.get_yticklabels()] == list(plans)
    assert [text.get_text() for text in ax.texts] == ["32,901 (+779 %)", "3,789 (+1.2 %)", "3,744 (optimal)"]
    assert "lower bound: 3,744 packs" in [text.get_text() for text in ax.get_legend().get_texts()]
    low, high = ax.get_ylim()
    assert low > high, "the first method stands on top"


def test_a_method_that_ignores_a_limit_or_a_cap_that_others_keep_is_marked() -> None:
    histogram, limits = SHAPES["molpcba"](0), Limits(313, 636, 256)
    plans = {name: pack(histogram, limits, name) for name in ("next_fit", "node_only")}
    for shown in (plans, {cap: pack(HISTOGRAM, Limits(222, 502, cap or None)) for cap in (8, 0)}):
        _, within, beyond = plot_methods({str(name): plan for name, plan in shown.items()}).collections
        assert within.get_offsets()[:, 1].tolist() == [0]
        assert beyond.get_offsets()[:, 1].tolist() == [1]
        assert to_rgb(within.get_facecolor()[0]) != to_rgb(beyond.get_facecolor()[0])


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
    equal = plot_fill(pack(SizeHistogram.from_counts({(2, 4): 100}), Limits(4, 8)))
    equal.figure.draw_without_rendering()
    assert [part.get_data().values.sum() for part in equal.patches] == [50, 50]


# --- searches


def test_limits_are_dots_and_the_best_and_the_front_are_marked() -> None:
    ax = plot_search(SEARCH)
    dots, front, best = ax.collections
    shown = {tuple(map(int, place)): value for place, value in zip(dots.get_offsets(), dots.get_array(), strict=True)}
    assert shown == {candidate.limits.values: pytest.approx(candidate.harmonic_mean) for candidate in SEARCH}
    assert front.get_offsets().tolist() == [list(candidate.limits.values) for candidate in SEARCH.pareto]
    assert best.get_offsets().tolist() == [list(SEARCH.best.limits.values)]
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"({SEARCH.best.harmonic_mean:.2%})" in texts[1]
    assert f"({len(SEARCH.pareto)})" in texts[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("limit of nodes", "limit of edges")


def test_of_more_components_the_best_in_a_place_is_shown() -> None:
    search = search_limits(THREE)
    dots = plot_search(search, components=("edges", "triplets")).collections[0]
    places = {tuple(c.limits.values[1:]) for c in search}
    assert len(places) == len(dots.get_offsets()) < len(search)
    for place, value in zip(dots.get_offsets().astype(int).tolist(), dots.get_array(), strict=True):
        assert value == pytest.approx(max(c.harmonic_mean for c in search if c.limits.values[1:] == tuple(place)))


# --- all of them


@functools.cache
def drawn() -> list[Any]:
    plans = {"best fit": PLAN, "next fit": pack(HISTOGRAM, LIMITS, "next_fit")}
    return [
        plot_sizes(HISTOGRAM, LIMITS), plot_distributions(HISTOGRAM, LIMITS), plot_fill(PLAN), plot_methods(plans),
        plot_search(SEARCH),
    ]  # fmt: skip


def test_every_picture_is_labelled_and_inside_its_figure() -> None:
    for ax in drawn():
        figure = ax.figure
        figure.draw_without_rendering()
        assert ax.get_xlabel()
        assert ax.get_ylabel() or ax.get_yticklabels()
        needed, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
        assert min(needed.x0, needed.y0) >= -0.01
        assert max(needed.x1 - width, needed.y1 - height) <= 0.01


def test_pictures_can_be_read_in_grey() -> None:
    lightness = [luminance(colour) for colour in count_colours().colors]
    assert (np.diff(lightness) <= 0).all(), "more is darker"
    assert len(set(lightness)) > 200
    assert lightness[0] < 0.85, "one graph is seen on white paper"
    assert np.diff([luminance(line_style(number)["color"]) for number in range(4)]).min() > 0.1
    assert all(line_style(n)["linestyle"] != line_style(n + 1)["linestyle"] for n in range(12))


def test_legends_cover_no_curve_and_stay_inside_whatever_components_are_called() -> None:
    names = ("nodes:user", "nodes:item", "edges:user:follows:user", "edges:user:likes:item")
    histogram = SizeHistogram.from_sizes(GraphSizes([[i + c for c in range(4)] for i in range(9)], names))
    search = search_limits(histogram)
    for width, height in ((6.4, 4.8), (5.2, 4.1)):
        for draw in (
            lambda ax: plot_distributions(histogram, search.best.limits, ax),
            lambda ax: plot_search(search, ax, components=names[1:3]),
            lambda ax: plot_fill(PLAN, ax),
        ):
            ax = draw(Figure(figsize=(width, height), layout="constrained").add_subplot())
            ax.figure.draw_without_rendering()
            legend = ax.get_legend().get_window_extent()
            assert legend.y0 >= ax.get_window_extent().y1
            assert legend.x1 <= ax.figure.bbox.x1
            # Most of the picture is left to what it shows.
            assert (ax.get_window_extent().size > 0.4 * ax.figure.bbox.size).all()


OTHER = pack(SizeHistogram.from_counts({(3, 3): 2}), Limits(222, 502))
SHAPED = search_limits([[1, 1], [1, 1], [9, 9]], graphs_per_batch=1, shapes=2)


@pytest.mark.parametrize(
    ("draw", "error", "words"),
    [
        (lambda: plot_sizes(SizeHistogram.from_counts({(3,): 2})), SizesError, ("two different", "has nodes.")),
        (lambda: plot_search(search_limits(THREE)), SizesError, ("two different", "the search has nodes, edges")),
        (lambda: plot_search(SHAPED), SearchError, ("several", "shapes=")),
        (lambda: plot_fill(PLAN, components=["angles"]), SizesError, ("'angles'", "nodes, edges")),
        (lambda: plot_distributions(HISTOGRAM, components=()), SizesError, ("components is ()", "'edges'")),
        (lambda: plot_sizes(HISTOGRAM, scale="cubic"), InputError, ("'cubic'", "auto, linear, log")),
        (lambda: plot_sizes(HISTOGRAM, Limits(222)), LimitsError, ("one limit for each component",)),
        (lambda: plot_methods({"one": PLAN, "other": OTHER}), PlanError, ("one histogram", "different histograms")),
    ],
)
def test_wrong_input_is_refused(draw: Callable[[], object], error: type[Exception], words: tuple[str, ...]) -> None:
    with refused(error, *words):
        draw()
