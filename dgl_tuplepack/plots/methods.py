"""Picture that compares plans of several methods with the lower bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dgl_tuplepack._checks import INT64_MAX
from dgl_tuplepack._optional import load
from dgl_tuplepack.errors import PlanError
from dgl_tuplepack.plan import PackPlan
from dgl_tuplepack.plots import _drawing as drawing

# Per cent above the bound up to which the axis is linear.
_LINEAR = 1.0
# Below this per cent, a number of packs says more than a percentage.
_NEXT_TO_NOTHING = 0.01


def plot_methods(plans: Mapping[str, PackPlan], ax: Any = None) -> Any:
    """Draw how far each plan is above the lower bound, in per cent of it, with its number of packs.

    Parameters
    ----------
    plans
        Name beside the axis -> plan, from top to bottom; all of one histogram. Plans with looser limits than others
        (`node_only`, say), or a looser cap on graphs, have open markers.
    """
    histograms = [plan.histogram for plan in plans.values()]
    if not histograms or any(histogram != histograms[0] for histogram in histograms[1:]):
        raise PlanError(
            f"a comparison needs plans of one histogram, but got {len(plans)} of "
            f"{'different ones' if plans else 'none'}; pack the same histogram by each method."
        )
    # A lower bound for looser limits holds for tighter ones as well.
    bound = max(plan.lower_bound for plan in plans.values())
    maxima = np.array([[*plan.limits.values, plan.limits.graphs or INT64_MAX] for plan in plans.values()])
    above = np.array([100 * (plan.num_packs / bound - 1) for plan in plans.values()])
    keeps = (maxima == maxima.min(axis=0)).all(axis=1)
    rows = np.arange(len(plans))

    ax = drawing.axes_or_new(ax, 6.4, 1.3 + 0.34 * len(plans))
    ax.hlines(rows, 0, above, color="0.6", linewidth=1.2, zorder=1)
    label = f"lower bound: {bound:,} packs"
    ax.axvline(0, color="black", linestyle="--", linewidth=1.2, label=label, zorder=1)
    for which, face, label in ((keeps, "black", "within the limits"), (~keeps, "white", "ignores a limit")):
        if which.any():
            ax.scatter(above[which], rows[which], s=42, color=face, edgecolor="black", zorder=2, label=label)
    for row, plan in enumerate(plans.values()):
        few = 0 < above[row] < _NEXT_TO_NOTHING
        note = f"+{plan.num_packs - bound:,} packs" if few else f"{_per_cent(above[row])} %"
        note = "optimal" if plan.num_packs == bound and keeps[row] else note
        ax.annotate(
            f"{plan.num_packs:,} ({note})", (max(above[row], 0), row), (9, 0), textcoords="offset points", va="center",
            fontsize="small", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8},
        )  # fmt: skip
    _scale(ax, above)
    ax.set_yticks(rows, [drawing.label(name) for name in plans])
    ax.set(xlabel="packs above the lower bound, %", ylim=(len(plans) - 0.4, -0.6))
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.grid(axis="x", alpha=0.25)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize="small")
    return ax


def _per_cent(value: float) -> str:
    return f"{value:+.2g}" if abs(value) < 1 else f"{value:+.1f}" if abs(value) < 100 else f"{value:+,.0f}"


def _scale(ax: Any, above: Any) -> None:
    """Make the axis linear up to 1 %, then logarithmic, with room for the texts on the right."""
    ticker = load("matplotlib.ticker")
    if above.max() > 10 * _LINEAR:
        ax.set_xscale("symlog", linthresh=_LINEAR, linscale=0.6)
        ax.xaxis.set_major_locator(ticker.SymmetricalLogLocator(base=10, linthresh=_LINEAR))
        ax.set_xlim(min(-0.15, 2 * above.min()), 12 * above.max())
    else:
        span = max(above.max(), 0.1)
        ax.set_xlim(min(-0.03 * span, 1.3 * above.min()), 1.45 * span)
    ax.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:,g}"))
