"""Pictures of plans and batches: how full packs are, several plans beside the bound, graphs in a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dgl_tuplepack._core.checks import INT64_MAX
from dgl_tuplepack._core.optional import load
from dgl_tuplepack.errors import InputError, PlanError
from dgl_tuplepack.planning.plan import PackPlan
from dgl_tuplepack.tools.plots import _drawing as drawing

# In `plot_fill`: the highest start of the axis, and the largest fraction of packs below the start.
_FULL, _LEFT_OUT = 0.9, 0.005
# In `plot_methods`, the axis is linear up to this many per cent above the lower bound.
_LINEAR = 1.0
# If a plan is less than this many per cent above the lower bound, its label has the difference in packs.
_NEGLIGIBLE = 0.01


def plot_fill(plan: PackPlan, ax: Any = None, *, components: Sequence[str] | None = None) -> Any:
    """Draw, for each component, a histogram of the contents of packs as fractions of the limit.

    Parameters
    ----------
    plan
        It may have any number of components.
    components
        Names of the components to show; None: all.
    """
    columns = drawing.columns_of(plan.histogram.components, components, "the plan")
    ax = drawing.axes_or_new(ax, 5.8, 4.8)
    # For each component, the fill of the packs of each pattern: content / limit.
    fills = [plan.pattern_contents[:, column] / plan.limits.values[column] for column in columns]
    # A few very empty packs, which would make the axis long, are only counted in the legend.
    start = np.floor(20 * min(_FULL, *(_quantile(fill, plan.repeats, _LEFT_OUT) for fill in fills))) / 20
    ends = []
    for number, (column, fill) in enumerate(zip(columns, fills, strict=True)):
        shown = fill >= start
        contents, repeats = plan.pattern_contents[shown, column], plan.repeats[shown]
        borders = drawing.whole_cells(contents)
        packs, _ = np.histogram(contents, bins=borders, weights=repeats)
        borders_of_fill = borders / plan.limits.values[column]
        name, full = plan.histogram.components[column], plan.repeats[fill >= 1].sum() / plan.num_packs
        label = f"{drawing.label(name)}: mean {plan.efficiency[name]:.2%}, {full:.1%} of the packs full"
        if below := plan.repeats[~shown].sum():
            label += f", {below:,} below {start:.0%}"
        ax.stairs(packs, borders_of_fill, label=label, **_fill_style(number))
        ends.append(borders_of_fill[-1])
    ax.set(xlabel="content / limit", ylabel="packs", yscale="log", ylim=(0.5, None), xlim=(start, max(ends)))
    ax.legend(**drawing.LEGEND_ABOVE)
    ax.grid(alpha=0.25)
    return ax


def _fill_style(number: int) -> dict[str, Any]:
    """Return the style of component `number`: a grey area for the first one, lines for the others."""
    if number == 0:
        return {"fill": True, "color": "0.7"}
    style = drawing.line_style(number - 1)
    del style["marker"]
    return style | {"linewidth": 1.6}


def _quantile(values: Any, packs: Any, share: float) -> float:
    """Return the smallest value v such that more than a fraction `share` of all packs have a value of at most v.

    ``packs[i]`` is the number of packs with the value ``values[i]``.
    """
    order = np.argsort(values, kind="stable")
    return float(values[order][np.searchsorted(np.cumsum(packs[order]), share * packs.sum(), side="right")])


def plot_methods(plans: Mapping[str, PackPlan], ax: Any = None) -> Any:
    """Draw how many per cent each plan is above the lower bound, and label the plan with its number of packs.

    Parameters
    ----------
    plans
        Label on the axis -> plan, from top to bottom. All plans must have the same histogram. A plan has an open marker
        if another plan has a tighter limit or a tighter cap on graphs; the method "node_only" gives such plans.
    """
    histograms = [plan.histogram for plan in plans.values()]
    if not histograms or any(histogram != histograms[0] for histogram in histograms[1:]):
        raise PlanError(
            "a comparison needs plans of one histogram, but got "
            f"{f'{len(plans)} plans of different histograms' if plans else 'no plans'}; pack the same histogram with "
            "each method."
        )
    # A lower bound for looser limits also holds for tighter limits, so the largest bound holds for the tightest limits.
    bound = max(plan.lower_bound for plan in plans.values())
    per_cent_above = np.array([100 * (plan.num_packs / bound - 1) for plan in plans.values()])
    maxima = np.array([[*plan.limits.values, plan.limits.graphs or INT64_MAX] for plan in plans.values()])
    is_tightest = (maxima == maxima.min(axis=0)).all(axis=1)
    rows = np.arange(len(plans))

    ax = drawing.axes_or_new(ax, 6.4, 1.3 + 0.34 * len(plans))
    ax.hlines(rows, 0, per_cent_above, color="0.6", linewidth=1.2, zorder=1)
    ax.axvline(0, color="black", linestyle="--", linewidth=1.2, label=f"lower bound: {bound:,} packs", zorder=1)
    for which, face, label in ((is_tightest, "black", "within the limits"), (~is_tightest, "white", "ignores a limit")):
        if which.any():
            ax.scatter(per_cent_above[which], rows[which], s=42, color=face, edgecolor="black", zorder=2, label=label)
    for row, (plan, above) in enumerate(zip(plans.values(), per_cent_above, strict=True)):
        is_optimal = plan.num_packs == bound and is_tightest[row]
        note = "optimal" if is_optimal else _difference(plan.num_packs - bound, above)
        ax.annotate(
            f"{plan.num_packs:,} ({note})", (max(above, 0), row), (9, 0), textcoords="offset points", va="center",
            fontsize="small", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
        )  # fmt: skip
    _scale(ax, per_cent_above)
    ax.set_yticks(rows, [drawing.label(name) for name in plans])
    ax.set(xlabel="packs above the lower bound, %", ylim=(len(plans) - 0.4, -0.6))
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", alpha=0.25)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize="small")
    return ax


def _difference(packs: int, per_cent: float) -> str:
    if 0 < per_cent < _NEGLIGIBLE:
        return f"+{packs:,} packs"
    if abs(per_cent) < 1:
        return f"{per_cent:+.2g} %"
    return f"{per_cent:+.1f} %" if abs(per_cent) < 100 else f"{per_cent:+,.0f} %"


def _scale(ax: Any, above: Any) -> None:
    """Set the range of the axis, with room for text on the right; `above` is in per cent."""
    ticker = load("matplotlib.ticker")
    if above.max() > 10 * _LINEAR:
        ax.set_xscale("symlog", linthresh=_LINEAR, linscale=0.6)
        ax.xaxis.set_major_locator(ticker.SymmetricalLogLocator(base=10, linthresh=_LINEAR))
        ax.set_xlim(min(-0.15, 2 * above.min()), 12 * above.max())
    else:
        span = max(above.max(), 0.1)
        ax.set_xlim(min(-0.03 * span, 1.3 * above.min()), 1.45 * span)
    ax.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))


# Colours of the graphs in a bar, in turn; they also differ in greyscale.
_SLICES = ("#0f4c81", "#2f93b5", "#8fd0c6")
_WIDTH = 0.8


def plot_batches(
    batches: Sequence[Sequence[int]], ax: Any = None, *, slots: int | None = None, padding: str = "0.7"
) -> Any:
    """Draw each batch as a bar that stacks the graphs of the batch.

    Parameters
    ----------
    batches
        For each batch, the sizes of its graphs in one component, such as their numbers of nodes.
    slots
        Height to which padding fills every bar; None: no padding.
    padding
        Colour of the padding.

    Raises
    ------
    InputError
        There are no batches, or the sum of a batch exceeds `slots`.
    """
    if not batches:
        raise InputError("the picture needs at least one batch, but batches is empty.")
    totals = [sum(batch) for batch in batches]
    if slots is not None and max(totals) > slots:
        raise InputError(f"the sum of each batch may be at most slots={slots}, but the sums are {totals}.")
    ax = drawing.axes_or_new(ax, 6.4, 3.2)
    for number, (batch, total) in enumerate(zip(batches, totals, strict=True)):
        if slots is not None:
            _fill(ax, number, [0], [slots], padding)
        # Filling the whole bar first, and then covering some graphs, keeps vector files small.
        _fill(ax, number, [0], [total], _SLICES[0])
        ends = np.cumsum(batch)
        for first, colour in enumerate(_SLICES[1 : len(batch)], 1):
            chosen = slice(first, None, len(_SLICES))
            _fill(ax, number, (ends - batch)[chosen], ends[chosen], colour)
    ax.set(xlim=(-0.6, len(batches) - 0.4), ylim=(0, 1.02 * (slots or max(totals))))
    return ax


def _fill(ax: Any, number: int, lows: Any, highs: Any, colour: str) -> None:
    """Fill bar `number` from ``lows[i]`` to ``highs[i]`` for each i, as one path."""
    left, right = number - _WIDTH / 2, number + _WIDTH / 2
    corners = [
        [(left, low), (left, high), (right, high), (right, low), (left, low)]
        for low, high in zip(lows, highs, strict=True)
    ]
    path, patches = load("matplotlib.path").Path, load("matplotlib.patches")
    codes = [path.MOVETO, *[path.LINETO] * 3, path.CLOSEPOLY] * len(corners)
    ax.add_patch(patches.PathPatch(path(np.reshape(corners, (-1, 2)), codes), color=colour, linewidth=0))
