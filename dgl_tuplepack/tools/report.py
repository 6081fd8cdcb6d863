"""One self-contained page: the sizes of a dataset, which limits to choose, and what packing saves."""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import OVERSIZE, UINT64_MAX, choice, printable, whole_number
from dgl_tuplepack._core.files import writable, write_text
from dgl_tuplepack._core.optional import load
from dgl_tuplepack._core.seeds import key_of, shuffled
from dgl_tuplepack._version import __version__
from dgl_tuplepack.errors import FormatError, InputError, LimitsError
from dgl_tuplepack.planning.bounds import without_oversize
from dgl_tuplepack.planning.histogram import SizeHistogram, as_histogram, quantiles
from dgl_tuplepack.planning.limits import Limits, as_limits
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.planning.search import GRAPHS_PER_BATCH, search_for_batches
from dgl_tuplepack.planning.sizes import components_of_kind
from dgl_tuplepack.tools import plots
from dgl_tuplepack.tools.drawing import axes_or_new, picture_bytes

__all__ = ["write_report"]

# Size of a picture in inches; a desktop screen shows an inch as 96 pixels. On a phone, a picture is still readable at
# two thirds of this size.
_WIDTH, _HEIGHT = 5.2, 4.1


def write_report(
    sizes: object,
    path: str | os.PathLike[str],
    *,
    name: str = "Graphs",
    limits: Limits | None = None,
    graphs_per_batch: int = GRAPHS_PER_BATCH,
    seed: int = 0,
    oversize: str = "error",
) -> None:
    """Write an HTML page about packing a dataset. The page needs no network and no other file.

    Parameters
    ----------
    sizes
        A histogram, or anything that `sizes_of` reads.
    path
        The file to write, ending in .html or .htm; an existing file is replaced.
    name
        Name of the dataset on the page.
    limits
        Limits to pack with; None: the limits that `search_limits` advises.
    graphs_per_batch
        Mean number of graphs per batch, >= 1, for the advised limits, as in `packed_loader`. If the largest graph makes
        this number impossible, the page advises the smallest limits with nearly the best efficiency.
    seed
        0..2**64-1; equal seeds give equal pages.
    oversize
        What to do with graphs that exceed the given limits: "error", or "drop" (with a warning).

    Raises
    ------
    FormatError
        The path has another ending, or cannot be written; no partial file is left behind.
    SizesError, LimitsError, InputError
        As in `pack` and `search_limits`; LimitsError also for an unknown `oversize`.
    MissingDependencyError
        matplotlib or Jinja2 is missing.
    """
    path = Path(path)
    if path.suffix.lower() not in (".html", ".htm"):
        raise FormatError(f"a report ends in .html or .htm, but the path is {path}; rename it.")
    writable(path)
    whole_number("graphs_per_batch", graphs_per_batch, 1, error=InputError)
    whole_number("seed", seed, 0, UINT64_MAX)
    choice("oversize", oversize, OVERSIZE, LimitsError)
    load("jinja2")
    load("matplotlib")
    histogram, dropped = as_histogram(sizes), 0
    if limits is not None:
        histogram, dropped = without_oversize(histogram, as_limits(limits), oversize)
    write_text(path, _page(_findings(histogram, limits, graphs_per_batch, seed, dropped), name, seed))


def _page(findings: Mapping[str, Any], name: str, seed: int) -> str:
    """Return the HTML of the page; `findings` are the variables of its template."""
    jinja2, matplotlib = load("jinja2"), load("matplotlib")
    # `finalize` makes names printable.
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    environment.filters |= {"whole": lambda value: f"{value:,.0f}", "per_cent": lambda value: f"{100 * value:.2f} %"}
    template = resources.files(__package__).joinpath("report.html.jinja").read_text(encoding="utf-8")
    # Ignore the user's matplotlib settings, so that equal findings give equal pages.
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        pictures = list(_pictures(findings))
    page: str = environment.from_string(template).render(
        findings, name=name, pictures=pictures, seed=seed, version=__version__
    )
    return page


def _pictures(findings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the pictures of the page with their texts; for a single component, only the last two."""
    histogram, search, plans = findings["histogram"], findings["search"], findings["plans"]
    pair, axes = histogram.components[:2], functools.partial(axes_or_new, None, _WIDTH, _HEIGHT)
    shares = "; ".join(
        f"half of the graphs have up to {half:,} {name}, 99 % up to {most:,}, the largest {largest:,}"
        for name, (half, most, largest) in findings["quantiles"].items()
    )
    counts = "; ".join(f"{name}: {one.num_packs:,} packs" for name, one in plans.items())
    if len(pair) == 2:
        yield _picture(
            plots.plot_sizes(histogram, findings["limits"], axes(), components=pair),
            f"Sizes: {pair[0]} and {pair[1]}",
            "Dark: many graphs. At the sides: the sums over each axis.",
            f"Histogram of {pair[0]} against {pair[1]} of {histogram.num_graphs:,} graphs; {shares}.",
        )
        yield _picture(
            plots.plot_search(search, axes(), components=pair),
            "Limits that were tried",
            "Dark: full packs. Circles: the Pareto front of efficiency and slots. Star: the advised limits.",
            f"Efficiency of {len(search):,} limits; the best reach a harmonic mean of {search.best.harmonic_mean:.2%}.",
        )
    means = ", ".join(f"{name} {value:.2%}" for name, value in plans["auto"].efficiency.items())
    yield _picture(
        plots.plot_fill(plans["auto"], axes()),
        "Fill of the packs",
        "Number of packs by content, as a fraction of the limit.",
        f"A stepped line for each component; mean fill: {means}.",
    )
    yield _picture(
        plots.plot_methods(plans, axes()),
        "Methods against what is possible",
        "Packs of each method above the lower bound; no method can go below it.",
        f"Lower bound {max(one.lower_bound for one in plans.values()):,} packs; {counts}.",
    )


def _picture(ax: Any, title: str, caption: str, alternative: str) -> dict[str, Any]:
    """Return a picture for the template; `alternative` is the text for screen readers."""
    content = base64.b64encode(picture_bytes(ax, "svg", dpi=200)).decode("ascii")
    width, height = (round(96 * inches) for inches in ax.figure.get_size_inches())
    return {
        "title": title, "caption": caption, "alternative": alternative, "uri": f"data:image/svg+xml;base64,{content}",
        "width": width, "height": height,
    }  # fmt: skip


# With more graphs than this, epochs in random order are not simulated.
_MOST_SIMULATED = 20_000_000
# Makes the random order of `joined_batches` independent of other uses of the seed.
_PURPOSE = 0x9A7C


def _findings(
    histogram: SizeHistogram, limits: Limits | None, graphs_per_batch: int, seed: int, dropped: int
) -> dict[str, Any]:
    """Search for limits, pack within `limits` (None: the advised limits), and compare packing with other methods."""
    graphs = min(graphs_per_batch, histogram.num_graphs)
    search = search_for_batches(histogram, graphs)
    chosen = (search.best.limits if limits is None else limits).aligned(histogram.components)
    is_advised = chosen == search.best.limits
    methods = {"no packing": ("none",), "next fit, random order": ("next_fit",), "best fit, product": ("best_fit",)}
    if histogram.num_graphs > _MOST_SIMULATED:
        del methods["next fit, random order"]
    plans = plots.plan_by(methods | {"auto": ("auto",)}, histogram, chosen, seed)
    plan = plans["auto"]
    if search.way == "graphs_per_batch" and is_advised:
        # Such a search also chooses the packs per batch, but only for the limits that it advises.
        packs = search.packs_per_batch
    else:
        packs = max(1, round(graphs * plan.num_packs / histogram.num_graphs))
    return {
        "histogram": histogram,
        # The median, the 99th percentile and the largest of each component.
        "quantiles": {
            name: quantiles(histogram.sizes[:, column], histogram.counts, (0.5, 0.99, 1.0))
            for column, name in enumerate(histogram.components)
        },
        "search": search, "limits": chosen, "is_advised": is_advised, "packs_per_batch": packs,
        "plans": plans, "plan": plan, "dropped": dropped,
        "batchings": _batchings(histogram, graphs, plan, packs, seed),
    }  # fmt: skip


def padded_shape(limits: Limits, packs: int) -> dict[str, int]:
    """Return component -> slots of a batch: `packs` times the limit, plus one reserved node of each node type."""
    nodes = components_of_kind(limits.components, "nodes")
    return {name: packs * limit + (i in nodes) for i, (name, limit) in enumerate(limits.maxima.items())}


def _batchings(histogram: SizeHistogram, graphs: int, plan: PackPlan, packs: int, seed: int) -> list[dict[str, Any]]:
    """Return the methods to compare, packing last: their name, a note, and the slots of one epoch, by component."""
    largest = {name: histogram.num_graphs * most for name, most in histogram.maxima().items()}
    batchings = [("Every graph padded to the largest", "the usual way to get a static shape", largest)]
    if histogram.num_graphs <= _MOST_SIMULATED:
        note = "one random epoch; another epoch can need a larger shape"
        joined = joined_batches(histogram, graphs, seed)
        batchings.append((f"Batches of {graphs:,} graphs, padded to the largest batch", note, joined))
    batches = -(-plan.num_packs // packs)
    packed = {name: batches * slots for name, slots in padded_shape(plan.limits, packs).items()}
    batchings.append(("Packing", "with the reserved node of each batch", packed))
    return [
        {"name": name, "note": note, "slots": slots, "all_slots": sum(slots.values())}
        for name, note, slots in batchings
    ]


def joined_batches(histogram: SizeHistogram, batch_size: int, seed: int) -> dict[str, int]:
    """Return component -> slots of a random epoch of batches of `batch_size` graphs, all padded to the largest batch.

    >>> joined_batches(SizeHistogram.from_counts({(3, 4): 4}), 3, seed=0)
    {'nodes': 18, 'edges': 24}
    """
    order = shuffled(np.repeat(np.arange(len(histogram)), histogram.counts), key_of(seed, 0, _PURPOSE))
    contents = np.add.reduceat(histogram.sizes[order], np.arange(0, len(order), batch_size), axis=0)
    return dict(zip(histogram.components, (len(contents) * contents.max(axis=0)).tolist(), strict=True))
