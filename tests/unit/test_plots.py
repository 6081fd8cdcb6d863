"""Pictures show the figures of the histogram and the plan."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from dgl_tuplepack import (
    GraphSizes,
    Limits,
    PackBatchSampler,
    PackPlan,
    SizeHistogram,
    load_example,
    pack,
    search_limits,
)
from dgl_tuplepack.errors import InputError, LimitsError, PlanError, SearchError, SizesError
from dgl_tuplepack.plots import (
    plot_distributions,
    plot_fill,
    plot_graphs_per_pack,
    plot_methods,
    plot_search,
    plot_sizes,
    plot_sorted_fill,
    plot_tradeoff,
    plot_weights,
    save_picture,
)
from dgl_tuplepack.plots._drawing import count_colours, line_style, whole_cells
from dgl_tuplepack.plots.weights import class_weights
from scripts.benchmarks.shapes import SHAPES
from tests.messages import refused
from tests.strategies import Problem, problems

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
    return [part for other in ax.figure.axes for part in other.patches if hasattr(part, "get_data")]


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


def test_the_limits_are_lines_in_all_three_parts() -> None:
    ax = plot_sizes(HISTOGRAM, Limits(300, 700))
    top, right = (part.axes for part in marginals_of(ax))
    vertical, horizontal = ax.lines[:2]
    assert list(vertical.get_xdata()) == list(top.lines[0].get_xdata()) == [300, 300]
    assert list(horizontal.get_ydata()) == list(right.lines[0].get_ydata()) == [700, 700]
    assert "300 nodes, 700 edges" in ax.get_legend().get_texts()[0].get_text()
    # They are inside the picture though no graph is so large.
    assert ax.get_xlim()[1] >= 300
    assert ax.get_ylim()[1] >= 700


def test_limits_far_beyond_the_sizes_are_only_named() -> None:
    ax = plot_sizes(SHAPES["ppa"](0), Limits(5922, 40_000))
    assert ax.get_xlim()[1] < 310
    assert [list(line.get_ydata()) for line in ax.lines[:1]] == [[40_000, 40_000]]
    assert ax.get_legend().get_texts()[0].get_text() == "5,922 nodes (beyond), 40,000 edges"


@pytest.mark.parametrize("rows", [[[3, 4]], [[1, 0], [1, 0]], [[1, 1], [36_000, 36_000]], [[0, 0], [5, 8_000]]])
@pytest.mark.parametrize("scale", ["auto", "linear", "log"])
def test_odd_histograms_are_drawn_too(rows: list[list[int]], scale: str) -> None:
    ax = plot_sizes(SizeHistogram.from_sizes(GraphSizes(rows)), scale=scale)
    ax.figure.draw_without_rendering()
    assert np.nansum(cells_of(ax)) == len(rows)


@pytest.mark.parametrize(
    ("name", "scales"),
    [("code2", ("log", "log")), ("ppa", ("linear", "log")), ("pcqm4mv2", ("linear", "linear"))],
)
def test_long_tails_get_logarithmic_scales(name: str, scales: tuple[str, str]) -> None:
    histogram = SHAPES[name](0)
    ax = plot_sizes(histogram)
    assert (ax.get_xscale(), ax.get_yscale()) == scales
    assert np.nansum(cells_of(ax)) == histogram.num_graphs
    # No empty picture: more than the tenth of a diagonal is coloured, or of its area where it is a cloud.
    filled = np.nan_to_num(cells_of(ax)) > 0
    assert filled.any(axis=1).mean() > 0.5
    assert filled.any(axis=0).mean() > 0.5


def test_a_size_that_most_graphs_share_is_named() -> None:
    ax = plot_sizes(SHAPES["ppa"](0))
    assert marginals_of(ax)[0].axes.get_title(loc="left") == "59% of the graphs: 300 nodes"


def test_a_scale_can_be_chosen_for_each_axis() -> None:
    ax = plot_sizes(HISTOGRAM, scale=("log", "linear"))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    with refused(InputError, "'cubic'", "auto, linear, log"):
        plot_sizes(HISTOGRAM, scale="cubic")
    with refused(InputError, "two of them"):
        plot_sizes(HISTOGRAM, scale=("log", "log", "log"))


def test_cells_hold_equally_many_even_numbers() -> None:
    # Edges that come in twos would make stripes in cells of odd width.
    histogram = SizeHistogram.from_counts({(n, 2 * n): 3 for n in range(1, 301)})
    data = marginals_of(plot_sizes(histogram, scale="linear"))[1].get_data()
    assert len(set(data.values[:-1].tolist())) == 1


def test_cells_of_few_values_are_no_wider_than_needed() -> None:
    ax = plot_sizes(SizeHistogram.from_counts({(10, 20): 3, (110, 240): 2}), Limits(150, 300), scale="linear")
    top, right = (part.get_data() for part in marginals_of(ax))
    assert top.edges.tolist() == [value - 0.5 for value in range(10, 112)]
    assert (np.diff(right.edges) <= 2).all()
    assert 240.5 <= right.edges[-1] < 242.5
    # Two sizes of packs are two bars, and none stands where no pack can be.
    plan = pack(SizeHistogram.from_counts({(10, 1): 27, (27, 1): 10}), Limits(270, 90, 27))
    assert sorted(plan.pattern_graphs.tolist()) == [10, 27]
    bars = {(bar.get_x(), bar.get_width()): bar.get_height() for bar in plot_graphs_per_pack(plan).patches}
    assert {place: packs for place, packs in bars.items() if packs} == {(9.5, 1): 1, (26.5, 1): 1}
    assert max(left + width for left, width in bars) == 27.5


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


def test_bars_end_at_the_fullest_pack() -> None:
    plan = pack(SizeHistogram.from_counts({(1, 1): 127, (127, 1): 1}), Limits(127, 200))
    assert sorted(plan.pattern_graphs.tolist()) == [1, 127]
    first, *_, last = plot_graphs_per_pack(plan).patches
    assert first.get_width() == 2
    assert last.get_x() + last.get_width() == 127.5


def test_no_tick_is_written_twice() -> None:
    ax = plot_search(search_limits(SizeHistogram.from_counts({(8, 4): 4})))
    ax.figure.draw_without_rendering()
    for axis in (ax.xaxis, ax.yaxis):
        low, high = sorted(axis.get_view_interval())
        texts = [tick.label1.get_text() for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        assert texts
        assert len(texts) == len(set(texts))


@pytest.mark.parametrize("limits", [None, Limits(40_000, 95_000)])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_outermost_cells_stand_clear_of_the_frame(limits: Limits | None, scale: str) -> None:
    histogram = SizeHistogram.from_counts({(n, 2 * n): 50 for n in range(5, 60)} | {(36_000, 90_000): 1})
    ax = plot_sizes(histogram, limits, scale=scale)
    ax.figure.draw_without_rendering()
    corners = ax.transData.transform(ax.collections[0].get_coordinates()[[0, -1], [0, -1]])
    frame = ax.get_window_extent()
    assert (corners[0] > frame.min + 2).all()
    assert (corners[1] < frame.max - 2).all()
    # A single graph is a visible part of the marginals.
    top, right = (part.axes for part in marginals_of(ax))
    assert top.get_ylim()[0] == right.get_xlim()[0] == 0.5


def test_two_of_three_components_can_be_shown() -> None:
    ax = plot_sizes(
        THREE, Limits.from_components({"nodes": 9, "edges": 8, "triplets": 20}), components=["triplets", "nodes"]
    )
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
    # An Axes without a grid gets its marginals outside itself.
    free = Figure().add_axes((0.1, 0.1, 0.5, 0.5))
    assert plot_sizes(HISTOGRAM, ax=free) is free
    assert len(free.child_axes) == 3


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


@pytest.mark.parametrize("k", [1, 3, 9])
def test_distributions_of_any_number_of_components(k: int) -> None:
    histogram = SizeHistogram.from_sizes(
        GraphSizes([[i + c for c in range(k)] for i in range(5)], [f"part {c}" for c in range(k)])
    )
    ax = plot_distributions(histogram)
    assert len(ax.lines) == k
    assert len(plot_distributions(histogram, components=["part 0"]).lines) == 1
    styles = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}
    assert len(styles) == k


# --- plans


def test_fill_shows_every_content_once() -> None:
    ax = plot_fill(PLAN)
    dots = ax.collections[0]
    contents, members = np.unique(PLAN.pattern_contents, axis=0, return_inverse=True)
    packs = np.bincount(members.reshape(-1), weights=PLAN.repeats)
    shown = {tuple(place): count for place, count in zip(dots.get_offsets().tolist(), dots.get_array(), strict=True)}
    assert shown == {tuple(c): n for c, n in zip((contents / PLAN.limits.array).tolist(), packs, strict=True)}
    assert "98.78%" in ax.get_legend().get_texts()[0].get_text()
    assert [ax.lines[0].get_xdata()[0], ax.lines[1].get_ydata()[0]] == pytest.approx(list(PLAN.efficiency.values()))
    low, high = ax.get_xlim()
    assert low < dots.get_offsets()[:, 0].min()
    assert high > 1


def test_fill_is_of_the_components_shown() -> None:
    plan = pack(THREE, Limits.from_components({"nodes": 9, "edges": 20, "triplets": 50}))
    ax = plot_fill(plan, components=("triplets", "nodes"))
    shown = {tuple(place) for place in ax.collections[0].get_offsets().tolist()}
    assert shown == {(triplets / 50, nodes / 9) for nodes, _, triplets in plan.pattern_contents.tolist()}


def test_sorted_fill_has_one_line_for_each_plan() -> None:
    other = pack(HISTOGRAM, LIMITS, "next_fit")
    ax = plot_sorted_fill({"best": PLAN, "next": other}, "edges")
    for line, plan in zip(ax.lines, (PLAN, other), strict=True):
        packs, values = line.get_data()
        assert (np.diff(values) <= 0).all()
        assert packs[0] == 0
        assert packs[-1] == plan.num_packs
        assert (values[:-1] * np.diff(packs)).sum() / plan.num_packs == pytest.approx(plan.efficiency["edges"])
    assert "3,789 packs" in ax.get_legend().get_texts()[0].get_text()


def test_the_legend_of_sorted_fill_hides_nothing() -> None:
    ax = plot_sorted_fill({"none": pack(HISTOGRAM, LIMITS, "none"), "best": PLAN})
    ax.figure.draw_without_rendering()
    assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1


def test_bars_count_the_graphs_of_packs() -> None:
    ax = plot_graphs_per_pack(PLAN)
    expected = np.zeros(PLAN.max_graphs + 1)
    np.add.at(expected, PLAN.pattern_graphs, PLAN.repeats)
    heights = {round(bar.get_x() + 0.5): bar.get_height() for bar in ax.patches}
    assert heights == {number: expected[number] for number in range(PLAN.pattern_graphs.min(), PLAN.max_graphs + 1)}
    assert ax.lines[0].get_xdata()[0] == pytest.approx(HISTOGRAM.num_graphs / PLAN.num_packs)
    # A cap that no pack comes near is left out, one that binds is drawn.
    assert len(ax.lines) == 1
    capped = plot_graphs_per_pack(pack(HISTOGRAM, Limits(222, 502, 8), "best_fit"))
    assert capped.lines[1].get_xdata()[0] == 8.5


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
    # The bound is proven, not the best plan shown.
    alone = plot_methods({"best fit": PLAN}).collections[1].get_offsets()
    assert alone[0, 0] == pytest.approx(100 * (3789 / PLAN.lower_bound - 1))
    assert alone[0, 0] > 1


def test_a_method_that_ignores_a_limit_is_marked() -> None:
    histogram, limits = SHAPES["molpcba"](0), Limits(313, 636, 256)
    plans = {name: pack(histogram, limits, name) for name in ("node_only", "next_fit")}
    ax = plot_methods(plans)
    (stems, within, beyond) = ax.collections
    assert len(stems.get_segments()) == 2
    assert within.get_offsets()[:, 1].tolist() == [1]
    assert beyond.get_offsets()[:, 1].tolist() == [0]
    assert to_rgb(within.get_facecolor()[0]) != to_rgb(beyond.get_facecolor()[0])


def test_a_cap_that_others_keep_counts_as_a_limit() -> None:
    plans = {"capped": pack(HISTOGRAM, Limits(222, 502, 8)), "free": pack(HISTOGRAM, Limits(222, 502))}
    _, within, beyond = plot_methods(plans).collections
    assert within.get_offsets()[:, 1].tolist() == [0]
    assert beyond.get_offsets()[:, 1].tolist() == [1]
    assert beyond.get_offsets()[0, 0] < 0


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


def test_no_harmonic_mean_is_beyond_the_possible() -> None:
    search = search_limits(SizeHistogram.from_counts({(8, 4): 4}))
    shown = plot_search(search)
    shown.figure.draw_without_rendering()
    highest = max(candidate.harmonic_mean for candidate in search)
    assert shown.collections[0].colorbar.ax.get_ylim()[1] == shown.collections[0].norm.vmax == highest
    ax = plot_tradeoff(search)
    assert [tick for tick in ax.get_yticks() if tick > 1 + 1e-9 and tick < ax.get_ylim()[1]] == []


def test_of_more_components_the_best_in_a_place_is_shown() -> None:
    search = search_limits(THREE)
    dots = plot_search(search, components=("edges", "triplets")).collections[0]
    places = {tuple(c.limits.values[1:]) for c in search}
    assert len(places) == len(dots.get_offsets()) < len(search)
    for place, value in zip(dots.get_offsets().astype(int).tolist(), dots.get_array(), strict=True):
        assert value == pytest.approx(max(c.harmonic_mean for c in search if c.limits.values[1:] == tuple(place)))
    with refused(SizesError, "two components, but the search has ['nodes', 'edges', 'triplets']"):
        plot_search(search)


def test_the_tradeoff_is_the_harmonic_mean_against_slots() -> None:
    ax = plot_tradeoff(SEARCH)
    dots, best = ax.collections
    assert dots.get_offsets().tolist() == [[candidate.slots, candidate.harmonic_mean] for candidate in SEARCH]
    slots, means = ax.lines[0].get_data()
    assert slots.tolist() == [candidate.slots for candidate in SEARCH.pareto]
    assert means.tolist() == [candidate.harmonic_mean for candidate in SEARCH.pareto]
    assert best.get_offsets().tolist() == [[SEARCH.best.slots, SEARCH.best.harmonic_mean]]
    one = search_limits(SizeHistogram.from_counts({(3,): 2, (5,): 4}))
    assert len(plot_tradeoff(one).collections[0].get_offsets()) == len(one)


def test_a_search_of_several_shapes_has_no_picture() -> None:
    search = search_limits([[1, 1], [1, 1], [9, 9]], graphs_per_batch=1, shapes=2)
    for plot in (plot_search, plot_tradeoff):
        with refused(SearchError, "several", "shapes="):
            plot(search)


# --- weights


@given(problem=problems(), seed=st.integers(0, 99))
def test_weights_are_those_of_a_sampler(problem: Problem, seed: int) -> None:
    """With one pack a batch nothing is left to chance."""
    plan = pack(problem.histogram, problem.limits, "best_fit")
    histogram = plan.histogram
    classes = np.repeat(np.arange(len(histogram)), histogram.counts)
    sizes = GraphSizes(histogram.sizes[classes], histogram.components)
    weights = PackBatchSampler(sizes, problem.limits, plan=plan, seed=seed).graph_weights()
    expected = np.bincount(classes, weights=weights) / histogram.counts
    np.testing.assert_allclose(class_weights(plan, 1), expected)
    # All packs in one batch: every graph weighs 1.
    np.testing.assert_allclose(class_weights(plan, plan.num_packs), 1)


def test_weights_of_several_packs_a_batch() -> None:
    """The mean of many epochs of a sampler."""
    ids = np.repeat(np.arange(len(HISTOGRAM)), HISTOGRAM.counts)
    sampler = PackBatchSampler(GraphSizes(HISTOGRAM.sizes[ids]), LIMITS, plan=PLAN, packs_per_batch=4)
    epochs = []
    for epoch in range(40):
        sampler.set_epoch(epoch)
        epochs.append(np.bincount(ids, weights=sampler.graph_weights()) / HISTOGRAM.counts)
    found, expected = class_weights(PLAN, 4), np.mean(epochs, axis=0)
    for low, high in itertools.pairwise((0, 20, 30, 50, 100, 223)):
        chosen = (low <= HISTOGRAM.sizes[:, 0]) & (HISTOGRAM.sizes[:, 0] < high)
        means = [np.average(each[chosen], weights=HISTOGRAM.counts[chosen]) for each in (found, expected)]
        np.testing.assert_allclose(*means, rtol=0.02)


@pytest.mark.parametrize("packs", [1, 8, 10**6])
def test_weights_in_a_plan_of_a_billion_packs(packs: int) -> None:
    plan = pack(SizeHistogram.from_counts({(3, 4): 10**9, (9, 9): 10**9}), Limits(9, 12), "best_fit")
    assert plan.num_packs > 10**9
    small, large = class_weights(plan, packs)
    assert small <= 1 <= large
    np.testing.assert_allclose((small + large) / 2, 1, rtol=0.02)


def test_the_picture_of_weights_spans_what_it_says() -> None:
    ax = plot_weights(PLAN, "edges", (1, 2))
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert [text.partition(":")[0] for text in texts] == ["1 pack a batch", "2 packs a batch"]
    for text, steps in zip(texts, ax.patches, strict=True):
        values, edges, _ = steps.get_data()
        assert f"{values.min():.2f} to {values.max():.2f}" in text
        assert (np.diff(edges) > 0).all()
        assert edges[0] <= HISTOGRAM.sizes[:, 1].min()
        assert edges[-1] > HISTOGRAM.sizes[:, 1].max()
    with refused(PlanError, "packs_per_batch", "0"):
        plot_weights(PLAN, packs_per_batch=[0])
    with refused(PlanError, "none"):
        plot_weights(PLAN, packs_per_batch=[])
    assert len(plot_weights(PLAN, packs_per_batch=3).patches) == 1
    with refused(InputError, "seed", "-1"):
        plot_weights(PLAN, seed=-1)
    huge = SizeHistogram.from_counts({(2**60, 1): 2, (1, 2): 3})
    plot_weights(pack(huge, Limits(2**60, 2), "best_fit"))
    with refused(SizesError, "triplets"):
        plot_weights(PLAN, "triplets")


# --- all of them


@functools.cache
def drawn() -> list[Any]:
    plans = {"best fit": PLAN, "next fit": pack(HISTOGRAM, LIMITS, "next_fit")}
    return [
        plot_sizes(HISTOGRAM, LIMITS), plot_distributions(HISTOGRAM, LIMITS), plot_fill(PLAN), plot_sorted_fill(plans),
        plot_graphs_per_pack(PLAN), plot_methods(plans), plot_search(SEARCH), plot_tradeoff(SEARCH), plot_weights(PLAN),
    ]  # fmt: skip


def test_every_picture_is_labelled_and_inside_its_figure() -> None:
    for ax in drawn():
        figure = ax.figure
        figure.draw_without_rendering()
        assert ax.get_xlabel()
        assert ax.get_ylabel() or ax.get_yticklabels()
        needed = figure.get_tightbbox()
        width, height = figure.get_size_inches()
        assert needed.x0 >= -0.01
        assert needed.y0 >= -0.01
        assert needed.x1 <= width + 0.01
        assert needed.y1 <= height + 0.01


def test_pictures_can_be_read_in_grey() -> None:
    lightness = [luminance(colour) for colour in count_colours().colors]
    assert (np.diff(lightness) <= 0).all(), "more is darker"
    assert len(set(lightness)) > 200
    assert lightness[0] < 0.85, "one graph is seen on white paper"
    shades = [luminance(line_style(number)["color"]) for number in range(4)]
    assert np.diff(shades).min() > 0.1
    pairs = [(line_style(n)["linestyle"], line_style(n + 1)["linestyle"]) for n in range(12)]
    assert all(one != other for one, other in pairs)


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_every_picture_can_be_saved(kind: str, tmp_path: Any) -> None:
    for number, ax in enumerate(drawn()):
        path = tmp_path / f"{number}.{kind}"
        ax.figure.savefig(path)
        assert path.stat().st_size > 1000


def test_pictures_of_two_components_refuse_others() -> None:
    histogram = SizeHistogram.from_counts({(3,): 2})
    with refused(SizesError, "two components, but the histogram has ['nodes']"):
        plot_sizes(histogram)
    with refused(SizesError, "two components, but the plan has ['nodes']"):
        plot_fill(pack(histogram, Limits(6)))
    with refused(SizesError, "two different components", "name two"):
        plot_sizes(THREE, components=("nodes", "nodes"))
    with refused(SizesError, "no component 'angles'; choose one of nodes, edges, triplets"):
        plot_sizes(THREE, components=("nodes", "angles"))


def test_other_wrong_input_is_refused() -> None:
    with refused(SizesError, "no component 'triplets'; choose one of nodes, edges"):
        plot_sorted_fill({"best": PLAN}, "triplets")
    with refused(LimitsError, "give exactly one limit for each component"):
        plot_sizes(HISTOGRAM, Limits(222))
    with refused(PlanError, "plans of one histogram", "none"):
        plot_methods({})
    other: PackPlan = pack(SizeHistogram.from_counts({(3, 3): 2}), Limits(222, 502))
    with refused(PlanError, "plans of one histogram", "different ones"):
        plot_methods({"one": PLAN, "other": other})
    with refused(PlanError, "at least one plan"):
        plot_sorted_fill({})
    for plot in (plot_sizes, plot_distributions):
        with refused(LimitsError, "limits must be Limits", "(222, 502)"):
            plot(HISTOGRAM, (222, 502))  # type: ignore[arg-type]
        with refused(InputError, "scale is None", "auto, linear, log"):
            plot(HISTOGRAM, scale=None)  # type: ignore[arg-type]
    for components in ((), "nodes"):
        with refused(SizesError, "components", repr(components), "'edges'"):
            plot_distributions(HISTOGRAM, components=components)


@pytest.mark.parametrize("dpi", [-1, 0, "a", True, float("inf"), None])
def test_a_dpi_that_is_no_number_is_refused(dpi: Any, tmp_path: Path) -> None:
    with refused(InputError, "dpi", repr(dpi), "above 0"):
        save_picture(plot_methods({"best fit": PLAN}), tmp_path / "methods.png", dpi)
    assert not list(tmp_path.iterdir())


def test_an_axes_in_a_part_of_a_figure_is_saved_with_the_whole(tmp_path: Path) -> None:
    figure = Figure(figsize=(6, 3))
    part, other = figure.subfigures(1, 2)
    other.text(0.5, 0.5, "the other part")
    for axes in (part.subplots(), part.subfigures(1, 2)[1].subplots()):
        save_picture(plot_graphs_per_pack(PLAN, axes), tmp_path / "whole.svg")
        assert "the other part" in (tmp_path / "whole.svg").read_text(encoding="utf-8")


# --- what there is to see


def test_fill_of_nearly_equal_packs_is_steps_of_each_component() -> None:
    """Dots would be one column: nearly all packs of this plan are full of nodes."""
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
    assert "mean 99.97%, 99.8% of the packs full, 1 below 85%" in ax.get_legend().get_texts()[0].get_text()


def test_fill_that_is_equal_in_all_packs_is_drawn_too() -> None:
    plan = pack(SizeHistogram.from_counts({(2, 4): 100}), Limits(4, 8))
    ax = plot_fill(plan)
    ax.figure.draw_without_rendering()
    assert [part.get_data().values.sum() for part in ax.patches] == [50, 50]


def test_sorted_fill_of_full_packs_is_not_one_flat_line() -> None:
    low = SizeHistogram.from_counts({(90, 100): 600, (95, 100): 300, (100, 100): 50, (3, 3): 1})
    ax = plot_sorted_fill({"auto": pack(low, Limits(100, 100))})
    assert 0.8 <= ax.get_ylim()[0] < 0.9
    emptier = pack(SizeHistogram.from_counts({(30, 100): 60, (95, 100): 30}), Limits(100, 100))
    assert plot_sorted_fill({"auto": emptier}).get_ylim()[0] == 0


def test_legends_cover_no_curve_and_stay_inside_whatever_components_are_called() -> None:
    names = ("nodes:user", "nodes:item", "edges:user:follows:user", "edges:user:likes:item")
    histogram = SizeHistogram.from_sizes(GraphSizes([[i + c for c in range(4)] for i in range(9)], names))
    search = search_limits(histogram)
    for width, height in ((6.4, 4.8), (5.2, 4.1)):
        for draw in (
            lambda ax: plot_distributions(histogram, search.best.limits, ax),
            lambda ax: plot_distributions(HISTOGRAM, LIMITS, ax),
            lambda ax: plot_tradeoff(search, ax),
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


def test_the_titles_of_the_demo_stand_beside_its_legends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dgl_tuplepack.demo import run
    from dgl_tuplepack.demo.comparison import Contender

    figures, save = [], Figure.savefig

    def kept(figure: Figure, *arguments: Any, **settings: Any) -> None:
        figures.append(figure)
        save(figure, *arguments, **settings)

    monkeypatch.setattr(Figure, "savefig", kept)
    rows = [Contender(method, pack(HISTOGRAM, LIMITS, method)) for method in ("none", "next_fit", "auto")]
    run._draw(HISTOGRAM, rows, rows[-1], tmp_path)
    for part in figures[1].subfigs:
        (ax,) = [ax for ax in part.axes if ax.get_legend()]
        title, legend = part._suptitle.get_window_extent(), ax.get_legend().get_window_extent()
        assert title.y0 >= legend.y1
        assert not ax.get_title()
