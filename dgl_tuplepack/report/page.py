"""The page: findings put into words and into the template."""

from __future__ import annotations

from importlib import resources

from dgl_tuplepack._optional import load
from dgl_tuplepack._text import printable
from dgl_tuplepack._version import __version__
from dgl_tuplepack.report.findings import Findings
from dgl_tuplepack.report.pictures import pictures_of
from dgl_tuplepack.search import LimitsSearch

# Rows of the Pareto front that the page shows, spread evenly.
_MOST_ROWS = 8

# Lines short enough for a phone.
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
    jinja2 = load("jinja2")
    # Names come from files. Lines of code, in which they are written as Python writes them, are escaped already.
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {"whole": lambda value: f"{value:,.0f}", "per_cent": lambda value: f"{100 * value:.2f} %"}
    template = resources.files("dgl_tuplepack").joinpath("report", "page.html.jinja").read_text(encoding="utf-8")
    page: str = environment.from_string(template).render(
        name=name,
        findings=findings,
        histogram=findings.histogram,
        plan=findings.plan,
        search=findings.search,
        advised=findings.limits.maxima == findings.search.best.limits.maxima,
        rows=_front(findings.search),
        pictures=pictures_of(findings),
        use=use(findings, seed),
        seed=seed,
        version=__version__,
    )
    return page


def use(findings: Findings, seed: int) -> str:
    """Return lines of Python that batch a dataset of these graphs within the limits."""
    oversize = '\n    oversize="drop",' if findings.dropped else ""
    search = findings.search
    if search.way == "graphs_per_batch" and findings.limits == search.best.limits:
        limits, size = "", f"graphs_per_batch={search.aim['graphs_per_batch']}"
    else:
        limits, size = f"limits = tp.{findings.limits!r}\n", "limits=limits"
    return _USE.format(limits=limits, size=size, seed=seed, oversize=oversize)


def _front(search: LimitsSearch) -> list[tuple[int, bool]]:
    """Return some rows of the Pareto front, always the best, and whether each is the best."""
    front = search.pareto_indices
    step = max(1, -(-len(front) // _MOST_ROWS))
    chosen = sorted({*front[::step], search.best_index}, key=lambda row: (search[row].slots, row))
    return [(row, row == search.best_index) for row in chosen]
