"""Pictures of a report, each as a data URI, with a text for readers who cannot see it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dgl_tuplepack import plots
from dgl_tuplepack._optional import load
from dgl_tuplepack.plots.saving import picture_bytes
from dgl_tuplepack.report.findings import Findings

# Inches: shown at 96 pixels each on a desk, and still readable at two thirds of that on a phone.
_WIDTH, _HEIGHT = 5.2, 4.1


@dataclass(frozen=True)
class Picture:
    """An image in the page."""

    title: str
    caption: str
    alternative: str
    uri: str
    width: int
    height: int


def pictures_of(findings: Findings) -> dict[str, list[Picture]]:
    """Return the pictures of each section: "dataset", "search" and "packs"."""
    matplotlib = load("matplotlib")
    # matplotlib's own settings, whatever the user's are, so that equal findings give equal pages.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        sections = {"dataset": _dataset_pictures, "search": _search_pictures, "packs": _pack_pictures}
        return {name: list(draw(findings)) for name, draw in sections.items()}


def _dataset_pictures(findings: Findings) -> Iterator[Picture]:
    """Distributions of sizes."""
    histogram, limits = findings.histogram, findings.limits
    pair = _pair(histogram.components)
    shares = "; ".join(
        f"half of the graphs have up to {part.median:,} {part.name}, 99 % up to {part.most_of_99_percent:,}, "
        f"the largest {part.largest:,}"
        for part in findings.components
    )
    if pair:
        yield _picture(
            plots.plot_sizes(histogram, limits, _axes(), components=pair),
            f"Sizes: {pair[0]} and {pair[1]}",
            "Dark: many graphs. Beside it: the sums over each axis. Dashed: the limits of a pack.",
            f"Histogram of {pair[0]} against {pair[1]} of {histogram.num_graphs:,} graphs; {shares}.",
        )
    yield _picture(
        plots.plot_distributions(histogram, limits, _axes()),
        "Shares of graphs up to each size",
        "Marks: quartiles and the 99th percentile. Vertical lines: the limits of a pack.",
        f"Cumulative distributions: {shares}.",
    )


def _search_pictures(findings: Findings) -> Iterator[Picture]:
    """Limits that were tried."""
    search, pair = findings.search, _pair(findings.histogram.components)
    best = ", ".join(f"{value:,} {name}" for name, value in search.best.limits.maxima.items())
    reached = f"{len(search):,} limits; the best, {best}, reach a harmonic mean of {search.best.harmonic_mean:.2%}."
    yield _picture(
        plots.plot_tradeoff(search, _axes()),
        "Fuller packs need more slots",
        "Each dot: limits that were tried. Line: the fullest limits for their slots. Star: advised.",
        f"Harmonic mean of efficiencies against slots of a pack, for {reached}",
    )
    if pair:
        yield _picture(
            plots.plot_search(search, _axes(), components=pair),
            "Where these limits lie",
            "Dark: packs are full. Circles: the line of the other picture. Star: advised.",
            f"Efficiency over the limits of {pair[0]} and {pair[1]}, for {reached}",
        )


def _pack_pictures(findings: Findings) -> Iterator[Picture]:
    """How full the packs are."""
    plan, plans = findings.plan, findings.plans
    pair, first = _pair(findings.histogram.components), findings.histogram.components[0]
    means = ", ".join(f"{name} {value:.2%}" for name, value in plan.efficiency.items())
    mean = plan.histogram.num_graphs / plan.num_packs
    packed = {name: one for name, one in plans.items() if name != "no packing"}
    counts = "; ".join(f"{name}: {one.num_packs:,} packs" for name, one in plans.items())
    if pair:
        ax = plots.plot_fill(plan, _axes(), components=pair)
        dots = "Each dot is a content of packs; the larger and darker, the more packs have it."
        steps = "How many packs have which content, as a part of the limit."
        text = f"Fill of packs in {pair[0]} and {pair[1]}; means: {means}."
        yield _picture(ax, "Fill of the packs", dots if ax.collections else steps, text)
    yield _picture(
        plots.plot_sorted_fill(packed, first, _axes()),
        "Fill of every pack, sorted",
        f"Content of {first} as a part of the limit; a good plan stays on top until its end.",
        f"Sorted fill of packs; {counts}.",
    )
    yield _picture(
        plots.plot_graphs_per_pack(plan, _axes()),
        "Graphs in a pack",
        "How many packs hold how many graphs.",
        f"Bars; mean {mean:.2f}, at most {plan.max_graphs:,} graphs in a pack.",
    )
    lines = plots.plot_weights(plan, first, ax=_axes())
    weights = "; ".join(text.get_text() for text in lines.get_legend().get_texts())
    yield _picture(
        lines,
        "What a graph weighs in training",
        "If each batch divides its loss by its own graphs. Divided by sampler.graphs_per_batch, every graph weighs 1.",
        f"Mean weight of a graph by its {first}; {weights}.",
    )
    yield _picture(
        plots.plot_methods(plans, _axes(2.9)),
        "Methods against what is possible",
        "Packs of each method above the lower bound, which no method can stay below.",
        f"Lower bound {max(one.lower_bound for one in plans.values()):,} packs; {counts}.",
    )


def _pair(components: tuple[str, ...]) -> tuple[str, str] | None:
    return (components[0], components[1]) if len(components) > 1 else None


def _axes(height: float = _HEIGHT) -> Any:
    return load("matplotlib.figure").Figure(figsize=(_WIDTH, height), layout="constrained").add_subplot()


def _picture(ax: Any, title: str, caption: str, alternative: str) -> Picture:
    content = base64.b64encode(picture_bytes(ax, "svg", dpi=200)).decode("ascii")
    width, height = (round(96 * inches) for inches in ax.figure.get_size_inches())
    return Picture(title, caption, alternative, f"data:image/svg+xml;base64,{content}", width, height)
