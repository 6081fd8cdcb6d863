"""Render the page of a report from findings, pictures and a template."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from importlib import resources
from typing import Any

from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.text import printable
from dgl_tuplepack._version import __version__
from dgl_tuplepack.tools import plots
from dgl_tuplepack.tools.plots.saving import picture_bytes
from dgl_tuplepack.tools.report.findings import Findings

# Size of a picture in inches; a desktop screen shows an inch as 96 pixels. On a phone, a picture is still readable at
# two thirds of this size.
_WIDTH, _HEIGHT = 5.2, 4.1
# Python code on the page. The lines are short enough for a phone.
_USE = """\
import dgl_tuplepack as tp

{limits}loader = tp.packed_loader(
    dataset,
    {size},
    seed={seed},{oversize}
)
for epoch in range(epochs):
    loader.set_epoch(epoch)
    for batch in loader:  # all of one shape
        ...
"""


def render(findings: Findings, name: str, seed: int) -> str:
    """Return the HTML of the page."""
    jinja2, matplotlib = load("jinja2"), load("matplotlib")
    # Names come from files and may contain any characters, so `finalize` makes every plain str printable. The Python
    # code keeps its line breaks, because the template's `|e` turns the code into a Markup, which is not a plain str.
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {"whole": lambda value: f"{value:,.0f}", "per_cent": lambda value: f"{100 * value:.2f} %"}
    template = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    # Ignore the user's matplotlib settings, so that equal findings give equal pages.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        pictures = list(_pictures(findings))
    page: str = environment.from_string(template).render(
        name=name,
        findings=findings,
        histogram=findings.histogram,
        plan=findings.plan,
        search=findings.search,
        pictures=pictures,
        use=use(findings, seed),
        seed=seed,
        version=__version__,
    )
    return page


def use(findings: Findings, seed: int) -> str:
    """Return Python code that loads the dataset in batches of the shape on the page."""
    oversize = '\n    oversize="drop",' if findings.dropped else ""
    search = findings.search
    # `packed_loader(graphs_per_batch=...)` finds the advised limits again; other limits must be in the code.
    if search.way == "graphs_per_batch" and findings.advised:
        limits, size = "", f"graphs_per_batch={search.aim['graphs_per_batch']}"
    else:
        limits = f"limits = tp.{findings.limits!r}\n"
        size = f"limits=limits,\n    packs_per_batch={findings.packs_per_batch}"
    return _USE.format(limits=limits, size=size, seed=seed, oversize=oversize)


def _pictures(findings: Findings) -> Iterator[dict[str, Any]]:
    """Yield the pictures of the page with their texts; for a single component, only the last two pictures."""
    histogram, search, plan = findings.histogram, findings.search, findings.plan
    pair = histogram.components[:2]
    shares = "; ".join(
        f"half of the graphs have up to {half:,} {name}, 99 % up to {most:,}, the largest {largest:,}"
        for name, (half, most, largest) in findings.quantiles.items()
    )
    counts = "; ".join(f"{name}: {one.num_packs:,} packs" for name, one in findings.plans.items())
    if len(pair) == 2:
        yield _picture(
            plots.plot_sizes(histogram, findings.limits, _axes(), components=pair),
            f"Sizes: {pair[0]} and {pair[1]}",
            "Dark: many graphs. At the sides: the sums over each axis.",
            f"Histogram of {pair[0]} against {pair[1]} of {histogram.num_graphs:,} graphs; {shares}.",
        )
        yield _picture(
            plots.plot_search(search, _axes(), components=pair),
            "Limits that were tried",
            "Dark: full packs. Circles: the Pareto front of efficiency and slots. Star: the advised limits.",
            f"Efficiency of {len(search):,} limits; the best reach a harmonic mean of {search.best.harmonic_mean:.2%}.",
        )
    means = ", ".join(f"{name} {value:.2%}" for name, value in plan.efficiency.items())
    yield _picture(
        plots.plot_fill(plan, _axes()),
        "Fill of the packs",
        "Number of packs by content, as a fraction of the limit.",
        f"A stepped line for each component; mean fill: {means}.",
    )
    yield _picture(
        plots.plot_methods(findings.plans, _axes()),
        "Methods against what is possible",
        "Packs of each method above the lower bound; no method can go below it.",
        f"Lower bound {max(one.lower_bound for one in findings.plans.values()):,} packs; {counts}.",
    )


def _axes() -> Any:
    return load("matplotlib.figure").Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained").add_subplot()


def _picture(ax: Any, title: str, caption: str, alternative: str) -> dict[str, Any]:
    """Return a picture for the template, with its size in pixels; `alternative` is the text for screen readers."""
    content = base64.b64encode(picture_bytes(ax, "svg", dpi=200)).decode("ascii")
    width, height = (round(96 * inches) for inches in ax.figure.get_size_inches())
    return {
        "title": title, "caption": caption, "alternative": alternative, "uri": f"data:image/svg+xml;base64,{content}",
        "width": width, "height": height,
    }  # fmt: skip
